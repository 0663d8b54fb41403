/**
 * Validators, and the effect of preconditions on a request: RFC 9110 section
 * 13, row by row, for every kind of URL.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import type { Api } from "../../../src/api/feature.ts";
import { collectionMethods } from "../../../src/api/operations.ts";
import { recordsOf } from "../../../src/api/records/local.ts";
import type { Select } from "../../../src/api/request-context.ts";
import { tablesOf } from "../../../src/api/routes.ts";
import { createReader } from "../../../src/cli/command-line.ts";
import { feature } from "../../../src/features/conditional/feature.ts";
import { openStore } from "../../../src/store/store.ts";
import { startApplication } from "../../application.ts";
import { sample } from "../../collections.ts";
import { operatorContext } from "../../operator.ts";
import { folderFor } from "../../store/support.ts";
import { assertError, type Server, signInNew, start } from "../../harness.ts";
import { seed } from "../../seed.ts";
import { commit } from "../../commit.ts";

let server: Server;
let token: string;

before(async () => {
  server = await start({ seed });
  token = await server.signIn();
});

after(() => server.stop());

async function etagOf(path: string): Promise<string> {
  const { headers } = await server.request("GET", path, { token });
  return headers.get("etag") ?? "";
}

/** Creates a record for one test and returns its URL. */
async function make(collection = "/v1/zoos"): Promise<string> {
  const json = collection === "/v1/zoos"
    ? { name: "New", city: "Ghent", country: "BE" }
    : { zoo_id: 2, animal_type_id: 3, name: "New" };
  const answer = await server.request("POST", collection, { token, json });
  assert.equal(answer.status, 201, answer.text);
  return answer.body.url;
}

/** Seconds from a date, as IMF-fixdate. */
function date(from: string | null, seconds: number): string {
  return new Date(Date.parse(from ?? "") + seconds * 1000).toUTCString();
}

test("a record is never modified later than the response was made, although the clock was set back (RFC 9110 section 8.8.2.1)", async (t) => {
  let now = Date.parse("2026-06-01T12:00:00.500Z");
  const app = await startApplication({ now: () => now });
  t.after(() => app.stop());
  const json = { name: "New", city: "Ghent", country: "BE" };
  const { token } = app;
  await app.request("POST", "/v1/zoos", { token, json });
  const read = async () => {
    const { headers } = await app.request("GET", "/v1/zoos/1");
    return [headers.get("last-modified"), headers.get("etag")];
  };
  const [modified, etag] = await read();
  assert.equal(modified, "Mon, 01 Jun 2026 12:00:00 GMT");
  now -= 24 * 3600 * 1000;
  const earlier = "Sun, 31 May 2026 12:00:00 GMT";
  assert.deepEqual(await read(), [earlier, etag]);
  // It has been changed since any other time, as far as the clock can say.
  for (
    const [since, status] of [["Thu, 01 Jan 1970 00:00:00 GMT", 412], [
      earlier,
      201,
    ]] as const
  ) {
    const headers = { "if-unmodified-since": since };
    const patched = await app.request("PATCH", "/v1/zoos/1", {
      token,
      headers,
      json: { name: "New" },
    });
    assert.equal(patched.status, status, since);
  }
  now += 24 * 3600 * 1000;
  assert.deepEqual(await read(), [modified, etag]);
});

describe("the validators of a record", () => {
  test("are a strong ETag and the time of its last change", async () => {
    for (const path of ["/v1/zoos/1", "/v1/animals/1", "/v1/users/1"]) {
      const { headers, body } = await server.request("GET", path, { token });
      assert.match(headers.get("etag") ?? "", /^"[!#-~]+"$/);
      const modified = headers.get("last-modified");
      assert.equal(modified, date(body.updated_at, 0));
      const head = await server.request("HEAD", path, { token });
      assert.equal(head.headers.get("etag"), headers.get("etag"));
      assert.equal(head.headers.get("last-modified"), modified);
    }
  });

  test("come with POST and PATCH, and not with PUT", async () => {
    const json = { name: "New", city: "Ghent", country: "BE" };
    const made = await server.request("POST", "/v1/zoos", { token, json });
    const path = made.body.url;
    assert.equal(made.headers.get("etag"), await etagOf(path));
    assert.equal(made.headers.get("content-location"), null);
    const patched = await server.request("PATCH", path, {
      token,
      json: { name: "Newer" },
    });
    assert.equal(patched.headers.get("etag"), await etagOf(path));
    assert.notEqual(patched.headers.get("etag"), made.headers.get("etag"));
    for (const name of ["Newest", "Newest"]) { // the second changes nothing
      const put = await server.request("PUT", path, {
        token,
        json: { ...json, name },
      });
      assert.equal(put.status, 201);
      assert.equal(put.headers.get("etag"), null);
      assert.equal(put.headers.get("last-modified"), null);
      assert.equal(put.headers.get("content-location"), path);
    }
    const animal = await make("/v1/zoos/2/animals");
    const put = await server.request("PUT", `/v1/zoos/2${animal.slice(3)}`, {
      token,
      json: { animal_type_id: 1, name: "Bo" },
    });
    assert.equal(put.status, 201, put.text);
    assert.equal(put.headers.get("content-location"), animal);
  });

  test("stay if a write changes nothing", async () => {
    const path = await make();
    const { body, headers } = await server.request("GET", path);
    for (
      const [method, json] of [
        ["PUT", body],
        ["PATCH", {}],
        ["PATCH", { name: body.name }],
      ] as const
    ) {
      const answer = await server.request(method, path, { token, json });
      assert.equal(answer.status, 201);
      const now = await server.request("GET", path);
      assert.equal(now.headers.get("etag"), headers.get("etag"));
      assert.equal(now.text, JSON.stringify(body));
    }
  });

  test("are new with each of many changes at once", async () => {
    const path = await make();
    const answers = await Promise.all(
      Array.from(
        { length: 100 },
        (_, at) =>
          server.request("PATCH", path, { token, json: { name: `${at % 2}` } }),
      ),
    );
    const tags = new Map<string, string>();
    for (const { headers, body } of answers) {
      const tag = headers.get("etag") ?? "";
      const known = tags.get(tag) ?? body.name;
      assert.equal(known, body.name, `${tag} tells two versions`);
      tags.set(tag, body.name);
    }
    const versions = new Set(answers.map(({ body }) => body.updated_at));
    assert.equal(tags.size, versions.size);
    assert.ok(tags.size > 10, `${tags.size} changes`);
  });

  test("let one of two changes with the same If-Match through", async () => {
    const path = await make();
    const headers = { "if-match": await etagOf(path) };
    const answers = await Promise.all(
      ["A", "B"].map((name) =>
        server.request("PATCH", path, { token, headers, json: { name } })
      ),
    );
    const [done, refused] = answers.sort((a, b) => a.status - b.status);
    assert.ok(done && refused);
    assert.equal(done.status, 201);
    assertError(refused, 41200);
    const now = await server.request("GET", path);
    assert.equal(now.body.name, done.body.name);
  });

  test("hold while a password is hashed", async () => {
    const json = { username: "hash", password: "hashed for a while" };
    const made = await server.request("POST", "/v1/users", { token, json });
    const path = made.body.url;
    const headers = { "if-match": made.headers.get("etag") ?? "" };
    const answers = await Promise.all(
      [1, 2].map((at) =>
        server.request("PATCH", path, {
          token,
          headers,
          json: { password: `another one ${at}` },
        })
      ),
    );
    const statuses = answers.map(({ status }) => status).sort();
    assert.deepEqual(statuses, [201, 412]);
  });
});

describe("preconditions in the order of RFC 9110 section 13.2.2", () => {
  // T the current tag, W the same as a weak one, L the last change, - before, +
  // after it. A collection's tag is itself weak, and it has no date.
  type Row = readonly [Record<string, string>, read: number, write: number];
  const rows: readonly Row[] = [
    [{ "if-match": "T" }, 200, 201],
    [{ "if-match": "*" }, 200, 201],
    [{ "if-match": 'W, "a,b", T' }, 200, 201],
    [{ "if-match": '"a, T' }, 412, 412],
    [{ "if-match": "W" }, 412, 412],
    [{ "if-match": '"a,b"' }, 412, 412],
    [{ "if-match": "unquoted" }, 412, 412],
    [{ "if-match": "T", "if-unmodified-since": "-" }, 200, 201],
    [{ "if-match": '"x"', "if-unmodified-since": "+" }, 412, 412],
    [{ "if-match": '"x"', "if-none-match": "T" }, 412, 412],
    [{ "if-match": "T", "if-none-match": "T" }, 304, 412],
    [{ "if-unmodified-since": "L" }, 200, 201],
    [{ "if-unmodified-since": "+" }, 200, 201],
    [{ "if-unmodified-since": "-" }, 412, 412],
    [{ "if-unmodified-since": "yesterday" }, 200, 201],
    [{ "if-unmodified-since": "-", "if-none-match": "T" }, 412, 412],
    [{ "if-unmodified-since": "L", "if-none-match": "T" }, 304, 412],
    [{ "if-none-match": "T" }, 304, 412],
    [{ "if-none-match": "W" }, 304, 412],
    [{ "if-none-match": "*" }, 304, 412],
    [{ "if-none-match": '"a,b" ,, "x\\", T' }, 304, 412],
    [{ "if-none-match": '"a,b"' }, 200, 201],
    [{ "if-none-match": '"x"', "if-modified-since": "L" }, 200, 201],
    [{ "if-none-match": "T", "if-modified-since": "-" }, 304, 412],
    [{ "if-modified-since": "L" }, 304, 201],
    [{ "if-modified-since": "+" }, 304, 201],
    [{ "if-modified-since": "-" }, 200, 201],
    [{ "if-modified-since": "yesterday" }, 200, 201],
    [{ "if-modified-since": "850" }, 304, 201],
    [{ "if-modified-since": "asctime" }, 304, 201],
    [{ "if-unmodified-since": "old 850" }, 412, 412],
    [{ "if-unmodified-since": "old asctime" }, 412, 412],
    [{ "if-modified-since": "+", "if-unmodified-since": "-" }, 412, 412],
  ];

  /** The rows of a table, for the validators that there are. */
  function fill(fields: Record<string, string>, etag: string, last: string) {
    const future = String(new Date().getUTCFullYear() + 1);
    const dates = new Map([
      ["L", last],
      ["-", date(last, -1)],
      ["+", date(last, 1)],
      ["850", `Friday, 01-Jan-${future.slice(2)} 00:00:00 GMT`],
      ["asctime", `Fri Jan  1 00:00:00 ${future}`],
      ["old 850", "Sunday, 06-Nov-94 08:49:37 GMT"],
      ["old asctime", "Sun Nov  6 08:49:37 1994"],
    ]);
    return Object.fromEntries(
      Object.entries(fields).map(([name, value]) => [
        name,
        dates.get(value) ??
          value.replace(/\bT\b/, etag).replace(/\bW\b/, `W/${etag}`),
      ]),
    );
  }

  for (const [fields, read, write] of rows) {
    const name = Object.entries(fields).flat().join(" ");
    test(`${name}: ${read} to read, ${write} to write`, async () => {
      const animal = await make("/v1/animals");
      for (const path of [animal, `/v1/zoos/2${animal.slice(3)}`]) {
        const whole = await server.request("GET", path);
        const etag = whole.headers.get("etag") ?? "";
        const last = whole.headers.get("last-modified") ?? "";
        const headers = fill(fields, etag, last);
        const get = await server.request("GET", path, { headers });
        assert.equal(get.status, read, get.text);
        if (read === 200) assert.equal(get.text, whole.text);
        if (read === 304) assert.equal(get.headers.get("etag"), etag);
        if (read === 412) assertError(get, 41200);
        const head = await server.request("HEAD", path, { headers });
        assert.equal(head.status, read);
        const json = { zoo_id: 2, animal_type_id: 3, name: "New" };
        for (const method of ["PUT", "PATCH"]) { // that change nothing
          const options = { token, headers, json };
          const answer = await server.request(method, path, options);
          assert.equal(answer.status, write, answer.text);
          if (write === 412) assertError(answer, 41200);
        }
        assert.equal((await server.request("GET", path)).text, whole.text);
      }
      const etag = await etagOf(animal);
      const { headers } = await server.request("GET", animal);
      const last = headers.get("last-modified") ?? "";
      const gone = await server.request("DELETE", animal, {
        token,
        headers: fill(fields, etag, last),
      });
      assert.equal(gone.status, write === 201 ? 204 : write);
      const after = await server.request("GET", animal);
      assert.equal(after.status, write === 201 ? 410 : 200);
    });
  }
});

test("Cache-Control is private for a signed-in caller, whatever the response", async () => {
  const viewer = await signInNew(server, { token, username: "viewer" });
  for (
    const [path, status] of [
      ["/v1/zoos", 200],
      ["/v1/users", 403],
      ["/v1/zoos/99", 404],
      ["/v1/zoos?limit=x", 400],
    ] as const
  ) {
    const signed = await server.request("GET", path, { token: viewer });
    assert.equal(signed.status, status);
    assert.equal(signed.headers.get("cache-control"), "private, no-cache");
    const open = await server.request("GET", path);
    assert.equal(open.headers.get("cache-control"), "no-cache");
  }
});

test("two histories of a record have different validators, though its times are the same", async (t) => {
  const base = { city: "Ghent", country: "BE", opened_on: null, website: null };
  const times = {
    created_at: "2026-06-01T12:00:00.500Z",
    updated_at: "2026-06-01T12:00:01.500Z",
  };
  const changed: readonly object[] = [
    { name: "lost" },
    { name: "new" },
    { name: "new", opened_on: "2026-01-01" },
    { name: "new", website: "https://a.example" },
  ];
  const etags = await Promise.all(changed.map(async (values) => {
    const app = await startApplication();
    t.after(() => app.stop());
    const zoo = { id: 1, ...base, ...values, ...times };
    await commit(app.store, [["put", "zoos", zoo]], 0);
    const { headers } = await app.request("GET", "/v1/zoos/1");
    return headers.get("etag");
  }));
  assert.equal(new Set(etags).size, changed.length, etags.join());
});

test("a record with a malformed time is a logged 500, not the end of a connection, and can be deleted", async (t) => {
  const logged: unknown[] = [];
  const app = await startApplication({
    log: (level, _, fields) => level === "error" && logged.push(fields),
  });
  t.after(() => app.stop());
  const { token } = app;
  const zoo = { id: 1, name: "Artis", city: "Amsterdam", country: "NL" };
  for (const updated_at of ["x\r\ny", "1\r\n2", null, {}, undefined]) {
    const malformed = {
      ...zoo,
      ...(updated_at !== undefined && { updated_at }),
    };
    await commit(app.store, [["put", "zoos", malformed]], 0);
    assertError(await app.request("GET", "/v1/zoos/1"), 50000);
    assert.match(
      JSON.stringify(logged.pop()),
      /The time of zoos\/1 is malformed/,
    );
    const deleted = await app.request("DELETE", "/v1/zoos/1", { token });
    assert.equal(deleted.status, 204, deleted.text);
  }
});

test("a list that waits is sent once all that its validator tells of is durable", async (t) => {
  const folder = await folderFor(t);
  const store = await openStore({ folder, tables: tablesOf(sample, []) });
  t.after(() => store.close());
  const zoo = { id: 1, name: "Artis" };
  await commit(store, [["put", "zoos", zoo]], 0);
  const { lastSeq } = store.table("zoos");
  await commit(store, [["put", "animals", { id: 1, zoo_id: 1 }]], 0);
  const records = recordsOf(store, sample, "zoos");
  const base = { origin: "", path: "/" };
  const settings = createReader(new Map(), {});
  const api = { store, base, settings, now: Date.now } as unknown as Api;
  const { extend } = feature.open(api) ?? {};
  const { GET } = extend?.(collectionMethods({ records })) ?? {};
  // Found only after a wait, as in a large collection.
  const select: Select = (_query, { table, use }) =>
    Promise.resolve().then(() => use({ rows: table.rows(), total: 1 }));
  const context = operatorContext({ method: "GET", related: [] }, { select });
  const result = await GET?.run(context, GET.parse?.(new Map()), {});
  assert.equal(result?.status, 200);
  assert.ok(lastSeq < store.seq);
  assert.equal(result?.seq, store.seq);
});
