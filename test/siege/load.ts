/** Connections of hostile clients: opened, kept open, and counted. */

import type { Buffer } from "node:buffer";
import { connect, type Socket } from "node:net";

/** The number of responses to the hostile clients, by status. */
export interface Counts {
  opened: number;
  /** Connections that the server closed or refused, or that were abandoned. */
  closed: number;
  /** Responses by the first digit of their status, and 503 and 429 by themselves. */
  readonly statuses: Record<string, number>;
}

/** The behavior of one connection of a kind. */
export interface Conduct {
  /** Called when the connection is open. */
  readonly open: (socket: Socket, index: number) => void;
  /** Called for each response that begins; without it, responses are ignored. */
  readonly answered?: (socket: Socket, index: number) => void;
  /** The delay before a closed connection is opened again. */
  readonly reopenMs?: number;
  /** True if nothing is ever read. */
  readonly isUnread?: boolean;
}

/** Counts responses by their status lines. */
function countStatuses(bytes: Buffer, counts: Counts): number {
  let responses = 0;
  const mark = "HTTP/1.1 ";
  for (let at = bytes.indexOf(mark); at >= 0; at = bytes.indexOf(mark, at)) {
    at += mark.length;
    const status = bytes.toString("latin1", at, at + 3);
    if (!/^[2-5]\d\d$/.test(status)) continue;
    const key = /^(?:503|429)$/.test(status) ? status : `${status[0]}xx`;
    counts.statuses[key] = (counts.statuses[key] ?? 0) + 1;
    responses++;
  }
  return responses;
}

/**
 * Returns the address of a connection: every other connection has an address of
 * its own, the rest share one.
 */
export function addressOf(index: number): string {
  if (index % 2 === 0) return "127.66.0.1";
  const own = index >> 1;
  return `127.66.${1 + (own >> 8)}.${own & 255}`;
}

/** Keeps connections open that all behave alike. */
export class Load {
  readonly counts: Counts = { opened: 0, closed: 0, statuses: {} };
  readonly #port: number;
  readonly #sockets = new Set<Socket>();
  #isRunning = true;

  constructor(port: number) {
    this.#port = port;
  }

  /** Opens connections, a hundred at a time. */
  start(connections: number, conduct: Conduct): void {
    for (let index = 0; index < connections; index++) {
      setTimeout(
        () => this.#open(index, conduct),
        Math.floor(index / 100) * 50,
      );
    }
  }

  #open(index: number, conduct: Conduct): void {
    if (!this.#isRunning) return;
    const { counts } = this;
    const { open, answered, isUnread, reopenMs = 1000 } = conduct;
    const localAddress = addressOf(index);
    const host = "127.0.0.1";
    const socket = connect({ port: this.#port, host, localAddress });
    this.#sockets.add(socket);
    socket.on("connect", () => {
      counts.opened++;
      open(socket, index);
    });
    if (isUnread) socket.pause();
    else {
      socket.on("data", (bytes: Buffer) => {
        if (countStatuses(bytes, counts) > 0) answered?.(socket, index);
      });
    }
    socket.on("error", () => {}); // "close" follows
    socket.on("close", () => {
      this.#sockets.delete(socket);
      if (!this.#isRunning) return;
      counts.closed++;
      setTimeout(() => this.#open(index, conduct), reopenMs);
    });
  }

  /** Closes all connections and opens no others. */
  stop(): void {
    this.#isRunning = false;
    for (const socket of this.#sockets) socket.destroy();
  }
}
