/**
 * A client of ordinary load: it sends its next request once it has the response
 * to the one before, on one connection, and counts what is not a success.
 */

import type { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode } from "../../src/store/error.ts";
import { type Message, textOf } from "../bench/message.ts";
import { type Received, ResponseReader, Violation } from "../fuzz/responses.ts";

/** The server refuses what would wait for 30 s; a client gives up much later. */
const maxResponseMs = 60_000;

/** What became of all requests of one kind. */
export class Tally {
  /** How long each success took, in µs. */
  readonly durations: number[] = [];
  /** How often each failure happened, and what the server said the first time. */
  readonly failures = new Map<string, { count: number; example: string }>();
  /** The number of successes and failures. */
  count = 0;

  fail(error: unknown): void {
    const failure = Failure.of(error);
    const { kind, message: example } = failure;
    const known = this.failures.get(kind) ?? { count: 0, example };
    known.count++;
    this.failures.set(kind, known);
  }
}

/** A request that did not succeed. */
export class Failure extends Error {
  /** A status, or the name of an error of the connection. */
  readonly kind: string;

  constructor(kind: string, message = "") {
    super(message);
    this.kind = kind;
  }

  static of(error: unknown): Failure {
    if (error instanceof Failure) return error;
    const { message } = error instanceof Error ? error : new Error(`${error}`);
    const isMalformed = error instanceof Violation;
    return new Failure(isMalformed ? "malformed" : errorCode(error), message);
  }
}

/** An open connection and the responses it waits for. */
class Connection {
  readonly #socket: Socket;
  /** Exports can be longer than a string. */
  readonly #reader = new ResponseReader({ keepsChunks: false });
  #missing = 0;
  #resolve: (responses: readonly Received[]) => void = () => {};
  #reject: (error: Error) => void = () => {};

  constructor(port: number) {
    const socket = connect({ port, host: "127.0.0.1", noDelay: true });
    this.#socket = socket;
    const fail = (error: Error) => {
      this.#reject(error);
      socket.destroy();
    };
    socket.setTimeout(maxResponseMs, () => {
      fail(new Failure("timeout", "no byte for a minute"));
    });
    socket.on("data", (bytes: Buffer) => {
      try {
        this.#reader.push(bytes);
        const { responses, isLive } = this.#reader;
        if (isLive || responses.length >= this.#missing) {
          this.#resolve(responses.splice(0));
        }
      } catch (error) {
        fail(error instanceof Error ? error : new Error(String(error)));
      }
    });
    socket.on("error", fail);
    socket.on("close", () => {
      const { length } = this.#reader.responses;
      const count = `${length} of ${this.#missing} responses`;
      this.#reject(new Failure("closed", `closed after ${count}`));
    });
  }

  get isClosed(): boolean {
    return this.#socket.destroyed || this.#socket.readableEnded ||
      this.#reader.isClosing || this.#reader.isLive;
  }

  /** Sends some requests and returns their responses; none if the first one lasts. */
  exchange(text: string, count: number): Promise<readonly Received[]> {
    return new Promise((resolve, reject) => {
      this.#missing = count;
      this.#resolve = resolve;
      this.#reject = reject;
      this.#socket.write(text);
    });
  }

  close(): void {
    this.#socket.destroy();
  }
}

/** One client. */
export class Client {
  readonly #port: number;
  readonly #tally: Tally;
  #connection: Connection | undefined;

  constructor(port: number, tally: Tally) {
    this.#port = port;
    this.#tally = tally;
  }

  /** Sends some requests at once; returns their responses, or throws if one has another status. */
  async send(
    messages: readonly Message[],
    status: number,
  ): Promise<readonly Received[]> {
    if (this.#connection?.isClosed ?? true) {
      this.#connection?.close();
      this.#connection = new Connection(this.#port);
    }
    const text = messages.map(textOf).join("");
    const responses = await this.#connection?.exchange(text, messages.length);
    const other = responses?.find((each) => each.status !== status);
    if (other !== undefined) throw new Failure(`${other.status}`, other.body);
    return responses ?? [];
  }

  /** Does the same, and measures the time until all have their responses. */
  async measure(
    messages: readonly Message[],
    status: number,
  ): Promise<readonly Received[]> {
    const start = performance.now();
    const responses = await this.send(messages, status);
    this.#tally.durations.push((performance.now() - start) * 1000);
    return responses;
  }

  /** Repeats an action until the time is over, but does it once at least. */
  async repeat(
    action: (client: Client) => Promise<unknown>,
    isOver: () => boolean,
  ): Promise<void> {
    do {
      try {
        this.#tally.count++;
        await action(this);
      } catch (error) {
        this.#tally.fail(error);
        if (this.#connection?.isClosed ?? true) await delay(100);
      }
    } while (!isOver());
    this.#connection?.close();
  }
}
