/**
 * The server: it listens, rejects what is not HTTP, and closes connections
 * without cutting off responses.
 *
 * Only this file and connection.ts use node:http. Its parser alone decides
 * where a request begins and ends; {@linkcode handleInOrder} delays only when a
 * request is handled. Where node:http provides no response object, {@linkcode
 * sendRawError} sends an error before the connection closes.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { type EventEmitter, once } from "node:events";
import {
  createServer as createHttpServer,
  type Server,
  type ServerOptions,
  STATUS_CODES,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import { performance } from "node:perf_hooks";
import type { Duplex } from "node:stream";
import { setTimeout as delay } from "node:timers/promises";
import { Slots } from "../admission.ts";
import { networkOf } from "./client-address.ts";
import {
  Connection,
  defaultLimits,
  IncomingRequest,
  jsonType,
  OutgoingResponse,
  sendWaiting,
  type ServerLimits,
  type ServerState,
} from "./connection.ts";
import {
  ApiError,
  errorBody,
  notImplemented,
  unsupportedCoding,
} from "./errors.ts";

type Connections = Map<Duplex, Connection>;

/** A function that sends a response to the request that is its `req`. */
export type Handler = (response: OutgoingResponse) => void;

type HttpServer = Server<typeof IncomingRequest, typeof OutgoingResponse>;

/** Creates a server of node:http or node:https. */
export type CreateServer = (
  options: ServerOptions<typeof IncomingRequest, typeof OutgoingResponse>,
) => HttpServer;

/** Where and how to listen. */
export interface ListenOptions
  extends Pick<ServerState, "documentationUrl" | "onRawError"> {
  readonly host: string;
  readonly port: number;
  readonly createServer?: CreateServer;
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
   * connections, also those that node:http no longer manages (after a CONNECT).
   */
  close(graceMs: number, announceMs?: number): Promise<void>;
}

/** How long requests are handled in a turn of the event loop in which a connection arrives. */
const sliceMs = 0.25;

/** How much more of a line that is too long is received to see what it is. */
const maxLineBytes = 1 << 16;

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
  const { serverFields = [] } = options;
  const limits = { ...defaultLimits, ...options.limits };
  const state: ServerState = {
    ...options,
    limits,
    fields: ["X-Content-Type-Options", "nosniff", ...serverFields],
    isStopping: false,
    droppedBodies: 0,
    longResponses: new Map(),
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
  const server = (options.createServer ?? createHttpServer)(serverOptions);
  const connections = trackConnections(server, state);
  const handleInTurn = yieldToConnections(server, handle);
  // An Expect field is checked with the rest of the header.
  for (const event of ["request", "checkContinue", "checkExpectation"]) {
    server.on(event, (_, response: OutgoingResponse) => {
      const { socket } = response.req;
      response.connectionState = connections.get(socket) ??
        new Connection(socket, state);
      handleInOrder(response, handleInTurn);
    });
  }
  server.listen({ port, host, backlog: limits.maxConnections });
  await once(server, "listening"); // throws if the server emits "error" instead
  const checking = setInterval(() => {
    for (const each of connections.values()) each.checkTime(performance.now());
  }, limits.checkIntervalMs);
  return {
    port: (server.address() as AddressInfo).port, // it is not a pipe
    async close(graceMs, announceMs = 0) {
      state.isStopping = true;
      if (announceMs > 0 && connections.size > 0) await delay(announceMs);
      sendWaiting();
      const closed = once(server.close(), "close");
      const timer = setTimeout(() => {
        for (const socket of connections.keys()) socket.destroy();
      }, graceMs);
      closeWhenIdle(connections);
      await closed;
      clearTimeout(timer);
      clearInterval(checking);
    },
  };
}

/** Keeps the state of each connection, limits their number, and rejects what is not a request. */
function trackConnections(
  server: HttpServer,
  state: ServerState,
): Connections {
  const connections: Connections = new Map();
  server.on("error", () => {}); // a connection that cannot be accepted
  server.maxHeadersCount = 0; // none is dropped: checkMessage counts them
  // A stop would take connections for idle that are still sending a response.
  server.closeIdleConnections = () => {};
  const slots = new Slots(state.limits.maxConnections, "too many connections");
  const add = (socket: Socket) => {
    const connection = new Connection(socket, state);
    connections.set(socket, connection);
    socket.on("error", () => {}); // or it would end the process
    socket.on("close", () => {
      connections.delete(socket);
      const request = connection.response?.req;
      // Not by the request's "close": with a listener it outlives scavenges.
      request?.bodyReader?.receive(null);
      request?.destroy(); // node:http does so only until the response ends
    });
  };
  server.on("connection", (socket: Socket) => {
    try {
      slots.take(networkOf(socket.remoteAddress ?? ""), socket);
      add(socket);
    } catch {
      socket.destroy();
    }
  });
  server.on("secureConnection", (socket: Socket) => {
    // From now on it stands for the connection of its TLS handshake.
    const { remoteAddress, remotePort } = socket;
    for (const { socket: raw } of connections.values()) {
      if (
        raw.remotePort === remotePort && raw.remoteAddress === remoteAddress
      ) connections.delete(raw);
    }
    add(socket);
  });
  server.on("clientError", (error: ParseError, socket) => {
    const connection = connections.get(socket);
    if (connection && socket.writable && error.code !== "ECONNRESET") {
      rejectBytes(connection, toApiError(error, connection));
    } else socket.destroy();
  });
  server.on("connect", ({ socket, headers }) => {
    const connection = connections.get(socket);
    if (!connection) return;
    // node:http has removed its listeners, although responses may be pending.
    socket.on("drain", () => connection.sending?.emit("drain"));
    socket.resume(); // to notice that the client disconnects
    rejectInTurn(
      connection,
      notImplemented("CONNECT"),
      headers["x-request-id"],
    );
  });
  return connections;
}

/**
 * Returns a handler that makes way for new connections. Node.js accepts one
 * connection per turn of the event loop. If a thousand busy clients each send a
 * request per turn, a turn takes 50 ms, and those who connect behind them would
 * wait for many seconds. So a turn in which a connection arrives handles
 * requests without a body, the oldest first, for `sliceMs` only.
 */
function yieldToConnections(server: EventEmitter, handle: Handler): Handler {
  const waiting: OutgoingResponse[] = [];
  let isYielding = false;
  let hasNew = false;
  const endTurn = () => {
    isYielding = hasNew;
    hasNew = false;
    if (isYielding) setImmediate(endTurn);
    const end = performance.now() + (isYielding ? sliceMs : Infinity);
    let next: OutgoingResponse | undefined;
    while (performance.now() < end && (next = waiting.shift())) handle(next);
  };
  server.on("connection", () => {
    hasNew = true;
    if (!isYielding) setImmediate(endTurn);
    isYielding = true;
  });
  return (response) => {
    // A body would fill memory while it waits.
    if (isYielding && !response.req.hasContent) waiting.push(response);
    else handle(response);
  };
}

/**
 * Handles a request once every earlier one on its connection has its response.
 * For example, a GET sent right after a PATCH, without waiting for the
 * response, sees the change (RFC 9112 section 9.3.2). A client that keeps
 * sending without reading responses would fill our memory, because node:http
 * keeps reading while no output is pending: it is disconnected.
 */
function handleInOrder(response: OutgoingResponse, handle: Handler): void {
  const { connectionState } = response;
  const { response: previous, waiting, server, socket } = connectionState;
  const { maxPipelinedRequests } = server.limits;
  if (connectionState.isClosing || connectionState.isBroken) {
    // Never handled, but node:http holds it in memory.
    if (++connectionState.waiting > maxPipelinedRequests) socket.destroy();
    return;
  }
  if (previous?.writableFinished !== false) {
    connectionState.response = response;
    handle(response);
  } else if (previous.isLive || waiting === maxPipelinedRequests) {
    socket.destroy(); // after a live response none can follow
  } else {
    connectionState.response = response;
    connectionState.waiting++;
    previous.once("finish", () => {
      connectionState.waiting--;
      if (!connectionState.isClosing) handle(response);
    });
  }
}

/**
 * Rejects bytes that are not HTTP, after the response in progress. If they
 * belong to the body of its request, the response is the error.
 */
function rejectBytes(
  connection: Connection,
  error: ApiError | undefined,
): void {
  const { response, isBroken, socket } = connection;
  if (isBroken || !error) return; // each later packet is an error too
  if (response?.req.complete !== false) return rejectInTurn(connection, error);
  connection.isBroken = true;
  // After its response the connection closes: now, if that has been sent.
  if (response.writableFinished) socket.end();
  response.req.failBody(error);
}

/** Sends an error and closes the connection, once each earlier request has its response. */
function rejectInTurn(
  connection: Connection,
  error: ApiError,
  sentId?: string | string[],
): void {
  const { response, socket } = connection;
  connection.isBroken = true;
  if (response?.isLive) socket.destroy();
  else if (response?.writableFinished !== false) {
    sendRawError(connection, error, sentId);
  } else response.once("finish", () => sendRawError(connection, error, sentId));
}

/** Closes idle connections and those with live responses now, and the others after their response. */
function closeWhenIdle(connections: Connections): void {
  for (const connection of connections.values()) {
    const { response, sending, socket } = connection;
    const close = () => {
      if (connection.response !== response) return; // its response will
      connection.isClosing = true;
      // While the rest of a body comes, it would be reset.
      if (response?.req.complete === false) socket.end();
      else socket.destroySoon();
    };
    if (!response || response.isLive) {
      response?.end(); // sends as much of a live response as can be sent at once
      socket.destroy();
    } else if (response.writableFinished) close();
    // Its header said that the connection stays open.
    else if (response === sending) response.once("finish", close);
  }
}

interface ParseError extends Error {
  readonly code?: string;
  readonly reason?: string;
  readonly rawPacket?: Uint8Array;
  /** The offset of the error in `rawPacket`. */
  readonly bytesParsed?: number;
}

/**
 * Returns the error to respond with to bytes that node:http could not parse;
 * undefined if that depends on later packets.
 */
function toApiError(
  { code, reason, rawPacket = new Uint8Array(), bytesParsed = 0 }: ParseError,
  connection: Connection,
): ApiError | undefined {
  const text = Buffer.from(rawPacket).toString("latin1");
  const { lineRest } = connection;
  const line = lineRest === undefined
    ? text.slice(text.lastIndexOf("\n", bytesParsed - 1) + 1)
    : lineRest + text;
  switch (code) {
    case "HPE_HEADER_OVERFLOW": {
      // Of a line in many packets, only its end shows whether it has the URL;
      // one that goes on without an end is taken for a URL. A line that has not
      // begun is a field (and Bun does not tell how far it got).
      const rest = (line || "\n").replace(/^(?:[A-Z-]+ )?\S*/, "");
      connection.lineRest = rest;
      connection.lineBytes += rawPacket.length;
      const isUrl = " HTTP/".startsWith(rest.slice(0, 6));
      if (isUrl && rest.length < 6 && connection.lineBytes < maxLineBytes) {
        return undefined;
      }
      return new ApiError(isUrl ? 41400 : 43100);
    }
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError(40800);
    case "HPE_INVALID_TRANSFER_ENCODING":
      if (
        /^transfer-encoding:[ \t]*\r?$/im.test(text) || // it is empty
        reason?.includes("Content-Length") // both (RFC 9112 section 6.3)
      ) break;
      return unsupportedCoding();
    case "HPE_INVALID_METHOD": {
      // The request line can be valid, with a method that the parser does not
      // know; or it is the beginning of one.
      const [, method, end] =
        /^([!#$%&'*+.^_`|~\w-]+)(?: \S+ HTTP\/1\.[01]\r?(\n)|(?: \S*(?: [HTP/.01]*\r?)?)?$)/
          .exec(line) ?? [];
      connection.lineRest = line;
      if (method && line.length < maxLineBytes) {
        return end ? notImplemented(method) : undefined;
      }
    }
  }
  return new ApiError(
    40000,
    "The request is not well-formed HTTP/1.1 (RFC 9112).",
  );
}

/** Sends an error where node:http provides no response object, and closes the connection. */
function sendRawError(
  { socket, server: { fields, documentationUrl, onRawError } }: Connection,
  error: ApiError,
  sentId: string | string[] | undefined,
): void {
  if (!socket.writable) return; // the previous response was the last one
  const body = errorBody(error, undefined, documentationUrl);
  const id = requestId(sentId);
  onRawError?.({
    id,
    client: networkOf(socket.remoteAddress ?? ""),
    status: error.status,
  });
  const common = fields.map((text, index) =>
    index % 2 === 0 ? `${text}: ` : `${text}\r\n`
  );
  socket.resume(); // closed with unread bytes, it would be reset
  setTimeout(() => socket.destroy(), 1000).unref();
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n` +
      `Date: ${new Date().toUTCString()}\r\n` +
      `Content-Type: ${jsonType}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${id}\r\n` +
      `${common.join("")}Connection: close\r\n\r\n${body}`,
  );
}

// Each process has its own prefix. It need not be secret.
const prefix = randomBytes(6).toString("base64url");
let count = 0;

/** Returns the X-Request-Id of a request if it is 1 to 64 visible characters, and a new id otherwise. */
export function requestId(
  sent: string | readonly string[] | undefined,
): string {
  return typeof sent === "string" && /^[!-~]{1,64}$/.test(sent)
    ? sent
    : `${prefix}-${(++count).toString(36)}`;
}
