/**
 * The life of a record, seen from outside: created, read, replaced, changed,
 * moved and permanently deleted, also across a restart.
 */

import { strict as assert } from "node:assert";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { setImmediate } from "node:timers/promises";
import {
  type Answer,
  assertError,
  assertInvalid,
  removeFolder,
  type RequestOptions,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { startHere } from "../in-process.ts";
import { seed } from "../seed.ts";

type Properties = Readonly<Record<string, unknown>>;

/** The properties that a collection requires, accepts, and sets by default. */
interface Kind {
  readonly name: string;
  readonly required: Properties;
  readonly optional: Properties;
  readonly defaults: Properties;
  readonly relations: (id: number) => Properties;
  /** Every URL at which records of this kind can be created. */
  readonly paths: readonly string[];
}

const kinds: readonly Kind[] = [
  {
    name: "zoos",
    required: { name: " São 動物園 🦒 ", city: "Ghent", country: "BE" },
    optional: {
      opened_on: "2024-02-29",
      website: "https://zoo.example/visit?lang=nl",
    },
    defaults: { opened_on: null, website: null },
    relations: (id) => ({
      animals_url: `/v1/zoos/${id}/animals`,
      employees_url: `/v1/zoos/${id}/employees`,
    }),
    paths: ["/v1/zoos"],
  },
  {
    name: "animals",
    required: { zoo_id: 2, animal_type_id: 7, name: "Ada" },
    optional: {
      species: "Giraffa",
      sex: "female",
      born_on: "2019-12-31",
      weight_kg: 812.5,
    },
    defaults: { species: null, sex: "unknown", born_on: null, weight_kg: null },
    relations: () => ({ zoo_url: "/v1/zoos/2" }),
    paths: ["/v1/animals", "/v1/zoos/2/animals"],
  },
  {
    name: "employees",
    required: { zoo_id: 2, name: "Bo", job_title: "Keeper" },
    optional: { hired_on: "2001-01-01" },
    defaults: { hired_on: null },
    relations: () => ({ zoo_url: "/v1/zoos/2" }),
    paths: ["/v1/employees", "/v1/zoos/2/employees"],
  },
];

let server: Server;
let token: string;
let made = 0;

before(async () => {
  server = await start({ seed });
  token = await server.signIn();
});

after(() => server.stop());

/** Sends a request as the admin. */
function send(
  method: string,
  path: string,
  options?: RequestOptions,
): Promise<Answer> {
  return server.request(method, path, { token, ...options });
}

/** A body for a kind of record; no two have the same e-mail address. */
function body(kind: Kind, ...more: Properties[]): Properties {
  const email = kind.name === "employees"
    ? { email: `Bo.${++made}@Zoo.example` }
    : {};
  return Object.assign({}, kind.required, email, ...more);
}

/** Creates a record and returns it. */
async function make(path: string, json: Properties) {
  const answer = await send("POST", path, { json });
  assert.equal(answer.status, 201, answer.text);
  return answer.body;
}

/** Creates a zoo for one test. */
function makeZoo() {
  return make("/v1/zoos", { name: "Own", city: "Oslo", country: "NO" });
}

/** Reads a record that exists. */
async function read(path: string) {
  const answer = await send("GET", path);
  assert.equal(answer.status, 200, `${path}: ${answer.text}`);
  return answer.body;
}

/** Returns the number of records of a collection. */
async function count(path: string): Promise<number> {
  const answer = await send("HEAD", path);
  assert.equal(answer.status, 200, path);
  return Number(answer.headers.get("x-total-count"));
}

/** Asserts that a record is permanently deleted, at each of its URLs. */
async function assertGone(...paths: string[]): Promise<void> {
  for (const path of paths) {
    assertError(await send("GET", path), 41000);
    assert.equal((await send("HEAD", path)).status, 410);
    const json = { name: "Back again" };
    assertError(await send("PATCH", path, { json }), 40401);
    assertError(await send("PUT", path, { json }), 40401);
    assertError(await send("DELETE", path), 40401);
  }
}

/** Waits until the clock has passed the millisecond of a timestamp. */
async function past(time: string): Promise<void> {
  while (Date.now() <= Date.parse(time)) await setImmediate();
}

for (const kind of kinds) {
  for (const path of kind.paths) {
    describe(`a record of ${path}`, () => {
      test("is created with its defaults, its times and its URLs", async () => {
        const json = body(kind);
        const answer = await send("POST", path, { json });
        assert.equal(answer.status, 201, answer.text);
        const { id, created_at, updated_at, link, ...rest } = answer.body;
        assert.ok(Number.isSafeInteger(id) && id > 0);
        const url = `/v1/${kind.name}/${id}`;
        assert.equal(answer.headers.get("location"), url);
        assert.deepEqual(rest, {
          ...json,
          ...kind.defaults,
          url,
          ...kind.relations(id),
        });
        const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/;
        assert.match(created_at, time);
        assert.match(updated_at, time);
        assert.ok(Math.abs(Date.parse(created_at) - Date.now()) < 60_000);
        assert.equal(link.href, path);
        assert.equal(link.rel, `collection ${path}`);
        assert.equal(link.type, "application/json");

        assert.deepEqual(await read(`${path}/${id}`), answer.body);
        const { link: _, ...plain } = answer.body;
        assert.deepEqual(await read(`${path}?id=${id}`), [plain]);
      });

      test("keeps every property that it was given", async () => {
        const json = body(kind, kind.optional);
        const record = await make(path, json);
        for (const [name, value] of Object.entries(json)) {
          assert.equal(record[name], value);
        }
        assert.deepEqual(await read(`${path}/${record.id}`), record);
      });

      test("loses by PUT the properties that the new one omits", async () => {
        const old = await make(path, body(kind, kind.optional));
        await past(old.updated_at);
        const json = body(kind, { name: "Another" });
        const answer = await send("PUT", `${path}/${old.id}`, { json });
        assert.equal(answer.status, 201, answer.text);
        const { updated_at } = answer.body;
        assert.deepEqual(answer.body, {
          ...old,
          ...json,
          ...kind.defaults,
          updated_at,
        });
        assert.ok(updated_at > old.updated_at);
        assert.deepEqual(await read(`${path}/${old.id}`), answer.body);
      });

      test("keeps by PATCH the properties that the change omits", async () => {
        const old = await make(path, body(kind, kind.optional));
        await past(old.updated_at);
        for (
          const type of ["application/json", "application/merge-patch+json"]
        ) {
          const name = `Known by ${type}`;
          const answer = await send("PATCH", `${path}/${old.id}`, {
            json: { name },
            headers: { "content-type": type },
          });
          assert.equal(answer.status, 201, answer.text);
          const { updated_at } = answer.body;
          assert.deepEqual(answer.body, { ...old, name, updated_at });
          assert.ok(updated_at > old.updated_at);
          assert.deepEqual(await read(`${path}/${old.id}`), answer.body);
        }
      });

      test("loses by PATCH the properties that are set to null", async () => {
        const old = await make(path, body(kind, kind.optional));
        const nullable = Object.entries(kind.defaults)
          .filter(([, value]) => value === null);
        const json = Object.fromEntries(nullable);
        const answer = await send("PATCH", `${path}/${old.id}`, { json });
        assert.equal(answer.status, 201, answer.text);
        const { updated_at } = answer.body;
        assert.deepEqual(answer.body, { ...old, ...json, updated_at });
      });

      test("stays as it is, including its time, when nothing changes", async () => {
        const json = body(kind, kind.optional);
        const record = await make(path, json);
        await past(record.updated_at);
        for (
          const [method, same] of [
            ["PUT", json],
            ["PUT", record], // a record can be sent back as it was read
            ["PATCH", {}],
            ["PATCH", { name: json.name }],
            ["PATCH", record],
          ] as const
        ) {
          const url = `${path}/${record.id}`;
          const answer = await send(method, url, { json: same });
          assert.equal(answer.status, 201, answer.text);
          assert.deepEqual(answer.body, record);
          assert.deepEqual(await read(url), record);
        }
      });

      test("ignores properties that only the server sets", async () => {
        const notTheClients = {
          created_at: "1999-01-01T00:00:00.000Z",
          updated_at: 5,
          link: { rel: "evil" },
          url: "https://evil.example/",
          ...Object.fromEntries(
            Object.keys(kind.relations(1)).map((name) => [name, "evil"]),
          ),
        };
        const json = body(kind);
        const record = await make(path, {
          ...json,
          ...notTheClients,
          id: 987_654,
        });
        assert.notEqual(record.id, 987_654);
        assert.doesNotMatch(JSON.stringify(record), /evil|1999-/);
        await past(record.updated_at);
        for (const method of ["PUT", "PATCH"]) {
          const answer = await send(method, `${path}/${record.id}`, {
            json: { ...json, ...notTheClients, id: record.id },
          });
          assert.equal(answer.status, 201, answer.text);
          assert.deepEqual(answer.body, record);
        }
      });

      test("cannot be given another id", async () => {
        const json = body(kind);
        const record = await make(path, json);
        for (const method of ["PUT", "PATCH"]) {
          const answer = await send(method, `${path}/${record.id}`, {
            json: { ...json, id: record.id + 1 },
          });
          assertInvalid(answer, { id: "read_only" });
        }
        assert.deepEqual(await read(`${path}/${record.id}`), record);
      });

      test("is permanently deleted, and its id is not used again", async () => {
        const total = await count(path);
        const record = await make(path, body(kind));
        const answer = await send("DELETE", `${path}/${record.id}`);
        assert.equal(answer.status, 204, answer.text);
        assert.equal(answer.text, "");
        await assertGone(...kind.paths.map((one) => `${one}/${record.id}`));
        assert.equal(await count(path), total);
        assert.ok((await make(path, body(kind))).id > record.id);
      });

      test("that never existed is not found", async () => {
        const url = `${path}/9000000`;
        for (const method of ["GET", "HEAD", "DELETE"]) {
          const answer = await send(method, url);
          assert.equal(answer.status, 404);
          if (method !== "HEAD") assertError(answer, 40401);
        }
        for (const method of ["PUT", "PATCH"]) {
          const json = body(kind);
          assertError(await send(method, url, { json }), 40401);
        }
      });
    });
  }
}

test("an unused id below the highest assigned one counts as deleted", async () => {
  await assertGone("/v1/zoos/3");
});

for (const kind of kinds.slice(1)) {
  describe(`one of the ${kind.name} and its zoo`, () => {
    test("belong together by the URL alone", async () => {
      const { zoo_id: _, ...json } = body(kind);
      const url = `/v1/zoos/2/${kind.name}`;
      const record = await make(url, json);
      assert.equal(record.zoo_id, 2);
      const answer = await send("PUT", `${url}/${record.id}`, { json });
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.body.zoo_id, 2);
      const direct = await send("PUT", record.url, { json });
      assertInvalid(direct, { zoo_id: "required" });
      const { zoo_id: __, ...other } = body(kind);
      const post = await send("POST", `/v1/${kind.name}`, { json: other });
      assertInvalid(post, { zoo_id: "required" });
    });

    test("cannot be two different ones when it is created", async () => {
      const total = await count(`/v1/${kind.name}`);
      const url = `/v1/zoos/1/${kind.name}`;
      const answer = await send("POST", url, { json: body(kind) });
      assertInvalid(answer, { zoo_id: "" });
      assert.equal(await count(`/v1/${kind.name}`), total);
    });

    test("cannot be one that was deleted", async () => {
      const url = `/v1/${kind.name}`;
      const json = body(kind, { zoo_id: 3 });
      assertInvalid(await send("POST", url, { json }), { zoo_id: "reference" });
      const record = await make(url, body(kind));
      const change = await send("PATCH", record.url, { json: { zoo_id: 3 } });
      assertInvalid(change, { zoo_id: "reference" });
      assert.deepEqual(await read(record.url), record);
    });

    for (const method of ["PUT", "PATCH"]) {
      for (const through of [`/v1/zoos/2/${kind.name}`, `/v1/${kind.name}`]) {
        test(`part when a ${method} of ${through} names another`, async () => {
          const json = body(kind);
          const { id } = await make(through, json);
          const answer = await send(method, `${through}/${id}`, {
            json: method === "PUT" ? { ...json, zoo_id: 1 } : { zoo_id: 1 },
          });
          assert.equal(answer.status, 201, answer.text);
          assert.equal(answer.body.zoo_id, 1);
          assert.equal(answer.body.zoo_url, "/v1/zoos/1");
          assert.equal(answer.body.url, `/v1/${kind.name}/${id}`);
          assert.equal((await read(answer.body.url)).zoo_id, 1);

          const left = `/v1/zoos/2/${kind.name}`;
          assertError(await send("GET", `${left}/${id}`), 40401);
          assert.deepEqual(await read(`${left}?id=${id}`), []);
          const now = `/v1/zoos/1/${kind.name}`;
          assert.equal((await read(`${now}/${id}`)).zoo_id, 1);
          assert.equal((await read(`${now}?id=${id}`)).length, 1);
        });
      }
    }

    test("are only found together, whatever the method", async () => {
      const record = await make(`/v1/${kind.name}`, body(kind));
      const url = `/v1/zoos/1/${kind.name}/${record.id}`;
      assertError(await send("GET", url), 40401);
      assert.equal((await send("HEAD", url)).status, 404);
      const { zoo_id: _, ...json } = body(kind);
      assertError(await send("PUT", url, { json }), 40401);
      assertError(await send("PATCH", url, { json }), 40401);
      assertError(await send("DELETE", url), 40401);
      assert.deepEqual(await read(record.url), record);
    });

    test("are not found if there is no such zoo", async () => {
      const { zoo_id: _, ...json } = body(kind);
      const { id } = await make(`/v1/zoos/2/${kind.name}`, json);
      const zoo = await makeZoo();
      assert.equal((await send("DELETE", zoo.url)).status, 204);
      for (
        const [parent, code] of [
          ["/v1/zoos/9000000", 40401],
          [zoo.url, 41000],
        ] as const
      ) {
        const url = `${parent}/${kind.name}`;
        for (const address of [url, `${url}/${id}`]) {
          assertError(await send("GET", address), code);
          const { status } = await send("HEAD", address);
          assert.equal(status, Math.floor(code / 100));
        }
        assertError(await send("POST", url, { json }), 40401);
        for (const method of ["PUT", "PATCH"]) {
          const answer = await send(method, `${url}/${id}`, { json });
          assertError(answer, 40401);
        }
        assertError(await send("DELETE", `${url}/${id}`), 40401);
      }
    });

    test("a deleted one is 410 through any zoo", async () => {
      const record = await make(`/v1/${kind.name}`, body(kind));
      assert.equal((await send("DELETE", record.url)).status, 204);
      for (const zoo of [1, 2, 4]) {
        const url = `/v1/zoos/${zoo}/${kind.name}/${record.id}`;
        assertError(await send("GET", url), 41000);
      }
    });
  });
}

describe("DELETE of a zoo", () => {
  /** A zoo with three animals and two employees; their URLs. */
  async function inhabited() {
    const zoo = await makeZoo();
    const urls: string[] = [];
    for (const [kind, number] of [["animals", 3], ["employees", 2]] as const) {
      const found = kinds.find(({ name }) => name === kind);
      assert.ok(found);
      for (let one = 0; one < number; one++) {
        const json = body(found, { zoo_id: zoo.id });
        urls.push((await make(`/v1/${kind}`, json)).url);
      }
    }
    return { zoo, urls };
  }

  test("is refused, with their numbers, while others belong to it", async () => {
    const { zoo, urls } = await inhabited();
    for (const query of ["", "?cascade=false"]) {
      const answer = await send("DELETE", zoo.url + query);
      assertError(answer, 40900);
      assert.match(answer.body.error, /\b3\b/);
      assert.match(answer.body.error, /\b2\b/);
    }
    for (const url of [zoo.url, ...urls]) await read(url);
  });

  test("deletes them too with cascade", async () => {
    const paths = ["/v1/zoos", "/v1/animals", "/v1/employees"];
    const totals = await Promise.all(paths.map(count));
    const { zoo, urls } = await inhabited();
    const answer = await send("DELETE", `${zoo.url}?cascade=true`);
    assert.equal(answer.status, 204, answer.text);
    assert.equal(answer.text, "");
    await assertGone(zoo.url, ...urls);
    assert.deepEqual(await Promise.all(paths.map(count)), totals);
  });

  test("needs no cascade when the zoo is empty", async () => {
    for (const query of ["", "?cascade=true", "?cascade=false"]) {
      const zoo = await makeZoo();
      const answer = await send("DELETE", zoo.url + query);
      assert.equal(answer.status, 204, answer.text);
      await assertGone(zoo.url);
    }
  });
});

test("records, ids and sign-ins survive the process", async () => {
  const own = await temporaryFolder();
  const options = { folder: join(own, "store"), seed };
  const json = { name: "Last", city: "Lima", country: "PE" };
  try {
    const first = await startHere(options);
    const { admin, kept, gone, list } = await (async () => {
      const admin = await first.signIn();
      const init = { token: admin, json };
      const kept = await first.request("POST", "/v1/zoos", init);
      const gone = await first.request("POST", "/v1/zoos", init);
      assert.equal(gone.status, 201, gone.text);
      const end = await first.request("DELETE", gone.body.url, {
        token: admin,
      });
      assert.equal(end.status, 204, end.text);
      const list = await first.request("GET", "/v1/zoos");
      assert.equal(await first.end(), 0);
      return { admin, kept: kept.body, gone: gone.body, list: list.body };
    })().finally(() => first.stop());

    const second = await startHere(options);
    try {
      assert.deepEqual((await second.request("GET", "/v1/zoos")).body, list);
      assert.deepEqual((await second.request("GET", kept.url)).body, kept);
      assertError(await second.request("GET", gone.url), 41000);
      const init = { token: admin, json };
      const next = await second.request("POST", "/v1/zoos", init);
      assert.equal(next.status, 201, next.text);
      assert.ok(next.body.id > gone.id);
    } finally {
      await second.stop();
    }
  } finally {
    await removeFolder(own);
  }
});
