/** The OpenAPI document: CONTRACT section 8. What it says is compared with real responses. */

import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { beside, clientsOf, send, serve } from "../server.ts";
import { animal, employee, user, zoo } from "../zoo.ts";

// deno-lint-ignore no-explicit-any
type Json = any;

/** Returns the document of a server, and what it requests as admin. */
async function start(environment: Record<string, string>) {
  const { origin } = await serve({ FEATURES: "all", ...environment });
  const { expect, tokens } = clientsOf(() => origin);
  const request = (
    line: string,
    status = 200,
    ...sent: [body?: unknown, headers?: object]
  ) => expect(status, "admin", line.replace(" ", " /"), ...sent);
  const { json: document } = await request("GET /v1/openapi.json");
  return { document, request, tokens };
}

const servers = await Promise.all([
  start({}),
  start({ COLLECTIONS: beside("library") }),
]);
const [{ document, request, tokens }] = servers;

/** Returns what a JSON Pointer in the document points at. */
const resolve = (document: Json, pointer: string): Json =>
  pointer.slice(2).split("/").reduce((part, name) => part?.[name], document);

const typeOf = (value: unknown): string[] =>
  value === null
    ? ["null"]
    : Array.isArray(value)
    ? ["array"]
    : Number.isInteger(value)
    ? ["integer", "number"]
    : [typeof value];

/** Checks a value by a JSON Schema (2020-12), with the keywords that the document uses. */
function check(schema: Json, value: Json, place: string): void {
  const fits = (isRight: boolean, keyword: string) =>
    assert.ok(
      isRight,
      `${place}: ${keyword}: ${JSON.stringify(value)?.slice(0, 200)}`,
    );
  const keywords: Readonly<Record<string, (operand: Json) => void>> = {
    $ref: (pointer) => check(resolve(document, pointer), value, place),
    type: (types) =>
      fits(
        [types].flat().some((type) => typeOf(value).includes(type)),
        `type ${types}`,
      ),
    enum: (values) => fits(values.includes(value), "enum"),
    const: (only) => fits(value === only, "const"),
    required: (names) =>
      names.forEach((name: string) =>
        fits(Object.hasOwn(value, name), `required ${name}`)
      ),
    properties: (properties) => {
      for (const name of Object.keys(Object(value))) {
        if (Object.hasOwn(properties, name)) {
          check(properties[name], value[name], `${place}.${name}`);
        }
      }
    },
    items: (items) =>
      value.forEach((each: Json) => check(items, each, `${place}[]`)),
    allOf: (all) => all.forEach((each: Json) => check(each, value, place)),
    minLength: (length) =>
      fits(value === null || [...value].length >= length, "minLength"),
    maxLength: (length) =>
      fits(value === null || [...value].length <= length, "maxLength"),
    pattern: (pattern) =>
      fits(value === null || new RegExp(pattern, "u").test(value), "pattern"),
    format: (format) =>
      fits(
        value === null || format !== "date-time" ||
          new Date(value).toISOString() === value,
        "format",
      ),
    minimum: (bound) => fits(value === null || value >= bound, "minimum"),
    maximum: (bound) => fits(value === null || value <= bound, "maximum"),
    exclusiveMinimum: (bound) =>
      fits(value === null || value > bound, "exclusiveMinimum"),
  };
  for (const [keyword, operand] of Object.entries(schema)) {
    const judge = keywords[keyword];
    if (judge) judge(operand);
    else {assert.match(
        keyword,
        /^(description|readOnly|writeOnly|x-.*)$/,
        place,
      );}
  }
}

/** Returns the path in the document of a URL. */
const pathOf = (url: string) =>
  Object.keys(document.paths).find((path) =>
    new RegExp(`^${path.replaceAll(/\{\w+\}/g, "\\d+")}$`).test(
      url.replace(/\?.*/, ""),
    )
  ) ?? "";

/** Requests of every operation, in an order in which they succeed; with what they send. */
const zooBody = {
  ...zoo,
  opened_on: "1838-05-01",
  website: "https://a.example/",
};
const inZoo = { ...animal, zoo_id: 1, weight_kg: 2.5, born_on: "2001-01-01" };
const employed = { ...employee, zoo_id: 1, email: "e@example.com" };
const people = { ...user, username: "somebody" };
const requests: [string, number, unknown?][] = [
  ["PATCH /v1/user", 201, { password: "admin-password" }],
  ["POST /v1/authorizations", 201, {
    username: "admin",
    password: "admin-password",
    note: "a",
  }],
  ["GET /v1/authorizations", 200],
  ["GET /v1/authorizations/3", 200],
  ["POST /v1/zoos", 201, zoo],
  ["POST /v1/zoos", 201, zooBody],
  ["PUT /v1/zoos/1", 201, zooBody],
  ["PATCH /v1/zoos/1", 201, { website: null }],
  ["POST /v1/animals", 201, inZoo],
  ["POST /v1/zoos/1/animals", 201, { animal_type_id: 1, name: "a" }],
  ["POST /v1/employees", 201, employed],
  ["POST /v1/zoos/1/employees", 201, {
    ...employed,
    zoo_id: undefined,
    email: "f@example.com",
  }],
  ...["animals", "employees"].flatMap((name) => {
    const [body, change] = name === "animals"
      ? [inZoo, { sex: "male" }]
      : [employed, { hired_on: "2001-01-01" }];
    return ["", "/zoos/1"].flatMap((above): [string, number, unknown?][] => [
      [`GET /v1${above}/${name}`, 200],
      [`GET /v1${above}/${name}?limit=1&sortby=name&order=desc&id:in=1,2`, 200],
      [`GET /v1${above}/${name}/1`, 200],
      [`PUT /v1${above}/${name}/1`, 201, body],
      [`PATCH /v1${above}/${name}/1`, 201, change],
      [`DELETE /v1${above}/${name}?name=none`, 200],
    ]);
  }),
  ["DELETE /v1/zoos/1/animals/2", 204],
  ["DELETE /v1/animals/1", 204],
  ["DELETE /v1/zoos/1/employees/2", 204],
  ["DELETE /v1/employees/1", 204],
  ["GET /v1/zoos", 200],
  ["GET /v1/zoos/1", 200],
  ["GET /v1/zoos/9", 404],
  ["DELETE /v1/zoos?city=none", 200],
  ["DELETE /v1/zoos/2", 204],
  ["GET /v1/zoos/2", 410],
  ["POST /v1/zoos", 422, {}],
  ["GET /v1/zoos?a=1", 400],
  ["GET /v1/user", 200],
  ["POST /v1/users", 201, people],
  ["GET /v1/users", 200],
  ["GET /v1/users/2", 200],
  ["PUT /v1/users/2", 201, { ...people, password: undefined }],
  ["PATCH /v1/users/2", 201, { role: "keeper" }],
  ["DELETE /v1/users/2", 204],
  ["GET /v1/tasks", 200],
  ["GET /v1/tasks/1", 200],
  ["DELETE /v1/tasks/1", 204],
  ["GET /v1/tasks/1", 410],
  ["GET /", 200],
  ["GET /v1", 200],
  ["GET /docs", 200],
  ["GET /health", 200],
  ["GET /metrics", 200],
  ["GET /v1/openapi.json", 200],
  ["HEAD /v1/events", 200],
  ["DELETE /v1/authorizations/3", 204],
];

describe("The OpenAPI document", () => {
  test("describes each operation, and each response is as it says", async () => {
    const ndjson = { "Content-Type": "application/x-ndjson" };
    const lines = '{"name":1}\n';
    const { json } = await request("POST /v1/zoos", 202, lines, ndjson);
    check({ $ref: "#/components/schemas/Task" }, json, "task");
    while ((await request("GET /v1/tasks/1")).json.status !== "succeeded");
    const left = new Set(
      Object.entries<object>(document.paths).flatMap((
        [path, { parameters: _, ...item }]: Json,
      ) =>
        Object.keys(item).map((method) => `${method.toUpperCase()} ${path}`)
      ),
    );
    for (const [line, status, body] of requests) {
      const [method = "", url = ""] = line.replace("HEAD", "GET").split(" ");
      const path = pathOf(url);
      const { responses, requestBody } =
        document.paths[path]?.[method.toLowerCase()] ?? assert.fail(line);
      const answer = await request(line, status, body);
      left.delete(`${method} ${path}`);
      if (body && status < 300) {
        check(
          requestBody.content["application/json"].schema,
          JSON.parse(JSON.stringify(body)),
          line,
        );
      }
      const named = responses[status] ?? responses.default;
      if (status < 300) {
        assert.ok(responses[status], `${line}: ${status} is not described`);
      }
      const { content } = named.$ref ? resolve(document, named.$ref) : named;
      assert.equal(content === undefined, status === 204, line);
      const { headers: { "content-type": type = "" }, json, text } = answer;
      if (content && !line.startsWith("HEAD")) {
        const described = content[String(type)] ??
          content[String(type).split(";")[0] ?? ""];
        check(described.schema, json ?? text, line);
      }
      if (line === "PATCH /v1/user") tokens.delete("admin"); // it ends all sign-ins
    }
    assert.deepEqual([...left], []);
  });

  for (const [at, { document, request }] of servers.entries()) {
    const name = at ? "of a library" : "of zoos";
    test(`${name} has no dangling reference and no unused part`, () => {
      const used = new Set(
        JSON.stringify(document).match(/(?<="\$ref":")[^"]+/g),
      );
      for (const pointer of used) {
        assert.ok(resolve(document, pointer), pointer);
      }
      const { schemas, responses } = document.components;
      const parts = Object.entries<object>({ schemas, responses }).flatMap((
        [kind, named],
      ) => Object.keys(named).map((key) => `#/components/${kind}/${key}`));
      assert.deepEqual([...used].sort(), parts.sort());
    });

    test(`${name} has the methods that Allow lists, and other names for all`, async () => {
      const names: string[] = [];
      for (
        const [path, { parameters, ...item }] of Object.entries<Json>(
          document.paths,
        )
      ) {
        const { headers } = await request(
          `OPTIONS ${path.replace(/\{\w+\}/g, "1")}`,
        );
        const methods = Object.keys(item).map((method) => method.toUpperCase());
        const allowed = String(headers["allow"]).split(", ");
        const others = allowed.filter((method) => !methods.includes(method));
        assert.deepEqual(
          others.sort(),
          ["OPTIONS", ...(item.get ? ["HEAD"] : [])].sort(),
          path,
        );
        assert.deepEqual(
          parameters.map(({ name }: Json) => `{${name}}`),
          path.match(/\{\w+\}/g) ?? [],
        );
        names.push(
          ...Object.values<Json>(item).map(({ operationId }) => operationId),
        );
      }
      assert.equal(new Set(names).size, names.length);
      assert.ok(names.every((each) => /^[a-z][A-Za-z0-9]+$/.test(each)));
    });
  }

  test("has plain schemas, without the files of the page", () => {
    const { openapi, info, paths, components: { schemas } } = document;
    assert.equal(openapi, "3.1.1");
    assert.equal(info.title, "zoo-api");
    assert.ok(!Object.keys(paths).some((path) => path.startsWith("/page")));
    const { Zoo } = schemas;
    assert.deepEqual(Zoo.required.sort(), Object.keys(Zoo.properties).sort());
    assert.deepEqual(schemas["Zoo.New"].required, ["name", "city", "country"]);
    assert.equal(schemas["Zoo.Patch"].required.length, 0);
    assert.equal(schemas.User.properties.password, undefined);
    assert.equal(schemas["User.New"].properties.password.writeOnly, true);
    const { get: list, post } = paths["/v1/zoos"];
    const { schema } = list.responses[200].content["application/json"];
    assert.deepEqual(schema, {
      type: "array",
      items: { $ref: "#/components/schemas/Zoo" },
    });
    assert.deepEqual([list.operationId, post.operationId], [
      "listZoos",
      "createZoo",
    ]);
    assert.deepEqual(list.security, [{}, { bearer: [] }]);
    assert.deepEqual(post.security, [{ bearer: [] }]);
    assert.match(list.description, /application\/x-ndjson/);
    assert.match(post.description, /arrays.*202.*application\/x-ndjson/);
    const filter = (path: string, name: string) =>
      paths[path].get.parameters.find((each: Json) => each.name === name)
        ?.schema;
    assert.deepEqual(filter("/v1/animals", "sex:in").items.enum, [
      "female",
      "male",
      "unknown",
    ]);
    assert.equal(filter("/v1/animals", "sex:lt"), undefined);
    assert.deepEqual(filter("/v1/animals", "weight_kg:ne"), {
      anyOf: [{ type: "number" }, { const: "null" }],
    });
    assert.deepEqual(filter("/v1/animals", "species:starts"), {
      type: "string",
    });
    assert.doesNotMatch(JSON.stringify(servers[1]?.document), /zoo/i);
  });

  test("has the whole BASE_URL", async () => {
    const { origin } = await serve({
      FEATURES: "openapi",
      BASE_URL: "https://api.example/a/",
    });
    const { json } = await send(origin, "/a/v1/openapi.json");
    assert.deepEqual(json.servers, [{ url: "https://api.example/a" }]);
    assert.ok(json.paths["/v1/zoos"]);
    assert.doesNotMatch(
      JSON.stringify(json),
      /ndjson|Idempotency|If-Match|arrays|task/,
    );
  });
});
