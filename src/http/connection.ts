/**
 * Connections, and how responses are sent on them.
 *
 * node:http's parser alone decides where a request begins and ends, and node:http
 * sends the responses of a connection in the order of their requests, each
 * written through its own object. Nothing here reads or writes that framing. So
 * {@linkcode sendAtEndOfTurn}, which delays when a response is sent, cannot join
 * parts of two requests, or give one request the response to another.
 */

import { Buffer } from "node:buffer";
import { IncomingMessage, ServerResponse, STATUS_CODES } from "node:http";
import type { Socket } from "node:net";
import type { Writable } from "node:stream";
import { pipeline } from "node:stream/promises";
import { setImmediate as nextTurn } from "node:timers/promises";
import {
  ApiError,
  errorBody,
  prefersProblemJson,
  problemType,
} from "./errors.ts";

/** The default limits on what a server accepts from its clients. */
export const defaultLimits = {
  /** A client beyond this limit is disconnected. */
  maxConnections: 1000,
  /** How many requests of a connection may wait for the response to an earlier one. */
  maxPipelinedRequests: 16,
  /** How long the header of a request may take, and a TLS handshake. */
  headTimeoutMs: 10_000,
  /** How long a connection may be idle after a response. */
  keepAliveTimeoutMs: 5000,
  /** How long a client may read nothing of a response. */
  readTimeoutMs: 30_000,
  /** The most bytes of long responses in all that wait for their clients to read them. */
  maxUnreadBytes: 1 << 26,
  /** How much of a body that nobody reads is received and dropped. */
  maxDroppedBytes: 1 << 20,
  /**
   * How much of such bodies is received per second, of all clients together:
   * collecting the garbage of more would take all the time of a server with a
   * million records.
   */
  maxDroppedBytesPerSecond: 1 << 24,
  /** How long the rest of a body may take. */
  dropTimeoutMs: 5000,
  /** How often these times are checked. */
  checkIntervalMs: 1000,
};

export type ServerLimits = Readonly<typeof defaultLimits>;

/** A longer response is written in parts, to distinguish a client that reads it slowly from one that does not read. */
export const maxWriteBytes = 64 * 1024;

/** A part of a body that is shorter takes more memory than its bytes. */
const smallPartBytes = 256;

/** How many such parts of a body that waits to be read are kept apart. */
const maxSmallParts = 256;

/** The media type of a response by default. */
export const jsonType = "application/json; charset=utf-8";

/** A request. */
export class IncomingRequest extends IncomingMessage {
  /** Why the rest of its body cannot be read. */
  bodyError: Error | undefined;
  /**
   * Receives each part of its body, and null at its end or failure, instead of
   * the stream, which takes 4 µs more; returns false to receive no other before
   * `_read` is called. In an object, because all that belongs to a request
   * outlives scavenges if a function is one of its own properties.
   */
  bodyReader: { receive(part: Uint8Array | null): unknown } | undefined;
  /** When its body fails if it is incomplete: a timer would take 2 µs. */
  bodyDeadline = Infinity;
  #smallParts = 0;
  #isTurnOver = false;

  /** True if it has content, possibly of unknown length (RFC 9112 section 6.3). */
  get hasContent(): boolean {
    const { headers } = this;
    return headers["transfer-encoding"] !== undefined ||
      Number(headers["content-length"]) > 0;
  }

  /**
   * Adds a part of its body. As each takes 250 bytes of memory and a microsecond,
   * many small ones are joined until they are read, and the bytes that follow
   * are received in the next turn of the event loop.
   */
  override push(part: Uint8Array | null): boolean {
    const { bodyReader } = this;
    const isReceived = !!(part && bodyReader);
    const hasRoom = isReceived || super.push(part);
    if (bodyReader?.receive(part) === false) return false;
    if (
      !part || part.length >= smallPartBytes ||
      ++this.#smallParts % maxSmallParts !== 0
    ) return hasRoom;
    this.#isTurnOver = true;
    setImmediate(() => this.#isTurnOver = false);
    if (isReceived) this._read(0);
    // Without a number, Node.js 26 would read only one part.
    const { readableFlowing, readableLength } = this;
    const joined = readableFlowing ? null : this.read(readableLength);
    if (joined) this.unshift(joined);
    return false;
  }

  override _read(size: number): void {
    if (this.#isTurnOver) setImmediate(() => this._read(size));
    else super._read(size);
  }

  /** Ends the reading of its body with an error, even if it has not begun; emits "failed". */
  failBody(error: Error): void {
    this.bodyError = error;
    this.bodyReader?.receive(null);
    this.emit("failed");
  }
}

/** The object that a response is sent through. */
export class OutgoingResponse extends ServerResponse<IncomingRequest> {
  /** Set before the request is handled. */
  declare connectionState: Connection;
  /** Its content while it waits for {@linkcode sendWaiting}. */
  content: string | Uint8Array | undefined;
  /** True if the response lasts until the connection closes. */
  isLive = false;
}

/** An error that was sent without a request, because what came is none. */
export type RawError = {
  /** The X-Request-Id of the response. */
  readonly id: string;
  readonly client: string;
  readonly status: number;
};

/** The state that the connections of a server share. */
export interface ServerState {
  readonly limits: ServerLimits;
  /** Header fields of every response: name, value, name, value, … */
  readonly fields: readonly string[];
  /** Where errors are documented, if anywhere. */
  readonly documentationUrl?: string | undefined;
  /** Called for each error that is sent without calling the handler. */
  readonly onRawError?: ((error: RawError) => void) | undefined;
  /** True if each response is the last one of its connection. */
  isStopping: boolean;
  /** How many bodies that nobody reads are being received. */
  droppedBodies: number;
  /** See {@linkcode dropBody}. */
  garbage?: readonly unknown[];
  /** The lengths of the long responses that are being sent, the oldest first. */
  readonly longResponses: Map<OutgoingResponse, number>;
}

/** The state of an open connection. */
export class Connection {
  readonly socket: Socket;
  readonly server: ServerState;
  /** The response to the latest request. */
  response: OutgoingResponse | undefined;
  /** The response that was sent last, perhaps only in part. */
  sending: OutgoingResponse | undefined;
  /** How many requests wait for the response to an earlier one. */
  waiting = 0;
  /** True if the connection closes after the response that is sent next. */
  isClosing = false;
  /** True if the latest request is followed by something that is not HTTP. */
  isBroken = false;
  /** A line that node:http cannot parse, as far as it is known; of one that is too long, the text after its first word. */
  lineRest: string | undefined;
  /** How many bytes of that line have come since it was found to be too long. */
  lineBytes = 0;
  #readBytes = -1;
  #readDeadline = Infinity;

  constructor(socket: Socket, server: ServerState) {
    this.socket = socket;
    this.server = server;
  }

  /** Ends what takes too long; must be called regularly. */
  checkTime(now: number): void {
    const request = this.response?.req;
    if (this.isStalled(now)) this.socket.destroy();
    else if (request?.complete === false && now >= request.bodyDeadline) {
      request.failBody(new ApiError(40800));
    }
  }

  /**
   * Returns whether the client has read nothing for too long, of a response or
   * after it: empty lines would keep it from being idle for node:http. Notes
   * its progress, so it must be called regularly.
   */
  isStalled(now: number): boolean {
    const { bytesWritten, writableLength } = this.socket;
    const readBytes = bytesWritten - writableLength;
    const isWaiting = writableLength === 0 && !this.response?.writableFinished;
    if (isWaiting || readBytes !== this.#readBytes) {
      this.#readBytes = readBytes;
      this.#readDeadline = now + this.server.limits.readTimeoutMs;
    }
    return now >= this.#readDeadline;
  }
}

/** A response before it is sent. */
export interface Response {
  readonly status: number;
  /** Name, value, name, value, … without Content-Type, Content-Length and Date. */
  readonly headers: readonly string[];
  /** The content, as bytes if it is long and the same for all; undefined if there is none. */
  readonly body?: string | Uint8Array | undefined;
  /** The media type of the content; JSON by default. */
  readonly type?: string | undefined;
  /** Instead of `body`: generates parts as fast as the client reads them; `return` is called if it disconnects. */
  readonly stream?: (() => AsyncIterable<string | Uint8Array>) | undefined;
  /** Instead of `body`: writes as long as the connection lasts, and settles when it closes. */
  readonly live?: ((to: Writable) => Promise<void>) | undefined;
}

/**
 * Creates the response to a request that failed.
 *
 * @param accept the Accept field of the request, which can ask for the format of RFC 9457
 * @param documentationUrl where all errors are documented, if anywhere
 */
export function errorResponse(
  error: ApiError,
  accept?: string,
  documentationUrl?: string,
): Response {
  const { status, headers } = error;
  const title = prefersProblemJson(accept) ? STATUS_CODES[status] : undefined;
  const body = errorBody(error, title, documentationUrl);
  return { status, headers, body, type: title && problemType };
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
  const { req: request, connectionState } = response;
  const { method, httpVersion, headers } = request;
  const { server, socket } = connectionState;
  if (socket.destroyed) return; // nothing would end what began here
  connectionState.sending = response;
  const hasNoLength = stream ?? live;
  if (body !== undefined || hasNoLength) fields.push("Content-Type", type);
  // Without a length node:http sends chunks. Neither 204 nor 304 has one.
  const hasLength = !hasNoLength && status !== 204 && status !== 304;
  if (hasLength) {
    fields.push("Content-Length", String(Buffer.byteLength(body ?? "")));
  }
  const hasUnreadBody = !request.complete && request.hasContent;
  connectionState.isClosing ||= server.isStopping ||
    // After an Upgrade field, node:http of all versions drops the rest of the packet.
    headers.upgrade !== undefined || request.bodyError !== undefined ||
    // node:http closes it, but would have the next request handled.
    (httpVersion === "1.0" && !hasLength) ||
    // The rest of a body that nobody reads must be short, and arrive.
    (hasUnreadBody && !(response.shouldKeepAlive &&
      headers.expect === undefined &&
      Number(headers["content-length"]) <= server.limits.maxDroppedBytes));
  if (connectionState.isClosing) fields.push("Connection", "close");
  else if (headers.connection === undefined && httpVersion === "1.1") {
    // As node:http does by itself, but without the Keep-Alive field.
    fields.push("Connection", "keep-alive");
  }
  fields.push(...server.fields);
  // RFC 9112 section 6.1; a TE field would make node:http send chunks to any client.
  response.useChunkedEncodingByDefault = httpVersion === "1.1";
  response.writeHead(status, fields);
  if (hasUnreadBody) dropBody(request, connectionState);
  if (method === "HEAD") sendAtEndOfTurn(response);
  else if (live) {
    response.isLive = true;
    connectionState.response = response; // requests after it are never handled
    live(response).catch(() => response.destroy());
  } else if (stream || (body && body.length > maxWriteBytes)) {
    if (typeof body === "string") limitUnread(response, body.length);
    if (stream && httpVersion === "1.0") {
      // Only the end of the connection makes it complete (RFC 9112 section 6.3);
      // in HTTP/1.1 the last chunk does, and TLS has its own end.
      const { destroy } = socket;
      socket.destroy = (error) => {
        // Resetting would send what waits, and the end.
        socket.destroy = socket.destroySoon = destroy;
        return response.writableFinished || "encrypted" in socket
          ? socket.destroy(error)
          : socket.resetAndDestroy();
      };
    }
    pipeline(stream ?? partsOf(body ?? ""), response)
      .catch(() => response.destroy());
  } else sendAtEndOfTurn(response, body);
}

/** Counts a long response until it is sent; cuts off the oldest ones if there are too many bytes of them in all. */
function limitUnread(response: OutgoingResponse, length: number): void {
  const { longResponses, limits } = response.connectionState.server;
  let total = length;
  for (const each of longResponses.values()) total += each;
  for (const [oldest, each] of longResponses) {
    if (total <= limits.maxUnreadBytes) break;
    total -= each;
    oldest.destroy();
  }
  longResponses.set(response, length);
  response.once("close", () => longResponses.delete(response));
}

/** Settles when each part that waits to be written has been. */
let lastPart: Promise<unknown> = Promise.resolve();

/**
 * Yields the parts of a long response. All such responses together write one
 * part per turn of the event loop: the operating system takes 0.2 ms for each,
 * and many of them must not delay the short ones.
 */
async function* partsOf(
  body: string | Uint8Array,
): AsyncGenerator<Uint8Array> {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  for (let at = 0; at < bytes.length; at += maxWriteBytes) {
    lastPart = lastPart.then(nextTurn);
    await lastPart;
    yield bytes.subarray(at, at + maxWriteBytes);
  }
}

/**
 * Receives and drops the rest of a body that nobody reads, within limits. Many
 * clients read the response only after they have sent everything, and one whose
 * connection is closed before that is reset and may never see the response.
 *
 * Its parts are garbage outside of V8's heap. After 64 MB of it V8 would collect
 * the whole heap, which takes half a second with a million records. As much
 * garbage in the heap makes it collect the young part of it before, and these.
 */
function dropBody(
  request: IncomingRequest,
  { socket, isClosing, sending, server }: Connection,
): void {
  const { maxDroppedBytes, maxDroppedBytesPerSecond, dropTimeoutMs } =
    server.limits;
  let left = maxDroppedBytes;
  let received = 0;
  let waiting: NodeJS.Timeout | undefined;
  server.droppedBodies++;
  const receive = (part: Uint8Array | null) => {
    clearTimeout(waiting);
    if (!part) return request.resume(); // to its end
    const bytes = Math.max(part.length, smallPartBytes);
    server.garbage = new Array(bytes >> 3); // of 8 bytes each
    received += bytes; // of all parts of a packet
    if ((left -= part.length) > 0) {
      waiting = setTimeout(() => {
        received = 0;
        request._read(0);
      }, 1000 * received * server.droppedBodies / maxDroppedBytesPerSecond);
    }
    return false;
  };
  request.bodyReader = { receive };
  // Resumed before it is read, it would receive two packets at once.
  receive(request.read(request.readableLength));
  const timer = setTimeout(() => {
    if (request.complete && !sending?.writableFinished) timer.refresh();
    else socket.destroy();
  }, dropTimeoutMs);
  request.once("close", () => server.droppedBodies--);
  (isClosing ? socket : request).once("close", () => clearTimeout(timer));
  // node:http calls it after the last response, and would close at once.
  if (isClosing) socket.destroySoon = () => socket.end();
}

/** Responses whose header is complete. */
const waitingResponses: OutgoingResponse[] = [];

/**
 * Sends a response together with all others that become ready in the same turn
 * of the event loop. Sent one by one, each of them wakes a client that then waits
 * for the next: batching sends a third more small responses a second.
 */
function sendAtEndOfTurn(
  response: OutgoingResponse,
  content?: string | Uint8Array,
): void {
  response.content = content;
  if (waitingResponses.push(response) === 1) setImmediate(sendWaiting);
}

/** Sends all responses whose header is complete. */
export function sendWaiting(): void {
  for (const response of waitingResponses.splice(0)) {
    response.end(response.content);
    response.content = undefined; // an idle connection must not hold its memory
  }
}
