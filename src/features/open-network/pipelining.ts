/** Bounds how many requests wait for their responses: a client that sends without reading must not fill the memory. */

import type { Socket } from "node:net";
import type {
  IncomingRequest,
  OutgoingResponse,
  ServerState,
} from "../../http/connection.ts";
import type { HttpServer } from "../../http/server.ts";

/** While more requests of a connection wait behind another one, no others are received. */
const maxPipelinedRequests = 16;

/** If more wait in all, a connection that brings too many is closed: all of a packet are parsed before the receiving stops. */
const maxHeldRequests = 30_000;

/** Receives no more requests of a connection while many of its requests wait, with those that are never handled. */
export function limitPipelining(
  server: HttpServer,
  { connections }: ServerState,
): void {
  const waiting = new Map<Socket, number>();
  let total = 0;
  const countOf = (socket: Socket) => waiting.get(socket) ?? 0;
  const add = (socket: Socket, change: number) => {
    const count = countOf(socket) + change;
    waiting.set(socket, count);
    total += change;
    return count;
  };
  const watch = (socket: Socket) => {
    // node:http resumes it after each request, and once a response is read.
    socket.on("resume", () => {
      if (countOf(socket) > maxPipelinedRequests) socket.pause();
    });
    socket.on("close", () => {
      total -= countOf(socket);
      waiting.delete(socket);
    });
  };
  for (const event of ["request", "checkContinue", "checkExpectation"]) {
    server.on(
      event,
      ({ socket }: IncomingRequest, response: OutgoingResponse) => {
        const { pending = [], isClosing } = connections.get(socket) ?? {};
        const isAlone = pending.length === 0 && !isClosing;
        // Or it is the rest of the last packet.
        if (isAlone || socket.destroyed) return;
        if (!waiting.has(socket)) watch(socket);
        if (add(socket, 1) > maxPipelinedRequests) {
          socket.pause();
          if (total > maxHeldRequests) socket.destroy();
        }
        response.on("finish", () => {
          if (socket.destroyed) return; // a write that failed ends a response too
          if (add(socket, -1) === maxPipelinedRequests) socket.resume();
        });
      },
    );
  }
}
