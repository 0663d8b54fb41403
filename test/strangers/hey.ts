/** What somebody writes with the functions that @hey-api/openapi-ts generates. */

import assert from "node:assert/strict";
import process from "node:process";
import { client } from "./hey/client.gen.ts";
import {
  createZoo,
  deleteZoo,
  getZoo,
  listZoos,
  signIn,
  updateZoo,
} from "./hey/sdk.gen.ts";

const baseUrl = process.argv[2] ?? "";
client.setConfig({ baseUrl });
const signedIn = await signIn({
  body: { username: "admin", password: "admin-password" },
});
assert.ok(signedIn.data);
client.setConfig({ baseUrl, auth: signedIn.data.token });
const zoo = { name: "Zoo Chur", city: "Chur", country: "CH" };
const made = await createZoo({ body: zoo });
assert.ok(made.data);
const { id, city } = made.data;
assert.equal(city, "Chur");
const page = await listZoos({
  query: { sortby: ["name", "id"], order: ["desc"], "id:in": [id, id + 1] },
});
assert.deepEqual(page.data?.map(({ name }) => name), ["Zoo Chur"]);
const path = { id };
const changed = await updateZoo({ path, body: { opened_on: "1874-07-03" } });
assert.equal(changed.data?.opened_on, "1874-07-03");
const refused = await createZoo({ body: { ...zoo, country: "Switzerland" } });
assert.deepEqual(refused.error?.errors?.map(({ field }) => field), ["country"]);
assert.equal((await deleteZoo({ path })).response?.status, 204);
assert.equal((await getZoo({ path })).response?.status, 410);
