/**
 * What a purist would pick instead: node:http with node:sqlite, WAL,
 * synchronous=FULL and the right indexes. It checks the token of a write and
 * the form of its body, and no more. Arguments: folder, number of animals.
 */

import { createServer, type ServerResponse } from "node:http";
import { join } from "node:path";
import process from "node:process";
import { text } from "node:stream/consumers";
import { TokenSigner } from "../../src/auth/jwt.ts";
import { jwtSecret } from "../harness.ts";
import { animal, zoos } from "./data.ts";

type Value = string | number | null;

interface Statement {
  run(...values: readonly unknown[]): { readonly lastInsertRowid: number };
  get(...values: readonly unknown[]): Record<string, Value> | undefined;
  all(...values: readonly unknown[]): Record<string, Value>[];
}

interface Database {
  exec(sql: string): void;
  prepare(sql: string): Statement;
}

// The types are those of a Node that does not have it.
const module = process.getBuiltinModule("node:sqlite") as unknown as {
  readonly DatabaseSync: new (path: string) => Database;
};
const [folder = "", count = "0"] = process.argv.slice(2);
const db = new module.DatabaseSync(join(folder, "animals.db"));
db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  CREATE TABLE zoos (id INTEGER PRIMARY KEY, name TEXT);
  CREATE TABLE animals (id INTEGER PRIMARY KEY, zoo_id INTEGER,
    animal_type_id INTEGER, name TEXT, species TEXT, sex TEXT, born_on TEXT,
    weight_kg REAL, created_at TEXT, updated_at TEXT);
  CREATE INDEX by_name ON animals (name, id);
  CREATE INDEX by_zoo ON animals (zoo_id, name, id);
  CREATE INDEX by_weight ON animals (weight_kg, id);
  BEGIN`);
const names = Object.keys(animal(1));
const insert = db.prepare(
  `INSERT INTO animals (${names.join()}) VALUES (${
    names.map(() => "?").join()
  })`,
);
const insertZoo = db.prepare("INSERT INTO zoos VALUES (?, ?)");
for (const { id, name } of zoos(Number(count))) insertZoo.run(id, name);
for (let id = 1; id <= Number(count); id++) {
  insert.run(...Object.values(animal(id)));
}
db.exec("COMMIT");

const one = db.prepare("SELECT * FROM animals WHERE id = ?");
const zoo = db.prepare("SELECT id FROM zoos WHERE id = ?");
const rename = db.prepare(
  "UPDATE animals SET name = ?, updated_at = ? WHERE id = ?",
);
const signer = new TokenSigner([jwtSecret], "zoo-api");

/** Prepared once for each form of query. */
const statements = new Map<string, Statement>();
function prepared(sql: string): Statement {
  const statement = statements.get(sql) ?? db.prepare(sql);
  statements.set(sql, statement);
  return statement;
}

function answer(
  response: ServerResponse,
  { status = 200, body, headers = {} }: {
    readonly status?: number;
    readonly body: unknown;
    readonly headers?: Readonly<Record<string, string>>;
  },
): void {
  response.writeHead(status, {
    "Content-Type": "application/json",
    ...headers,
  });
  response.end(JSON.stringify(body));
}

function list(url: URL, zooId: string | undefined): {
  readonly body: unknown;
  readonly headers: Readonly<Record<string, string>>;
} {
  const wanted = url.searchParams;
  const by = names.find((name) => name === wanted.get("sortby")) ?? "id";
  const order = wanted.get("order") === "desc" ? "DESC" : "ASC";
  const conditions: string[] = [];
  const values: unknown[] = [];
  if (zooId !== undefined) {
    conditions.push("zoo_id = ?");
    values.push(Number(zooId));
  }
  const least = wanted.get("weight_kg:gte");
  if (least !== null) {
    conditions.push("weight_kg >= ?");
    values.push(Number(least));
  }
  const where = conditions.length ? `WHERE ${conditions.join(" AND ")}` : "";
  const counted = prepared(`SELECT count(*) n FROM animals ${where}`);
  const total = counted.get(...values)?.["n"];
  const rows = prepared(
    `SELECT * FROM animals ${where} ORDER BY ${by} ${order}, id ${order} LIMIT ? OFFSET ?`,
  ).all(
    ...values,
    Number(wanted.get("limit") ?? 20),
    Number(wanted.get("offset") ?? 0),
  );
  return { body: rows, headers: { "X-Total-Count": `${total}` } };
}

const server = createServer(async (request, response) => {
  const url = new URL(request.url ?? "", "http://localhost");
  const [, , first, id, second] = url.pathname.split("/");
  if (request.method === "GET") {
    const body = first === "animals" && id ? one.get(Number(id)) : undefined;
    return answer(response, body ? { body } : list(url, second && id));
  }
  const token = request.headers.authorization?.slice(7) ?? "";
  signer.verify(token, Date.now() / 1000);
  const body = JSON.parse(await text(request));
  if (typeof body.name !== "string") throw new Error("no name");
  const now = new Date().toISOString();
  if (id !== undefined) {
    rename.run(body.name, now, Number(id));
    return answer(response, { body: one.get(Number(id)) });
  }
  if (!zoo.get(body.zoo_id)) throw new Error("no such zoo");
  const record = { ...animal(1), ...body, created_at: now, updated_at: now };
  const made = insert.run(
    ...names.map((name) => name === "id" ? null : record[name]),
  );
  record.id = Number(made.lastInsertRowid);
  answer(response, { status: 201, body: record });
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  process.stdout.write(`listening on http://127.0.0.1:${port} \n`);
});
process.on("SIGTERM", () => process.exit(0));
