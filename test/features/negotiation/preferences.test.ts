/** The preferences of RFC 7240: a response without the record. */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import { assertError, type Server, start } from "../../harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

let server: Server;
let token: string;

before(async () => {
  server = await start();
  token = await server.signIn();
});

after(() => server.stop());

describe("Prefer", () => {
  const minimal = { prefer: "return=minimal" };

  test("return=minimal omits the record", async () => {
    const made = await server.request("POST", "/v1/zoos", {
      token,
      json: zoo,
      headers: minimal,
    });
    assert.equal(made.status, 201);
    const path = made.headers.get("location") ?? "";
    for (const [method, status] of [["PUT", 204], ["PATCH", 204]] as const) {
      const json = { ...zoo, name: method };
      const options = { token, json, headers: minimal };
      const answer = await server.request(method, path, options);
      assert.equal(answer.status, status);
      assert.equal(answer.text, "");
      const { headers } = answer;
      assert.equal(headers.get("preference-applied"), "return=minimal");
      assert.equal(headers.get("content-type"), null);
      assert.match(headers.get("vary") ?? "", /\bPrefer\b/);
      assert.equal(headers.has("etag"), method === "PATCH");
      const location = headers.get("content-location");
      assert.equal(location, method === "PUT" ? path : null);
      const now = await server.request("GET", path);
      assert.equal(now.body.name, method);
      assert.equal(
        headers.get("etag") ?? now.headers.get("etag"),
        now.headers.get("etag"),
      );
    }
    assert.equal(made.text, "");
    assert.equal(made.headers.get("content-type"), null);
    assert.equal(made.headers.get("content-length"), "0");
    assert.equal(made.headers.get("preference-applied"), "return=minimal");
    assert.match(made.headers.get("etag") ?? "", /^"/);
  });

  test("return=representation changes nothing but is reported as applied", async () => {
    for (
      const prefer of [
        "return=representation",
        'Return = "representation"; x, return=minimal',
      ]
    ) {
      const headers = { prefer };
      const options = { token, json: zoo, headers };
      const answer = await server.request("POST", "/v1/zoos", options);
      assert.equal(answer.status, 201);
      assert.equal(answer.body.name, zoo.name);
      const applied = answer.headers.get("preference-applied");
      assert.equal(applied, "return=representation");
    }
  });

  test("signing in returns its token regardless", async () => {
    const json = { username: "admin", password: "correct horse battery" };
    const options = { json, headers: minimal };
    const answer = await server.request("POST", "/v1/authorizations", options);
    assert.equal(answer.status, 201);
    assert.match(answer.body.token, /^ey/);
    assert.equal(answer.headers.get("preference-applied"), null);
    assert.equal(answer.headers.get("cache-control"), "no-store");
  });

  test("shortens no error and no GET", async () => {
    const options = { token, json: {}, headers: minimal };
    assertError(await server.request("POST", "/v1/zoos", options), 42200);
    const list = await server.request("GET", "/v1/zoos", { headers: minimal });
    assert.equal(list.status, 200);
    assert.ok(list.body.length > 0);
    assert.equal(list.headers.get("preference-applied"), null);
    // Vary must name every field that changes the response.
    assert.equal(list.headers.get("vary"), "Accept");
  });

  test("unknown preferences are ignored", async () => {
    const headers = { prefer: "handling=strict, respond-async, wait=5" };
    const options = { token, json: zoo, headers };
    const answer = await server.request("POST", "/v1/zoos", options);
    assert.equal(answer.status, 201);
    const applied = answer.headers.get("preference-applied");
    assert.equal(applied, null);
    const strict = { ...options, json: { ...zoo, nope: 1 } };
    assertError(await server.request("POST", "/v1/zoos", strict), 42200);
    const unknown = { ...options, headers: { prefer: "return=nothing" } };
    const whole = await server.request("POST", "/v1/zoos", unknown);
    assert.equal(whole.headers.get("preference-applied"), null);
    assert.equal(whole.body.name, zoo.name);
  });
});
