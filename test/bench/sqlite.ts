/**
 * The usual alternative: node:http with node:sqlite, or Bun with bun:sqlite, in
 * WAL mode with synchronous=FULL and the right indexes. Writes check the token
 * and the body, and all waiting ones share one transaction. Arguments: folder,
 * number of animals.
 */

import { Buffer } from "node:buffer";
import { createServer } from "node:http";
import { join } from "node:path";
import process from "node:process";
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

type Open = new (path: string) => Database;

// The installed types are of a Node.js that has neither.
const isBun = "bun" in process.versions;
const sqlite = await import(isBun ? "bun:sqlite" : "node:sqlite") as {
  readonly Database: Open;
  readonly DatabaseSync: Open;
};
const [folder = "", count = "0"] = process.argv.slice(2);
const file = join(folder, isBun ? "bun.db" : "node.db");
const db = new (isBun ? sqlite.Database : sqlite.DatabaseSync)(file);
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

interface Reply {
  readonly status?: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

function list(url: URL, zooId: string | undefined): Reply {
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

/** Tokens whose signature was verified, which zoo-api caches too. */
const verified = new Set<string>();

/** Writes of the next transaction. */
let waiting: { write: () => Reply; resolve: (reply: Reply) => void }[] = [];

function commitTogether(): void {
  const batch = waiting;
  waiting = [];
  db.exec("BEGIN");
  const replies = batch.map(({ write }) => write());
  db.exec("COMMIT");
  for (const [index, { resolve }] of batch.entries()) {
    const reply = replies[index];
    if (reply) resolve(reply);
  }
}

function commit(write: () => Reply): Promise<Reply> {
  return new Promise((resolve) => {
    waiting.push({ write, resolve });
    if (waiting.length === 1) setImmediate(commitTogether);
  });
}

function handle(
  { method, url, token, text }: {
    readonly method: string | undefined;
    readonly url: URL;
    readonly token: string;
    readonly text: string;
  },
): Reply | Promise<Reply> {
  const [, , first, id, second] = url.pathname.split("/");
  if (method === "GET") {
    const body = first === "animals" && id ? one.get(Number(id)) : undefined;
    return body ? { body } : list(url, second && id);
  }
  if (!verified.has(token)) signer.verify(token);
  verified.add(token);
  const body = JSON.parse(text);
  const { name } = body;
  if (typeof name !== "string" || name.length < 1 || name.length > 100) {
    throw new Error("no name");
  }
  const now = new Date().toISOString();
  if (id !== undefined) {
    return commit(() => {
      rename.run(name, now, Number(id));
      return { body: one.get(Number(id)) };
    });
  }
  const record = { ...animal(1), ...body, created_at: now, updated_at: now };
  return commit(() => {
    if (!zoo.get(body.zoo_id)) throw new Error("no such zoo");
    const made = insert.run(
      ...names.map((name) => name === "id" ? null : record[name]),
    );
    record.id = Number(made.lastInsertRowid);
    return { status: 201, body: record };
  });
}

const tokenOf = (authorization: string | null | undefined) =>
  authorization?.slice(7) ?? "";
const type = { "Content-Type": "application/json" };

function serveWithNode(): void {
  const server = createServer(async (request, response) => {
    const parts: Uint8Array[] = [];
    for await (const part of request) parts.push(part);
    const { status = 200, body, headers } = await handle({
      method: request.method,
      url: new URL(request.url ?? "", "http://localhost"),
      token: tokenOf(request.headers.authorization),
      text: Buffer.concat(parts).toString(),
    });
    response.writeHead(status, { ...type, ...headers });
    response.end(JSON.stringify(body));
  });
  server.listen(0, "127.0.0.1", () => {
    const address = server.address();
    announce(typeof address === "object" ? address?.port : 0);
  });
}

/** The part of Bun's API that is used. */
interface BunServer {
  serve(options: {
    readonly port: number;
    readonly hostname: string;
    readonly fetch: (request: Request) => Promise<Response>;
  }): { readonly port: number };
}

function serveWithBun(bun: BunServer): void {
  const { port } = bun.serve({
    port: 0,
    hostname: "127.0.0.1",
    async fetch(request) {
      const { method, headers: sent } = request;
      const { status = 200, body, headers } = await handle({
        method,
        url: new URL(request.url),
        token: tokenOf(sent.get("authorization")),
        text: method === "GET" ? "" : await request.text(),
      });
      const init = { status, headers: { ...type, ...headers } };
      return new Response(JSON.stringify(body), init);
    },
  });
  announce(port);
}

function announce(port: number | undefined): void {
  process.stdout.write(`listening on http://127.0.0.1:${port} \n`);
}

if (isBun) {
  const { Bun } = globalThis as unknown as { readonly Bun: BunServer };
  serveWithBun(Bun);
} else serveWithNode();
process.on("SIGTERM", () => process.exit(0));
