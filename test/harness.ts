/**
 * What the tests share: a real server as a child process on a free port, in a
 * temporary folder of its own, and the functions that send requests to it.
 */

import { strict as assert } from "node:assert";
import { type ChildProcess, spawn, spawnSync } from "node:child_process";
import { Buffer } from "node:buffer";
import { randomInt, scryptSync } from "node:crypto";
import { existsSync, rmSync } from "node:fs";
import { cp, mkdir, mkdtemp, rm, truncate, writeFile } from "node:fs/promises";
import http from "node:http";
import https from "node:https";
import { connect, createServer } from "node:net";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import process from "node:process";
import { followDeclaration } from "../src/data-folder.ts";
import { tablesOf } from "../src/api/routes.ts";
import { collectionsOf } from "../src/api/routes.ts";
import { featureNames, loadFeatures } from "../src/features.ts";
import { defaultLimits } from "../src/store/options.ts";
import { openStore } from "../src/store/store.ts";
import { collectionsFile, sample } from "./collections.ts";
import {
  checkDocumented,
  forgetServer,
  noteServer,
  type OpenApiDocument,
  type Schema,
} from "./replay.ts";
import { root } from "./root.ts";

export { root };

/**
 * Code that lowers the cost of each password hash, from a quarter of a second,
 * in this process and the servers it starts. passwords.test.ts and the tests of
 * the documents hash as a server does.
 */
const cheapHashing = `
  import crypto from "node:crypto";
  import { syncBuiltinESMExports } from "node:module";
  const { scrypt } = crypto;
  crypto.scrypt = (password, salt, length, _cost, done) =>
    scrypt(password, salt, length, { N: 16, r: 1, p: 1 }, done);
  syncBuiltinESMExports();`;
await import(moduleOf(cheapHashing));

/** The password that every started server gives its `admin`. */
export const adminPassword = "correct horse battery";

/** A stored hash of that password, which costs little to verify anywhere. */
const cheapHash = (() => {
  const salt = Buffer.from("salt of the test");
  const cost = { N: 16, r: 1, p: 1 };
  const hash = scryptSync(adminPassword, salt, 32, cost);
  const parts = [16, 1, 1, salt.toString("base64url")];
  return `scrypt$${parts.join("$")}$${hash.toString("base64url")}`;
})();

/** The admin as a store holds it. */
export const storedAdmin = {
  id: 1,
  username: "admin",
  role: "admin",
  password: cheapHash,
  created_at: "2026-01-01T00:00:00.000Z",
  updated_at: "2026-01-01T00:00:00.000Z",
};

let template: Promise<string> | undefined;

/** Creates a data folder that holds only the admin, to be copied. */
async function createTemplate(): Promise<string> {
  const own = await temporaryFolder();
  const folder = join(own, "store");
  const store = await openStore({ folder, tables: tablesOf(sample, []) });
  const names = featureNames.filter((name) => name === "evolution");
  const [evolution] = await loadFeatures(names);
  const seq = store.transact(0, (apply) => {
    const collections = [...collectionsOf(sample).values()];
    const opened = { collections, store, apply, log: () => {} };
    followDeclaration(opened, evolution?.adaptRecords);
    apply(["put", "users", storedAdmin]);
  });
  await store.durable(seq);
  await store.close();
  return folder;
}

/**
 * Creates the file of a data folder that reserves space on the disk, as one
 * without blocks: writing its 16 MiB takes a fifth of the processor time of a
 * start.
 */
export async function reserveNothing(folder: string): Promise<void> {
  await mkdir(folder, { recursive: true, mode: 0o700 });
  const path = join(folder, "reserve");
  await writeFile(path, "", { mode: 0o600 });
  await truncate(path, defaultLimits.reserveBytes);
}

/** The secret with which every started server signs its tokens. */
export const jwtSecret = "0123456789abcdef0123456789abcdef";

/** The settings with both. */
export const serverSecrets = {
  ADMIN_PASSWORD: adminPassword,
  JWT_SECRET: jwtSecret,
};

/** True if this Node.js strips types by itself (from 22.18 on); otherwise tsx does. */
export const stripsTypes = "typescript" in process.features &&
  process.features.typescript === "strip";
/** The flags with which this Node.js runs TypeScript. */
export const loader = stripsTypes
  ? []
  : ["--import", import.meta.resolve("tsx")];

/**
 * `MAIN=build/main.js` starts servers from a build. `RUNTIME` is another
 * program to start them with, such as `/usr/local/bin/deno run -A`. With
 * `ETCD=HOST:PORT` several servers share a store there, and look like one.
 */
const { MAIN = "src/main.ts", RUNTIME = "" } = process.env;
const projectMain = join(root, MAIN);

/** The arguments with which this Node.js runs the command line of the project. */
export const command = [...loaderFor(projectMain), projectMain];

/** Returns the flags with which this Node.js runs a file. */
export function loaderFor(file: string): readonly string[] {
  return file.endsWith(".ts") ? loader : [];
}

/** The reason to skip a test that only Node.js can pass; false if servers run in Node.js. */
export const notInNode = RUNTIME === "" ? false : `servers run in ${RUNTIME}`;

/** Returns the reason to skip a test that needs a feature; false if the feature exists. */
export function lacks(feature: string): string | false {
  return featureNames.includes(feature) ? false : `no feature ${feature}`;
}

/** An error in a property, or the errors in a line of an import. */
interface FailedPart {
  readonly field: string;
  readonly code: string;
  readonly message: string;
  readonly line: number;
  readonly errors: readonly Pick<FailedPart, "field" | "code" | "message">[];
}

/**
 * The parsed JSON of a response, an event or a line. Which of these properties
 * it has, and whether it is an array, depends on the request.
 */
export interface Body extends ReadonlyArray<Body>, OpenApiDocument {
  readonly [property: string]: unknown;
  readonly [link: `${string}_url`]: string;
  readonly id: number;
  readonly url: string;
  readonly created_at: string;
  readonly updated_at: string;
  readonly expires_at: string;
  readonly link: Readonly<Record<"rel" | "href" | "type" | "title", string>>;
  readonly name: string;
  readonly title: string;
  readonly username: string;
  readonly token: string;
  readonly status: string;
  readonly error: string;
  readonly errorMsg: string;
  readonly message: string;
  readonly errorCode: number;
  readonly errors: readonly FailedPart[];
  readonly notices: readonly string[];
  readonly lines: number;
  readonly imported: number;
  readonly rejected: number;
  readonly failure: string;
  readonly methods: readonly string[];
  readonly writable: readonly string[];
  readonly schema: Schema;
  readonly documentation_url: string;
}

/** A complete response: `body` is the parsed JSON, or undefined if it is not JSON. */
export interface Answer {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: Body;
}

/**
 * Asserts that a response is the error of a code, with everything that follows
 * from the code, and with these words in its message.
 */
export function assertError(
  { status, headers, text, body }: Answer,
  code: number,
  ...words: readonly (string | RegExp)[]
): void {
  assert.equal(status, Math.floor(code / 100), text);
  assert.equal(body.errorCode, code, text);
  const type = headers.get("content-type");
  assert.equal(type, "application/json; charset=utf-8");
  assert.match(body.error, /\S/);
  assert.equal(body.errorMsg, body.error);
  assert.doesNotMatch(text, /\n\s+at |\.[jt]s:|node:internal/);
  for (const word of words) {
    const isFound = typeof word === "string"
      ? body.error.includes(word)
      : word.test(body.error);
    assert.ok(isFound, `"${body.error}" does not hold ${word}`);
  }
  if (status === 401 || status === 403) {
    assert.match(body.message, /\S/);
    assert.match(body.documentation_url, /\S/);
  }
  if (status === 401) {
    const challenge = code >= 40102
      ? /^Bearer realm="zoo-api", error="invalid_token"/
      : /^Bearer realm="zoo-api"$/;
    assert.match(headers.get("www-authenticate") ?? "", challenge);
  }
  if (status === 405) assert.match(headers.get("allow") ?? "", /\bGET\b/);
  if (code === 42200) {
    assert.ok(body.errors.length > 0, text);
    for (const { field, code, message } of body.errors) {
      assert.equal(typeof field, "string", text);
      assert.match(code, /\S/, text);
      assert.match(message, /\S/, text);
    }
  }
}

/**
 * Asserts a 422 that names exactly these properties, each with its code. If two
 * codes are possible, they are separated by a bar; an empty one matches any.
 */
export function assertInvalid(
  answer: Answer,
  expected: Readonly<Record<string, string>>,
): void {
  assertError(answer, 42200);
  const { errors } = answer.body;
  const fields = errors.map(({ field }) => field);
  assert.deepEqual(fields.sort(), Object.keys(expected).sort(), answer.text);
  for (const { field, code } of errors) {
    assert.match(code, new RegExp(`^(?:${expected[field] || "\\w+"})$`), field);
  }
}

/** Creates a user with the password of the admin, signs in, and returns the token. */
export async function signInNew(
  target: Pick<Server, "request" | "signIn">,
  { token, username, role = "viewer" }: {
    /** That of an admin. */
    readonly token: string;
    readonly username: string;
    readonly role?: string;
  },
): Promise<string> {
  const json = { username, role, password: adminPassword };
  const made = await target.request("POST", "/v1/users", { token, json });
  assert.equal(made.status, 201, made.text);
  return await target.signIn(username);
}

/** The parts of a request besides its method and URL. */
export interface RequestOptions {
  /** Sent as JSON; by default with `content-type: application/json`. */
  readonly json?: unknown;
  /** Sent unchanged. */
  readonly raw?: string | Uint8Array;
  /** Sent as `Authorization: Bearer`. */
  readonly token?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
}

/** How to start a server. */
export interface StartOptions {
  /** More flags after `serve`. */
  readonly args?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The data folder, a temporary one by default; one that does not exist is created with an admin. */
  readonly folder?: string;
  /** True if the server itself creates the folder and the admin. */
  readonly isNew?: boolean;
  /** The port; by default a free one. */
  readonly port?: number;
  /** Sample records, written to a file and given as `--seed`. */
  readonly seed?: unknown;
  /** Flags of Node.js itself. */
  readonly nodeArgs?: readonly string[];
  /** The words before the command, such as those that limit what it may use. */
  readonly prefix?: readonly string[];
  /** A `main.ts` other than the project's. */
  readonly main?: string;
  /** True if passwords are hashed at the cost of production. */
  readonly hashesFully?: boolean;
}

/** A server that runs as a child process. */
export interface Server {
  /** `http://127.0.0.1:PORT` */
  readonly origin: string;
  readonly port: number;
  readonly folder: string;
  readonly child: ChildProcess;
  /** The exit code once the process has ended; null when a signal ended it. */
  readonly ended: Promise<number | null>;
  /** Everything that the process has printed so far, to standard output and error. */
  output(): string;
  /** Sends one request; `path` begins with a slash. */
  request(
    method: string,
    path: string,
    options?: RequestOptions,
  ): Promise<Answer>;
  /** Signs in and returns the token; by default as the admin. */
  signIn(username?: string, password?: string): Promise<string>;
  /** Ends the process with a signal, SIGTERM by default; returns its exit code, null if a signal ended it. */
  end(signal?: NodeJS.Signals): Promise<number | null>;
  /** Ends the process and removes what was created for it. */
  stop(): Promise<void>;
}

/** What {@linkcode removeAtExit} removes. */
const ownFolders = new Set<string>();
process.once("exit", () => {
  for (const folder of ownFolders) {
    try {
      rmSync(folder, { recursive: true, force: true });
    } catch {
      // A server that is still running writes to it: no reason for a test to fail.
    }
  }
});

/** Removes a folder when this process ends, if nobody has before; returns its path. */
export function removeAtExit(folder: string): string {
  ownFolders.add(folder);
  return folder;
}

/** A new temporary folder; remove it with {@linkcode removeFolder} as soon as it is not needed. */
export async function temporaryFolder(): Promise<string> {
  return removeAtExit(await mkdtemp(join(tmpdir(), "zoo-api-test-")));
}

/** Copies what the compiler leaves out: files that are not source code. */
export function copyAssets(source: string, build: string): Promise<void> {
  const filter = (file: string) => !/\.(?:ts|md|json)$/.test(file);
  return cp(source, build, { recursive: true, filter });
}

/**
 * Returns a port to listen on, for tests that must know it beforehand. It is
 * below those that systems assign to outgoing connections, so no connection of
 * another test takes it.
 */
export async function freePort(): Promise<number> {
  const port = 10_000 + randomInt(20_000);
  const probe = createServer();
  const isFree = await new Promise<boolean>((resolve) => {
    probe.once("error", () => resolve(false));
    probe.listen(port, "127.0.0.1", () => probe.close(() => resolve(true)));
  });
  return isFree ? port : await freePort();
}

/** Removes a folder with its contents. */
export function removeFolder(folder: string): Promise<void> {
  return rm(folder, { recursive: true, force: true });
}

/**
 * Code that makes a child process end with this one, however this one ends:
 * then the pipe on its file descriptor 3, to which nobody writes, closes.
 */
const dieWithParent = `
  import { Socket } from "node:net";
  new Socket({ fd: 3, readable: true, writable: false })
    .on("error", () => {})
    .on("close", () => process.kill(process.pid, "SIGKILL"))
    .resume().unref();`;

/** Returns the URL of a module with some code. */
export function moduleOf(code: string): string {
  return `data:text/javascript,${encodeURIComponent(code)}`;
}

/** Options for running a program until it ends. */
export interface RunOptions {
  readonly env?: Readonly<Record<string, string>>;
  readonly input?: string | Uint8Array;
  readonly cwd?: string;
}

/** The exit code of a program, and what it printed. */
export interface RunResult {
  readonly code: number | null;
  readonly stdout: string;
  readonly stderr: string;
}

/** The words before a program that start it so that also root may not access every file; undefined if there are none. */
export function boundUser(): readonly string[] | undefined {
  if (process.platform === "win32") return undefined;
  if (process.getuid?.() !== 0) return [];
  const words = ["--bounding-set=-dac_override,-dac_read_search"];
  const { status } = spawnSync("setpriv", [...words, "true"]);
  return status === 0 ? ["setpriv", ...words] : undefined;
}

/** Returns the words that start the command line of the project. */
function starter(
  { main = projectMain, nodeArgs = [], hashesFully = false }: Pick<
    StartOptions,
    "main" | "nodeArgs" | "hashesFully"
  > = {},
): readonly string[] {
  if (RUNTIME !== "") return [...RUNTIME.split(" "), main];
  // One module, as each takes 5 ms of a start.
  const code = hashesFully ? dieWithParent : dieWithParent + cheapHashing;
  const flags = ["--import", moduleOf(code), ...nodeArgs];
  return [process.execPath, ...flags, ...loaderFor(main), main];
}

/** Runs a command of the project until it ends. */
export function run(
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  return runProgram([...starter(), ...args], options);
}

/** Runs Node.js until it ends. */
export function runNode(
  args: readonly string[],
  options: RunOptions = {},
): Promise<RunResult> {
  const flags = ["--import", moduleOf(dieWithParent)];
  return runProgram([process.execPath, ...flags, ...args], options);
}

function runProgram(
  [program = "", ...args]: readonly string[],
  options: RunOptions,
): Promise<RunResult> {
  const child = spawn(program, args, {
    env: {
      ...commandEnvironment(),
      ...(startedPrograms++ > 4 && { NODE_V8_COVERAGE: "" }),
      ...options.env,
    },
    cwd: options.cwd ?? root,
    stdio: ["pipe", "pipe", "pipe", "pipe"],
  });
  const { stdin, stdout: out, stderr: err } = child;
  assert.ok(stdin && out && err);
  let stdout = "";
  let stderr = "";
  out.setEncoding("utf8").on("data", (text) => stdout += text);
  err.setEncoding("utf8").on("data", (text) => stderr += text);
  stdin.on("error", () => {}); // a child that ended early reads nothing
  stdin.end(options.input ?? "");
  return new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", (code) => resolve({ code, stdout, stderr }));
  });
}

/** The environment of a command. */
export function commandEnvironment(): Record<string, string> {
  return { ...cleanEnvironment(), COLLECTIONS: collectionsFile };
}

/** The environment of this process without settings of the server. */
function cleanEnvironment(): Record<string, string> {
  const names = [
    "PATH",
    "HOME",
    "TMPDIR",
    "LANG",
    "NODE_V8_COVERAGE",
    "NODE_COMPILE_CACHE",
  ];
  return Object.fromEntries(
    names.flatMap((name) => {
      const value = process.env[name];
      return value === undefined ? [] : [[name, value]];
    }),
  );
}

// Recording coverage is slow, so only the first servers of each process do.
let startedServers = 0;
let startedPrograms = 0;

/** Settings on which the OpenAPI document of a server does not depend. */
const unseen = [
  "--seed",
  "LOG",
  "SEED",
  "JWT_SECRET",
  "ADMIN_PASSWORD",
  "STORE",
];

/** Returns a key that only servers with the same OpenAPI document have; undefined if it depends on files too. */
export function documentKey(
  { args = [], env = {}, main }: StartOptions,
): string | undefined {
  const isSeen = (name: string) => !unseen.includes(name);
  const flags = args.filter((word) => word.startsWith("--"));
  const settings = [
    ...Object.entries(env).filter(([name]) => isSeen(name)),
    ...(flags.some((flag) => isSeen(flag)) ? args : []),
  ];
  const hasFile = /collections/i.test(settings.join());
  return hasFile ? undefined : JSON.stringify([main, settings]);
}

/**
 * Starts a server and waits until it says where it listens. If it ends instead,
 * throws an error with all its output.
 */
export async function start(options: StartOptions = {}): Promise<Server> {
  const { ETCD: etcd } = process.env;
  if (etcd === undefined) return await startOne(options);
  const { startInTurn } = await import("./etcd/round-robin.ts");
  const own = options.folder ?? join(await temporaryFolder(), "store");
  return await startInTurn(options, { etcd, folder: own, startOne });
}

/** Creates a data folder with an admin, unless it exists or the server itself creates it. */
export async function createFolder(
  folder: string,
  { args, env, isNew }: Pick<StartOptions, "args" | "env" | "isNew">,
): Promise<void> {
  if (isNew || existsSync(folder)) return;
  // The template has zoos.
  const isOwn = env?.["COLLECTIONS"] || args?.includes("--collections");
  template ??= createTemplate();
  if (!isOwn) await cp(await template, folder, { recursive: true });
  await reserveNothing(folder);
}

async function startOne(options: StartOptions): Promise<Server> {
  const own = await temporaryFolder();
  const folder = options.folder ?? join(own, "store");
  const args = ["serve", "--port", `${options.port ?? 0}`];
  args.push("--data-dir", folder);
  await createFolder(folder, options);
  if (options.seed !== undefined) {
    const file = join(own, "seed.json");
    await writeFile(file, JSON.stringify(options.seed));
    args.push("--seed", file);
  }
  const [program = "", ...words] = [
    ...(options.prefix ?? []),
    ...starter(options),
  ];
  const child = spawn(
    program,
    [...words, ...args, ...(options.args ?? [])],
    {
      cwd: root,
      stdio: ["ignore", "pipe", "pipe", "pipe"],
      env: {
        ...cleanEnvironment(),
        // Node.js 20 runs no TypeScript without tsx: then the sample API itself.
        COLLECTIONS:
          extname(options.main ?? projectMain) === extname(collectionsFile)
            ? collectionsFile
            : "",
        ...serverSecrets,
        ...(startedServers++ > 0 && { NODE_V8_COVERAGE: "" }),
        ...options.env,
      },
    },
  );
  let output = "";
  const ended = new Promise<number | null>((resolve) => {
    child.once("close", resolve);
  });
  const port = await new Promise<number>((resolve, reject) => {
    const listen = (text: string) => {
      output += text;
      const found = /listening on https?:\/\/\S*:(\d+)/.exec(output);
      if (found) resolve(Number(found[1]));
    };
    child.stdout?.setEncoding("utf8").on("data", listen);
    child.stderr?.setEncoding("utf8").on("data", listen);
    child.once("error", reject);
    ended.then((code) => {
      reject(new Error(`The server ended with code ${code}: ${output}`));
    });
  }).catch(async (error) => {
    await removeFolder(own);
    throw error;
  });
  const origin = `http://127.0.0.1:${port}`;
  ended.then(() => forgetServer(origin));
  const server: Server = {
    ...clientOf(origin, documentKey(options)),
    port,
    folder,
    child,
    ended,
    output: () => output,
    async end(signal = "SIGTERM") {
      child.kill(signal);
      return await ended;
    },
    async stop() {
      await server.end();
      await removeFolder(own);
    },
  };
  return server;
}

/**
 * Returns the functions that send requests to a server that has started.
 *
 * @param key what only servers with the same OpenAPI document have
 */
export function clientOf(
  origin: string,
  key?: string,
): Pick<Server, "origin" | "request" | "signIn"> {
  noteServer(origin, key);
  return {
    origin,
    request: (method, path, init) => request(method, origin + path, init),
    async signIn(username = "admin", password = adminPassword) {
      const json = { username, password };
      const url = `${origin}/v1/authorizations`;
      const answer = await request("POST", url, { json });
      if (answer.status !== 201) throw new Error(answer.text);
      return answer.body.token;
    },
  };
}

/** Sends one request to an absolute URL. Redirects are not followed. */
export async function request(
  method: string,
  address: string,
  options: RequestOptions = {},
): Promise<Answer> {
  const headers = new Headers(options.headers);
  if (options.token !== undefined) {
    headers.set("authorization", `Bearer ${options.token}`);
  }
  let body = options.raw;
  if (options.json !== undefined) {
    body = JSON.stringify(options.json);
    if (!headers.has("content-type")) {
      headers.set("content-type", "application/json");
    }
  }
  if (body !== undefined) {
    headers.set("content-length", String(Buffer.byteLength(body)));
  }
  const answer = await send(method, new URL(address), { headers, body });
  const { status, text } = answer;
  await checkDocumented({ ...answer, method, address: new URL(address) });
  const type = answer.headers.get("content-type") ?? "";
  const json = /^application\/(?:[\w.-]+\+)?json\b/.test(type) && text !== "";
  const parsed = json ? JSON.parse(text) : undefined;
  return { status, headers: answer.headers, text, body: parsed };
}

/** Closes idle connections before the server does, so that no request is sent on a closed one. */
const reuse = { keepAlive: true, timeout: 2000 };
const agents = {
  "http:": new http.Agent(reuse),
  "https:": new https.Agent(reuse),
};

/** Sends a request; with a third of the processor time that fetch takes. */
function send(
  method: string,
  address: URL,
  { headers, body }: {
    readonly headers: Headers;
    readonly body: string | Uint8Array | undefined;
  },
): Promise<Pick<Answer, "status" | "headers" | "text">> {
  const isSecure = address.protocol === "https:";
  return new Promise((resolve, reject) => {
    (isSecure ? https : http).request(address, {
      method,
      headers: Object.fromEntries(headers),
      agent: agents[isSecure ? "https:" : "http:"],
    }, (response) => {
      const { statusCode: status = 0, rawHeaders } = response;
      const received = new Headers();
      for (let at = 0; at < rawHeaders.length; at += 2) {
        received.append(rawHeaders[at] ?? "", rawHeaders[at + 1] ?? "");
      }
      let text = "";
      response.setEncoding("utf8").on("data", (part) => text += part)
        .once("end", () => resolve({ status, headers: received, text }))
        .once("error", reject);
    }).once("error", reject).end(body);
  });
}

/**
 * Sends bytes unchanged and returns everything received until the server closes
 * the connection or, if given, until `until` matches what was received so far.
 */
export function exchange(
  port: number,
  bytes: string | Uint8Array,
  until?: RegExp,
): Promise<string> {
  return new Promise((resolve, reject) => {
    let received = "";
    const socket = connect(port, "127.0.0.1", () => socket.write(bytes));
    socket.setEncoding("utf8");
    socket.on("data", (text) => {
      received += text;
      if (until?.test(received)) socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => resolve(received));
  });
}
