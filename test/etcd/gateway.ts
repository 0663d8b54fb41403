/**
 * A stand-in for etcd 3.4's HTTP/JSON gateway in the process of a test: the
 * calls that the store needs, with etcd's answers, and the faults of a network.
 */

import { Buffer } from "node:buffer";
import {
  createServer,
  type IncomingMessage,
  type Server,
  type ServerResponse,
} from "node:http";
import type { AddressInfo } from "node:net";
import type { TestContext } from "node:test";
import type { EtcdOptions } from "../../src/store/shared.ts";

interface Stored {
  readonly key: string;
  readonly value: string;
  readonly create_revision: string;
  readonly mod_revision: string;
  readonly version: string;
  readonly lease?: string;
}

/** A request body, of all calls together. */
interface Sent {
  readonly key?: string;
  readonly range_end?: string;
  readonly value?: string;
  readonly lease?: string;
  readonly limit?: number | string;
  readonly sort_order?: string;
  readonly compare?: readonly { key: string; target: string; value?: string }[];
  readonly success?: readonly Sent[];
  readonly failure?: readonly Sent[];
  readonly request_put?: Sent;
  readonly request_range?: Sent;
  readonly request_delete_range?: Sent;
  readonly create_request?: Sent & { start_revision?: string };
  readonly TTL?: string | number;
  readonly ID?: string;
  readonly name?: string;
  readonly password?: string;
}

/** The fault that a call meets instead of a response. */
export type Fault =
  /** It is not carried out, and the connection breaks. */
  | "broken"
  /** It is carried out, and its answer is lost. */
  | "lost"
  /** It is carried out, and its node stops before it answers. */
  | "canceled"
  /** It is carried out, and its answer waits for {@linkcode Gateway.release}. */
  | "late"
  /** It is not carried out, and nothing is ever answered. */
  | "silent"
  /** It is not carried out, and its answer never ends. */
  | "endless"
  /** A proxy answers instead. */
  | "html"
  | "other"
  /** etcd's database is full. */
  | "full"
  /** It is carried out, and fills etcd's database: then it is refused, too. */
  | "filled"
  | "no leader"
  /** Another program answers this instead. */
  | { readonly status: number; readonly text: string };

/** Returns the fault of a call, if it has one. */
export type FaultOf = (path: string, body: Sent) => Fault | undefined;

const maxRequestBytes = 1.5 * (1 << 20);

class GrpcError extends Error {
  readonly code: number;

  constructor(code: number, message: string) {
    super(message);
    this.code = code;
  }
}

const databaseFull = new GrpcError(
  8,
  "etcdserver: mvcc: database space exceeded",
);
const canceled = new GrpcError(1, "grpc: the client connection is closing");
const invalidToken = new GrpcError(16, "etcdserver: invalid auth token");

/** The data of an etcd, and a server of it. */
export class Gateway {
  /** Decides for each call. */
  faultOf: FaultOf = () => undefined;
  /** Returns what a call waits for before it is carried out, as that of a slow server. */
  delayOf: (path: string, body: Sent) => Promise<void> | undefined = () =>
    undefined;
  /** The paths of all calls so far. */
  readonly calls: string[] = [];
  /** If it is set, calls need a token that this user gets. */
  user: { name: string; password: string } | undefined;
  /** Sends the answer that is late; undefined until one is. */
  release: (() => void) | undefined;
  /** True if watches bring nothing. */
  isWatchSilent = false;
  readonly #server: Server;
  readonly #values = new Map<string, Stored>();
  readonly #watches = new Set<{ key: string; response: ServerResponse }>();
  readonly #history: Stored[] = [];
  readonly #leases = new Set<string>();
  #revision = 1;
  #tokens = 0;
  #tokenError = invalidToken;

  constructor() {
    this.#server = createServer((request, response) => {
      this.#handle(request, response).catch((error) => {
        if (!(error instanceof GrpcError)) throw error;
        const { code, message } = error;
        response.statusCode = code === 14 ? 503 : 400;
        response.end(JSON.stringify({ error: message, message, code }));
      });
    });
  }

  /** Listens until the test ends. */
  async listen(t: Pick<TestContext, "after">): Promise<EtcdOptions> {
    await new Promise<void>((resolve) =>
      this.#server.listen(0, "127.0.0.1", resolve)
    );
    t.after(() => {
      this.#server.closeAllConnections();
      this.#server.close();
    });
    const { port } = this.#server.address() as AddressInfo;
    return {
      endpoints: [`http://127.0.0.1:${port}`],
      prefix: "zoo/",
      user: undefined,
      password: undefined,
      hasLocalReads: false,
    };
  }

  /** Breaks all streams. */
  cutWatches(): void {
    for (const { response } of this.#watches) response.destroy();
  }

  /** The number of open watches. */
  get watchCount(): number {
    return this.#watches.size;
  }

  /** Forgets the tokens, as a restart does. */
  forgetTokens(): void {
    this.#tokens++;
    this.#tokenError = invalidToken;
  }

  /** Refuses the tokens, as after a change of users or roles. */
  outdateTokens(): void {
    this.#tokens++;
    this.#tokenError = new GrpcError(
      3,
      "etcdserver: revision of auth store is old",
    );
  }

  /** Ends all leases, and what was put under them. */
  expireLeases(): void {
    this.#leases.clear();
    for (const [key, { lease }] of this.#values) {
      if (lease !== undefined) this.#values.delete(key);
    }
  }

  /** The value of a key, as text. */
  get(key: string): string {
    return textOf(this.#values.get(`zoo/${key}`)?.value ?? "");
  }

  set(key: string, text: string): void {
    const value = Buffer.from(text).toString("base64");
    this.#put({ key: Buffer.from(`zoo/${key}`).toString("base64"), value });
  }

  /** Deletes a key. */
  remove(key: string): void {
    this.#values.delete(`zoo/${key}`);
  }

  /** Deletes all keys of a kind, as the snapshots of another server do. */
  forget(kind: string): void {
    for (const key of this.#values.keys()) {
      if (key.startsWith(`zoo/${kind}/`)) this.#values.delete(key);
    }
  }

  /** Returns a function that sets all keys back to those of now, as the restore of a backup does. */
  save(): () => void {
    const saved = [...this.#values];
    return () => {
      this.#values.clear();
      for (const [key, stored] of saved) this.#values.set(key, stored);
    };
  }

  /** Replaces the values of a kind. */
  replace(kind: string, change: (text: string) => string): void {
    for (const [key, stored] of this.#values) {
      if (!key.startsWith(`zoo/${kind}/`)) continue;
      const text = Buffer.from(stored.value, "base64").toString();
      const value = Buffer.from(change(text)).toString("base64");
      this.#values.set(key, { ...stored, value });
    }
  }

  /** The keys without their prefix, in order. */
  get keys(): string[] {
    return [...this.#values.keys()].sort()
      .map((key) => key.replace("zoo/", ""));
  }

  /** The value of `head`. */
  get head(): string {
    return this.get("head");
  }

  async #handle(
    request: IncomingMessage,
    response: ServerResponse,
  ): Promise<void> {
    const parts: Buffer[] = [];
    for await (const part of request) parts.push(part);
    const bytes = Buffer.concat(parts);
    const body: Sent = JSON.parse(bytes.toString());
    const path = (request.url ?? "").replace("/v3/", "");
    this.calls.push(path);
    await this.delayOf(path, body);
    const fault = this.faultOf(path, body);
    if (typeof fault === "object") {
      response.statusCode = fault.status;
      return void response.end(fault.text);
    }
    if (path === "auth/authenticate") return this.#signIn(body, response);
    if (fault === "broken") return void request.socket.destroy();
    if (fault === "silent") return;
    if (fault === "endless") return void response.write('{"header":');
    if (
      this.user && request.headers.authorization !== `token-${this.#tokens}`
    ) {
      if (path !== "watch") throw this.#tokenError;
      const result = { watch_id: "-1", created: true, canceled: true };
      return void response.write(JSON.stringify({ result }));
    }
    if (fault === "html") {
      response.statusCode = 502;
      return void response.end("<html>Bad gateway</html>");
    }
    if (fault === "other") return void response.end("{}");
    if (fault === "no leader") throw new GrpcError(14, "etcdserver: no leader");
    if (fault === "full") throw databaseFull;
    // Base64 takes a third more than what etcd counts.
    if (bytes.length > maxRequestBytes * 4 / 3) {
      throw new GrpcError(3, "etcdserver: request is too large");
    }
    if (path === "watch") return this.#watch(body, response);
    const header = { cluster_id: "1", member_id: "1" };
    const answer = JSON.stringify({ header, ...this.#answer(path, body) });
    if (fault === "filled") throw databaseFull;
    if (fault === "canceled") throw canceled;
    if (fault === "lost") return void request.socket.destroy();
    if (fault === "late") await new Promise<void>((go) => this.release = go);
    response.end(answer);
  }

  #signIn({ name, password }: Sent, response: ServerResponse): void {
    if (this.user === undefined) {
      throw new GrpcError(9, "etcdserver: authentication is not enabled");
    }
    if (name !== this.user?.name || password !== this.user?.password) {
      const message =
        "etcdserver: authentication failed, invalid user ID or password";
      throw new GrpcError(3, message);
    }
    const token = `token-${this.#tokens}`;
    response.end(JSON.stringify({ ...this.#header(), token }));
  }

  #answer(path: string, body: Sent): object {
    switch (path) {
      case "kv/range":
        return { ...this.#header(), ...this.#range(body) };
      case "kv/put":
        this.#revision++;
        this.#put(body);
        return this.#header();
      case "kv/deleterange":
        this.#revision++;
        this.#delete(body);
        return this.#header();
      case "kv/txn":
        return this.#transact(body);
      case "lease/grant": {
        const ID = String(7_587_848_000 + this.calls.length);
        this.#leases.add(ID);
        return { ...this.#header(), ID, TTL: String(body.TTL) };
      }
      case "lease/keepalive": {
        const { ID = "" } = body;
        const TTL = this.#leases.has(ID) ? { TTL: "60" } : {};
        return { result: { ...this.#header(), ID, ...TTL } };
      }
      default:
        throw new GrpcError(12, "Not Found");
    }
  }

  #header() {
    return { header: { revision: String(this.#revision), raft_term: "2" } };
  }

  #range(body: Sent) {
    const found = this.#select(body);
    if (body.sort_order === "DESCEND") found.reverse();
    const limit = Number(body.limit ?? 0) || found.length;
    const kvs = found.slice(0, limit);
    return {
      ...kvs.length > 0 && { kvs },
      ...limit < found.length && { more: true },
      ...found.length > 0 && { count: String(found.length) },
    };
  }

  #select({ key = "", range_end }: Sent): Stored[] {
    const first = textOf(key);
    const end = range_end === undefined ? undefined : textOf(range_end);
    const found = [...this.#values].filter(([each]) =>
      end === undefined ? each === first : each >= first && each < end
    );
    found.sort(([one], [other]) => one < other ? -1 : 1);
    return found.map(([, stored]) => stored);
  }

  #put({ key = "", value = "", lease }: Sent): void {
    if (lease !== undefined && !this.#leases.has(lease)) {
      throw new GrpcError(5, "etcdserver: requested lease not found");
    }
    const revision = String(this.#revision);
    const previous = this.#values.get(textOf(key));
    const stored = {
      key,
      value,
      create_revision: previous?.create_revision ?? revision,
      mod_revision: revision,
      version: String(Number(previous?.version ?? 0) + 1),
      ...lease !== undefined && { lease },
    };
    this.#values.set(textOf(key), stored);
    this.#history.push(stored);
    for (const watch of this.#watches) {
      if (watch.key !== key || this.isWatchSilent) continue;
      this.#tell(watch.response, [stored]);
    }
  }

  #delete(body: Sent): void {
    for (const { key } of this.#select(body)) this.#values.delete(textOf(key));
  }

  #transact({ compare = [], success = [], failure = [] }: Sent): object {
    const succeeded = compare.every(({ key, target, value }) => {
      const stored = this.#values.get(textOf(key));
      return target === "CREATE" ? !stored : stored?.value === value;
    });
    const operations = succeeded ? success : failure;
    const isChange = operations.some(({ request_range }) => !request_range);
    if (isChange) this.#revision++;
    const responses = operations.map((operation) => {
      const { request_put, request_delete_range, request_range } = operation;
      if (request_put) this.#put(request_put);
      if (request_delete_range) this.#delete(request_delete_range);
      if (!request_range) return {};
      return { response_range: this.#range(request_range) };
    });
    return { ...this.#header(), ...succeeded && { succeeded }, responses };
  }

  #watch({ create_request = {} }: Sent, response: ServerResponse): void {
    const { key = "", start_revision = "0" } = create_request;
    response.write(
      `${JSON.stringify({ result: { ...this.#header(), created: true } })}\n`,
    );
    const missed = this.#history.filter((each) =>
      each.key === key && Number(each.mod_revision) >= Number(start_revision)
    );
    if (missed.length > 0 && !this.isWatchSilent) this.#tell(response, missed);
    const watch = { key, response };
    this.#watches.add(watch);
    response.on("close", () => this.#watches.delete(watch));
  }

  #tell(response: ServerResponse, kvs: readonly Stored[]): void {
    const events = kvs.map((kv) => ({ kv }));
    response.write(
      `${JSON.stringify({ result: { ...this.#header(), events } })}\n`,
    );
  }
}

function textOf(base64: string): string {
  return Buffer.from(base64, "base64").toString("latin1");
}
