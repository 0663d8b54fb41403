/** What somebody writes with openapi-typescript and openapi-fetch. */

import assert from "node:assert/strict";
import process from "node:process";
import createClient from "openapi-fetch";
import type { components, paths } from "./fetch/api.d.ts";

const client = createClient<paths>({ baseUrl: process.argv[2] ?? "" });
const signedIn = await client.POST("/v1/authorizations", {
  body: { username: "admin", password: "admin-password" },
});
const token: string = signedIn.data?.token ?? "";
client.use({
  onRequest({ request }) {
    request.headers.set("Authorization", `Bearer ${token}`);
    return request;
  },
});
const zoo: components["schemas"]["Zoo.New"] = {
  name: "Zoo Basel",
  city: "Basel",
  country: "CH",
};
const made = await client.POST("/v1/zoos", { body: zoo });
assert.ok(made.data, made.error?.error);
const { id, opened_on } = made.data;
const opened: string | null = opened_on;
assert.equal(opened, null);
const path = { id };
const etag = made.response.headers.get("etag") ?? "";
for (const status of [201, 412]) {
  const { response } = await client.PATCH("/v1/zoos/{id}", {
    params: { path, header: { "If-Match": etag } },
    body: { opened_on: "1874-07-03" },
  });
  assert.equal(response.status, status);
}
const animal = await client.POST("/v1/zoos/{zoo_id}/animals", {
  params: { path: { zoo_id: id } },
  body: { name: "Momo", animal_type_id: 17, sex: "male", weight_kg: 5.4 },
});
assert.equal(animal.data?.zoo_id, id);
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
const names: string[] | undefined = found.data?.map(({ name }) => name);
assert.deepEqual(names, ["Momo"]);
const refused = await client.POST("/v1/zoos", {
  body: { ...zoo, country: "Switzerland" },
});
assert.equal(refused.error?.errors?.[0]?.field, "country");
const gone = await client.DELETE("/v1/zoos/{id}", {
  params: { path, query: { cascade: true } },
});
assert.equal(gone.response.status, 204);
