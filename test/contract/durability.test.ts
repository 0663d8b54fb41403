/**
 * Acknowledged writes survive kill -9. Two hundred clients write and read
 * concurrently until the server is killed at a random moment. After a restart
 * every record must be at the last version acknowledged to its writer, or at
 * the one in flight, and at no version older than any reader saw.
 *
 * Each record has one writing client, and its name contains its version. kill
 * -9 leaves the page cache as it was, so this finds responses that are sent too
 * early and transactions that are replayed wrongly, not a missing fsync.
 */

import assert from "node:assert/strict";
import { once } from "node:events";
import { Agent, request } from "node:http";
import process from "node:process";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { Worker } from "node:worker_threads";
import {
  type Body,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";

const seconds = Number(process.env["DURABILITY_SECONDS"] || 0.5);
const clients = 200;
/** A round with fewer acknowledged writes proves nothing. */
const minWrites = 300;
/** The version of a deleted record, which is its last one. */
const deleted = Infinity;

type Content = Readonly<Record<string, unknown>>;

/** A version of a record; `content` is null for a deletion. */
interface State {
  readonly version: number;
  readonly content: Content | null;
}

// Runs in its own thread: this one is busy, and would kill only after it has
// read all responses, when hardly anything is in flight.
const killing = `
const { parentPort, workerData } = require("node:worker_threads");
setTimeout(() => {
  parentPort.postMessage(Date.now());
  process.kill(workerData.pid, "SIGKILL");
}, workerData.after);
`;

/** A record as its writing client knows it. */
interface Entry {
  readonly id: number;
  acknowledged: State;
  /** The state sent but not acknowledged yet. */
  sent: State | undefined;
}

interface Reply {
  readonly status: number;
  readonly body: Body;
}

/** The knowledge of the clients of both rounds. */
class Ledger {
  readonly entries = new Map<number, Entry>();
  /** Creations sent but not acknowledged yet, by name. */
  readonly creations = new Map<string, Content>();
  /** The highest version of each record that any client was shown. */
  readonly seen = new Map<number, number>();
  /** The records in the order in which they were first seen. */
  readonly newest: number[] = [];
  writes = 0;
  reads = 0;
  names = 0;

  see(id: number, version: number): void {
    if (!this.seen.has(id)) this.newest.push(id);
    this.seen.set(id, Math.max(version, this.seen.get(id) ?? 0));
  }

  /** Returns the oldest version that a read beginning now may show. */
  floor(id: number): number {
    const acknowledged = this.entries.get(id)?.acknowledged.version ?? 0;
    return Math.max(acknowledged, this.seen.get(id) ?? 0);
  }
}

/** One server under load, and the connections to it. */
class Load {
  readonly #server: Server;
  readonly #token: string;
  readonly #agent = new Agent({ keepAlive: true, maxSockets: clients });
  #killer: Worker | undefined;
  #killedAt: Promise<number> | undefined;
  killed = false;

  constructor(server: Server, token: string) {
    this.#server = server;
    this.#token = token;
  }

  /** Sends a request; returns undefined if the kill came before the complete response. */
  call(
    method: string,
    path: string,
    json?: Content,
  ): Promise<Reply | undefined> {
    const body = json === undefined ? "" : JSON.stringify(json);
    return new Promise((resolve, reject) => {
      const broken = async (error: Error) => {
        const brokenAt = Date.now();
        const killedAt = await this.#killedAt;
        if (killedAt !== undefined && brokenAt >= killedAt) resolve(undefined);
        else reject(error);
      };
      const outgoing = request({
        host: "127.0.0.1",
        port: this.#server.port,
        agent: this.#agent,
        method,
        path,
        headers: {
          authorization: `Bearer ${this.#token}`,
          ...(json === undefined ? {} : {
            "content-type": "application/json",
            "content-length": new TextEncoder().encode(body).length,
          }),
        },
      }, (incoming) => {
        let text = "";
        incoming.setEncoding("utf8");
        incoming.on("data", (chunk) => text += chunk);
        incoming.on("error", broken);
        incoming.on("end", () => {
          if (!incoming.complete) broken(new Error("The answer was cut"));
          else {
            resolve({
              status: incoming.statusCode ?? 0,
              body: JSON.parse(text || "{}"),
            });
          }
        });
      });
      outgoing.on("error", broken);
      outgoing.end(body);
    });
  }

  /** Kills the server after so many milliseconds, whatever it is doing. */
  async kill(after: number): Promise<void> {
    const { pid } = this.#server.child;
    const killer = new Worker(killing, {
      eval: true,
      execArgv: [],
      workerData: { pid, after },
    });
    this.#killer = killer;
    this.#killedAt = once(killer, "message").then(([at]) => {
      this.killed = true;
      return at;
    });
    await this.#killedAt;
    assert.equal(await this.#server.end("SIGKILL"), null);
  }

  async close(): Promise<void> {
    this.killed = true;
    this.#agent.destroy();
    await this.#killer?.terminate();
  }
}

function versionOf(record: Content): number {
  const found = /-v(\d+)$/.exec(String(record["name"]));
  assert.ok(found, `a name that nobody gave: ${record["name"]}`);
  return Number(found[1]);
}

function pick<T>(items: readonly T[]): T | undefined {
  return items[Math.floor(Math.random() * items.length)];
}

/** Returns an animal whose every property is different in each version. */
function contentOf(key: string, version: number): Content {
  return {
    zoo_id: 1 + version % 2,
    animal_type_id: version,
    name: `${key}-v${version}`,
    species: version % 3 === 0 ? null : `Species \u{1F981} ${version}`,
    sex: pick(["female", "male", "unknown"]) ?? "unknown",
    born_on: version % 2 === 0 ? null : "2020-02-29",
    weight_kg: version / 8,
  };
}

function withoutLink(record: Content): Content {
  const { link: _link, ...rest } = record;
  return rest;
}

/** Asserts that the record has the content, whatever the server adds to it. */
function assertContent(record: Content, content: Content): void {
  const own = Object.keys(content).map((name) => [name, record[name]]);
  assert.deepEqual(Object.fromEntries(own), content);
}

/** One client: writes its own records and reads all, until the kill. */
async function runClient(load: Load, ledger: Ledger): Promise<void> {
  const own: Entry[] = [];
  while (!load.killed) {
    const entry = pick(own);
    const choice = Math.random();
    if (entry === undefined || choice < 0.3) {
      const made = await create(load, ledger);
      if (made) own.push(made);
    } else if (choice < 0.6) {
      await change(load, ledger, entry);
    } else if (choice < 0.7) {
      await remove(load, ledger, entry);
      if (entry.acknowledged.content === null) {
        own.splice(own.indexOf(entry), 1);
      }
    } else if (choice < 0.95) {
      const mine = choice < 0.8;
      const ids = mine ? [entry.id] : ledger.newest.slice(-500);
      await read(load, ledger, pick(ids) ?? entry.id, mine ? entry : undefined);
    } else {
      await list(load, ledger);
    }
  }
}

async function create(load: Load, ledger: Ledger): Promise<Entry | undefined> {
  ledger.names += 1;
  const content = contentOf(`animal-${ledger.names}`, 1);
  const name = String(content["name"]);
  ledger.creations.set(name, content);
  const path = Math.random() < 0.5
    ? "/v1/animals"
    : `/v1/zoos/${content["zoo_id"]}/animals`;
  const reply = await load.call("POST", path, content);
  if (reply === undefined) return undefined;
  ledger.creations.delete(name);
  if (isRefused(reply)) return undefined;
  assert.equal(reply.status, 201, JSON.stringify(reply.body));
  assertContent(reply.body, content);
  const { id } = reply.body;
  assert.equal(ledger.entries.has(id), false, `id ${id} was given twice`);
  const entry: Entry = {
    id,
    acknowledged: { version: 1, content: withoutLink(reply.body) },
    sent: undefined,
  };
  ledger.entries.set(id, entry);
  ledger.see(id, 1);
  ledger.writes += 1;
  return entry;
}

async function change(load: Load, ledger: Ledger, entry: Entry): Promise<void> {
  const before = entry.acknowledged.content ?? {};
  const version = entry.acknowledged.version + 1;
  const key = String(before["name"]).replace(/-v\d+$/, "");
  const whole = contentOf(key, version);
  const method = Math.random() < 0.5 ? "PUT" : "PATCH";
  const { name, weight_kg } = whole;
  const body = method === "PUT" ? whole : { name, weight_kg };
  // PATCH leaves other properties as they were.
  const kept = Object.keys(whole).map((name) => [name, before[name]]);
  const content = { ...Object.fromEntries(kept), ...body };
  entry.sent = { version, content };
  const reply = await load.call(method, `/v1/animals/${entry.id}`, body);
  if (reply === undefined) return;
  entry.sent = undefined;
  if (isRefused(reply)) return;
  assert.equal(reply.status, 201, JSON.stringify(reply.body));
  assertContent(reply.body, content);
  entry.acknowledged = { version, content: withoutLink(reply.body) };
  ledger.see(entry.id, version);
  ledger.writes += 1;
}

async function remove(load: Load, ledger: Ledger, entry: Entry): Promise<void> {
  entry.sent = { version: deleted, content: null };
  const reply = await load.call("DELETE", `/v1/animals/${entry.id}`);
  if (reply === undefined) return;
  const { sent } = entry;
  entry.sent = undefined;
  if (isRefused(reply)) return;
  assert.equal(reply.status, 204, JSON.stringify(reply.body));
  entry.acknowledged = sent;
  ledger.see(entry.id, deleted);
  ledger.writes += 1;
}

/** Returns whether the server said that nothing was changed, because too much is waiting. */
function isRefused(reply: Reply): boolean {
  return reply.status === 503 && reply.body?.errorCode === 50302;
}

async function read(
  load: Load,
  ledger: Ledger,
  id: number,
  mine: Entry | undefined,
): Promise<void> {
  const floor = ledger.floor(id);
  const reply = await load.call("GET", `/v1/animals/${id}`);
  if (reply === undefined) return;
  assert.ok([200, 410].includes(reply.status), JSON.stringify(reply));
  const version = reply.status === 410 ? deleted : versionOf(reply.body);
  assert.ok(version >= floor, `animal ${id}: ${version} after ${floor}`);
  if (mine) {
    assert.deepEqual(withoutLink(reply.body), mine.acknowledged.content);
  }
  ledger.see(id, version);
  ledger.reads += 1;
}

/** Reads the newest records, some of which their writers do not yet know. */
async function list(load: Load, ledger: Ledger): Promise<void> {
  const floors = new Map(
    ledger.newest.slice(-200).map((id) => [id, ledger.floor(id)]),
  );
  const reply = await load.call("GET", "/v1/animals?order=desc&limit=20");
  if (reply === undefined) return;
  assert.equal(reply.status, 200, JSON.stringify(reply.body));
  for (const record of reply.body) {
    const version = versionOf(record);
    const floor = floors.get(record.id) ?? 0;
    assert.ok(
      version >= floor,
      `animal ${record.id}: ${version} after ${floor}`,
    );
    ledger.see(record.id, version);
  }
  ledger.reads += 1;
}

/** All animals of a server by their id. */
async function allAnimals(load: Load): Promise<Map<number, Content>> {
  const records = new Map<number, Content>();
  for (let offset = 0;; offset += 100) {
    const path = `/v1/animals?limit=100&offset=${offset}`;
    const reply = await load.call("GET", path);
    assert.equal(reply?.status, 200, JSON.stringify(reply?.body));
    for (const record of reply?.body ?? []) records.set(record.id, record);
    if (!reply || reply.body.length < 100) return records;
  }
}

/** Compares the restarted server with the ledger, and brings the ledger up to date. */
async function judge(load: Load, ledger: Ledger): Promise<void> {
  const records = await allAnimals(load);
  for (const [id, record] of records) {
    if (ledger.entries.has(id)) continue;
    // Created, but the response never arrived.
    const content = ledger.creations.get(String(record["name"]));
    assert.ok(content, `animal ${id} is nobody's: ${JSON.stringify(record)}`);
    assertContent(record, content);
    ledger.creations.delete(String(record["name"]));
    const acknowledged = { version: 1, content: record };
    ledger.entries.set(id, { id, acknowledged, sent: undefined });
  }
  ledger.creations.clear();
  for (const [id, version] of ledger.seen) {
    assert.ok(
      ledger.entries.has(id),
      `animal ${id} was shown at version ${version} and is lost`,
    );
  }
  const gone: number[] = [];
  for (const entry of ledger.entries.values()) {
    const { id, acknowledged, sent } = entry;
    const record = records.get(id);
    const version = record === undefined ? deleted : versionOf(record);
    const about = `animal ${id} is at ${version}, acknowledged ` +
      `${acknowledged.version}, sent ${sent?.version}, ` +
      `seen ${ledger.seen.get(id)}`;
    assert.ok(version >= (ledger.seen.get(id) ?? 0), about);
    if (version === acknowledged.version) {
      assert.deepEqual(record ?? null, acknowledged.content, about);
    } else {
      assert.equal(version, sent?.version, about);
      if (record) assertContent(record, sent?.content ?? {});
    }
    if (record === undefined) gone.push(id);
    entry.acknowledged = { version, content: record ?? null };
    entry.sent = undefined;
  }
  await Promise.all(
    Array.from({ length: 20 }, async () => {
      for (let id = gone.pop(); id !== undefined; id = gone.pop()) {
        const reply = await load.call("GET", `/v1/animals/${id}`);
        assert.equal(reply?.status, 410, JSON.stringify(reply?.body));
        assert.equal(reply?.body?.errorCode, 41000);
      }
    }),
  );
  let highest = 0;
  for (const id of ledger.entries.keys()) highest = Math.max(highest, id);
  const made = await create(load, ledger);
  assert.ok(made && made.id > highest, "no id is used twice");
}

test("acknowledged writes survive kill -9, and nothing else appears", async (t) => {
  const folder = await temporaryFolder();
  const ledger = new Ledger();
  const zoo = { city: "Basel", country: "CH" };
  const seed = {
    zoos: [{ id: 1, name: "One", ...zoo }, { id: 2, name: "Two", ...zoo }],
    animals: [],
    employees: [],
  };
  const env = { LOG: "error" };
  let server = await start({ folder, seed, env });
  // The token, too, was acknowledged: it must outlive each kill.
  const token = await server.signIn();
  let load = new Load(server, token);
  try {
    for (const round of [1, 2]) {
      ledger.writes = 0;
      ledger.reads = 0;
      const moment = seconds * 1000 * (0.4 + 0.6 * Math.random());
      const working = Array.from(
        { length: clients },
        () => runClient(load, ledger),
      );
      // On a loaded machine it may take a while until a kill proves anything.
      const failed = Promise.race(working);
      while (ledger.writes < minWrites) {
        await Promise.race([failed, delay(20)]);
      }
      await Promise.all([load.kill(moment), ...working]);
      await load.close();
      const underWay = ledger.creations.size +
        Array.from(ledger.entries.values()).filter(({ sent }) => sent).length;
      t.diagnostic(
        `round ${round}: killed after ${Math.round(moment)} ms, ` +
          `${ledger.writes} writes acknowledged, ${underWay} under way, ` +
          `${ledger.reads} reads`,
      );
      const { writes } = ledger;
      await server.stop();
      server = await start({ folder, env });
      load = new Load(server, token);
      await judge(load, ledger);
      assert.ok(writes >= minWrites, `void: only ${writes} writes`);
    }
  } finally {
    await load.close();
    await server.stop();
    await removeFolder(folder);
  }
});
