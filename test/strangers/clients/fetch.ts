/**
 * A program as a third party would write it: with the types that
 * openapi-typescript generates from the document, and openapi-fetch. run.ts
 * compiles and runs it in a folder where both are installed.
 */

import { strict as assert } from "node:assert";
import process from "node:process";
import { jwtVerify } from "jose";
import createClient from "openapi-fetch";
import type { components, paths } from "./api.d.ts";

const [baseUrl = "", password = "", secret = ""] = process.argv.slice(2);
const session: { token?: string } = {};
const client = createClient<paths>({ baseUrl });
client.use({
  onRequest({ request }) {
    const { token } = session;
    if (token) request.headers.set("authorization", `Bearer ${token}`);
    return request;
  },
});

const signedIn = await client.POST("/v1/authorizations", {
  body: { username: "admin", password },
});
assert.ok(signedIn.data, JSON.stringify(signedIn.error));
const { token } = signedIn.data;
session.token = token;
const { payload, protectedHeader } = await jwtVerify(
  token,
  new TextEncoder().encode(secret),
  { issuer: "zoo-api", algorithms: ["HS256"], typ: "JWT" },
);
assert.equal(protectedHeader.alg, "HS256");
assert.equal(payload.jti, String(signedIn.data.id));
await assert.rejects(
  jwtVerify(token, new TextEncoder().encode("x".repeat(32))),
);

const zoo: components["schemas"]["ZooNew"] = {
  name: "Zoo Basel",
  city: "Basel",
  country: "CH",
};
const made = await client.POST("/v1/zoos", { body: zoo });
assert.ok(made.data, JSON.stringify(made.error));
const { id, opened_on } = made.data;
assert.equal(opened_on, null);
const etag = made.response.headers.get("etag") ?? "";

const changed = await client.PATCH("/v1/zoos/{id}", {
  params: { path: { id }, header: { "If-Match": etag } },
  body: { opened_on: "1874-07-03" },
});
assert.equal(changed.data?.opened_on, "1874-07-03");
const again = await client.PATCH("/v1/zoos/{id}", {
  params: { path: { id }, header: { "If-Match": etag } },
  body: { opened_on: null },
});
assert.equal(again.response.status, 412);

for (const sex of ["female", "male"] as const) {
  const animal = await client.POST("/v1/zoos/{zoo_id}/animals", {
    params: { path: { zoo_id: id } },
    body: { name: "Momo", animal_type_id: 17, sex, weight_kg: 5.4 },
  });
  assert.equal(animal.data?.zoo_id, id);
}
const found = await client.GET("/v1/zoos/{zoo_id}/animals", {
  params: {
    path: { zoo_id: id },
    query: {
      "weight_kg:gt": 5,
      "sex:in": ["male", "unknown"],
      fields: ["name", "sex"],
      sortby: ["name", "id"],
      order: ["desc", "asc"],
      limit: 10,
    },
  },
});
assert.equal(found.response.headers.get("x-total-count"), "1");
assert.deepEqual(found.data?.map(({ name, sex }) => ({ name, sex })), [
  { name: "Momo", sex: "male" },
]);

const refused = await client.POST("/v1/zoos", {
  body: { ...zoo, country: "Switzerland" },
});
assert.equal(refused.error?.errorCode, 42200);
assert.equal(refused.error.errors?.[0]?.field, "country");

const conflict = await client.DELETE("/v1/zoos/{id}", {
  params: { path: { id } },
});
assert.equal(conflict.response.status, 409);
const gone = await client.DELETE("/v1/zoos/{id}", {
  params: { path: { id }, query: { cascade: true } },
});
assert.equal(gone.response.status, 204);
const { response } = await client.GET("/v1/zoos/{id}", {
  params: { path: { id } },
});
assert.equal(response.status, 410);

const me = await client.GET("/v1/user");
assert.equal(me.data?.username, "admin");
