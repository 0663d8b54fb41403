/** The well-behaved client: a few requests per second, each timed. */

import { Buffer } from "node:buffer";
import { Agent, request, type RequestOptions } from "node:http";
import { setTimeout as delay } from "node:timers/promises";
import { adminPassword } from "../harness.ts";

/** The address that only the well-behaved client has. */
const ownAddress = "127.0.0.2";

let signIns = 0;

/**
 * Returns an address for the next sign-in: few clients sign in every two
 * seconds, and one that does is served after those that have asked for less.
 */
function nextAddress(): string {
  const count = ++signIns;
  return `127.1.${count >> 8}.${count & 255}`;
}

/** How long the client waits for a response before it gives up. */
const timeoutMs = 20_000;

/** The times of one kind of request, and how many failed. */
export class Times {
  readonly milliseconds: number[] = [];
  failed = 0;
  /** How often each failure occurred. */
  readonly failures = new Map<string, number>();

  fail(failure: string): void {
    this.failed++;
    this.failures.set(failure, (this.failures.get(failure) ?? 0) + 1);
  }

  quantile(fraction: number): number {
    const sorted = [...this.milliseconds].sort((a, b) => a - b);
    const at = Math.floor(sorted.length * fraction);
    return Math.round(sorted[Math.min(at, sorted.length - 1)] ?? NaN);
  }
}

/** Sends requests at a steady pace, and measures how long each takes. */
export class Client {
  readonly get = new Times();
  readonly page = new Times();
  readonly signIn = new Times();
  readonly #port: number;
  #isRunning = true;

  constructor(port: number) {
    this.#port = port;
  }

  /** Sends requests until {@linkcode stop} is called. */
  async run(): Promise<void> {
    const page = "/v1/animals?sortby=name&order=desc&limit=20";
    const credentials = { username: "boss", password: adminPassword };
    await Promise.all([
      this.#repeat(this.get, 20, "GET", "/v1/animals/7"),
      this.#repeat(this.page, 100, "GET", page),
      this.#repeat(
        this.signIn,
        2000,
        "POST",
        "/v1/authorizations",
        JSON.stringify(credentials),
      ),
    ]);
  }

  stop(): void {
    this.#isRunning = false;
  }

  async #repeat(
    times: Times,
    pauseMs: number,
    ...[method, path, body]: [method: string, path: string, body?: string]
  ): Promise<void> {
    const agent = new Agent({ keepAlive: true, maxSockets: 1 });
    while (this.#isRunning) {
      const start = performance.now();
      const failure = await send(
        { agent, port: this.#port, method, path },
        body,
      );
      if (!failure) times.milliseconds.push(performance.now() - start);
      else times.fail(failure);
      await delay(pauseMs);
    }
    agent.destroy();
  }
}

/** Sends one request, and returns why it failed; "" if it succeeded. */
function send(options: RequestOptions, body?: string): Promise<string> {
  const headers = body === undefined ? {} : {
    "content-type": "application/json",
    "content-length": Buffer.byteLength(body),
  };
  return new Promise((resolve) => {
    const outgoing = request({
      ...options,
      host: "127.0.0.1",
      localAddress: body === undefined ? ownAddress : nextAddress(),
      headers,
      timeout: timeoutMs,
    });
    const start = performance.now();
    const fail = (reason: string) => {
      const seconds = Math.round((performance.now() - start) / 1000);
      const which = outgoing.reusedSocket ? "reused" : "new";
      resolve(`${reason} after ${seconds} s on a ${which} connection`);
    };
    outgoing.on("response", (response) => {
      const { statusCode = 0 } = response;
      response.resume();
      response.on("end", () => {
        if (statusCode < 300) resolve("");
        else fail(`status ${statusCode}`);
      });
      response.on("error", ({ message }) => fail(message));
    });
    outgoing.on("timeout", () => outgoing.destroy(new Error("time-out")));
    outgoing.on("error", ({ message }) => fail(message));
    outgoing.end(body);
  });
}
