/** The functions that @hey-api/openapi-ts generates, with a client of its own. */

import { strict as assert } from "node:assert";
import process from "node:process";
import { client } from "./generated/hey/client.gen.js";
import {
  createZoo,
  deleteZoo,
  exportZoos,
  getZoo,
  importZoos,
  listZoos,
  signIn,
  updateZoo,
} from "./generated/hey/sdk.gen.js";

const [baseUrl = "", password = ""] = process.argv.slice(2);
client.setConfig({ baseUrl });
const signedIn = await signIn({ body: { username: "admin", password } });
assert.ok(signedIn.data, JSON.stringify(signedIn.error));
client.setConfig({ baseUrl, auth: signedIn.data.token });

const zoo = { name: "Zoo Basel", city: "Basel", country: "CH" };
const made = await createZoo({ body: zoo });
assert.ok(made.data, JSON.stringify(made.error));
const { id, city } = made.data;
assert.equal(city, "Basel");

const page = await listZoos({
  query: { sortby: ["name", "id"], order: ["desc"], "id:in": [id, id + 1] },
});
assert.deepEqual(page.data?.map(({ name }) => name), ["Zoo Basel"]);

const path = { id };
const changed = await updateZoo({ path, body: { opened_on: "1874-07-03" } });
assert.equal(changed.data?.opened_on, "1874-07-03");

const refused = await createZoo({ body: { ...zoo, country: "Switzerland" } });
assert.equal(refused.response?.status, 422);
const fields = refused.error?.errors?.map(({ field }) => field);
assert.deepEqual(fields, ["country"]);

const lines = `${JSON.stringify(zoo)}\n`;
const queued = await importZoos({ body: lines, bodySerializer: null });
assert.equal(queued.data?.type, "import", JSON.stringify(queued.error));
const exported = await exportZoos({
  query: { city: "Basel", sortby: ["id"] },
  parseAs: "text",
});
assert.match(exported.data ?? "", /^\{"id":\d+,"name":"Zoo Basel"/);

const gone = await deleteZoo({ path });
assert.equal(gone.response?.status, 204);
assert.equal((await getZoo({ path })).response?.status, 410);
