/** Indexes decide only how fast a list is: the same requests to a server with them and one without. */

import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import { randomOf } from "../random.ts";
import {
  authorize,
  copyOf,
  fileOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";

const folder = temporaryFolder();
const COLLECTIONS = fileOf(
  "things.mjs",
  `export default ({ collection, string, number, boolean, date, choice, optional, reference }) => ({
    collections: [
      collection({ name: "groups", singular: "group",
        access: { read: "anyone", write: "viewer", delete: "viewer" },
        properties: { name: string({ maxLength: 9 }) } }),
      collection({ name: "things", singular: "thing", private: "keeper",
        access: { read: "viewer", write: "viewer", delete: "viewer" },
        properties: {
          group_id: optional(reference("groups")),
          name: string({ maxLength: 100 }),
          weight: optional(number()),
          kind: choice("a", "b", "c"),
          is_new: optional(boolean(), false),
          day: optional(date()),
        } }),
    ],
  });`,
);

const below = randomOf(7);
const pick = <Item>(items: readonly [Item, ...Item[]]): Item =>
  items[below(items.length)] ?? items[0];

const names = [
  "Zoë",
  "zoe",
  "ab",
  "AB ",
  "\u{1f600}",
  "\ue000",
  "a",
  "b-1",
] as const;
const thing = () => ({
  group_id: pick([null, 1, 2, 3, 4, 5]),
  name: `${pick(names)}${below(30)}`.trim(),
  weight: pick([null, below(50), below(500) / 10, -1, 0]),
  kind: pick(["a", "b", "c"]),
  is_new: below(2) === 1,
  day: pick([null, `2026-0${1 + below(9)}-1${below(9)}`]),
});

const conditions: (() => string)[] = [
  () => `group_id=${pick(["1", "2", "5", "7", "null"])}`,
  () => `name=${encodeURIComponent(`${pick(names)}${below(30)}`)}`,
  () => `name:starts=${encodeURIComponent(pick(names))}`,
  () =>
    `name:${pick(["lt", "lte", "gt", "gte"])}=${
      encodeURIComponent(pick(names))
    }`,
  () => `weight=${pick(["0", "-1", "null", String(below(50))])}`,
  () => `weight:${pick(["lt", "gte"])}=${below(60)}`,
  () => `weight:${pick(["lte", "gt"])}=${below(60)}`,
  () => `weight:ne=null`,
  () => `kind=${pick(["a", "b"])}`,
  () => `kind:in=a,c`,
  () => `is_new=${pick(["true", "false"])}`,
  () => `day:gt=2026-0${1 + below(9)}-11`,
  () => `day=null`,
  () => `id:lt=${below(13_000)}`,
  () => `id:gte=${below(13_000)}`,
  () => `id=${below(13_000)}`,
  () => `owner_id=${pick(["1", "2"])}`,
];
const columns = [
  "name",
  "weight",
  "kind",
  "day",
  "id",
  "updated_at",
  "group_id",
  "is_new",
] as const;

/** Returns the parameters of a list, such as `kind=a&sortby=name`. */
function query() {
  const chosen = Array.from(
    { length: below(4) },
    () => pick([conditions[0] as () => string, ...conditions])(),
  );
  const unique = new Map(chosen.map((text) => [text.split("=")[0], text]));
  const sort = Array.from({ length: below(3) }, () => pick(columns));
  const sortby = [...new Set(sort)];
  const order = sortby.map(() => pick(["asc", "desc"])).join();
  return [
    ...unique.values(),
    sortby.length > 0
      ? `sortby=${sortby}&order=${order}`
      : `order=${pick(["asc", "desc"])}`,
    `limit=${1 + below(30)}&offset=${pick([0, 0, below(100), below(12_000)])}`,
  ].join("&");
}

const DATA_DIR = join(folder, "with");
const environment = { COLLECTIONS, FEATURES: "batches,indexes,memory" };
const first = await serve({ ...environment, DATA_DIR });
const admin = await authorize(first.origin);
const post = async (path: string, body: unknown, headers = admin) => {
  const sent = { body, headers };
  const { status, text } = await send(first.origin, `/v1${path}`, sent);
  assert.equal(status, 201, text);
};
await post("/groups", ["a", "b", "c", "d", "e"].map((name) => ({ name })));
await post("/users", { username: "viewer", password: "viewer-password" });
const viewer = await authorize(first.origin, "viewer");
for (let batch = 0; batch < 12; batch++) {
  const body = Array.from({ length: 1000 }, thing);
  await post("/things", body, batch % 3 === 0 ? viewer : admin);
}
await stop(first);
const servers = await Promise.all([
  serve({ ...environment, DATA_DIR }),
  serve({ ...environment, FEATURES: "none", DATA_DIR: copyOf(DATA_DIR) }),
]);

/** Sends the same request to both servers, and compares what they respond. */
async function compare(
  method: string,
  path: string,
  body?: object,
  headers = pick([admin, viewer]),
) {
  const sent = body ? { method, headers, body } : { method, headers };
  const [one, other] = await Promise.all(
    servers.map(({ origin }) => send(origin, `/v1${path}`, sent)),
  );
  const shown = (answer = one) => ({
    status: answer?.status,
    total: answer?.headers["x-total-count"],
    link: answer?.headers["link"],
    records: method === "GET"
      ? answer?.json.map?.((
        { id, name }: Record<string, unknown>,
      ) => [id, name])
      : undefined,
  });
  assert.deepEqual(shown(one), shown(other), `${method} ${path}`);
  return Number(one?.headers["x-total-count"]);
}

test("Ranges are the same in either direction, with null last", async () => {
  for (const name of ["weight", "day"]) {
    const value = name === "day" ? "2026-05-15" : "25";
    for (const round of [1, 2]) { // the first one has the index built
      for (const operator of ["=", ":lt=", ":gte=", ":ne=null&kind="]) {
        for (const order of ["asc", "desc"]) {
          const operand = operator.endsWith("kind=") ? "a" : value;
          const offset = round * 1000 * below(4);
          const path =
            `/things?${name}${operator}${operand}&sortby=${name}&order=${order}&offset=${offset}`;
          await compare("GET", path, undefined, admin);
        }
      }
    }
  }
});

test("Lists are the same with indexes, also while records change", async () => {
  let total = 0;
  for (let step = 0; step < 110; step++) {
    const path = pick(["/things", "/things", "/things", "/groups/2/things"]);
    const parameters = query();
    total += await compare("GET", `${path}?${parameters}`);
    if (step % 7 === 0) await compare("GET", `${path}?${parameters}`); // now with an index
    const id = 1 + below(12_000);
    if (step % 3 === 0) await compare("PATCH", `/things/${id}`, thing());
    if (step % 11 === 0) await compare("DELETE", `/things/${id}`);
    if (step % 13 === 0) await compare("POST", "/things", thing());
  }
  assert.ok(total > 20_000, "the lists are nearly all empty");
});

test("Lists that are asked for at once are all served", async () => {
  const lists = Array.from({ length: 128 }, (_, at) =>
    compare(
      "GET",
      `/things?sortby=${columns[at % 8]},${
        columns[(at + 1) % 8]
      }&kind=a&weight:gt=${at % 5}`,
    ));
  assert.ok((await Promise.all(lists)).every((total) => total > 100));
});
