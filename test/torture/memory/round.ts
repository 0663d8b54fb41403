/**
 * Rounds of full memory: a real server with little of it is filled in several
 * ways at once, by up to 64 connections, until it says that it is full. It must
 * not end by itself, must serve what needs no memory, and accept writes once
 * there is room; killed and restarted, it must have what the oracle expects.
 */

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { adminPassword, type Server } from "../../harness.ts";
import { Random } from "../random.ts";
import { Client } from "./client.ts";
import { type Entry, Ledger } from "./ledger.ts";
import {
  collectionNames,
  create,
  createUser,
  declaration,
  expectDone,
  type Load,
  loads,
  type Own,
  remove,
  type Scene,
  signIn,
  tally,
  update,
} from "./loads.ts";
import {
  describe,
  maxConnections,
  type Plan,
  planRound,
  readers,
} from "./plan.ts";
import { checkFolder, type Place, type Program, startIn } from "./place.ts";

/** After this the surest ways to fill memory help the others. */
const helpMs = 15_000;

/** A round that is not full by then is void. */
const voidMs = 150_000;

/** How often something that must come true soon is tried, 20 ms apart. */
const maxAttempts = 1000;

/** A round, its server, and the clients of the load. */
interface Round {
  readonly plan: Plan;
  readonly program: Program;
  readonly ledger: Ledger;
  readonly scene: Scene;
  readonly server: Server;
  /** The client of the checks. */
  readonly main: Own;
  /** Rejected if the server ends by itself, or a client of the load fails. */
  readonly failed: Promise<never>;
  readonly fail: (error: unknown) => void;
  isEnding: boolean;
}

/** Starts a server, signs in, and returns what a round needs. */
async function begin(
  plan: Plan,
  program: Program,
  before: Pick<Round, "ledger"> & { readonly scene?: Scene },
  random: Random,
): Promise<Round> {
  const server = await startIn(plan.place, program);
  const { port } = server;
  const json = { username: "admin", password: adminPassword };
  const guest = new Client(port);
  const { status, body, text } = await guest.send(
    "POST",
    "/v1/authorizations",
    {
      json,
    },
  );
  guest.close();
  if (status !== 201) throw new Error(`Refused: a sign-in: ${status} ${text}`);
  const scene: Scene = {
    ...{ port, random, token: body.token, ledger: before.ledger },
    users: before.scene?.users ?? new Map(),
    counts: before.scene?.counts ?? new Map(),
    tasks: new Set(),
    ...{ isFull: false, isStopping: false },
  };
  const client = new Client(port, body.token);
  let fail: Round["fail"] = () => {};
  const failed = new Promise<never>((_, reject) => fail = reject);
  failed.catch(() => {});
  server.ended.then((code) => {
    if (round.isEnding) return;
    const how = server.child.signalCode ?? `code ${code}`;
    // What V8 prints begins with its reason, and ends with its own stack.
    const lines = server.output().split("\n");
    const said = lines.filter((line) => !/^\{|^ *\d+: 0x/.test(line));
    const output = said.join("\n").slice(-1500);
    fail(new Error(`The server ended by itself with ${how}: ${output}`));
  });
  const round: Round = {
    ...{ plan, program, scene, server, failed, fail, ledger: before.ledger },
    main: { client, entries: [] },
    isEnding: false,
  };
  return round;
}

/** Kills a server. */
async function kill(round: Round): Promise<void> {
  round.isEnding = true;
  round.scene.isStopping = true;
  await round.server.end("SIGKILL");
}

/** Does a step again and again, with a client of its own. */
async function repeat(
  scene: Scene,
  step: NonNullable<Load["step"]>,
): Promise<void> {
  const client = new Client(scene.port, scene.token);
  const own: Own = { client, entries: [] };
  while (!scene.isStopping) {
    await step(scene, own);
    // What a full server refuses at once would leave no time for others here.
    if (scene.isFull) await delay(1);
  }
  client.close();
}

/** Opens a connection that is left alone, and another one when it has closed. */
async function neglect(
  scene: Scene,
  open: NonNullable<Load["open"]>,
): Promise<void> {
  while (!scene.isStopping) {
    const socket = open(scene);
    let isClosed = false;
    socket.once("close", () => isClosed = true);
    while (!isClosed && !scene.isStopping) await delay(20);
    socket.destroy();
  }
}

/** Reads records that nobody is changing, and asks for the health. */
async function read(scene: Scene, { client }: Own): Promise<void> {
  const health = tally(scene, "health", await client.send("GET", "/health"));
  if (health.status === 200) {
    const { status } = health.body;
    if (status === "memory-full") scene.isFull = true;
    else if (status !== "ok") throw new Error(`Its health is ${status}`);
  }
  const entries = scene.ledger.settled();
  for (let count = 0; count < 50 && entries.length > 0; count++) {
    if (scene.isStopping) return;
    await lookAt(scene, client, scene.random.pick(entries));
  }
}

/** Reads a record; it must be as acknowledged, unless it is being changed. */
async function lookAt(
  { ledger }: Scene,
  client: Client,
  entry: Entry,
): Promise<void> {
  const { changes, collection, id } = entry;
  if (entry.possible.length > 1 || entry.outcome === "deleted") return;
  const reply = await client.send("GET", `/v1/${collection}/${id}`);
  if (entry.changes !== changes || reply.status === 0) return;
  expectDone(`GET of ${collection}/${id}`, reply);
  ledger.note(collection, reply.body);
}

/** Runs the loads until memory is full; returns whether it became full, and how to stop them. */
async function fill(
  { plan, scene, failed, fail }: Round,
): Promise<{ readonly isFull: boolean; stop(): Promise<void> }> {
  scene.isFull = scene.isStopping = false;
  const running: Promise<void>[] = [];
  const add = ({ step, open }: Partial<Load> = {}) => {
    if (step) running.push(repeat(scene, step));
    if (open) running.push(neglect(scene, open));
    running.at(-1)?.catch(fail);
  };
  for (let index = 0; index < readers; index++) add({ step: read });
  const fillers = ["large strings", "small records", "imports"];
  // Some connections are left for those that help.
  const count = Math.min(plan.connections - readers, maxConnections - 9);
  for (let index = 0; index < count; index++) {
    add(loads[plan.loads[index % plan.loads.length] ?? ""]);
  }
  const waiting = async () => {
    let helpers = 0;
    for (let waited = 0; !scene.isFull && waited < voidMs; waited += 20) {
      await delay(20);
      if (waited < helpMs || helpers > 5) continue;
      add(loads[fillers[helpers++ % fillers.length] ?? ""]);
    }
  };
  await Promise.race([waiting(), failed]);
  return {
    isFull: scene.isFull,
    stop: async () => {
      scene.isStopping = true;
      await Promise.race([Promise.all(running), failed]);
    },
  };
}

/** Sends what must work when memory is full, while the load continues. */
async function probe({ scene, main }: Round, spare: Entry[]): Promise<void> {
  const { client } = main;
  const entry = spare.pop();
  if (entry === undefined) throw new Error("Nothing is left to delete");
  await lookAt(scene, client, entry);
  const page = await client.send("GET", "/v1/notes?order=desc&limit=20");
  expectDone("a page", tally(scene, "page", page));
  if (page.status === 200) page.body.forEach((each) => scene.ledger.see(each));
  const changed = await update(scene, client, entry, (length) => length);
  expectDone("a change that does not grow", tally(scene, "change", changed));
  const removed = await remove(scene, client, entry);
  expectDone("a deletion", tally(scene, "deletion", removed));
  await signInAtLast(scene, client);
}

/** Signs in; where others sign in all the time, it may have to wait. */
async function signInAtLast(scene: Scene, client: Client): Promise<void> {
  for (let attempt = 0;; attempt++) {
    const reply = await signIn(scene, client);
    const isBusy = reply.body.errorCode === 50302 && attempt < 50;
    if (!isBusy) return void expectDone("a sign-in", reply);
    await delay(100);
  }
}

/** Compares all collections with the ledger. */
async function verify(round: Round, isRestarted: boolean): Promise<number> {
  const { ledger, main: { client } } = round;
  let found = 0;
  for (const name of collectionNames) {
    found += await ledger.verify(name, client.records(name), isRestarted);
  }
  return found;
}

/** Deletes a share of all records, on several connections. */
async function thin({ scene, ledger, failed }: Round, share: number) {
  const entries = ledger.settled().filter(() => scene.random.chance(share));
  const work = Array.from({ length: 16 }, async () => {
    const client = new Client(scene.port, scene.token);
    for (let entry = entries.pop(); entry; entry = entries.pop()) {
      const reply = await remove(scene, client, entry);
      // Without a response it is unknown, and verified like that.
      expectDone("a deletion", tally(scene, "deletion", reply));
    }
    client.close();
  });
  await Promise.race([Promise.all(work), failed]);
}

/** Creates a record, as soon as that is possible again. */
async function resume({ scene, main, failed }: Round): Promise<void> {
  const attempts = async () => {
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const options = { collection: "notes", length: 100 } as const;
      if (await create(scene, main, options) !== undefined) return;
      await delay(20);
    }
    throw new Error(
      `No write succeeds after half of the records were deleted, in ${maxAttempts} attempts`,
    );
  };
  await Promise.race([attempts(), failed]);
}

/** Waits until all imports have ended; deletes more while there is no room for them. */
async function endImports(round: Round, isRestarted: boolean): Promise<void> {
  const { main: { client }, ledger } = round;
  const running = "/v1/tasks?status:in=queued,running&limit=1";
  for (let deletions = 0; deletions < 12; deletions++) {
    for (let attempt = 0; attempt < maxAttempts; attempt++) {
      const reply = expectDone("tasks", await client.send("GET", running));
      if (reply.text === "[]") {
        await verify(round, isRestarted);
        return ledger.endImports();
      }
      const health = await client.send("GET", "/health");
      if (health.body.status === "memory-full" && attempt > 100) break;
      await delay(20);
    }
    await verify(round, isRestarted);
    await thin(round, 0.6);
  }
  throw new Error("Imports do not end, though nearly everything was deleted");
}

/** Deletes records until imports have ended and a write succeeds: imports may take what was freed first. */
async function makeRoom(round: Round, isRestarted: boolean): Promise<void> {
  await thin(round, 0.5);
  await Promise.race([endImports(round, isRestarted), round.failed]);
  await thin(round, 0.5);
  await resume(round);
}

/** Checks that the latest tokens of some users are valid. */
async function verifyTokens({ scene }: Round): Promise<void> {
  for (const [username, tokens] of [...scene.users].slice(0, 20)) {
    const token = tokens.at(-1);
    if (token === undefined) continue;
    const client = new Client(scene.port, token);
    const { status, body } = await client.send("GET", "/v1/user");
    client.close();
    if (body.username !== username) {
      throw new Error(`The token of ${username} is lost: ${status}`);
    }
  }
}

/** Starts with less memory than before: it may be refused, with a sentence. */
async function startSmaller({ plan, program }: Round): Promise<void> {
  const place = { ...plan.place, megabytes: plan.smaller };
  try {
    const server = await startIn(place, program);
    await server.end("SIGKILL");
  } catch (error) {
    if (!isRefusal(error)) throw error;
  }
}

/** Returns whether a start was refused with a sentence that says what to do. */
function isRefusal(error: unknown): boolean {
  return /ended with code 1:[^]*max-old-space-size/.test(String(error));
}

/** Creates the users and the records that the checks need. */
async function prepare(round: Round): Promise<Entry[]> {
  const { scene, main } = round;
  for (let count = 0; count < 10; count++) {
    expectDone("a user", await createUser(scene, main.client));
  }
  const spare: Entry[] = [];
  for (let count = 0; count < 60; count++) {
    const options = { collection: "notes", length: 300 } as const;
    const entry = await create(scene, main, options);
    if (entry !== undefined) spare.push(entry);
  }
  return spare;
}

/** Fills a server, and kills it; returns whether it was full. */
async function fillAndKill(round: Round, random: Random): Promise<boolean> {
  const { plan, failed } = round;
  const spare = await prepare(round);
  const { isFull, stop } = await fill(round);
  if (isFull) {
    const end = performance.now() + plan.lingerMs;
    const probes = async () => {
      do await probe(round, spare); while (
        performance.now() < end && spare.length > 1
      );
    };
    await Promise.race([probes(), failed]);
    if (!plan.isKilledFull) {
      await stop();
      await Promise.race([verify(round, false), failed]);
      await makeRoom(round, false);
      const again = await fill(round);
      await delay(random.below(1000));
      await kill(round);
      await again.stop();
      return isFull;
    }
  }
  await kill(round);
  await stop();
  return isFull;
}

/** Verifies a server that was killed, lets its imports end, and stops it. */
async function settle(round: Round): Promise<void> {
  const { failed, server, scene } = round;
  const work = async () => {
    await verify(round, true);
    await verifyTokens(round);
    await makeRoom(round, true);
    await signInAtLast(scene, round.main.client);
  };
  await Promise.race([work(), failed]);
  round.isEnding = true;
  round.main.client.close();
  const code = await server.end();
  if (code !== 0) throw new Error(`The server stopped with ${code}`);
}

/** Plays one round; returns what happened, or undefined if memory was never full. */
export async function memoryRound(
  { folder, main, seed, limitedBy }: {
    readonly folder: string;
    readonly main: string;
    readonly seed: number;
    readonly limitedBy: Place["limitedBy"];
  },
): Promise<string | undefined> {
  mkdirSync(folder);
  const collections = join(folder, "collections.mjs");
  writeFileSync(collections, declaration);
  const program = { main, collections, folder: join(folder, "store") };
  const random = new Random(seed);
  const plan = planRound(random, limitedBy);
  const ledger = new Ledger();
  let round: Round | undefined;
  try {
    round = await begin(plan, program, { ledger }, random);
    const isFull = await fillAndKill(round, random);
    if (plan.smaller > 0) await startSmaller(round);
    round = await begin(plan, program, round, random);
    await settle(round);
    await checkFolder(plan.place, program);
    const counts = [...round.scene.counts].sort()
      .map(([what, count]) => `${what} ${count}`);
    return isFull ? `${describe(plan)}: ${counts.join(", ")}` : undefined;
  } catch (error) {
    const text = error instanceof Error ? error.message : String(error);
    if (round !== undefined) await kill(round);
    // Node.js and V8 leave little or nothing of the smallest cgroups.
    const isSmall = limitedBy === "cgroup" && plan.place.megabytes < 256;
    if (isSmall && round === undefined && isRefusal(error)) return undefined;
    throw new Error(`Full memory, seed ${seed}, ${describe(plan)}: ${text}`);
  }
}
