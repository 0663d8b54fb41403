/** The OpenAPI document by itself; every other test validates its responses against it. */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import { createReader } from "../../../src/cli/command-line.ts";
import { collection } from "../../../src/api/declaration/declaration.ts";
import {
  choice,
  reference,
  string,
} from "../../../src/api/declaration/properties.ts";
import { buildRoutes } from "../../../src/api/routes.ts";
import { TokenSigner } from "../../../src/auth/jwt.ts";
import { collections, sample } from "../../collections.ts";
import { operatorContext } from "../../operator.ts";
import { feature } from "../../../src/features/openapi/feature.ts";
import { type Running, startApplication } from "../../application.ts";
import { type Body, jwtSecret, type Server, start } from "../../harness.ts";
import { checkResponse } from "../../replay.ts";
import { parametersOf } from "./document.ts";

const visits = collection({
  name: "visits",
  singular: "visit",
  access: { read: "viewer", write: "keeper", delete: "keeper" },
  properties: {
    animal_id: reference("animals"),
    reason: choice("check-up", "illness"),
    note: string({ maxLength: 20 }),
  },
});

/** Counts the turns of the event loop until the function that it returns is called. */
function countTurns(): () => number {
  let turns = 0;
  let isDone = false;
  const count = () => {
    if (isDone) return;
    turns++;
    setImmediate(count);
  };
  setImmediate(count);
  return () => {
    isDone = true;
    return turns;
  };
}

describe("the OpenAPI document", () => {
  let running: Running;
  let document: Body;
  before(async () => {
    running = await startApplication({
      declarations: [...collections, visits],
    });
    ({ body: document } = await running.request("GET", "/v1/openapi.json"));
  });
  after(() => running.stop());

  /** Returns a parameter of GET of a path. */
  function parameterOf(path: string, name: string) {
    const { get, parameters } = document.paths[path] ?? {};
    return [parameters, get?.parameters]
      .flatMap((each) => parametersOf(document, each))
      .find((each) => each.name === name);
  }

  test("is linked from the root document", async () => {
    const { body: root } = await running.request("GET", "/");
    assert.equal(root.openapi_url, "/v1/openapi.json");
  });

  test("is not sent again to a client that has it", async () => {
    const first = await running.request("HEAD", "/v1/openapi.json");
    const etag = first.headers.get("etag") ?? "";
    assert.match(etag, /^"[\w-]+"$/);
    const again = await running.request("GET", "/v1/openapi.json", {
      headers: { "if-none-match": etag },
    });
    assert.equal(again.status, 304);
    assert.equal(again.headers.get("etag"), etag);
    assert.equal(again.text, "");
  });

  test("is created in steps, between which other requests are handled, and only once", async () => {
    const { routes } = buildRoutes({
      declaration: sample,
      store: running.store,
      signer: new TokenSigner([jwtSecret], "zoo-api"),
      base: { origin: "", path: "/" },
      now: Date.now,
      log: () => {},
      settings: createReader(new Map(), {}),
    }, [feature]);
    const get = routes.get("/v1/openapi.json")?.operations.get("GET");
    const read = async () => await get?.run(operatorContext(), undefined, {});
    const whileReading = countTurns();
    const [first, second] = await Promise.all([read(), read()]);
    const turns = whileReading();
    const whileReadingAgain = countTurns();
    const third = await read();
    assert.equal(whileReadingAgain(), 0);
    const paths = Object.keys(JSON.parse(String(first?.body)).paths).length;
    assert.ok(paths > 10);
    assert.ok(turns >= paths, `${turns} turns for ${paths} URLs`);
    assert.deepEqual([second, third], [first, first]);
  });

  test("has every URL with every method that Allow lists there", async () => {
    const paths = Object.keys(document.paths);
    assert.ok(paths.includes("/v1/animals/{animal_id}/visits/{id}"));
    for (const path of paths) {
      const address = path.replace(/\{\w+\}/g, "1");
      const { headers } = await running.request("OPTIONS", address);
      const { parameters: _, ...item } = document.paths[path] ?? {};
      const described = Object.keys(item)
        .map((key) => key.replace("x-", "").toUpperCase());
      // HEAD is GET, and OPTIONS is the same everywhere.
      const all = [...described, "OPTIONS", ...(item["get"] ? ["HEAD"] : [])];
      assert.deepEqual(
        [...new Set(all)].sort(),
        headers.get("allow")?.split(", ").sort(),
        path,
      );
    }
  });

  test("has no dangling reference and no unused component", () => {
    const references = new Set(
      JSON.stringify(document).match(/(?<="\$ref":"#\/)[^"]+/g),
    );
    const parts = Object.entries<object>(document.components)
      .filter(([kind]) => kind !== "securitySchemes")
      .flatMap(([kind, named]) =>
        Object.keys(named).map((name) => `components/${kind}/${name}`)
      );
    assert.deepEqual([...references].sort(), parts.sort());
  });

  test("gives each operation a unique name", () => {
    const names = Object.values<object>(document.paths)
      .flatMap((item) => Object.values(item))
      .flatMap(({ operationId }) => operationId ?? []);
    for (
      const name of [
        "listZooAnimals",
        "createZoo",
        "updateZooAnimal",
        "signIn",
        "getOwnUser",
        "updateOwnUser",
      ]
    ) assert.ok(names.includes(name), name);
    assert.equal(new Set(names).size, names.length);
  });

  test("describes the operand of each operator of each filter", () => {
    assert.deepEqual(parameterOf("/v1/visits", "reason:in"), {
      name: "reason:in",
      in: "query",
      schema: {
        type: "array",
        items: { type: "string", enum: ["check-up", "illness"] },
        minItems: 1,
      },
    });
    assert.equal(parameterOf("/v1/visits", "reason:lt"), undefined);
    const { schema } = parameterOf("/v1/animals", "weight_kg") ?? {};
    assert.deepEqual(schema, {
      anyOf: [{ type: "number" }, { const: "null" }],
    });
  });

  test("states the limits of strings and integers", () => {
    const { schemas } = document.components;
    const { pattern = "" } = schemas["ZooPatch"]?.properties?.["name"] ?? {};
    const isAllowed = (text: string) => new RegExp(pattern, "u").test(text);
    assert.ok(isAllowed("Artis"));
    assert.ok(isAllowed(" \u{1f418} "));
    for (const text of ["", "  ", "a\u0000", "\n", "a\u009fb"]) {
      assert.ok(!isAllowed(text), JSON.stringify(text));
    }
    for (const name of ["offset", "page", "id", "zoo_id", "animal_type_id"]) {
      const { schema } = parameterOf("/v1/zoos/{zoo_id}/animals", name) ?? {};
      assert.equal(schema?.maximum, Number.MAX_SAFE_INTEGER, name);
    }
  });

  test("has different schemas for request bodies and records", () => {
    const { schemas } = document.components;
    assert.equal(schemas.UserPart?.properties?.password, undefined);
    assert.equal(schemas.UserPatch?.properties?.password?.writeOnly, true);
    assert.deepEqual(schemas.UserNew?.required, ["username", "password"]);
    assert.deepEqual(schemas.UserNewButPassword?.required, ["username"]);
    assert.deepEqual(schemas.UserPatch?.required, undefined);
    assert.equal(schemas.VisitPatch?.properties?.id?.readOnly, true);
    assert.deepEqual(schemas.VisitNewButAnimalId?.required, ["reason", "note"]);
  });

  test("is what the tests validate every response against", () => {
    const address = new URL("http://localhost/v1/visits");
    const headers = new Headers({
      "content-type": "application/json; charset=utf-8",
      "x-request-id": "1",
    });
    const answer = { method: "GET", address, headers };
    const check = (status: number, body: unknown) => () =>
      checkResponse(document, {
        ...answer,
        status,
        text: JSON.stringify(body),
      });
    const visit = {
      id: 1,
      animal_id: 1,
      reason: "illness",
      note: "a",
      created_at: "2026-01-01T00:00:00.000Z",
      updated_at: "2026-01-01T00:00:00.000Z",
      url: "/v1/visits/1",
      animal_url: "/v1/animals/1",
    };
    check(200, [visit])();
    assert.throws(check(202, [visit]), /status/);
    assert.throws(check(200, visit), /type/);
    assert.throws(check(200, [{ ...visit, more: 1 }]), /more/);
    assert.throws(check(200, [{ ...visit, reason: "none" }]), /enum/);
    const { note: _, ...less } = visit;
    assert.throws(check(200, [less]), /required note/);
    headers.set("x-more", "1");
    assert.throws(check(200, [visit]), /x-more/);
  });
});

test("with a complete BASE_URL, the document contains it", async () => {
  const server: Server = await start({
    args: ["--base-url", "https://example.com/api"],
  });
  try {
    const { body } = await server.request("GET", "/api/v1/openapi.json");
    assert.deepEqual(body.servers, [{ url: "https://example.com/api" }]);
    assert.ok(body.paths["/v1/zoos"]);
    assert.equal(body.paths["/api"], undefined);
  } finally {
    await server.stop();
  }
});
