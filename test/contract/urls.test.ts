/**
 * Every URL of the API, seen from outside: its links, its spelling, its
 * methods, who may use them, and its base.
 */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { after, before, describe, test } from "node:test";
import {
  adminPassword,
  type Answer,
  assertError,
  exchange,
  lacks,
  type Server,
  signInNew,
  start,
} from "../harness.ts";
import { type ServerHere, startHere } from "../in-process.ts";
import { seed } from "../seed.ts";
import { featureNames } from "../../src/features.ts";

const hasQuery = featureNames.includes("negotiation");

const callers = ["nobody", "viewer", "keeper", "admin"] as const;
type Caller = typeof callers[number];

let server: Server;
let authorization: string;
const tokens = new Map<Caller, string>();

before(async () => {
  server = await start({ seed });
  const token = await server.signIn();
  tokens.set("admin", token);
  for (const role of ["viewer", "keeper"] as const) {
    const user = { token, username: role, role };
    tokens.set(role, await signInNew(server, user));
  }
  authorization = (await get("/v1/authorizations")).body[0]?.url ?? "";
});

after(() => server.stop());

/** Reads a URL as a caller and asserts that it succeeds. */
async function get(path: string, caller: Caller = "admin"): Promise<Answer> {
  const answer = await server.request("GET", path, {
    token: tokens.get(caller),
  });
  assert.equal(answer.status, 200, `${path}: ${answer.text}`);
  return answer;
}

/** Sends a bare request without a body and waits for the connection's end. */
async function bare(line: string, host = "a.example") {
  const received = await exchange(
    server.port,
    `${line} HTTP/1.1\r\nHost: ${host}\r\nConnection: close\r\n\r\n`,
  );
  const end = received.indexOf("\r\n\r\n");
  return {
    status: Number(received.split(" ")[1]),
    head: received.slice(0, end),
    content: received.slice(end + 4),
  };
}

/** A list of methods, sorted. */
function methods(list: string | null | readonly string[]): string[] {
  const names = typeof list === "string" ? list.split(/\s*,\s*/) : list ?? [];
  return names.toSorted();
}

describe("the root document", () => {
  test("has only URLs, both at the base and under v1", async () => {
    const root = (await get("/", "nobody")).body;
    assert.deepEqual((await get("/v1", "nobody")).body, root);
    assert.deepEqual((await get("/v1/", "nobody")).body, root);
    for (const name of Object.keys(root)) assert.match(name, /_url$/);
    for (
      const [name, url] of Object.entries({
        current_user_url: "/v1/user",
        authorizations_url: "/v1/authorizations",
        users_url: "/v1/users",
        zoos_url: "/v1/zoos",
        animals_url: "/v1/animals",
        employees_url: "/v1/employees",
      })
    ) {
      assert.equal(root[name], url);
      await get(url);
    }
  });

  test("names the tasks, if there are imports", {
    skip: lacks("imports"),
  }, async () => {
    const root = (await get("/")).body;
    assert.equal(root.tasks_url, "/v1/tasks");
    await get(root.tasks_url);
  });

  test("names only URLs that can be read", async () => {
    const root = JSON.parse((await get("/")).text);
    for (const url of Object.values<string>(root)) {
      const token = tokens.get("admin");
      const answer = await server.request("HEAD", url, { token });
      assert.equal(answer.status, 200, url);
    }
  });

  test("leads to a zoo, its animals, one of them, and back", async () => {
    const root = (await get("/")).body;
    const zoos = (await get(root.zoos_url ?? "")).body;
    const zoo = (await get(zoos[0]?.url ?? "")).body;
    const { link, ...plain } = zoo;
    assert.deepEqual(plain, zoos[0]);
    assert.deepEqual(link, {
      rel: "collection /v1/zoos",
      href: "/v1/zoos",
      title: "List of zoos",
      type: "application/json",
    });
    assert.deepEqual((await get(link.href)).body, zoos);

    const animals = (await get(zoo.animals_url ?? "")).body;
    assert.deepEqual(animals.map((one: { id: number }) => one.id), [1, 2]);
    const animal = (await get(animals[0]?.url ?? "")).body;
    assert.equal(animal.name, "Ada");
    assert.deepEqual((await get(animal.zoo_url ?? "")).body, zoo);
    assert.equal(animal.link.href, "/v1/animals");
    assert.deepEqual((await get(animal.link.href)).body, animals);

    const employees = (await get(zoo.employees_url ?? "")).body;
    assert.equal(employees[0]?.name, "Eva");
    const employee = (await get(employees[0]?.url ?? "")).body;
    assert.deepEqual((await get(employee.zoo_url ?? "")).body, zoo);
  });

  test("does not depend on the Host field", async () => {
    const answer = await bare("GET /v1/zoos/1", "evil.example");
    assert.equal(answer.status, 200);
    assert.equal(JSON.parse(answer.content).url, "/v1/zoos/1");
    assert.doesNotMatch(answer.content, /evil/);
  });
});

test("a record through its zoo has the same url and that zoo's link", async () => {
  const direct = (await get("/v1/animals/1")).body;
  const through = (await get("/v1/zoos/1/animals/1")).body;
  assert.equal(through.url, "/v1/animals/1");
  assert.equal(through.link.href, "/v1/zoos/1/animals");
  assert.equal(through.link.rel, "collection /v1/zoos/1/animals");
  assert.equal(through.link.type, "application/json");
  assert.deepEqual({ ...through, link: direct.link }, direct);
});

describe("a URL", () => {
  const unknown = [
    "/nope",
    "/v1/nope",
    "/v1/nope/",
    "/v1/zoos/1/nope",
    "/v1/zoos/1/zoos",
    "/v1/animals/1/zoos",
    "/v1/zoos/1/animals/1/more",
    "/v1/zoos/nope/animals",
    "/v1/zoos/1/animals/nope",
    "/v1/zoos/nope/",
    "/v1/user/1",
    "/v1/Zoos",
    "/v1/ZOOS/1",
    "/V1/zoos",
    "/v1/zoos%2F1",
    "/v1/zoos/1%2F",
    "/v1%2Fzoos",
    ...["0", "00", "01", "-1", "+1", "1.0", "1e0", "0x1", "abc", "1a", "%201"]
      .map((id) => `/v1/zoos/${id}`),
    "/v1/zoos/%D9%A1", // an Arabic digit one
    "/v1/zoos/9007199254740992", // 2^53
  ];
  for (const path of unknown) {
    test(`${path} is not one`, async () => {
      assertError(await server.request("GET", path), 40400);
    });
  }

  test("with the highest possible id is one, without a record", async () => {
    const path = "/v1/zoos/9007199254740991";
    assertError(await server.request("GET", path), 40401);
  });

  for (const path of ["/v2", "/v2/zoos", "/v2/zoos/1", "/v3/nope"]) {
    test(`${path} is not one, and the message names v1`, async () => {
      const answer = await server.request("GET", path);
      assertError(answer, 40400);
      assert.match(answer.body.error, /\bv1\b/);
    });
  }

  for (
    const path of ["/v1/zoos/%", "/v1/zoos/%zz", "/v1/%4", "/%", "/v1/z%FFos"]
  ) {
    test(`${path} is badly encoded`, async () => {
      assertError(await server.request("GET", path), 40000);
    });
  }

  for (const path of ["/v1/%7Aoos/1", "/v1/zoos/%31", "/%76%31/zoos/1"]) {
    test(`${path} is decoded, segment by segment`, async () => {
      const answer = await get(path, "nobody");
      assert.deepEqual(answer.body, (await get("/v1/zoos/1")).body);
    });
  }

  for (
    const [method, path, location] of [
      ["GET", "/v1/zoos/", "/v1/zoos"],
      ["GET", "/v1/zoos/?limit=1&name=a%20b", "/v1/zoos?limit=1&name=a%20b"],
      ["HEAD", "/v1/zoos/1/", "/v1/zoos/1"],
      ["GET", "/v1/zoos/999/", "/v1/zoos/999"],
      ["GET", "/v1/zoos/1/animals/", "/v1/zoos/1/animals"],
      [
        "GET",
        "/v1/zoos/1/animals/1/?fields=id",
        "/v1/zoos/1/animals/1?fields=id",
      ],
      ["GET", "/v1/users/", "/v1/users"],
      ["GET", "/v1/user/", "/v1/user"],
      ["PATCH", "/v1/animals/1/", "/v1/animals/1"],
      ["POST", "/v1/authorizations/", "/v1/authorizations"],
    ] as const
  ) {
    test(`${method} ${path} is redirected to ${location}`, async () => {
      const answer = await server.request(method, path);
      assert.equal(answer.status, 308, answer.text);
      assert.equal(answer.headers.get("location"), location);
    });
  }
});

const verbs = ["GET", "POST", "PUT", "PATCH", "DELETE"] as const;

/** The lowest role that each method of a URL requires. */
type Rights = Readonly<Partial<Record<typeof verbs[number], Caller>>>;

/** A collection has DELETE with the feature that deletes many records. */
const deletable = (by: Caller): Rights =>
  lacks("deletions") ? {} : { DELETE: by };
const zoosRights: Rights = {
  GET: "nobody",
  POST: "keeper",
  ...deletable("admin"),
};
const animalsRights: Rights = { ...zoosRights, ...deletable("keeper") };
const staffRights: Rights = { ...zoosRights, GET: "viewer" };
const usersRights: Rights = {
  GET: "admin",
  POST: "admin",
  ...deletable("admin"),
};
const edit: Rights = { PUT: "keeper", PATCH: "keeper" };
const zoo: Rights = { GET: "nobody", ...edit, DELETE: "admin" };
const animal: Rights = { GET: "nobody", ...edit, DELETE: "keeper" };
const employee: Rights = { GET: "viewer", ...edit, DELETE: "admin" };
const edited: Rights = { PUT: "admin", PATCH: "admin" };
const user: Rights = { GET: "admin", ...edited, DELETE: "admin" };

const zooProperties = ["name", "city", "country", "opened_on", "website"];
const animalProperties = [
  "zoo_id",
  "animal_type_id",
  "name",
  "species",
  "sex",
  "born_on",
  "weight_kg",
];
const employeeProperties = ["zoo_id", "name", "job_title", "email", "hired_on"];
const userProperties = ["username", "role", "password"];

/** Every URL, its methods, and the properties that may be written there. */
const urls: readonly (readonly [string, Rights, readonly string[]])[] = [
  ["/", { GET: "nobody" }, []],
  ["/v1", { GET: "nobody" }, []],
  ["/v1/zoos", zoosRights, zooProperties],
  ["/v1/zoos/1", zoo, zooProperties],
  ["/v1/animals", animalsRights, animalProperties],
  ["/v1/animals/1", animal, animalProperties],
  ["/v1/zoos/1/animals", animalsRights, animalProperties],
  ["/v1/zoos/1/animals/1", animal, animalProperties],
  ["/v1/employees", staffRights, employeeProperties],
  ["/v1/employees/1", employee, employeeProperties],
  ["/v1/zoos/1/employees", staffRights, employeeProperties],
  ["/v1/zoos/1/employees/1", employee, employeeProperties],
  ["/v1/authorizations", { GET: "viewer", POST: "nobody" }, []],
  ["/v1/authorizations/1", { GET: "viewer", DELETE: "viewer" }, []],
  ["/v1/user", { GET: "viewer", PATCH: "viewer" }, ["password"]],
  ["/v1/users", usersRights, userProperties],
  ["/v1/users/1", user, userProperties],
];

/** The methods that a caller may use; by default those that anyone may use. */
function allowed(rights: Rights, caller: Caller = "admin"): string[] {
  const rank = callers.indexOf(caller);
  const own = verbs.filter((verb) => {
    const needed = rights[verb];
    return needed !== undefined && callers.indexOf(needed) <= rank;
  });
  const reads = own.includes("GET") ? ["HEAD"] : [];
  // A caller who may read a collection may also QUERY it.
  if (hasQuery && reads.length > 0 && rights.POST) reads.push("QUERY");
  return ["OPTIONS", ...reads, ...own].sort();
}

describe("HEAD is GET without a body", () => {
  // The fields in which two responses of one server always differ, whatever the
  // method.
  const perAnswer = ["date", "x-request-id", "connection", "keep-alive"];
  const fields = (answer: Answer) =>
    [...answer.headers].filter(([name]) => !perAnswer.includes(name));

  const paths = [
    ...urls.map(([path]) => path),
    "/v1/",
    "/v1/zoos?limit=1&offset=1",
    "/v1/zoos?page=3&per_page=1&order=desc",
    "/v1/zoos/1?fields=name",
    "/v1/zoos?nope=1",
    "/v1/zoos/3",
    "/v1/zoos/3/animals",
    "/v1/zoos/999",
    "/v1/nope",
    "/v1/zoos/%",
    "/v1/zoos/",
  ];
  for (const path of paths) {
    for (const caller of ["admin", "nobody"] as const) {
      test(`at ${path} for ${caller}`, async () => {
        const token = tokens.get(caller);
        const url = path === "/v1/authorizations/1" ? authorization : path;
        const whole = await server.request("GET", url, { token });
        const head = await server.request("HEAD", url, { token });
        assert.equal(head.status, whole.status);
        assert.deepEqual(fields(head), fields(whole));
        const length = String(Buffer.byteLength(whole.text));
        if (whole.status !== 308) {
          assert.equal(whole.headers.get("content-length"), length);
        }
        assert.equal(head.text, "");
      });
    }
  }

  test("with the count and the links of a collection", async () => {
    const path = "/v1/zoos?limit=1&offset=1";
    const head = await server.request("HEAD", path);
    assert.equal(head.headers.get("x-total-count"), "3");
    assert.match(head.headers.get("link") ?? "", /rel="?next"?/);
  });

  test("to the last byte on the wire", async () => {
    const answer = await bare("HEAD /v1/zoos");
    assert.equal(answer.status, 200);
    assert.match(answer.head, /^content-length: [1-9]\d+$/im);
    assert.equal(answer.content, "");
  });
});

describe("OPTIONS", () => {
  for (const [path, rights, writable] of urls) {
    for (const caller of callers) {
      test(`${path} lists what ${caller} may do`, async () => {
        const token = tokens.get(caller);
        const answer = await server.request("OPTIONS", path, { token });
        assert.equal(answer.status, 200, answer.text);
        const { headers, body } = answer;
        assert.equal(
          headers.get("content-type"),
          "application/json; charset=utf-8",
        );
        assert.deepEqual(methods(headers.get("allow")), allowed(rights));
        assert.deepEqual(methods(body.methods), allowed(rights, caller));

        const post = headers.get("accept-post");
        assert.equal(/application\/json/.test(post ?? ""), !!rights.POST);
        const patch = headers.get("accept-patch");
        const both = ["application/json", "application/merge-patch+json"];
        for (const type of both) {
          assert.equal(patch?.includes(type) ?? false, !!rights.PATCH);
        }

        assert.equal(typeof body.schema, "object");
        if (path === "/" || path === "/v1") assert.deepEqual(body.schema, {});
        // Signing in needs no token, yet it writes: nothing is asserted for it.
        if (path.startsWith("/v1/authorizations")) return;
        const writes = allowed(rights, caller).some((one) => one[0] === "P");
        const expected = writes ? [...writable] : [];
        assert.deepEqual(body.writable.toSorted(), expected.sort());
      });
    }
  }

  test("describes a record, and marks the properties that only the server sets", async () => {
    const token = tokens.get("admin");
    for (
      const [path, writable] of [
        ["/v1/zoos", zooProperties],
        ["/v1/zoos/1", zooProperties],
        ["/v1/zoos/1/animals", animalProperties],
        ["/v1/employees/1", employeeProperties],
      ] as const
    ) {
      const { body } = await server.request("OPTIONS", path, { token });
      const { properties } = body.schema;
      for (const name of ["id", "created_at", "updated_at", "url"]) {
        assert.equal(properties?.[name]?.readOnly, true, `${path} ${name}`);
      }
      for (const name of writable) {
        assert.notEqual(properties?.[name]?.readOnly, true, `${path} ${name}`);
      }
    }
  });

  test("marks a password as write-only", async () => {
    const token = tokens.get("admin");
    const { body } = await server.request("OPTIONS", "/v1/users", { token });
    assert.equal(body.schema.properties?.password?.writeOnly, true);
  });

  test("does not look up a record", async () => {
    for (
      const path of [
        "/v1/zoos/3",
        "/v1/zoos/999",
        "/v1/zoos/999/animals",
        "/v1/zoos/3/animals/9",
        "/v1/animals/999",
      ]
    ) {
      const answer = await server.request("OPTIONS", path);
      assert.equal(answer.status, 200, path);
    }
  });

  test("of an unknown URL is 404, of one with an extra slash 308", async () => {
    assertError(await server.request("OPTIONS", "/v1/nope"), 40400);
    assertError(await server.request("OPTIONS", "/v1/zoos/x"), 40400);
    const answer = await server.request("OPTIONS", "/v1/zoos/");
    assert.equal(answer.status, 308);
  });

  test("* tells the methods of the server", async () => {
    const answer = await bare("OPTIONS *");
    assert.equal(answer.status, 204);
    assert.equal(answer.content, "");
    const [, allow = ""] = /^allow: (.*)$/im.exec(answer.head) ?? [];
    const all = "DELETE GET HEAD OPTIONS PATCH POST PUT QUERY";
    assert.equal(methods(allow).join(" "), all);
  });
});

describe("a method that the URL does not have", () => {
  for (const [path, rights] of urls) {
    const absent = verbs.filter((verb) => rights[verb] === undefined);
    for (const method of absent) {
      test(`${method} ${path} gets the list of those that it has`, async () => {
        const token = tokens.get("admin");
        const answer = await server.request(method, path, { token });
        assertError(answer, 40500);
        const allow = answer.headers.get("allow");
        assert.deepEqual(methods(allow), allowed(rights));
      });
    }
  }

  for (const method of ["PROPFIND", "LOCK", "MKCOL", "PURGE"]) {
    test(`${method} is not implemented`, async () => {
      assertError(await server.request(method, "/v1/zoos"), 50100);
    });
  }

  test("TRACE is not implemented", async () => {
    const answer = await bare("TRACE /v1/zoos");
    assert.equal(answer.status, 501);
    assert.equal(JSON.parse(answer.content).errorCode, 50100);
  });
});

describe("a caller who may not", () => {
  for (const [path, rights] of urls) {
    for (const method of verbs) {
      for (const caller of callers) {
        const needed = rights[method];
        if (!needed || allowed(rights, caller).includes(method)) continue;
        test(`${caller} is refused ${method} ${path}`, async () => {
          const token = tokens.get(caller);
          const answer = await server.request(method, path, { token });
          assertError(answer, caller === "nobody" ? 40100 : 40300);
        });
      }
    }
  }
});

describe("BASE_URL", () => {
  for (
    const [value, prefix, path] of [
      ["/deep/api/", "/deep/api/", "/deep/api/"],
      ["https://zoo.example", "https://zoo.example/", "/"],
      [
        "https://zoo.example:8443/api",
        "https://zoo.example:8443/api/",
        "/api/",
      ],
    ] as const
  ) {
    test(`${value} moves every URL below ${path}`, async () => {
      const other = await startHere({ seed, env: { BASE_URL: value } });
      try {
        const at = (name: string, method = "GET") =>
          other.request(method, path + name);
        const root = await at("");
        assert.equal(root.status, 200);
        assert.equal(root.body.zoos_url, `${prefix}v1/zoos`);
        assert.equal(root.body.current_user_url, `${prefix}v1/user`);
        assert.deepEqual((await at("v1")).body, root.body);

        const { body } = await at("v1/zoos/1/animals/1");
        assert.equal(body.url, `${prefix}v1/animals/1`);
        assert.equal(body.zoo_url, `${prefix}v1/zoos/1`);
        assert.equal(body.link.href, `${prefix}v1/zoos/1/animals`);

        const list = await at("v1/zoos?limit=1");
        assert.equal(list.body[0]?.animals_url, `${prefix}v1/zoos/1/animals`);
        const links = list.headers.get("link") ?? "";
        assert.ok(links.includes(`<${prefix}v1/zoos?`), links);

        const slash = await at("v1/zoos/?limit=1");
        assert.equal(slash.status, 308);
        const location = slash.headers.get("location");
        assert.equal(location, `${prefix}v1/zoos?limit=1`);

        const refused = await at("v1/users");
        assertError(refused, 40100);
        const signIn = `POST ${path}v1/authorizations`;
        assert.ok(refused.body.error.includes(signIn), refused.text);

        const token = await otherToken(other, path);
        const json = { name: "New", city: "Bonn", country: "DE" };
        const made = await other.request("POST", `${path}v1/zoos`, {
          token,
          json,
        });
        assert.equal(made.status, 201, made.text);
        assert.equal(made.headers.get("location"), `${prefix}v1/zoos/5`);

        assertError(await at("v2/zoos"), 40400);
        if (path !== "/") {
          assert.equal(
            (await other.request("GET", path.slice(0, -1))).status,
            200,
          );
          for (
            const outside of ["/", "/v1", "/v1/zoos", `${path.slice(0, -1)}v1`]
          ) {
            assertError(await other.request("GET", outside), 40400);
          }
        }
      } finally {
        await other.stop();
      }
    });
  }
});

/** Signs the admin in to an API that is not at the root. */
async function otherToken(other: ServerHere, path: string): Promise<string> {
  const answer = await other.request("POST", `${path}v1/authorizations`, {
    json: { username: "admin", password: adminPassword },
  });
  assert.equal(answer.status, 201, answer.text);
  return answer.body.token;
}
