/** The kinds of ordinary requests: each function returns what a client does again and again. */

import { setTimeout as delay } from "node:timers/promises";
import type { Message } from "../bench/message.ts";
import { adminPassword } from "../harness.ts";
import { combinations } from "../siege/kinds.ts";
import { type Client, Failure } from "./client.ts";

/** What the clients of a run share. */
export interface Site {
  /** An admin's token. */
  readonly token: string;
  /** The number of animals at the start; their ids are those up to it. */
  readonly records: number;
  /** Counts up, so that no two requests are the same. */
  readonly next: () => number;
}

type Action = (client: Client) => Promise<unknown>;

/** One kind of request. */
export interface Kind {
  readonly prepare: (site: Site) => Action;
  /** The most requests, besides one by each client, if more would fill the memory. */
  readonly maxRequests?: number;
}

const ndjson = "application/x-ndjson";

const get = (path: string, headers = {}): Message => ({
  method: "GET",
  path: `/v1/${path}`,
  headers,
});

function json(
  { token }: Site,
  [method, path]: readonly [method: string, path: string],
  body?: unknown,
): Message {
  const text = body === undefined ? {} : { body: JSON.stringify(body) };
  return { method, path: `/v1/${path}`, token, ...text };
}

/** A kind of single requests, each of which must have the status of its method. */
function repeat(message: (site: Site, number: number) => Message): Kind {
  return {
    prepare: (site) => (client) => {
      const next = message(site, site.next());
      const status = /^(?:POST|PUT|PATCH)$/.test(next.method) ? 201 : 200;
      return client.measure([next], status);
    },
  };
}

const idOf = ({ records }: Site, number: number) =>
  1 + (number * 7919) % records;
const zooOf = ({ records }: Site, number: number) =>
  1 + number % Math.min(records, 193);

const one = (site: Site, number: number) =>
  get(`animals/${idOf(site, number)}`);
const list = () => get("animals?limit=20");
const zooByName = (site: Site, number: number) =>
  get(`animals?zoo_id=${zooOf(site, number)}&sortby=name&limit=20`);

const animal = (site: Site, number: number) => ({
  zoo_id: zooOf(site, number),
  animal_type_id: 1,
  name: `Zora ${number}`,
  species: "Equus quagga",
  sex: "female",
  born_on: "2020-02-29",
  weight_kg: 1 + number % 9000 / 10,
});
const post = (site: Site, number: number) =>
  json(site, ["POST", "animals"], animal(site, number));
const patch = (site: Site, number: number) =>
  json(site, ["PATCH", `animals/${idOf(site, number)}`], {
    weight_kg: 1 + number % 9000 / 10,
  });

/** Returns the URL of the record that a POST has created, below `/v1/`. */
async function create(client: Client, message: Message): Promise<string> {
  const [created] = await client.send([message], 201);
  return pathOf(created?.fields);
}

function pathOf(fields: ReadonlyMap<string, string> | undefined): string {
  return (fields?.get("location") ?? "").replace(/^.*\/v1\//, "");
}

/** An import of so many lines; it is measured until it is accepted, and must succeed. */
function importOf(lines: number): Kind {
  return {
    maxRequests: 100,
    prepare: (site) => async (client) => {
      const number = site.next();
      const line = `${JSON.stringify(animal(site, number))}\n`;
      const [response] = await client.measure([{
        ...json(site, ["POST", "animals"]),
        body: line.repeat(lines),
        headers: { "Content-Type": ndjson },
      }], 202);
      const task = json(site, ["GET", pathOf(response?.fields)]);
      for (let tries = 0; tries < 1200; tries++) {
        const [state] = await client.send([task], 200);
        const { status, imported } = JSON.parse(state?.body ?? "");
        if (status === "succeeded" && imported === lines) return;
        if (!/queued|running/.test(status)) throw new Failure(status);
        await delay(50);
      }
      throw new Failure("the import does not end");
    },
  };
}

/** Reads 70 % single records, 10 % lists and 20 % sorted pages; the rest are writes, every other one a PATCH. */
function mixture(writesOfTen: number): Kind {
  return repeat((site, number) => {
    const ten = Math.floor(number / 10);
    // 7 and 10 have no common divisor, so the writes are spread.
    if (number * 7 % 10 < writesOfTen) {
      return (ten % 2 === 0 ? post : patch)(site, number);
    }
    const read = (number + ten) % 10;
    return (read < 7 ? one : read < 8 ? list : zooByName)(site, number);
  });
}

function pipeline(length: number): Kind {
  return {
    prepare: (site) => (client) =>
      client.measure(
        Array.from({ length }, () => one(site, site.next())),
        200,
      ),
  };
}

/** All kinds by name. */
export const kinds: Readonly<Record<string, Kind>> = {
  "GET one": repeat(one),
  "list of 20": repeat(list),
  "page with an index": repeat(zooByName),
  "pages without an index": {
    prepare: (site) => {
      const paths = combinations();
      return (client) => {
        const path = paths[site.next() % paths.length] ?? "";
        return client.measure([{ method: "GET", path }], 200);
      };
    },
  },
  search: repeat((_, number) =>
    get(`animals?name:contains=${number % 1000}&sortby=weight_kg&limit=20`)
  ),
  QUERY: repeat((site, number) => ({
    method: "QUERY",
    path: "/v1/animals",
    body: `zoo_id=${zooOf(site, number)}&sortby=name&limit=20`,
    headers: { "Content-Type": "application/x-www-form-urlencoded" },
  })),
  "conditional GET": {
    prepare: (site) => async (client) => {
      const number = site.next();
      const [first] = await client.send([one(site, number)], 200);
      const etag = first?.fields.get("etag") ?? "";
      const headers = { "If-None-Match": etag };
      await client.measure([{ ...one(site, number), headers }], 304);
    },
  },
  OPTIONS: repeat(() => ({ method: "OPTIONS", path: "/v1/animals" })),
  "openapi.json": repeat(() => get("openapi.json")),
  page: repeat(() => get("animals", { Accept: "text/html" })),
  "export of a zoo": repeat((site, number) =>
    get(`animals?zoo_id=${zooOf(site, number)}`, { Accept: ndjson })
  ),
  "export of all": repeat(() => get("animals", { Accept: ndjson })),
  events: {
    prepare: (site) => async (client) => {
      await client.measure([json(site, ["GET", "events"])], 200);
    },
  },
  "18 pipelined": pipeline(18),
  "100 pipelined": pipeline(100),
  POST: repeat(post),
  PATCH: repeat(patch),
  PUT: repeat(
    (site, number) =>
      json(
        site,
        ["PUT", `animals/${idOf(site, number)}`],
        animal(site, number),
      ),
  ),
  "keyed POST": repeat(
    (site, number) => ({
      ...post(site, number),
      headers: { "Idempotency-Key": `"key-${number}"` },
    }),
  ),
  DELETE: {
    prepare: (site) => async (client) => {
      const path = await create(client, post(site, site.next()));
      await client.measure([json(site, ["DELETE", path])], 204);
    },
  },
  "cascade delete": {
    prepare: (site) => async (client) => {
      const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
      const path = await create(client, json(site, ["POST", "zoos"], zoo));
      const { zoo_id: _, ...inside } = animal(site, site.next());
      const posts = json(site, ["POST", `${path}/animals`], inside);
      for (let count = 0; count < 5; count++) await create(client, posts);
      await client.measure(
        [json(site, ["DELETE", `${path}?cascade=true`])],
        204,
      );
    },
  },
  "sign-in": repeat(() => ({
    method: "POST",
    path: "/v1/authorizations",
    body: JSON.stringify({ username: "boss", password: adminPassword }),
  })),
  "create user": repeat(
    (site, number) =>
      json(site, ["POST", "users"], {
        username: `user-${number}`,
        role: "keeper",
        password: adminPassword,
      }),
  ),
  "import of one line": importOf(1),
  "import of a thousand lines": importOf(1000),
  "reads only": mixture(0),
  "one write of ten": mixture(1),
  "half writes": mixture(5),
};
