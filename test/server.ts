/** Starts the server under test, as a child process that knows nothing of the tests. */

import assert from "node:assert/strict";
import { spawn, type SpawnOptions } from "node:child_process";
import {
  chmodSync,
  cpSync,
  existsSync,
  mkdtempSync,
  renameSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { Agent, request as httpRequest } from "node:http";
import { tmpdir } from "node:os";
import { extname, join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";

const extension = extname(import.meta.filename);

/** Returns the path of a module beside the tests, in the form in which they run. */
export const beside = (name: string) =>
  join(import.meta.dirname, `${name}${extension}`);

/** The entry point under test: another one by `SERVER=path/to/main.ts`. */
export const main = process.env["SERVER"] ?? beside("../src/main");
/** What Node.js needs to run a module in that form. */
export const loader = main.endsWith(".ts") ? ["--import=tsx"] : [];

/** Returns the options of Node.js that load a module beside the tests before the program. */
export const preload = (name: string) =>
  [...loader, `--import=${beside(name)}`].join(" ");

/** A secret that is easily recognized in any response. */
export const secret = "Qw7-kernel-rows-Zx9_secret-0123456789-Yv8";

process.setMaxListeners(0); // one for each child
// Children end in a listener for the exit, which comes with no signal by itself.
for (const signal of ["SIGTERM", "SIGINT", "SIGHUP"]) {
  process.on(signal, () => process.exit(1));
}

export type Environment = Record<string, string>;

/** Creates a folder that is removed with this process. */
export function temporaryFolder() {
  const folder = mkdtempSync(join(tmpdir(), "rows-"));
  process.once("exit", () => rmSync(folder, { recursive: true, force: true }));
  return folder;
}

/** Writes a file, and returns its path. */
export function fileOf(
  name: string,
  text: string,
  folder = temporaryFolder(),
): string {
  const path = join(folder, name);
  writeFileSync(path, text);
  return path;
}

/** Returns a folder that is a copy of another one. */
export function copyOf(folder: string) {
  const copy = join(temporaryFolder(), "store");
  cpSync(folder, copy, { recursive: true });
  chmodSync(copy, 0o700); // Node.js 22 does not copy modes
  return copy;
}

/** Returns the environment of a server whose clock is some time ahead. */
export const ahead = (ms: number) => ({
  LATER: String(ms),
  NODE_OPTIONS: preload("later"),
});

/** Returns a disk that a test controls, see `disk.ts`, and the environment of a server that has it. */
export function createDisk() {
  const DISK = join(temporaryFolder(), "disk");
  const disk = (mode: "" | "hold" | "full" | "fault") => {
    rmSync(`${DISK}-held`, { force: true });
    writeFileSync(`${DISK}-next`, mode);
    renameSync(`${DISK}-next`, DISK); // it is read at any moment
  };
  disk("");
  return {
    disk,
    environment: { DISK, NODE_OPTIONS: preload("disk") },
    /** Waits until a write waits for the disk. */
    untilHeld: async () => {
      while (!existsSync(`${DISK}-held`)) await delay(5);
    },
  };
}

/** Starts a program, which dies with this process. */
export function run(
  program: string,
  words: string[],
  options: SpawnOptions,
  input?: string,
) {
  const child = spawn(program, words, {
    ...options,
    stdio: ["pipe", "pipe", "pipe"],
  });
  child.stdin.on("error", () => {}).end(input);
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  const run = { child, output: "", exit: Promise.resolve<number | null>(null) };
  const ready = new Promise<string>((resolve, reject) => {
    for (const stream of [child.stdout, child.stderr]) {
      stream.setEncoding("utf8").on("data", (text: string) => {
        run.output += text;
        const [, url] = /listening on (https?:\/\/[^\s",]+)/.exec(run.output) ??
          [];
        if (url) resolve(url);
      });
    }
    run.exit = new Promise((end) => {
      child.once("close", (code) => {
        process.off("exit", kill);
        reject(new Error(`The server ended: ${run.output}`));
        end(code);
      });
    });
  });
  ready.catch(() => {}); // a command never listens
  return Object.assign(run, { ready });
}

/** Runs a command line. Passwords are hashed cheaply, unless `HASHES` is `real`. */
export function launch(
  words: string[],
  environment: Environment,
  input?: string,
) {
  const { PATH = "", FEATURES = "none", NODE_V8_COVERAGE = "" } = process.env;
  const imports = environment["HASHES"] === "real"
    ? loader
    : [...loader, `--import=${beside("hashes")}`];
  const env = { PATH, FEATURES, NODE_V8_COVERAGE, ...environment };
  return run(process.execPath, [...imports, main, ...words], { env }, input);
}

/** Runs a command that ends with an exit code, and does not listen instead; returns what it prints. */
export async function outputOf(
  words: string[],
  environment: Environment = {},
  exit = 0,
  input?: string,
) {
  const run = launch(words, { PORT: "0", ...environment }, input);
  const end = await Promise.race([run.exit, run.ready.catch(() => run.exit)]);
  run.child.kill();
  const what = `${words.join(" ")}: ${run.output}`;
  assert.equal(end, exit, what);
  assert.doesNotMatch(run.output, /\bat .*:\d+:\d+|node:/, what);
  return run.output;
}

function hold(
  { child }: ReturnType<typeof launch>,
  how: "ref" | "unref",
): void {
  for (const each of [child, child.stdout, child.stderr]) Object(each)[how]();
}

/** Sends a signal, 0 for none, and returns the exit code. */
export async function stop(
  run: ReturnType<typeof launch>,
  signal: NodeJS.Signals | 0 = "SIGTERM",
) {
  hold(run, "ref");
  run.child.kill(signal);
  return await run.exit;
}

/** Starts a server on a free port with an empty store, unless the environment names another. */
export async function serve(environment: Environment = {}) {
  const run = launch(["serve"], {
    PORT: "0",
    DATA_DIR: join(temporaryFolder(), "store"),
    ADMIN_PASSWORD: "admin-password",
    JWT_SECRET: secret,
    ...environment,
  });
  const { origin } = new URL(await run.ready);
  hold(run, "unref"); // an idle server does not keep this process from ending
  return Object.assign(run, { origin });
}

/** A response with its body as text and, where it is JSON, as a value. */
export interface Answer {
  status: number;
  headers: Record<string, string | string[] | undefined>;
  text: string;
  // deno-lint-ignore no-explicit-any
  json: any;
}

export interface Sent {
  /** If it is not given: POST with a body, GET without one. */
  method?: string;
  headers?: Record<string, string>;
  /** An object is sent as JSON, text and bytes as they are. */
  body?: unknown;
}

const agent = new Agent({ keepAlive: true });

/** Sends a request whose path is not normalized, and returns the response. */
export function send(
  origin: string,
  path: string,
  sent: Sent = {},
): Promise<Answer> {
  const { headers, body, method = body === undefined ? "GET" : "POST" } = sent;
  const isRaw = typeof body === "string" || body instanceof Uint8Array;
  const bytes = body === undefined
    ? undefined
    : isRaw
    ? body
    : JSON.stringify(body);
  const { hostname, port } = new URL(origin);
  return new Promise((resolve, reject) => {
    const request = httpRequest({
      agent,
      hostname,
      port,
      path,
      method,
      timeout: 60_000,
    });
    request.on(
      "timeout",
      () => request.destroy(new Error("There is no response")),
    );
    if (bytes !== undefined) {
      request.setHeader("Content-Type", "application/json");
      if (!headers?.["Transfer-Encoding"]) {
        request.setHeader("Content-Length", Buffer.byteLength(bytes));
      }
    }
    for (const [name, value] of Object.entries(headers ?? {})) {
      if (value) request.setHeader(name, value);
      else request.removeHeader(name);
    }
    request.on("error", reject).on("response", async (response) => {
      let text = "";
      try {
        for await (const part of response.setEncoding("utf8")) text += part;
      } catch (error) {
        return reject(error);
      }
      const isJson = /[/+]json/.test(response.headers["content-type"] ?? "") &&
        text !== "";
      const { statusCode: status = 0, headers } = response;
      resolve({
        status,
        headers,
        text,
        json: isJson ? JSON.parse(text) : undefined,
      });
    }).end(bytes);
  });
}

/** Signs in, and returns the response. */
export const signIn = (
  origin: string,
  username = "admin",
  password = `${username}-password`,
) =>
  send(origin, "/v1/authorizations", {
    body: { username, password },
  });

/** Signs in, and returns the header field that says so. */
export const authorize = async (origin: string, username?: string) => ({
  Authorization: `Bearer ${(await signIn(origin, username)).json.token}`,
});

/**
 * Returns what sends requests of users who are named like a role, perhaps with a
 * number: each is created and signed in when a request first needs them.
 *
 * @param form more of what they sign in with
 * @param highest the role of the user `admin`
 */
export function clientsOf(
  originOf: () => string,
  form: object = {},
  highest = "admin",
) {
  const tokens = new Map([["anyone", Promise.resolve("")]]);

  const enter = async (username: string) => {
    const password = `${username}-password`;
    if (username !== "admin") {
      const body = { username, role: username.replace(/\d+$/, ""), password };
      await expect(201, "admin", "POST /users", body);
    }
    const body = { username, password, ...form };
    const { json } = await expect(201, "anyone", "POST /authorizations", body);
    return json.token;
  };

  const tokenOf = (who: string): Promise<string> => {
    const name = who === highest ? "admin" : who;
    const token = tokens.get(name) ?? enter(name);
    tokens.set(name, token);
    return token;
  };

  /** Sends a request below `/v1`, or elsewhere if the path begins with two slashes, or is `*`. */
  const request = async (
    who: string,
    line: string,
    body?: unknown,
    headers = {},
  ) => {
    const [method = "", path = ""] = line.split(/ (.*)/s);
    const token = await tokenOf(who);
    const target = path.startsWith("/")
      ? `/v1${path}`.replace("/v1//", "/")
      : path;
    const credentials = token && { Authorization: `Bearer ${token}` };
    return await send(originOf(), target, {
      method,
      body,
      headers: { ...credentials, ...headers },
    });
  };
  /** Sends a request, and checks its status, or its error code if that is given. */
  const expect = async (
    outcome: number,
    ...sent: Parameters<typeof request>
  ) => {
    const answer = await request(...sent);
    const { status, json, text } = answer;
    const found = outcome > 999 ? json?.errorCode : status;
    assert.equal(found, outcome, `${sent.slice(0, 2)}: ${text}`);
    return answer;
  };
  /** Returns how many records a list has for the admin. */
  const count = async (path: string) => {
    const { headers } = await expect(200, "admin", `GET ${path}`);
    return Number(headers["x-total-count"]);
  };
  return { tokens, tokenOf, request, expect, count };
}
