/** What somebody writes with the functions that orval generates. */

import assert from "node:assert/strict";
import process from "node:process";
import {
  createZoo,
  deleteZoo,
  getZoo,
  listZoos,
  signIn,
  updateZoo,
} from "./orval/api.ts";

let token = "";
const plain = globalThis.fetch;
globalThis.fetch = (url, init) => {
  const headers = new Headers(init?.headers);
  if (token) headers.set("Authorization", `Bearer ${token}`);
  return plain(new URL(String(url), process.argv[2]), { ...init, headers });
};
const signedIn = await signIn({
  username: "admin",
  password: "admin-password",
});
assert.ok(signedIn.status === 201);
({ token } = signedIn.data);
const zoo = { name: "Zoo Bern", city: "Bern", country: "CH" };
const made = await createZoo(zoo);
assert.ok(made.status === 201);
const { id, city } = made.data;
assert.equal(city, "Bern");
const page = await listZoos({
  sortby: ["name", "id"],
  order: ["desc"],
  "id:in": [id, id + 1],
});
assert.ok(page.status === 200);
assert.deepEqual(page.data.map(({ name }) => name), ["Zoo Bern"]);
const changed = await updateZoo(id, { opened_on: "1874-07-03" });
assert.ok(changed.status === 201);
assert.equal(changed.data.opened_on, "1874-07-03");
const refused = await createZoo({ ...zoo, country: "Switzerland" });
assert.ok(refused.status !== 201);
assert.deepEqual(refused.data.errors?.map(({ field }) => field), ["country"]);
assert.equal((await deleteZoo(id)).status, 204);
const gone: number = (await getZoo(id)).status;
assert.equal(gone, 410);
