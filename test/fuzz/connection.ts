/** Connections on which requests are sent, in segments, and responses are read. */

import { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";
import { setImmediate, setTimeout as delay } from "node:timers/promises";
import {
  checkReceived,
  type Received,
  ResponseReader,
  Violation,
} from "./responses.ts";

/** How long the server may be silent before a response. */
const maxSilenceMs = 5000;

/** How long it may keep a connection whose client has finished: it waits 5 s for the rest of a body. */
const maxClosingMs = 8000;

/** A connection to the server. */
export class Connection {
  /** All bytes that were sent. */
  readonly sent: Buffer[] = [];
  readonly #socket: Socket;
  #reader = new ResponseReader();
  #failure: Error | undefined = undefined;
  #isClosed = false;
  #maxSilenceMs = maxSilenceMs;
  /** Resolves the wait for responses. */
  #wake = (): void => {};

  constructor(port: number, localAddress: string) {
    const socket = connect({ port, host: "127.0.0.1", localAddress });
    socket.setNoDelay(true);
    socket.on("data", (bytes: Buffer) => {
      this.#read(() => this.#reader.push(bytes));
    });
    socket.on("error", (error) => this.#failure ??= error);
    socket.on("close", () => {
      this.#isClosed = true;
      this.#read(() => this.#reader.end());
    });
    this.#socket = socket;
  }

  /** Returns whether no further request can be sent. */
  get isClosed(): boolean {
    return this.#isClosed || this.#reader.isClosing || this.#reader.isLive;
  }

  /** Returns whether the latest response lasts until the connection closes. */
  get isLive(): boolean {
    return this.#reader.isLive;
  }

  #read(read: () => void): void {
    try {
      read();
    } catch (error) {
      this.#failure = error instanceof Error ? error : new Error(String(error));
      this.#socket.destroy();
    }
    this.#wake();
  }

  /** Sends bytes; with `pauseMs`, waits between the segments. */
  async send(segments: readonly Buffer[], pauseMs?: number): Promise<void> {
    for (const [index, segment] of segments.entries()) {
      if (this.#isClosed || this.#reader.isClosing) return;
      if (index > 0) {
        await (pauseMs ? delay(pauseMs) : setImmediate());
      }
      this.sent.push(segment);
      this.#socket.write(segment);
    }
  }

  /** Ends the sending direction. */
  finish(): void {
    this.#socket.end();
    this.#maxSilenceMs = maxClosingMs;
  }

  /**
   * Waits for so many responses, or for the end of the connection, and returns
   * them; throws a Violation if they are malformed or missing.
   *
   * @param quietMs how long to wait at most, if a response is not certain
   */
  async receive(
    count: number,
    quietMs?: number,
  ): Promise<readonly Received[]> {
    const reader = this.#reader;
    while (
      reader.responses.length < count && !this.#isClosed && !reader.isLive
    ) {
      if (await this.#waitForBytes(quietMs)) continue;
      if (quietMs !== undefined) break;
      throw new Violation(
        `Neither a response nor an end within ${this.#maxSilenceMs} ms`,
      );
    }
    const responses = reader.responses.splice(0);
    for (const response of responses) checkReceived(response);
    if (this.#failure instanceof Violation) throw this.#failure;
    // The server had ended the connection in order, as a mutation can ask it to,
    // and with a failed write Node.js drops what was not read. A client that
    // asks for the end must not go on (RFC 9112 section 9.6).
    const isExcused = this.#failure?.message === "write EPIPE" &&
      (count === 0 || quietMs !== undefined ||
        Buffer.concat(this.sent).includes("Connection: close"));
    if (isExcused) return responses;
    if (this.#isClosed && this.#failure && !reader.isClosing) {
      throw new Violation(`The connection failed: ${this.#failure.message}`);
    }
    return responses;
  }

  /** Returns whether something happened before the time was up. */
  #waitForBytes(timeoutMs = this.#maxSilenceMs): Promise<boolean> {
    return new Promise((resolve) => {
      const timer = setTimeout(() => resolve(false), timeoutMs);
      this.#wake = () => {
        clearTimeout(timer);
        resolve(true);
      };
    });
  }

  close(): void {
    this.#socket.destroy();
  }
}
