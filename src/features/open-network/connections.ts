/** Shares the connections among the clients: if there are too many, the client with the most loses one. */

import type { Socket } from "node:net";
import { networkOf } from "../../http/client-address.ts";
import type { ServerState } from "../../http/connection.ts";
import type { GuardConnections } from "../../http/server.ts";
import { limitPipelining } from "./pipelining.ts";
import { type ReadLimits, watchReaders } from "./readers.ts";

/** Returns the function that guards the connections of a server. */
export function guardConnections(
  limits: Partial<ReadLimits> = {},
): GuardConnections {
  return (server, state) => {
    const { maxConnections, checkIntervalMs } = state.limits;
    server.maxConnections = Infinity; // instead of closing the last one
    limitPipelining(server, state);
    const slots: Slots = new Map();
    server.on("connection", (socket: Socket) => {
      takeSlot(slots, socket, maxConnections, state);
    });
    server.once("listening", () => {
      const timer = setInterval(watchReaders(state, limits), checkIntervalMs);
      server.once("close", () => clearInterval(timer));
    });
  };
}

/** The open connections, the oldest first, each with the network of its client. */
type Slots = Map<Socket, string>;

/**
 * Takes a slot for a connection; with TLS, before its handshake. If there are
 * too many, one that has had its last response is closed, or one of the client with
 * the most: the oldest of those that wait for a request, or the oldest, or this
 * one if there is none.
 */
function takeSlot(
  slots: Slots,
  socket: Socket,
  max: number,
  { connections }: ServerState,
): void {
  const client = networkOf(socket.remoteAddress ?? "");
  slots.set(socket, client);
  socket.once("close", () => slots.delete(socket));
  if (slots.size <= max) return;
  const counts = new Map<string, number>();
  for (const each of slots.values()) {
    counts.set(each, (counts.get(each) ?? 0) + 1);
  }
  const idle = new Set<string>();
  for (const { isIdle, socket } of connections.values()) {
    if (isIdle) idle.add(peerOf(socket));
  }
  const rank = (each: Socket) => {
    if (!each.writable) return Infinity;
    const count = counts.get(slots.get(each) ?? "") ?? 0;
    return idle.has(peerOf(each)) ? count + 0.5 : count;
  };
  let closed = socket;
  for (const each of slots.keys()) {
    if (rank(each) > rank(closed)) closed = each;
  }
  slots.delete(closed);
  closed.destroy();
}

/** Returns the address and port of the client, which a TLS socket and the one below it have in common. */
function peerOf({ remoteAddress, remotePort }: Socket): string {
  return `${remoteAddress} ${remotePort}`;
}
