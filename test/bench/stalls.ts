/**
 * How long one request keeps all others waiting: for each kind of request, the
 * longest turn of the server's event loop while it handles nothing else.
 *
 *     npm run bench:stalls [-- --records 1000000 --rounds 10 --limit 20 --only import]
 *
 * The time is processor time, without the pauses of the garbage collector (see
 * probe.ts). The minimum of all rounds counts: that is what the code needs, and
 * the rest is due to the machine. The exit code is 1 if it exceeds the limit
 * for any kind. For some kinds, the first request of a process is measured too,
 * when its code is not compiled yet; each round then has a new process. Linux
 * only.
 */

import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, readdir } from "node:fs/promises";
import { Agent, type IncomingMessage, request as send } from "node:http";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { tablesOf } from "../../src/api/routes.ts";
import { sample } from "../collections.ts";
import { type Document, formatTime, openStore } from "../../src/store/store.ts";
import {
  adminPassword,
  loader,
  removeFolder,
  root,
  type Server,
  start,
  storedAdmin,
  temporaryFolder,
} from "../harness.ts";
import { animal, zoos } from "./data.ts";
import type { Stops } from "./probe.ts";
import { commit } from "../commit.ts";

const { values } = parseArgs({
  options: {
    records: { type: "string", default: "1000000" },
    rounds: { type: "string", default: "10" },
    limit: { type: "string", default: "20" },
    only: { type: "string", default: "" },
  },
});
const records = Number(values.records);
const rounds = Number(values.rounds);
const limitMs = Number(values.limit);
if (records < 50_000) throw new Error("Too few for a snapshot to be due.");

/** Kinds that take seconds are measured in fewer rounds. */
const slowRounds = Math.min(3, rounds);

/** The zoo of every other animal. */
const largeZoo = 1;
/** One zoo for each round, with as many animals as a DELETE deletes at once. */
const cascadeAnimals = 2000;
const firstCascadeZoo = 2001;
/** Two users for each round, with as many authorizations as a user may have. */
const firstUser = 101;
const authorizationsPerUser = 100;

function* documents(
  records: number,
): Generator<readonly [string, Document]> {
  yield ["users", storedAdmin];
  const at = storedAdmin.created_at;
  const expires_at = formatTime(Date.now() + 1e9);
  for (let user = 0; user < 2 * rounds; user++) {
    const user_id = firstUser + user;
    const username = `user-${user_id}`;
    yield ["users", { ...storedAdmin, id: user_id, username, role: "viewer" }];
    for (let each = 0; each < authorizationsPerUser; each++) {
      const id = 1 + user * authorizationsPerUser + each;
      const times = { expires_at, created_at: at };
      yield ["authorizations", { id, user_id, note: null, ...times }];
    }
  }
  const [zoo] = zoos(1);
  for (const each of zoos(1000)) yield ["zoos", each];
  for (let round = 0; round < rounds; round++) {
    if (zoo) yield ["zoos", { ...zoo, id: firstCascadeZoo + round }];
  }
  const scattered = records - rounds * cascadeAnimals;
  for (let id = 1; id <= records; id++) {
    const zoo_id = id > scattered
      ? firstCascadeZoo + (id - scattered - 1) % rounds
      : id % 2 === 0
      ? largeZoo
      : 1 + id % 1000;
    // Some are as large as a record can be.
    const long = id <= 200 &&
      { name: "ä".repeat(100), species: '"'.repeat(100) };
    yield ["animals", { ...animal(id), zoo_id, ...long }];
  }
}

/** Creates a data folder in which the first write of a server makes a snapshot due. */
async function fill(folder: string, records: number): Promise<void> {
  await mkdir(folder, { mode: 0o700 });
  const tables = tablesOf(sample, []);
  const limits = { minLogBytes: 1e12 };
  const store = await openStore({ folder, tables, limits });
  let batch: ["put", string, Document][] = [];
  for (const [table, document] of documents(records)) {
    batch.push(["put", table, document]);
    if (batch.length < 1000) continue;
    await commit(store, batch, 0);
    batch = [];
  }
  await commit(store, batch, 0);
  await store.close();
}

/** A server and the socket of its probe. */
class Measured {
  readonly server: Server;
  readonly #socket: Socket;
  readonly #agent = new Agent({ keepAlive: true });
  readonly #file: string;
  token = "";

  private constructor(server: Server, socket: Socket, file: string) {
    this.server = server;
    this.#socket = socket;
    this.#file = file;
  }

  static async start(folder?: string): Promise<Measured> {
    const own = await temporaryFolder();
    const file = join(own, "socket");
    const server = await start({
      main: join(root, "build/main.js"),
      nodeArgs: [...loader, "--import", join(root, "test/bench/probe.ts")],
      env: { PROBE_SOCKET: file },
      ...(folder && { folder }),
    });
    const socket = connect(file).setEncoding("utf8");
    await once(socket, "connect");
    return new Measured(server, socket, own);
  }

  /** Returns the longest turns and pauses while some work is done. */
  async measure(action: () => Promise<unknown>): Promise<Stops> {
    await this.#ask("start");
    await action();
    return JSON.parse(await this.#ask("stop"));
  }

  async #ask(word: string): Promise<string> {
    this.#socket.write(word);
    const [answer] = await once(this.#socket, "data");
    return String(answer);
  }

  /** Sends one request and reads all of the response; throws if it has a different status. */
  async send(
    [method, path, body = "", fields = {}]: Message,
    expected?: number,
  ): Promise<IncomingMessage & { text: string }> {
    const agent = this.#agent;
    const headers = {
      ...(body !== "" && { "content-type": "application/json" }),
      ...(this.token && { authorization: `Bearer ${this.token}` }),
      ...fields,
    };
    const url = this.server.origin + path;
    const sent = send(url, { agent, method, headers }).end(body);
    const [answer] = await once(sent, "response") as [IncomingMessage];
    const isLong = /ndjson/.test(answer.headers["content-type"] ?? "");
    let text = "";
    for await (const part of answer) {
      if (!isLong) text += part;
    }
    if (answer.statusCode !== (expected ?? answer.statusCode)) {
      throw new Error(`${method} ${path}: ${answer.statusCode} ${text}`);
    }
    return Object.assign(answer, { text });
  }

  async signIn(): Promise<void> {
    this.token = JSON.parse((await this.send(signIn, 201)).text).token;
  }

  async stop(): Promise<void> {
    this.#agent.destroy();
    this.#socket.destroy();
    await this.server.stop();
    await removeFolder(this.#file);
  }
}

type Message = readonly [
  method: string,
  path: string,
  body?: string,
  fields?: Readonly<Record<string, string>>,
];

/** A kind of request: what is sent in a round, and the status of the response. */
interface Kind {
  readonly status: number;
  readonly message: (round: number) => Message;
  /** How often it is measured, if not in every round. */
  readonly rounds?: number;
  /** Requests that are sent before, and not measured. */
  readonly before?: (round: number) => Message;
  /** Waits for work that continues after the response. */
  readonly after?: (
    measured: Measured,
    answer: IncomingMessage,
  ) => Promise<void>;
}

const v1 = "/v1/";
const signIn: Message = [
  "POST",
  `${v1}authorizations`,
  JSON.stringify({ username: "admin", password: adminPassword }),
];
const record = {
  zoo_id: 7,
  animal_type_id: 1,
  name: "Zora",
  species: "Equus quagga",
  sex: "female",
  born_on: "2020-02-29",
  weight_kg: 250,
};
const { zoo_id: _, ...withoutZoo } = record;
const animalOfZoo = JSON.stringify(withoutZoo);
const newAnimal = JSON.stringify(record);
const ndjson = { accept: "application/x-ndjson" };
const middle = Math.floor(records / 4) * 2;
const get = (path: string, fields = {}): Message => [
  "GET",
  v1 + path,
  "",
  fields,
];
const reading = (path: string, fields = {}): Kind => ({
  status: 200,
  message: () => get(path, fields),
});
const exporting = (method: string, path: string): Kind => ({
  status: 200,
  rounds: slowRounds,
  message: () => [method, v1 + path, "", ndjson],
});
const keyed: Kind = {
  status: 201,
  message: (round) => [
    "POST",
    `${v1}animals`,
    newAnimal,
    { "idempotency-key": `key-${round}` },
  ],
};
const sorts = ["name", "species", "sex", "born_on", "weight_kg", "created_at"];
const listed = Array.from({ length: 1000 }, (_, each) => each * 97 + 1);
const unknownNames = JSON.stringify(Object.fromEntries(
  listed.map((each) => [`${each}`.padEnd(30, "x"), "y".repeat(20)]),
));
const formFields = { "content-type": "application/x-www-form-urlencoded" };
const unknownLine = JSON.stringify(Object.fromEntries(
  listed.map((each) => [`${each}`, "y".repeat(115)]),
));
/** Waits until a task has ended. */
async function awaitTask(
  measured: Measured,
  { headers: { location = "" } }: IncomingMessage,
): Promise<void> {
  const task = location.replace(/^https?:\/\/[^/]+/, "");
  for (let status = ""; status !== "succeeded";) {
    await new Promise((resolve) => setTimeout(resolve, 20));
    const { text } = await measured.send(["GET", task], 200);
    ({ status } = JSON.parse(text));
    if (status === "failed") throw new Error(text);
  }
}

function importing(body: (round: number) => string): Kind {
  return {
    status: 202,
    rounds: slowRounds,
    message: (round) => [
      "POST",
      `${v1}animals`,
      body(round),
      { "content-type": "application/x-ndjson" },
    ],
    after: awaitTask,
  };
}

/** The kinds of requests by the names that are printed. */
const kinds: Readonly<Record<string, Kind>> = {
  "GET one": reading(`animals/${middle}`),
  "list of 20": reading("animals"),
  "list of 100 large records": reading("animals?limit=100"),
  "list with If-None-Match": reading("animals?limit=100", {
    "if-none-match": '"x"',
  }),
  "list of a large zoo": reading(`zoos/${largeZoo}/animals`),
  "filter: unique": reading(`animals?id=${middle}`),
  "filter: reference": reading("animals?zoo_id=7"),
  "filter: contains": reading("animals?name:contains=zzz"),
  "filter: contains in a large zoo": reading(
    `zoos/${largeZoo}/animals?name:contains=zzz`,
  ),
  "filter: starts": reading("animals?name:starts=animal%2012"),
  "filter: range": reading("animals?weight_kg:gte=100&weight_kg:lt=200"),
  "filter: ne, two properties": reading("animals?sex:ne=male&name:ne=x"),
  "filter: in with 1,000 values": reading(
    `animals?animal_type_id:in=${listed.join().slice(0, 4000)}`,
  ),
  "sort by a new index": {
    status: 200,
    rounds: slowRounds,
    message: (round) =>
      get(`animals?sex=female&animal_type_id=7&sortby=${sorts[round]}`),
  },
  "sort by an index": {
    ...reading("animals?sortby=name"),
    before: () => get("animals?sortby=name"),
  },
  "sort, descending, offset 900,000": reading(
    `animals?sortby=name&order=desc&offset=${Math.floor(records * 0.9)}`,
  ),
  "export": exporting("GET", "animals"),
  "HEAD of an export": exporting("HEAD", "animals"),
  "export, filtered, descending": exporting(
    "GET",
    "animals?name:contains=1&sortby=name&order=desc",
  ),
  "HEAD of an export, filtered": exporting(
    "HEAD",
    "animals?name:contains=1&sortby=name&order=desc",
  ),
  "export of a large zoo": exporting("GET", `zoos/${largeZoo}/animals`),
  "POST": { status: 201, message: () => ["POST", `${v1}animals`, newAnimal] },
  "POST into a large zoo": {
    status: 201,
    message: () => ["POST", `${v1}zoos/${largeZoo}/animals`, animalOfZoo],
  },
  "POST with Idempotency-Key": keyed,
  "its repetition": keyed,
  "POST with 1,000 unknown names": {
    status: 422,
    message: () => ["POST", `${v1}animals`, unknownNames],
  },
  "POST of 64 KiB that is no JSON": {
    status: 400,
    message: () => ["POST", `${v1}animals`, "[".repeat(65_000)],
  },
  "QUERY with 1,000 values": {
    status: 200,
    message: () => [
      "QUERY",
      `${v1}animals`,
      `animal_type_id:in=${listed}&name:in=${
        listed.map((each) => `${each}`.padEnd(50, "x"))
      }`,
      formFields,
    ],
  },
  "PUT": {
    status: 201,
    message: (round) => [
      "PUT",
      `${v1}animals/${middle + 2 * round}`,
      JSON.stringify({ ...record, zoo_id: largeZoo }),
    ],
  },
  "PATCH that moves out of a large zoo": {
    status: 201,
    message: (round) => [
      "PATCH",
      `${v1}animals/${middle + 2 * round}`,
      '{"zoo_id":9}',
    ],
  },
  "PATCH that moves into a large zoo": {
    status: 201,
    message: (round) => [
      "PATCH",
      `${v1}animals/${middle + 2 * round}`,
      `{"zoo_id":${largeZoo}}`,
    ],
  },
  "DELETE from a large zoo": {
    status: 204,
    message: (round) => ["DELETE", `${v1}animals/${middle + 2 * round}`],
  },
  "DELETE of a large zoo: 409": {
    status: 409,
    message: () => ["DELETE", `${v1}zoos/${largeZoo}`],
  },
  [`cascade of ${cascadeAnimals}`]: {
    status: 204,
    message: (round) => [
      "DELETE",
      `${v1}zoos/${firstCascadeZoo + round}?cascade=true`,
    ],
  },
  "sign-in": {
    status: 201,
    message: () => signIn,
  },
  "new password, 100 authorizations": {
    status: 201,
    message: (round) => [
      "PATCH",
      `${v1}users/${firstUser + round}`,
      '{"password":"another password"}',
    ],
  },
  "DELETE of a user": {
    status: 204,
    message: (round) => ["DELETE", `${v1}users/${firstUser + rounds + round}`],
  },
  "import of 10,000 lines": importing((round) =>
    Array.from({ length: 10_000 }, (_, each) => {
      const name = `Line ${round} ${each}`;
      return `${JSON.stringify({ ...record, name })}\n`;
    }).join("")
  ),
  "import of the largest lines": importing(() => `${unknownLine}\n`.repeat(50)),
  "import of blank lines": importing(() => "\n".repeat(5e6)),
  "events since an old one": {
    status: 200,
    rounds: slowRounds,
    message: () => get("events", { "last-event-id": "100" }),
  },
  "/metrics": { status: 200, message: () => ["GET", "/metrics"] },
  "/openapi.json": {
    status: 200,
    message: () => ["GET", "/v1/openapi.json"],
  },
  "OPTIONS": { status: 200, message: () => ["OPTIONS", `${v1}animals`] },
  "cascade of a large zoo": {
    status: 200,
    rounds: 1,
    message: () => [
      "DELETE",
      `${v1}zoos/${largeZoo}?cascade=true`,
      "",
      { prefer: "wait=60" },
    ],
  },
};

/** The kinds whose first request could take much longer. */
const measuredFirst = [
  "/openapi.json",
  "list of 100 large records",
  "POST with 1,000 unknown names",
  "new password, 100 authorizations",
  `cascade of ${cascadeAnimals}`,
];

let isTooLong = false;

function median(numbers: readonly number[]): number {
  const sorted = numbers.toSorted((a, b) => a - b);
  return sorted[Math.floor(sorted.length / 2)] ?? NaN;
}

function report(name: string, stops: readonly Stops[]): void {
  const own = stops.map((each) => each.own);
  const least = Math.min(...own);
  const column = (value: number) => value.toFixed(1).padStart(9);
  const columns = [
    least,
    median(own),
    median(stops.map((each) => each.collector)),
    Math.min(...stops.map((each) => each.clock)),
  ];
  const mark = least > limitMs ? " over the limit" : "";
  isTooLong ||= mark !== "";
  process.stdout.write(
    `${name.padEnd(36)}${columns.map(column).join("")}${mark}\n`,
  );
}

function isChosen(name: string): boolean {
  return name.includes(values.only);
}

/** Measures the first request of a kind in a process, with few records. */
async function measureFirst(folder: string, name: string): Promise<void> {
  const kind = kinds[name];
  if (kind === undefined || !isChosen(name)) return;
  const stops: Stops[] = [];
  for (let round = 0; round < rounds; round++) {
    const copy = `${folder}-${round}`;
    await cp(folder, copy, { recursive: true });
    const measured = await Measured.start(copy);
    try {
      await measured.signIn();
      const message = kind.message(round);
      stops.push(
        await measured.measure(() => measured.send(message, kind.status)),
      );
    } finally {
      await measured.stop();
      await removeFolder(copy);
    }
  }
  report(`${name} (first)`, stops);
}

/** Measures the snapshot that the first write is due for. */
async function measureSnapshot(measured: Measured): Promise<void> {
  const patch: Message = ["PATCH", `${v1}animals/1`, '{"weight_kg":3}'];
  const stops = await measured.measure(async () => {
    await measured.signIn(); // a write
    const isDone = async () =>
      (await readdir(measured.server.folder)).includes("snapshot-2.jsonl");
    while (!await isDone()) {
      await measured.send(patch, 201);
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  });
  report("snapshot, with reads and writes", [stops]);
}

/** Reads events for two seconds. */
async function readEvents(measured: Measured, message: Message): Promise<void> {
  const [, path, , fields] = message;
  const response = await fetch(measured.server.origin + path, {
    headers: { ...fields, authorization: `Bearer ${measured.token}` },
    signal: AbortSignal.timeout(2000),
  });
  try {
    for await (const _ of response.body ?? []);
  } catch (error) {
    if (!(error instanceof Error && error.name === "TimeoutError")) throw error;
  }
}

async function measureKind(
  measured: Measured,
  { status, message, before, after, rounds: count = rounds }: Kind,
): Promise<Stops[]> {
  const stops: Stops[] = [];
  for (let round = 0; round < count; round++) {
    if (before) await measured.send(before(round));
    const next = message(round);
    stops.push(
      await measured.measure(async () => {
        if (next[1] === `${v1}events`) return await readEvents(measured, next);
        const answer = await measured.send(next, status);
        await after?.(measured, answer);
      }),
    );
  }
  return stops;
}

execFileSync("npm", ["run", "build"], { cwd: root, stdio: "pipe" });
process.stdout.write(
  `Node.js ${process.version}, ${records} animals, ${rounds} rounds, limit ` +
    `${limitMs} ms; the longest stop in ms\n` +
    `${"".padEnd(36)}    least   median  collector   clock\n`,
);
const own = await temporaryFolder();
try {
  const small = join(own, "small");
  await fill(small, (rounds + 1) * cascadeAnimals);
  for (const name of measuredFirst) await measureFirst(small, name);
  const folder = join(own, "data");
  await fill(folder, records);
  const measured = await Measured.start(folder);
  try {
    await measureSnapshot(measured);
    for (const [name, kind] of Object.entries(kinds)) {
      if (isChosen(name)) report(name, await measureKind(measured, kind));
    }
  } finally {
    await measured.stop();
  }
} finally {
  await removeFolder(own);
}
process.exitCode = isTooLong ? 1 : 0;
