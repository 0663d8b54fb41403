/**
 * The usual alternative: node:http with node:sqlite, or Bun with bun:sqlite,
 * doing what this server does for the same requests. A write verifies its
 * token, validates the whole body and the zoo that it names, and keeps the
 * indexes that the reads need; all that wait share one transaction, durable
 * before they are acknowledged (WAL mode with synchronous=FULL). A list counts
 * all that match. Arguments: folder, number of animals.
 */

import { Buffer } from "node:buffer";
import {
  createServer,
  type IncomingMessage,
  type ServerResponse,
} from "node:http";
import { join } from "node:path";
import process from "node:process";
import { TokenSigner } from "../../src/auth/jwt.ts";
import { jwtSecret } from "../harness.ts";
import { animal, zoos } from "./data.ts";

type Value = string | number | null;
type Row = Record<string, Value>;

interface Statement {
  run(...values: readonly unknown[]): { readonly lastInsertRowid: number };
  get(...values: readonly unknown[]): Row | undefined;
  all(...values: readonly unknown[]): Row[];
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

/** Prepared once for each form of query. */
const statements = new Map<string, Statement>();
function prepared(sql: string): Statement {
  const statement = statements.get(sql) ?? db.prepare(sql);
  statements.set(sql, statement);
  return statement;
}

const isText = (value: unknown) =>
  typeof value === "string" && value.length > 0 && value.length <= 100;
const isId = (value: unknown) => Number.isInteger(value) && Number(value) > 0;

/** The properties that clients write. */
const rules: Readonly<Record<string, (value: unknown) => boolean>> = {
  zoo_id: isId,
  animal_type_id: isId,
  name: isText,
  species: (value) => value === null || isText(value),
  sex: (value) => ["female", "male", "unknown"].includes(String(value)),
  born_on: (value) =>
    value === null || /^\d{4}-[01]\d-[0-3]\d$/.test(String(value)),
  weight_kg: (value) => value === null || Number(value) > 0,
};
const required = ["zoo_id", "animal_type_id", "name"];
const writable = Object.keys(rules);
const columns = [...writable, "created_at", "updated_at"];

db.exec(`PRAGMA journal_mode = WAL; PRAGMA synchronous = FULL;
  PRAGMA foreign_keys = ON; PRAGMA cache_size = -65536;
  CREATE TABLE zoos (id INTEGER PRIMARY KEY, name TEXT);
  CREATE TABLE animals (id INTEGER PRIMARY KEY AUTOINCREMENT,
    zoo_id INTEGER NOT NULL REFERENCES zoos (id), animal_type_id INTEGER,
    name TEXT, species TEXT, sex TEXT, born_on TEXT, weight_kg REAL,
    created_at TEXT, updated_at TEXT);
  CREATE INDEX by_name ON animals (name, id);
  CREATE INDEX by_zoo ON animals (zoo_id, name, id);
  CREATE INDEX by_weight ON animals (weight_kg, id);
  BEGIN`);
const insert = prepared(
  `INSERT INTO animals (${columns.join()}) VALUES (${
    columns.map(() => "?").join()
  })`,
);
const update = prepared(
  `UPDATE animals SET ${
    [...writable, "updated_at"].map((name) => `${name} = ?`).join()
  } WHERE id = ?`,
);
const one = prepared("SELECT * FROM animals WHERE id = ?");
for (const { id, name } of zoos(Number(count))) {
  prepared("INSERT INTO zoos VALUES (?, ?)").run(id, name);
}
for (let id = 1; id <= Number(count); id++) {
  const record: Row = { ...animal(id) } as Row;
  insert.run(...columns.map((name) => record[name]));
}
db.exec("COMMIT");
/** Nobody else writes, so the number of all animals need not be counted. */
let total = Number(count);

interface Reply {
  readonly status: number;
  readonly body: unknown;
  readonly headers?: Readonly<Record<string, string>>;
}

const problem = (status: number, error: string): Reply => ({
  status,
  body: { error },
});

/** The filters of the loads. */
const conditions = {
  zoo_id: "zoo_id = ?",
  "weight_kg:gte": "weight_kg >= ?",
};

function list(wanted: URLSearchParams): Reply {
  const by = ["id", ...columns].find((name) => name === wanted.get("sortby"));
  const order = wanted.get("order") === "desc" ? "DESC" : "ASC";
  const limits = [wanted.get("limit") ?? 20, wanted.get("offset") ?? 0]
    .map(Number);
  const filters = Object.entries(conditions)
    .filter(([parameter]) => wanted.has(parameter));
  const values = filters.map(([name]) => Number(wanted.get(name)));
  if ([...limits, ...values].includes(NaN)) return problem(400, "no number");
  const where = filters.length === 0
    ? ""
    : `WHERE ${filters.map(([, condition]) => condition).join(" AND ")}`;
  const matching = where === ""
    ? total
    : prepared(`SELECT count(*) n FROM animals ${where}`).get(...values)?.["n"];
  const rows = prepared(
    `SELECT * FROM animals ${where} ORDER BY ${by ?? "id"} ${order}, ` +
      `id ${order} LIMIT ? OFFSET ?`,
  ).all(...values, ...limits);
  const headers = { "X-Total-Count": `${matching}` };
  return { status: 200, body: rows, headers };
}

/** Writes of the next transaction. */
let waiting: { write: () => Reply; resolve: (reply: Reply) => void }[] = [];

function commitTogether(): void {
  const batch = waiting;
  waiting = [];
  db.exec("BEGIN IMMEDIATE");
  const replies = batch.map(({ write }) => write());
  db.exec("COMMIT");
  for (const [index, { resolve }] of batch.entries()) {
    resolve(replies[index] ?? problem(500, "no reply"));
  }
}

function commit(write: () => Reply): Promise<Reply> {
  return new Promise((resolve) => {
    waiting.push({ write, resolve });
    if (waiting.length === 1) setImmediate(commitTogether);
  });
}

function create(body: Row): Reply {
  const zoo = prepared("SELECT id FROM zoos WHERE id = ?").get(body["zoo_id"]);
  if (zoo === undefined) return problem(422, "There is no such zoo.");
  const now = new Date().toISOString();
  const times = { created_at: now, updated_at: now };
  const record: Row = { sex: "unknown", ...body, ...times };
  const values = columns.map((name) => record[name] ?? null);
  const id = Number(insert.run(...values).lastInsertRowid);
  total++;
  const headers = { Location: `/v1/animals/${id}` };
  const named = columns.map((name, place) => [name, values[place]]);
  return { status: 201, body: { id, ...Object.fromEntries(named) }, headers };
}

function change(id: number, body: Row): Reply {
  const old = one.get(id);
  if (old === undefined) return problem(404, "There is no such animal.");
  const updated_at = new Date().toISOString();
  const record: Row = { ...old, ...body, updated_at };
  update.run(...writable.map((name) => record[name]), updated_at, id);
  return { status: 201, body: record };
}

const signer = new TokenSigner([jwtSecret], "zoo-api");

/** Returns the body of a write; or what is wrong with the request. */
function parse(
  isPartial: boolean,
  { authorization, text }: Received,
): { readonly body: Row } | { readonly error: Reply } {
  try {
    const { exp } = signer.verify((authorization ?? "").slice(7));
    if (exp * 1000 < Date.now()) {
      return { error: problem(401, "The token has expired.") };
    }
  } catch {
    return { error: problem(401, "The token is invalid.") };
  }
  const body: Row = JSON.parse(text);
  const isValid =
    Object.entries(body).every(([name, value]) =>
      Object.hasOwn(rules, name) && rules[name]?.(value)
    ) && (isPartial || required.every((name) => name in body));
  return isValid ? { body } : { error: problem(422, "The body is invalid.") };
}

interface Received {
  readonly method: string | undefined;
  /** With its query. */
  readonly path: string;
  readonly authorization: string | null | undefined;
  readonly text: string;
}

function handle(received: Received): Reply | Promise<Reply> {
  const [path = "", query] = received.path.split("?");
  const [, version, collection, id] = path.split("/");
  if (version !== "v1" || collection !== "animals") {
    return problem(404, "There is nothing here.");
  }
  if (received.method === "GET") {
    if (id === undefined) return list(new URLSearchParams(query));
    const body = one.get(Number(id));
    return body ? { status: 200, body } : problem(404, "No such animal.");
  }
  const parsed = parse(id !== undefined, received);
  if ("error" in parsed) return parsed.error;
  const { body } = parsed;
  return commit(() =>
    id === undefined ? create(body) : change(Number(id), body)
  );
}

const type = { "Content-Type": "application/json" };

async function respond(
  { method, url: path = "", headers }: IncomingMessage,
  { text, response }: {
    readonly text: string;
    readonly response: ServerResponse;
  },
): Promise<void> {
  const { authorization } = headers;
  const reply = await handle({ method, path, authorization, text });
  const body = JSON.stringify(reply.body);
  response.writeHead(reply.status, {
    ...type,
    "Content-Length": Buffer.byteLength(body),
    ...reply.headers,
  });
  response.end(body);
}

function serveWithNode(): void {
  const server = createServer((request, response) => {
    if (request.method === "GET") {
      return void respond(request, { text: "", response });
    }
    const parts: Buffer[] = [];
    request.on("data", (part: Buffer) => parts.push(part));
    request.on("end", () => {
      const text = Buffer.concat(parts).toString();
      void respond(request, { text, response });
    });
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
      const { method, url } = request;
      const { status, body, headers } = await handle({
        method,
        path: url.slice(url.indexOf("/", "http://".length)),
        authorization: request.headers.get("authorization"),
        text: method === "GET" ? "" : await request.text(),
      });
      return Response.json(body, { status, ...(headers && { headers }) });
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
