/**
 * Connections, and how responses are sent on them.
 *
 * node:http's parser alone decides where a request begins and ends, and node:http
 * sends the responses of a connection in the order of their requests.
 * Two methods of Node's objects are replaced, and no others. Without each of
 * them the named test of `test/http/edge.test.ts` fails:
 * - `socket.destroySoon`, which node:http calls after the last response, would
 *   close at once, and reset a client that still sends ("is not reset while a
 *   client that asked to close it still sends").
 * - `server.closeIdleConnections`, which `close` calls, would cut off responses
 *   that are still being sent ("is not closed by a stop while its client still has
 *   to read a response").
 */

import { Buffer } from "node:buffer";
import { IncomingMessage, ServerResponse } from "node:http";
import type { Socket } from "node:net";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import type { ApiError } from "./errors.ts";

/** The default limits on what a server accepts from its clients. */
export const defaultLimits = {
  /** A connection beyond this limit is closed. */
  maxConnections: 1000,
  /** How long the header of a request may take, and a TLS handshake. */
  headTimeoutMs: 10_000,
  /** How long a connection may be idle after a response: longer than proxies keep theirs (nginx 60 s), or a request could meet its end. One that is needed by others is closed earlier. */
  keepAliveTimeoutMs: 65_000,
  /** How much of a body that nobody reads is received and dropped. */
  maxDroppedBytes: 1 << 20,
  /** How long a client may take to close the connection after its last response. */
  lingerTimeoutMs: 5000,
  /** How long a connection may transfer nothing, in either direction, before its response. */
  silenceTimeoutMs: 120_000,
  /** How often these times are checked. */
  checkIntervalMs: 1000,
};

export type ServerLimits = Readonly<typeof defaultLimits>;

/** How many waiting responses are sent per turn of the event loop. */
const maxResponsesPerTurn = 64;

/** The media type of a response by default. */
const jsonType = "application/json; charset=utf-8";

/** A request. */
export class IncomingRequest extends IncomingMessage {
  /** Why the rest of it cannot be read. */
  readError: Error | undefined;
  /** True once its whole body has been read, although node:http may not call it complete yet. */
  isRead = false;

  /** True if it has content, possibly of unknown length (RFC 9112 section 6.3). */
  get hasContent(): boolean {
    const { headers } = this;
    return headers["transfer-encoding"] !== undefined ||
      Number(headers["content-length"]) > 0;
  }

  /** Ends the reading of its body with an error, even if it has not begun; emits "failed". */
  failBody(error: Error): void {
    this.readError = error;
    this.emit("failed");
  }
}

/** The object that a response is sent through. */
export class OutgoingResponse extends ServerResponse<IncomingRequest> {
  /** Set before the request is handled. */
  declare connectionState: Connection;
  /** Its content until it has been sent. */
  content: string | Uint8Array | undefined;
  /** True if the response lasts until the connection closes. */
  isLive = false;
}

/** A function that sends a response to the request that is its `req`. */
export type Handler = (response: OutgoingResponse) => void;

/** The state that the connections of a server share. */
export interface ServerState {
  readonly limits: ServerLimits;
  readonly handle: Handler;
  /** Header fields of every response: name, value, name, value, … */
  readonly fields: readonly string[];
  /** All open connections. */
  readonly connections: Map<Socket, Connection>;
  /** True if each response is the last one of its connection. */
  isStopping: boolean;
}

/** The state of an open connection. */
export class Connection {
  readonly socket: Socket;
  readonly server: ServerState;
  /** The responses that are to be sent, in order: to the request that is being handled, and to those that wait for it. */
  readonly pending: OutgoingResponse[] = [];
  /** True if no further request is handled, and the connection closes after the pending responses. */
  isClosing = false;
  /** True if all requests that came have had their response. */
  isIdle = false;

  constructor(socket: Socket, server: ServerState) {
    this.socket = socket;
    this.server = server;
    socket.destroySoon = () => this.#linger();
    socket.on("error", () => {}); // or it would end the process
    socket.on("close", () => server.connections.delete(socket));
  }

  /**
   * Handles a request once every earlier one on its connection has its response.
   * For example, a GET sent right after a PATCH, without waiting for the
   * response, sees the change (RFC 9112 section 9.3.2). A body that waits would
   * fill memory: its request is not handled, and the connection closes before it,
   * which tells the client to send it again.
   */
  accept(response: OutgoingResponse): void {
    const { pending, socket } = this;
    const { req: request } = response;
    if (socket.destroyed) return; // the rest of its last packet
    if (pending[0]?.isLive) return void socket.destroy(); // none can follow
    response.connectionState = this;
    if (pending.length > 0 && request.hasContent) this.isClosing = true;
    if (this.isClosing) return dropBody(request, this.server);
    pending.push(response);
    this.isIdle = false;
    if (pending.length === 1) this.#handle(response);
  }

  #handle(response: OutgoingResponse): void {
    response.on("finish", () => this.#finish(response));
    this.server.handle(response);
  }

  /** Handles the next request after a response has been sent. */
  #finish(response: OutgoingResponse): void {
    const { pending, server, socket } = this;
    response.content = undefined; // an idle connection must not hold its memory
    if (socket.destroyed) return; // a write that failed ends a response too
    pending.shift();
    const [next] = pending;
    this.isIdle = !next;
    if (next) this.#handle(next);
    else if (this.isClosing || server.isStopping) socket.destroySoon();
  }

  /** Closes the connection after the first pending response; later requests are not handled. */
  closeAfterFirst(): void {
    this.isClosing = true;
    this.pending.splice(1);
  }

  /** Closes the connection when the server stops: after the response in progress, or now. */
  end(): void {
    const { pending: [response], socket } = this;
    if (!response) socket.destroySoon();
    else if (response.isLive) response.end();
  }

  /**
   * Ends what is sent, but lets the client send for a while: one that still sends
   * would be reset, and may never see the response (RFC 9112 section 9.6).
   */
  #linger(): void {
    const { socket, server } = this;
    this.isClosing = true; // a request that comes now would get no response
    socket.end();
    const timer = setTimeout(
      () => socket.destroy(),
      server.limits.lingerTimeoutMs,
    );
    socket.once("close", () => clearTimeout(timer));
  }
}

/** A response before it is sent. */
export interface Response {
  readonly status: number;
  /** Name, value, name, value, … without Content-Type, Content-Length and Date. */
  readonly headers: readonly string[];
  /** The content, as bytes if it is long and the same for all; undefined if there is none. */
  readonly body?: string | Uint8Array | undefined;
  /** The reported error, if it is one. */
  readonly error?: ApiError;
  /** The media type of the content; JSON by default. */
  readonly type?: string | undefined;
  /** Instead of `body`, or the same in parts: generates them as fast as the client reads; `return` is called if it disconnects. */
  readonly stream?:
    | (() => AsyncIterable<string | Uint8Array> | Iterable<Uint8Array>)
    | undefined;
  /** Instead of `body`: writes as long as the connection lasts, and settles when it closes. */
  readonly live?: ((to: Writable) => Promise<void>) | undefined;
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
  const { req: request, connectionState: connection } = response;
  const { method, httpVersion, headers } = request;
  const { server, socket, pending } = connection;
  if (!socket.writable) return; // nothing would end what began here
  const hasNoLength = body === undefined && (stream ?? live);
  if (body !== undefined || hasNoLength) fields.push("Content-Type", type);
  // Without a length node:http sends chunks. Neither 204 nor 304 has one.
  if (!hasNoLength && status !== 204 && status !== 304) {
    fields.push("Content-Length", String(Buffer.byteLength(body ?? "")));
  }
  const hasUnreadBody = !request.complete && !request.isRead &&
    request.hasContent;
  const isLast = server.isStopping || hasUnreadBody || httpVersion === "1.0" ||
    (connection.isClosing && pending.length === 1) ||
    // After an Upgrade field, node:http of all versions drops the rest of the packet.
    headers.upgrade !== undefined || request.readError !== undefined;
  if (isLast) {
    connection.closeAfterFirst();
    fields.push("Connection", "close");
  }
  fields.push(...server.fields);
  // RFC 9112 section 6.1; a TE field would make node:http send chunks to any client.
  response.useChunkedEncodingByDefault = httpVersion === "1.1";
  response.writeHead(status, fields);
  if (hasUnreadBody) dropBody(request, server);
  if (method === "HEAD") return sendAtEndOfTurn(response);
  response.content = body;
  if (live) {
    response.isLive = true;
    connection.closeAfterFirst(); // requests after it are never handled
    live(response).catch(() => response.destroy());
  } else if (stream) {
    pipeline(stream, response).catch(() => response.destroy());
  } else sendAtEndOfTurn(response);
}

/** Receives and drops a body that nobody reads, up to a limit. */
function dropBody(request: IncomingRequest, { limits }: ServerState): void {
  let left = limits.maxDroppedBytes;
  request.on("data", ({ length }: Uint8Array) => {
    left -= length;
    if (left <= 0) request.pause();
  });
}

/** Those whose header is complete. */
const waitingResponses: OutgoingResponse[] = [];

/**
 * Sends a response together with others that become ready in the same turn of
 * the event loop: that sends a third more small responses a second.
 */
function sendAtEndOfTurn(response: OutgoingResponse): void {
  if (waitingResponses.push(response) === 1) setImmediate(sendWaiting);
}

/**
 * Sends responses whose header is complete. A turn accepts one connection, so
 * who connects among a thousand busy clients would wait for seconds if it sent
 * all of them.
 */
function sendWaiting(): void {
  for (const response of waitingResponses.splice(0, maxResponsesPerTurn)) {
    response.end(response.content);
  }
  if (waitingResponses.length > 0) setImmediate(sendWaiting);
}
