/**
 * The server: it listens, rejects what is not HTTP, and closes connections
 * without cutting off responses.
 *
 * Only this file and connection.ts use node:http. Its parser alone decides
 * where a request begins and ends; {@linkcode Connection} delays only when a
 * request is handled. Where node:http provides no request, {@linkcode
 * acceptError} creates one that has failed.
 */

import { randomUUID } from "node:crypto";
import { once } from "node:events";
import { createServer, type Server, type ServerOptions } from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { setTimeout as delay } from "node:timers/promises";
import {
  Connection,
  defaultLimits,
  type Handler,
  IncomingRequest,
  OutgoingResponse,
  type ServerLimits,
  type ServerState,
} from "./connection.ts";
import { ApiError } from "./errors.ts";

export type HttpServer = Server<
  typeof IncomingRequest,
  typeof OutgoingResponse
>;

/** Creates a server of node:http or node:https. */
export type CreateServer = (
  options: ServerOptions<typeof IncomingRequest, typeof OutgoingResponse>,
) => HttpServer;

/** Closes connections that are needed by others: by listeners that it adds to the server. */
export type GuardConnections = (server: HttpServer, state: ServerState) => void;

/** Where and how to listen. */
interface ListenOptions {
  readonly host: string;
  readonly port: number;
  /** Creates a server of node:https instead. */
  readonly createSecureServer?: CreateServer;
  /** Shares the connections among the clients, before the first one is accepted. */
  readonly guardConnections?: GuardConnections;
  /** More header fields of every response: name, value, name, value, … */
  readonly serverFields?: readonly string[];
  readonly limits?: Partial<ServerLimits>;
}

/** A listening server. */
export interface Listener {
  /** The port that it listens on, even if port 0 was asked for. */
  readonly port: number;
  /**
   * Announces with each response for `announceMs` that the connection closes,
   * so that no client sends a request in vain. Then stops accepting connections,
   * lets current requests finish within `graceMs`, and closes the remaining
   * connections. A TLS handshake may take as long as it always may.
   */
  close(graceMs: number, announceMs?: number): Promise<void>;
}

/**
 * Starts to listen for requests.
 *
 * @throws {Error} with the `code` of the operating system: EADDRINUSE, EACCES,
 * EADDRNOTAVAIL, …
 */
export async function listen(
  handle: Handler,
  { host, port, ...options }: ListenOptions,
): Promise<Listener> {
  const { createSecureServer, guardConnections, serverFields = [] } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const connections: ServerState["connections"] = new Map();
  const state: ServerState = {
    limits,
    handle,
    connections,
    fields: ["X-Content-Type-Options", "nosniff", ...serverFields],
    isStopping: false,
  };
  const serverOptions = {
    IncomingMessage: IncomingRequest,
    ServerResponse: OutgoingResponse,
    maxHeaderSize: 16 * 1024,
    headersTimeout: limits.headTimeoutMs,
    requestTimeout: 0, // body.ts limits the time of bodies
    keepAliveTimeout: limits.keepAliveTimeoutMs,
    keepAliveTimeoutBuffer: 0, // it would add a second; newer Node only
    connectionsCheckingInterval: limits.checkIntervalMs,
    requireHostHeader: false, // the handler requires it, with a JSON error
    optimizeEmptyRequests: true, // no stream for an empty body; newer Node only
  };
  const server = (createSecureServer ?? createServer)(serverOptions);
  server.maxConnections = limits.maxConnections;
  server.timeout = limits.silenceTimeoutMs;
  guardConnections?.(server, state);
  const event = createSecureServer ? "secureConnection" : "connection";
  server.on(event, (socket: Socket) => {
    connections.set(socket, new Connection(socket, state));
  });
  passRequests(server, connections);
  server.listen({ port, host, backlog: limits.maxConnections });
  await once(server, "listening"); // throws if the server emits "error" instead
  return {
    port: (server.address() as AddressInfo).port, // it is not a pipe
    async close(graceMs, announceMs = 0) {
      state.isStopping = true;
      if (announceMs > 0 && connections.size > 0) await delay(announceMs);
      const closed = once(server.close(), "close");
      const timer = setTimeout(() => {
        for (const socket of connections.keys()) socket.destroy();
      }, graceMs);
      for (const connection of connections.values()) connection.end();
      await closed;
      clearTimeout(timer);
    },
  };
}

/** Passes on the requests of connections, and rejects what is not a request. */
function passRequests(
  server: HttpServer,
  connections: ServerState["connections"],
): void {
  server.on("error", () => {}); // a connection that cannot be accepted
  server.maxHeadersCount = 0; // none is dropped without a word
  // A stop would take connections for idle that are still sending a response.
  server.closeIdleConnections = () => {};
  // An Expect field is checked with the rest of the header.
  for (const event of ["request", "checkContinue", "checkExpectation"]) {
    server.on(event, (_, response: OutgoingResponse) => {
      connections.get(response.req.socket)?.accept(response);
    });
  }
  server.on("clientError", (error: NodeJS.ErrnoException, socket: Socket) => {
    const connection = connections.get(socket);
    if (!connection || error.code === "ECONNRESET") socket.destroy();
    else rejectBytes(connection, toApiError(error));
  });
}

/**
 * Rejects what is not a request, or does not arrive. If it belongs to the body of
 * the request in progress, the response to that is the error. If responses are
 * pending, the connection closes after them, as after each error.
 */
function rejectBytes(connection: Connection, error: ApiError): void {
  const { pending: [response], isClosing, socket } = connection;
  if (response?.isLive) return void socket.destroy();
  if (isClosing) return; // each later packet is an error too
  if (socket.isPaused() && error.code === 40800) return; // it cannot arrive
  if (response) {
    if (!response.req.complete) response.req.failBody(error);
  } else if (socket.writable) acceptError(connection, error);
  connection.isClosing = true;
}

/** Has an error responded to as if it were a request without a method, for which node:http provides no objects. */
function acceptError(connection: Connection, error: ApiError): void {
  const request = new IncomingRequest(connection.socket);
  request.method = "";
  request.readError = error;
  const response = new OutgoingResponse(request);
  response.assignSocket(connection.socket);
  connection.accept(response);
}

/** Returns the error to respond with to bytes that node:http could not parse. */
function toApiError({ code }: NodeJS.ErrnoException): ApiError {
  if (code === "ERR_HTTP_REQUEST_TIMEOUT") return new ApiError(40800);
  if (code === "HPE_HEADER_OVERFLOW") return new ApiError(43100);
  return new ApiError(
    40000,
    "The request is not well-formed HTTP/1.1 (RFC 9112).",
  );
}

/** Returns the X-Request-Id of a request if it is 1 to 64 visible characters, and a new id otherwise. */
export function requestId(
  sent: string | readonly string[] | undefined,
): string {
  return typeof sent === "string" && /^[!-~]{1,64}$/.test(sent)
    ? sent
    : randomUUID();
}
