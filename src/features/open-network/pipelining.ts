/** Bounds how many requests wait for their responses: a client that sends without reading must not fill the memory. */

import type { Socket } from "node:net";
import type {
  IncomingRequest,
  OutgoingResponse,
} from "../../http/connection.ts";
import type { HttpServer } from "../../http/server.ts";

const defaultLimits = {
  /** While more requests of a connection wait for their responses, no others are received. */
  maxPipelinedRequests: 16,
  /** If more wait in all, a connection that brings too many is closed: all of a packet are parsed before the receiving stops. */
  maxHeldRequests: 30_000,
};

export type PipeliningLimits = Readonly<typeof defaultLimits>;

/** Receives no more requests of a connection while many of its requests wait, with those that are never handled. */
export function limitPipelining(
  server: HttpServer,
  limits: Partial<PipeliningLimits>,
): void {
  const { maxPipelinedRequests, maxHeldRequests } = {
    ...defaultLimits,
    ...limits,
  };
  const waiting = new Map<Socket, number>();
  let total = 0;
  const add = (socket: Socket, change: number) => {
    const count = (waiting.get(socket) ?? 0) + change;
    waiting.set(socket, count);
    total += change;
    return count;
  };
  const watch = (socket: Socket) => {
    // node:http resumes it after each request, and once a response is read.
    socket.on("resume", () => {
      if ((waiting.get(socket) ?? 0) > maxPipelinedRequests) socket.pause();
    });
    socket.on("close", () => {
      total -= waiting.get(socket) ?? 0;
      waiting.delete(socket);
    });
  };
  for (const event of ["request", "checkContinue", "checkExpectation"]) {
    server.on(
      event,
      ({ socket }: IncomingRequest, response: OutgoingResponse) => {
        if (socket.destroyed) return; // the rest of its last packet
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
