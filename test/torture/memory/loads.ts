/**
 * The ways to fill the memory of a server. Each is what one client does again
 * and again; many clients do it at once.
 */

import { connect, type Socket } from "node:net";
import { adminPassword } from "../../harness.ts";
import type { Random } from "../random.ts";
import type { Client, Reply } from "./client.ts";
import { contentOf, type Entry, type Import, type Ledger } from "./ledger.ts";

/** The collections of the server: the same but for the length of the text. */
export const collectionNames = ["notes", "papers"] as const;
type Collection = typeof collectionNames[number];

/** The declaration file. */
export const declaration = `
export default ({ collection, string, integer, optional }) => {
  const of = (name, singular, maxLength) => collection({
    name, singular,
    access: { read: "anyone", write: "keeper", delete: "keeper" },
    properties: {
      key: string({ maxLength: 20 }),
      version: integer({ minimum: 1 }),
      text: string({ maxLength }),
      a: integer({ minimum: 0 }),
      b: integer({ minimum: 0 }),
      c: integer({ minimum: 0 }),
      tag: optional(string({ maxLength: 20 })),
    },
  });
  return {
    title: "Memory",
    collections: [of("notes", "note", 20_000), of("papers", "paper", 200_000)],
  };
};`;

/** The longest text of a note that changes. */
const maxNoteLength = 20_000;

/** What the clients of a round share. */
export interface Scene {
  readonly port: number;
  readonly token: string;
  readonly ledger: Ledger;
  readonly random: Random;
  /** The users that were created, and their latest tokens. */
  readonly users: Map<string, string[]>;
  /** The imports that were accepted and have not ended, as far as is known. */
  readonly tasks: Set<Import>;
  /** Responses by what they were to, and their status. */
  readonly counts: Map<string, number>;
  /** True once a request was refused because memory is full, or health says it is. */
  isFull: boolean;
  isStopping: boolean;
}

/** One client, and what it has created. */
export interface Own {
  readonly client: Client;
  readonly entries: Entry[];
}

/** Counts a response; throws an error if it is one that no load may get. */
export function tally(scene: Scene, what: string, reply: Reply): Reply {
  const { status, body, text } = reply;
  // A server that is being killed breaks all connections.
  if (status === 0 && scene.isStopping) return reply;
  const result = status === 0 ? text : status === 503 ? body.errorCode : status;
  const key = `${what} ${result}`;
  scene.counts.set(key, (scene.counts.get(key) ?? 0) + 1);
  if (status === 503 && body.errorCode === 50303) scene.isFull = true;
  if (status >= 400 && status !== 503) {
    throw new Error(`${what}: ${status} ${text.slice(0, 500)}`);
  }
  return reply;
}

/** Creates a record with a text of a length; returns it if it was created. */
export async function create(
  scene: Scene,
  { client, entries }: Own,
  { collection, length, idempotencyKey }: {
    readonly collection: Collection;
    readonly length: number;
    readonly idempotencyKey?: boolean;
  },
): Promise<Entry | undefined> {
  const { ledger } = scene;
  const entry = ledger.add(collection);
  const json = contentOf(entry.key, 1, length);
  const headers = idempotencyKey ? { "idempotency-key": entry.key } : {};
  const send = () =>
    client.send("POST", `/v1/${collection}`, { json, headers });
  const reply = await ledger.change(entry, [1, length], send);
  tally(scene, idempotencyKey ? "keyed create" : "create", reply);
  if (reply.status !== 201) return undefined;
  entries.push(entry);
  // Long texts may push the response out of what is stored.
  if (idempotencyKey && length < 1000 && scene.random.chance(0.3)) {
    const again = tally(scene, "replay", await send());
    if (again.status === 201 && again.body.id !== entry.id) {
      throw new Error(`${entry.key} is there twice, with one Idempotency-Key`);
    }
  }
  return entry;
}

/** Changes a record of one's own to a text of a length. */
export async function update(
  scene: Scene,
  client: Client,
  entry: Entry,
  grow: (length: number) => number,
): Promise<Reply> {
  const [state = ""] = entry.possible;
  const [version = 0, length = 0] = state.split(":").map(Number);
  const next = [version + 1, grow(length)] as const;
  const { text } = contentOf(entry.key, ...next);
  const path = `/v1/${entry.collection}/${entry.id}`;
  return await scene.ledger.change(
    entry,
    next,
    () => client.send("PATCH", path, { json: { version: next[0], text } }),
  );
}

/** Deletes a record of one's own. */
export async function remove(
  scene: Scene,
  client: Client,
  entry: Entry,
): Promise<Reply> {
  return await scene.ledger.change(
    entry,
    "deletion",
    () => client.send("DELETE", `/v1/${entry.collection}/${entry.id}`),
  );
}

/** The most imports that have not ended, and lines in them: after a restart all must find room. */
const maxTasks = 60;
const maxPendingLines = 30_000;

async function importLines(
  scene: Scene,
  { client }: Own,
  count: number,
): Promise<void> {
  const { tasks, ledger, random } = scene;
  const [oldest] = tasks;
  const pending = [...tasks].reduce((sum, { lines }) => sum + lines.length, 0);
  if (oldest?.url && (tasks.size >= maxTasks || pending > maxPendingLines)) {
    const reply = await client.send("GET", oldest.url);
    // A task that ended long ago may be gone.
    const isGone = [404, 410].includes(reply.status);
    if (!isGone) tally(scene, "task", reply);
    if (isGone || /^(?:succeeded|failed)$/.test(reply.body.status)) {
      tasks.delete(oldest);
    }
    return;
  }
  const length = 20 + random.below(800);
  const { task, body } = ledger.addImport("notes", count, length);
  const reply = await client.send("POST", "/v1/notes", { lines: body });
  ledger.settleImport(task, tally(scene, "import", reply));
  if (reply.status === 202) tasks.add(task);
}

const properties = ["key", "version", "a", "b", "c", "tag", "updated_at"];

async function query(scene: Scene, { client }: Own): Promise<void> {
  const { random } = scene;
  const first = random.pick(properties);
  const second = random.pick(properties.filter((name) => name !== first));
  const order = random.pick(["asc", "desc"]);
  const filter = random.pick([
    `a=${random.below(7)}`,
    `b=${random.below(101)}`,
    `c:gte=${random.below(10_007)}`,
    `key:starts=r${random.below(10)}`,
    "tag=null",
  ]);
  const limit = 1 + random.below(20);
  const page =
    `${filter}&sortby=${first},${second}&order=${order}&limit=${limit}`;
  tally(scene, "query", await client.send("GET", `/v1/notes?${page}`));
}

/** Asks for the largest pages there are, or for events, and reads little or nothing. */
function neglect({ port, token, random }: Scene, path: string): Socket {
  const socket = connect(port, "127.0.0.1");
  const isSlow = random.chance(0.5);
  const head = `GET ${path} HTTP/1.1\r\nHost: localhost\r\n` +
    `Authorization: Bearer ${token}\r\n\r\n`;
  socket.on("connect", () => socket.write(head));
  socket.on("error", () => {}); // the server may cut it off
  socket.pause();
  if (isSlow) {
    const timer = setInterval(() => socket.read(1 << 14), 50);
    socket.on("close", () => clearInterval(timer));
  }
  return socket;
}

/** One way to fill memory. */
export interface Load {
  /** True if enough of it fills any memory. */
  readonly fills: boolean;
  readonly step?: (scene: Scene, own: Own) => Promise<unknown>;
  /** Opens a connection that is left alone until it closes. */
  readonly open?: (scene: Scene) => Socket;
}

/** All of them. */
export const loads: Readonly<Record<string, Load>> = {
  "small records": {
    fills: true,
    step: (scene, own) =>
      create(scene, own, {
        collection: "notes",
        length: 1 + scene.random.below(600),
      }),
  },
  "large strings": {
    fills: true,
    step: (scene, own) =>
      create(scene, own, {
        collection: "papers",
        length: 1000 + scene.random.below(199_000),
      }),
  },
  "keyed creates": {
    fills: true,
    step: (scene, own) =>
      create(scene, own, {
        collection: scene.random.chance(0.8) ? "notes" : "papers",
        length: 1 + scene.random.below(3000),
        idempotencyKey: true,
      }),
  },
  "keyed creates, deleted at once": {
    fills: false,
    step: async (scene, own) => {
      const length = 1000 + scene.random.below(199_000);
      const idempotencyKey = true;
      const options = { collection: "papers", length, idempotencyKey } as const;
      const entry = await create(scene, own, options);
      if (entry === undefined) return;
      own.entries.pop();
      const reply = await remove(scene, own.client, entry);
      expectDone("deletion", tally(scene, "deletion", reply));
    },
  },
  "records that grow": {
    fills: true,
    step: async (scene, own) => {
      const entry = scene.random.chance(0.2) || own.entries.length === 0
        ? await create(scene, own, { collection: "notes", length: 100 })
        : scene.random.pick(own.entries);
      if (entry === undefined) return;
      const grow = (length: number) => Math.min(length * 2, maxNoteLength);
      tally(scene, "growth", await update(scene, own.client, entry, grow));
    },
  },
  imports: {
    fills: true,
    step: (scene, own) =>
      importLines(scene, own, 100 + scene.random.below(8000)),
  },
  "imports of one line": {
    fills: false,
    step: (scene, own) => importLines(scene, own, 1),
  },
  users: {
    fills: false,
    step: (scene, own) => createUser(scene, own.client),
  },
  "sign-ins": {
    fills: false,
    step: (scene, own) => signIn(scene, own.client),
  },
  "queries that build indexes": { fills: false, step: query },
  "listeners that read little": {
    fills: false,
    open: (scene) => neglect(scene, "/v1/events"),
  },
  "large pages, read slowly": {
    fills: false,
    open: (scene) =>
      neglect(
        scene,
        `/v1/${
          scene.random.pick(collectionNames)
        }?sortby=text&order=desc&limit=100`,
      ),
  },
};

let users = 0;

/** Creates a user, who can be signed in from then on. */
export async function createUser(
  scene: Scene,
  client: Client,
): Promise<Reply> {
  const username = `user-${++users}`;
  const json = { username, password: adminPassword, role: "keeper" };
  const reply = await client.send("POST", "/v1/users", { json });
  if (tally(scene, "user", reply).status === 201) scene.users.set(username, []);
  return reply;
}

/** Signs in one of the users. */
export async function signIn(scene: Scene, client: Client): Promise<Reply> {
  const username = scene.random.pick([...scene.users.keys()]);
  const json = { username, password: adminPassword };
  const reply = await client.send("POST", "/v1/authorizations", { json });
  if (tally(scene, "sign-in", reply).status === 201) {
    const tokens = scene.users.get(username) ?? [];
    tokens.push(reply.body.token);
    if (tokens.length > 5) tokens.shift();
  }
  return reply;
}

/** Throws an error if a request failed that full memory must not refuse. */
export function expectDone(what: string, reply: Reply): Reply {
  const { status, text } = reply;
  if (status === 0 || (status >= 200 && status < 300)) return reply;
  throw new Error(`Refused: ${what}: ${status} ${text.slice(0, 500)}`);
}
