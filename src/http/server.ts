/**
 * The only file that uses node:http: it listens, sends responses, rejects what
 * is not HTTP, and closes connections without cutting off responses.
 *
 * node:http's parser alone decides where a request begins and ends, and node:http
 * sends the responses of a connection in the order of their requests, each
 * written through its own object. Nothing here reads or writes that framing,
 * except for the error that {@linkcode sendRawError} sends before it closes. So
 * neither {@linkcode handleInOrder}, which delays when a request is handled, nor
 * {@linkcode sendAtEndOfTurn}, which delays when a response is sent, can join
 * parts of two requests, or give one request the response to another.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { once } from "node:events";
import {
  createServer,
  IncomingMessage,
  METHODS,
  ServerResponse,
  STATUS_CODES,
} from "node:http";
import type { AddressInfo, Socket } from "node:net";
import type { Duplex, Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import {
  ApiError,
  errorBody,
  notImplemented,
  prefersProblemJson,
  problemType,
} from "./errors.ts";

/** How many requests of a connection may wait for the response to an earlier one. */
const maxPipelinedRequests = 200;

/** How long a client may read nothing of a streamed response. */
const idleTimeoutMs = 30_000;

const jsonType = "application/json; charset=utf-8";

/** A request. */
export class IncomingRequest extends IncomingMessage {
  /** Ends the reading of its body with an error; undefined if nobody reads it. */
  failBody: ((error: Error) => void) | undefined = undefined;
}

/** The object that a response is sent through. */
export class OutgoingResponse extends ServerResponse<IncomingRequest> {
  /** Set before the request is handled. */
  declare connectionState: Connection;
  /** Its content while it waits for {@linkcode sendWaiting}. */
  content: string | undefined = undefined;
  /** Whether it lasts until the connection closes. */
  isLive = false;
}

/** The state of an open connection. */
class Connection {
  /** The response to the latest request. */
  response: OutgoingResponse | undefined = undefined;
  /** How many requests wait for the response to an earlier one. */
  waiting = 0;
  /** Whether it closes after the response that is sent next. */
  isClosing = false;
}

type Connections = Map<Duplex, Connection>;

/** A function that responds to a request. */
type Handler = (request: IncomingRequest, response: OutgoingResponse) => void;

/** A response before it is sent. */
export interface Response {
  readonly status: number;
  /** Name, value, name, value, … without Content-Type, Content-Length and Date. */
  readonly headers: readonly string[];
  /** The content as text; undefined if there is none. */
  readonly body?: string | undefined;
  /** The media type of the content; JSON by default. */
  readonly type?: string | undefined;
  /** Instead of `body`: generates parts as fast as the client reads them; `return` is called if it disconnects. */
  readonly stream?: (() => AsyncIterable<string>) | undefined;
  /** Instead of `body`: writes as long as the connection lasts, and settles when it closes. */
  readonly live?: ((to: Writable) => Promise<void>) | undefined;
}

/**
 * Creates the response to a request that failed.
 *
 * @param accept the Accept field of the request, which can ask for the format of RFC 9457
 */
export function errorResponse(error: ApiError, accept?: string): Response {
  const { status, headers } = error;
  if (!prefersProblemJson(accept)) {
    return { status, headers, body: errorBody(error) };
  }
  const body = errorBody(error, STATUS_CODES[status] ?? "Error");
  return { status, headers, body, type: problemType };
}

/**
 * Sends a response. The response to HEAD has the header of the one to GET,
 * including Content-Length, but no content (RFC 9110 section 9.3.2).
 *
 * @param fields all header fields but those of the content and the connection,
 * which are appended: name, value, name, value, …
 */
export function send(
  response: OutgoingResponse,
  { status, body, stream, live, type = jsonType }: Response,
  fields: string[],
): void {
  const { req: { method, httpVersion, headers }, connectionState } = response;
  const hasNoLength = stream !== undefined || live !== undefined;
  if (body !== undefined || hasNoLength) fields.push("Content-Type", type);
  // Without a length node:http sends chunks. Neither 204 nor 304 has one.
  if (!hasNoLength && status !== 204 && status !== 304) {
    const length = body === undefined ? 0 : Buffer.byteLength(body);
    fields.push("Content-Length", String(length));
  }
  if (connectionState.isClosing) fields.push("Connection", "close");
  else if (headers.connection === undefined && httpVersion === "1.1") {
    // As node:http does by itself, but without the Keep-Alive field.
    fields.push("Connection", "keep-alive");
  }
  response.writeHead(status, fields);
  if (method === "HEAD") sendAtEndOfTurn(response, undefined);
  else if (live) {
    response.isLive = true;
    connectionState.response = response; // requests after it are never handled
    live(response).catch(() => response.destroy());
  } else if (stream) {
    response.setTimeout(idleTimeoutMs, () => response.destroy());
    // A client recognizes an incomplete response by the missing last chunk (RFC
    // 9112 section 8).
    pipeline(stream, response).catch(() => response.destroy());
  } else sendAtEndOfTurn(response, body);
}

/** Responses whose header is complete. */
let waitingResponses: OutgoingResponse[] = [];

/**
 * Sends a response together with all others that become ready in the same turn
 * of the event loop. Sent one by one, each of them wakes a client that then waits
 * for the next: batching sends a third more small responses a second.
 */
function sendAtEndOfTurn(
  response: OutgoingResponse,
  content: string | undefined,
): void {
  response.content = content;
  if (waitingResponses.push(response) === 1) setImmediate(sendWaiting);
}

function sendWaiting(): void {
  const responses = waitingResponses;
  waitingResponses = [];
  for (const response of responses) {
    response.end(response.content);
    response.content = undefined; // an idle connection must not hold its memory
  }
}

/**
 * Returns whether a request comes from a program on this machine: not through a
 * proxy on it, and not from a web page whose host name leads to it.
 */
export function isFromLoopback({ socket, headers }: IncomingRequest): boolean {
  const host = /^(?:localhost|\[::1\]|127(?:\.\d+){3})(?::\d+)?$/i;
  const forwarding = /^(?:forwarded|via|x-forwarded-.*|x-real-ip)$/;
  return /^(?:::ffff:)?127\.|^::1$/.test(socket.remoteAddress ?? "") &&
    host.test(headers.host ?? "") &&
    !Object.keys(headers).some((name) => forwarding.test(name));
}

/** A listening server. */
export interface Listener {
  /** The port that it listens on, even if port 0 was asked for. */
  readonly port: number;
  /** Stops accepting connections, lets current requests finish within `graceMs`, and closes the remaining connections. */
  close(graceMs: number): Promise<void>;
}

const serverOptions = {
  IncomingMessage: IncomingRequest,
  ServerResponse: OutgoingResponse,
  requestTimeout: 0, // body.ts limits the time of bodies
  headersTimeout: 60_000,
  requireHostHeader: false, // the handler requires it, with a JSON error
  optimizeEmptyRequests: true, // no stream for an empty body; newer Node only
};

/**
 * Starts to listen for requests.
 *
 * @throws {Error} with the `code` of the operating system: EADDRINUSE, EACCES,
 * EADDRNOTAVAIL, …
 */
export async function listen(
  handle: Handler,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<Listener> {
  const connections: Connections = new Map();
  const server = createServer(serverOptions);
  server.on("connection", (socket: Socket) => {
    connections.set(socket, new Connection());
    socket.on("close", () => connections.delete(socket));
  });
  server.on("request", (request, response) => {
    response.connectionState = connections.get(request.socket) ??
      new Connection();
    handleInOrder(response, handle);
  });
  server.on("clientError", (error: ParseError, socket) => {
    const response = connections.get(socket)?.response;
    if (response && !response.writableFinished) closeAfter(response, error);
    else if (error.code === "ECONNRESET" || !socket.writable) socket.destroy();
    else sendRawError(socket, toApiError(error));
  });
  server.on("connect", (_request, socket) => {
    sendRawError(socket, notImplemented("CONNECT"));
  });
  server.listen(port, host);
  await once(server, "listening"); // throws if the server emits "error" instead
  const address = server.address() as AddressInfo; // it is not a pipe
  return {
    port: address.port,
    async close(graceMs) {
      sendWaiting();
      const closed = once(server, "close");
      server.close();
      const timer = setTimeout(() => server.closeAllConnections(), graceMs);
      closeWhenIdle(connections);
      await closed;
      clearTimeout(timer);
    },
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
  const { req: request, connectionState } = response;
  const { response: previous, waiting } = connectionState;
  if (previous === undefined || previous.writableFinished) {
    connectionState.response = response;
    handle(request, response);
  } else if (previous.isLive || waiting === maxPipelinedRequests) {
    request.socket.destroy(); // after a live response none can follow
  } else {
    connectionState.response = response;
    connectionState.waiting++;
    previous.once("finish", () => {
      connectionState.waiting--;
      if (!connectionState.isClosing) handle(request, response);
    });
  }
}

/**
 * Closes a connection that received bytes that are not HTTP, after the
 * response in progress. If they belong to the body of its request, the
 * response is the error.
 */
function closeAfter(response: OutgoingResponse, error: ParseError): void {
  const { req: request, connectionState } = response;
  if (response.isLive) {
    request.socket.destroy();
    return;
  }
  connectionState.isClosing = true;
  response.once("finish", () => request.socket.destroy());
  if (!request.complete) request.failBody?.(toApiError(error));
}

/** Closes idle connections and live responses now, and the others after their response. */
function closeWhenIdle(connections: Connections): void {
  for (const [socket, connection] of connections) {
    const { response } = connection;
    if (response?.writableFinished === false && !response.isLive) {
      connection.isClosing = true;
    } else {
      response?.end(); // sends as much of a live response as can be sent at once
      socket.destroy();
    }
  }
}

interface ParseError extends Error {
  readonly code?: string;
  readonly rawPacket?: Uint8Array;
}

/** Returns the error to respond with to bytes that node:http could not parse. */
function toApiError(
  { code, rawPacket = new Uint8Array() }: ParseError,
): ApiError {
  switch (code) {
    case "HPE_HEADER_OVERFLOW":
      return new ApiError(43100);
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError(40800);
    case "HPE_INVALID_METHOD": {
      // The request line can be valid, with a method that the parser does not know.
      const start = Buffer.from(rawPacket).toString("latin1");
      const line = /^([!#$%&'*+.^_`|~\w-]+) \S+ HTTP\/1\.[01]\r?\n/.exec(start);
      const method = line?.[1];
      if (method !== undefined && !METHODS.includes(method)) {
        return notImplemented(method);
      }
    }
  }
  return new ApiError(
    40000,
    "The request is not well-formed HTTP/1.1 (RFC 9112).",
  );
}

/** Sends an error where node:http provides no response object, and closes the connection. */
function sendRawError(socket: Duplex, error: ApiError): void {
  const body = errorBody(error);
  socket.on("error", () => socket.destroy());
  socket.resume(); // closed with unread bytes, it would be reset
  setTimeout(() => socket.destroy(), 1000).unref();
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n` +
      `Date: ${new Date().toUTCString()}\r\n` +
      `Content-Type: ${jsonType}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${requestId(undefined)}\r\n` +
      `Connection: close\r\n\r\n${body}`,
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

// Version, trace id, parent id and flags. Later versions may append fields, and
// version ff is invalid (Trace Context section 3.2.2).
const traceparent =
  /^(?!ff)([\da-f]{2})-(?!0{32})([\da-f]{32})-(?!0{16})[\da-f]{16}-[\da-f]{2}(-.*)?$/;

/**
 * Returns the trace id of a `traceparent` field; undefined if the field is not valid
 * (W3C Trace Context, https://www.w3.org/TR/trace-context/). It is only logged: we
 * call no other service that would need a `traceparent`.
 */
export function parseTraceId(
  field: string | readonly string[] | undefined,
): string | undefined {
  if (typeof field !== "string") return undefined;
  const [, version, traceId, more] = traceparent.exec(field) ?? [];
  return version === "00" && more !== undefined ? undefined : traceId;
}
