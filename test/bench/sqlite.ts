/** node:http over node:sqlite, where Node.js has it: each write is on the disk before its response. */

import { readFileSync } from "node:fs";
import process from "node:process";
import { listen } from "./peer.ts";

const { DatabaseSync } = await import(String("node:sqlite")); // unknown to the types of Node.js 20
const { DATA_DIR, SEED } = process.env;
const database = new DatabaseSync(`${DATA_DIR}.sqlite`);
database.exec(
  `PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE IF NOT EXISTS animals (id INTEGER PRIMARY KEY, body TEXT)`,
);
const insert = database.prepare("INSERT INTO animals (body) VALUES (?)");
const one = database.prepare("SELECT body FROM animals WHERE id = ?");
const some = database.prepare("SELECT body FROM animals LIMIT 20 OFFSET 40");
const post = (body: string) => {
  insert.run(body);
  return body;
};
if (SEED && !one.get(1)) {
  database.exec("BEGIN");
  for (const animal of JSON.parse(readFileSync(SEED, "utf8")).animals) {
    post(JSON.stringify(animal));
  }
  database.exec("COMMIT");
}
const bodyOf = ({ body = "" } = {}) => body;
listen(
  (id) => bodyOf(one.get(id)),
  () => `[${some.all().map(bodyOf)}]`,
  post,
);
