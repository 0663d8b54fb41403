/** The functions that orval generates: it names them after the operations, and sends each request with fetch. */

import { strict as assert } from "node:assert";
import process from "node:process";
import {
  createZoo,
  deleteZoo,
  exportZoos,
  getZoo,
  importZoos,
  listZoos,
  signIn,
  updateZoo,
} from "./generated/orval.ts";

const [origin = "", password = ""] = process.argv.slice(2);
const session: { token?: string } = {};
const send = globalThis.fetch;
globalThis.fetch = (url, init) => {
  const headers = new Headers(init?.headers);
  const { token } = session;
  if (token) headers.set("authorization", `Bearer ${token}`);
  return send(new URL(String(url), origin), { ...init, headers });
};

const signedIn = await signIn({ username: "admin", password });
assert.ok(signedIn.status === 201);
session.token = signedIn.data.token;

const zoo = { name: "Zoo Basel", city: "Basel", country: "CH" };
const made = await createZoo(zoo);
assert.ok(made.status === 201);
const { id, city } = made.data;
assert.equal(city, "Basel");

const page = await listZoos({
  sortby: ["name", "id"],
  order: ["desc"],
  "id:in": [id, id + 1],
});
assert.ok(page.status === 200);
assert.deepEqual(page.data.map(({ name }) => name), ["Zoo Basel"]);

const changed = await updateZoo(id, { opened_on: "1874-07-03" });
assert.ok(changed.status === 201);
assert.equal(changed.data.opened_on, "1874-07-03");

const refused = await createZoo({ ...zoo, country: "Switzerland" });
assert.ok(refused.status === 422);
assert.deepEqual(refused.data.errors?.map(({ field }) => field), ["country"]);

const queued = await importZoos(`${JSON.stringify(zoo)}\n`);
assert.ok(queued.status === 202);
assert.equal(queued.data.type, "import");
assert.equal(typeof exportZoos, "function"); // it expects JSON from every URL

const gone = await deleteZoo(id);
assert.equal(gone.status, 204);
assert.equal((await getZoo(id)).status, 410);
