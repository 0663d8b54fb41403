/** Disconnects clients that let responses wait, or send nothing but empty lines. */

import { networkOf } from "../../http/client-address.ts";
import type { Connection, ServerState } from "../../http/connection.ts";

const defaultLimits = {
  /** How long a client may read nothing of a response. */
  readTimeoutMs: 30_000,
  /** The most bytes in all that wait for their clients to read them. */
  maxUnreadBytes: 1 << 26,
  /** How long a client may read nothing if there are more. */
  unreadTimeoutMs: 3000,
};

export type ReadLimits = Readonly<typeof defaultLimits>;

/**
 * Returns the function that disconnects those who read nothing for too long. If
 * too much waits to be read in all, a few seconds are too long, first for the
 * client that holds most of it; one that reads is never disconnected.
 */
export function watchReaders(
  {
    connections,
    limits: { checkIntervalMs, headTimeoutMs, keepAliveTimeoutMs },
  }: ServerState,
  limits: Partial<ReadLimits> = {},
): () => void {
  const { readTimeoutMs, maxUnreadBytes, unreadTimeoutMs } = {
    ...defaultLimits,
    ...limits,
  };
  const progress = new WeakMap<Connection, Progress>();
  return () => {
    const idle = new Map<string, Connection[]>();
    for (const connection of connections.values()) {
      const next = progressOf(
        connection,
        checkIntervalMs,
        progress.get(connection),
      );
      progress.set(connection, next);
      const { socket } = connection;
      const { idleMs, isUnread } = next;
      // Between two requests it may be idle as long as node:http allows.
      const timeoutMs = isUnread
        ? readTimeoutMs
        : keepAliveTimeoutMs + headTimeoutMs;
      if (idleMs >= timeoutMs) socket.destroy();
      else if (isUnread && idleMs >= unreadTimeoutMs) {
        const client = networkOf(socket.remoteAddress ?? "");
        idle.set(client, [...idle.get(client) ?? [], connection]);
      }
    }
    let total = sumUnread(connections.values());
    const largestFirst = [...idle.values()]
      .sort((a, b) => sumUnread(b) - sumUnread(a));
    for (const group of largestFirst) {
      if (total <= maxUnreadBytes) break;
      total -= sumUnread(group);
      for (const { socket } of group) socket.destroy();
    }
  };
}

/** The bytes that a client had read at a check, whether there were more to read, and the milliseconds in which neither had changed. */
interface Progress {
  readonly readBytes: number;
  readonly isUnread: boolean;
  readonly idleMs: number;
}

/**
 * Notes whether a client has read anything since the last check, of a response
 * or after it. A time-out of the socket would not do: it counts what the client
 * sends, such as empty lines.
 */
export function progressOf(
  { socket: { bytesWritten, writableLength }, pending }: Connection,
  intervalMs: number,
  last: Progress = { readBytes: -1, isUnread: false, idleMs: 0 },
): Progress {
  const readBytes = bytesWritten - writableLength;
  const isUnread = writableLength > 0;
  const isWaiting = !isUnread && pending.length > 0;
  const isIdle = !isWaiting && isUnread === last.isUnread &&
    readBytes === last.readBytes;
  const idleMs = isIdle ? last.idleMs + intervalMs : 0;
  return { readBytes, isUnread, idleMs };
}

/** Returns how many bytes of memory wait for clients to read. */
function sumUnread(connections: Iterable<Connection>): number {
  let sum = 0;
  for (const { socket, pending: [response] } of connections) {
    sum += socket.writableLength + (response?.content?.length ?? 0);
  }
  return sum;
}
