/**
 * The only file that knows node:http: listening, sending an answer, receiving
 * a body, refusing what is not HTTP, and stopping without dropping anyone.
 */

import { Buffer } from "node:buffer";
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
import { ApiError, errorBody, errorType, problemBody } from "./errors.ts";
import { requestId } from "./request-id.ts";

/** A request. */
export class IncomingRequest extends IncomingMessage {
  /** While its body is awaited: the way to end that. */
  fail: ((error: Error) => void) | undefined = undefined;
}

/** An open connection. */
interface Channel {
  /** The answer to the last request that came over it. */
  response: OutgoingResponse | undefined;
  /** How many requests wait for the one before them. */
  waiting: number;
  /** Whether the next answer is the last one. */
  ending: boolean;
}

/** How many requests may be sent before the first of them is answered. */
const mostWaiting = 200;

function newChannel(): Channel {
  return { response: undefined, waiting: 0, ending: false };
}

/** What a request is answered through. */
export class OutgoingResponse extends ServerResponse<IncomingRequest> {
  channel: Channel = newChannel();
  /** Whether it goes on until somebody hangs up. */
  live = false;
}

/** An answer before it is sent. */
export interface Response {
  readonly status: number;
  /** Name, value, name, value, … without Content-Type, Content-Length and Date. */
  readonly headers: readonly string[];
  /** The text of its content; undefined where it has none. */
  readonly body: string | undefined;
  /** The media type, with its parameters; JSON, where it is left out. */
  readonly type?: string | undefined;
  /** In the place of `body`: parts that are made as fast as the client takes them; ended with `return` when it goes. */
  readonly stream?: (() => AsyncIterable<string>) | undefined;
  /** In the place of `body`: what writes as long as the connection lasts, and ends when it closes. */
  readonly live?: ((to: Writable) => Promise<void>) | undefined;
}

/** The largest request body, in bytes. */
export const maxBodyBytes = 1024 * 1024;

/** How long a short body may take to arrive, and one who sends or takes a long one may stand still, in ms. */
const idle = 30_000;

const contentType = "application/json; charset=utf-8";

/**
 * Every error is JSON, those too that never became a request.
 *
 * @param accept the request's Accept field, by which it can be RFC 9457's JSON
 */
export function errorResponse(error: ApiError, accept?: string): Response {
  const { status, headers } = error;
  const type = errorType(accept);
  const title = STATUS_CODES[status] ?? "Error";
  return type === "application/json"
    ? { status, headers, body: errorBody(error) }
    : { status, headers, body: problemBody(error, { title }), type };
}

/**
 * Sends an answer. The answer to HEAD has the header of the one to GET, its
 * Content-Length included, and no content (RFC 9110 section 9.3.2); so has
 * none a 204 (section 15.3.5).
 *
 * @param fields the answer's own and those that all have: name, value, …; more
 * are added to them
 */
export function send(
  response: OutgoingResponse,
  { status, body, stream, live, type = contentType }: Response,
  fields: string[],
): void {
  const { method, httpVersion, headers: asked } = response.req;
  const length = body === undefined ? 0 : Buffer.byteLength(body);
  const open = stream ?? live;
  if (body !== undefined || open) fields.push("Content-Type", type);
  // Without a length node:http would send chunks.
  if (!open && status !== 204 && status !== 304) {
    fields.push("Content-Length", String(length));
  }
  if (response.channel.ending) fields.push("Connection", "close");
  else if (asked.connection === undefined && httpVersion === "1.1") {
    // What node:http says by itself, without its Keep-Alive field.
    fields.push("Connection", "keep-alive");
  }
  response.writeHead(status, fields);
  const content = method === "HEAD" ? undefined : body;
  if (!open || method === "HEAD") sendLater({ response, content });
  else if (live) {
    response.live = true;
    response.channel.response = response; // what was sent behind it never counts
    live(response).catch(() => response.destroy());
  } else if (stream) {
    response.setTimeout(idle, () => response.destroy());
    // What ends early looks it: the last chunk is missing (RFC 9112 section 8).
    pipeline(stream, response).catch(() => response.destroy());
  }
}

/** An answer whose header is made. */
interface Ready {
  readonly response: OutgoingResponse;
  readonly content: string | undefined;
}

/** Waits for the end of the turn. */
let ready: Ready[] = [];

/**
 * Sends an answer with all others of the same turn of the event loop. Sent one
 * by one, each of them wakes a client that then waits for the next: a third
 * more of small answers a second go out like this.
 */
function sendLater(answer: Ready): void {
  if (ready.push(answer) === 1) setImmediate(sendReady);
}

function sendReady(): void {
  const all = ready;
  ready = [];
  for (const { response, content } of all) {
    if (content === undefined) response.end();
    else response.end(content);
  }
}

/** Someone hung up before the whole request was here; nobody waits for an answer. */
export class ClientDisconnected extends Error {
  override readonly name = "ClientGone";
}

/**
 * Receives the body of a request.
 *
 * @throws {ApiError} 41300 where it has more than {@linkcode maxBodyBytes}
 * bytes, at once where Content-Length says so; 40000 where its chunks are
 * malformed; 40800 where it takes too long
 * @throws {ClientDisconnected} where the connection ends before the body does
 */
export function readBody(
  request: IncomingRequest,
  patience = idle,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    const tooLarge = () =>
      reject(
        new ApiError(
          41300,
          `The body is too large: at most ${maxBodyBytes} bytes are allowed.`,
        ),
      );
    if (Number(request.headers["content-length"]) > maxBodyBytes) {
      return tooLarge();
    }
    // Without content there are no events with `optimizeEmptyRequests`.
    if (request.readableEnded) return resolve(Buffer.alloc(0));
    request.fail = reject;
    const timer = setTimeout(() => reject(new ApiError(40800)), patience);
    const chunks: Uint8Array[] = [];
    let length = 0;
    request.on("data", (chunk: Uint8Array) => {
      length += chunk.length;
      if (length <= maxBodyBytes) chunks.push(chunk);
      else tooLarge(); // and go on reading: who still sends can't hear us yet
    });
    request.on("end", () => {
      clearTimeout(timer);
      const [first] = chunks;
      resolve(first && !chunks[1] ? first : Buffer.concat(chunks));
    });
    // Who has no listener for errors is told of them by this alone. An error
    // takes its stack along, which costs too much to be made in vain.
    request.on("close", () => {
      clearTimeout(timer);
      if (!request.readableEnded) reject(new ClientDisconnected());
    });
  });
}

/**
 * Receives a body that is too large for memory, in parts: no more is read from
 * the client than is taken here.
 *
 * @param most bytes are taken
 * @param patience how long to wait for the next byte, in ms
 * @throws {ApiError} 41300, 40000 as {@linkcode readBody}; 40800 where nothing
 * comes for too long
 * @throws {ClientDisconnected}
 */
export async function* streamBody(
  response: OutgoingResponse,
  { most, patience = idle }: {
    readonly most: number;
    readonly patience?: number;
  },
): AsyncGenerator<Uint8Array, undefined> {
  const { req: request, channel } = response;
  const tooLarge = () =>
    new ApiError(
      41300,
      `The body is too large: at most ${most} bytes are allowed.`,
    );
  if (Number(request.headers["content-length"]) > most) throw tooLarge();
  let failure: Error | undefined;
  let wake = () => {};
  const news = () => wake();
  request.fail = (error) => {
    failure = error;
    wake();
  };
  const events = ["readable", "end", "close"];
  for (const event of events) request.on(event, news);
  try {
    for (let length = 0; !request.readableEnded;) {
      const part: Uint8Array | null = request.read();
      if (part !== null) {
        length += part.length;
        if (length > most) throw tooLarge();
        yield part;
        continue;
      }
      if (failure) throw failure;
      if (request.destroyed && !request.readableEnded) {
        throw new ClientDisconnected();
      }
      const timer = setTimeout(() => {
        channel.ending = true; // who is heard again later is out of step
        request.fail?.(new ApiError(40800));
      }, patience);
      await new Promise<void>((resolve) => wake = resolve);
      clearTimeout(timer);
    }
  } finally {
    // Who still sends can't hear us yet: the rest is read and dropped.
    for (const event of events) request.off(event, news);
    request.resume();
  }
}

/** Whether a request comes from a program on this machine, and not through a proxy on it. */
export function isFromLoopback({ socket, headers }: IncomingRequest): boolean {
  const { remoteAddress = "" } = socket;
  const passedOn = headers.forwarded ?? headers.via ??
    headers["x-forwarded-for"];
  return passedOn === undefined &&
    /^(?:::ffff:)?127\.|^::1$/.test(remoteAddress);
}

/** Whether a request has content, be it of unknown length (RFC 9112 section 6.3). */
export function hasContent(request: IncomingRequest): boolean {
  const { headers } = request;
  const length = headers["content-length"];
  return headers["transfer-encoding"] !== undefined ||
    (length !== undefined && Number(length) > 0);
}

/** A listening server. */
export interface Listener {
  /** The port that it listens on, also where 0 was asked for. */
  readonly port: number;
  /** Accepts nobody any more, lets what is under way be answered within `grace` ms, and closes what is left then. */
  close(grace: number): Promise<void>;
}

/**
 * Listens.
 *
 * @throws {Error} with the `code` of the operating system: EADDRINUSE, EACCES,
 * EADDRNOTAVAIL, …
 */
export function listen(
  handle: (request: IncomingRequest, response: OutgoingResponse) => void,
  { host, port }: { readonly host: string; readonly port: number },
): Promise<Listener> {
  const channels = new Map<Duplex, Channel>();
  const options = {
    IncomingMessage: IncomingRequest,
    ServerResponse: OutgoingResponse,
    requestTimeout: 0, // a long body may take long: see `receive`
    headersTimeout: 60_000,
    requireHostHeader: false, // looked at by who can answer in JSON
    optimizeEmptyRequests: true, // no stream for no body; where the Node has it
  };
  const server = createServer(options);
  server.on("request", (request, response) => {
    const channel = channels.get(request.socket) ?? response.channel;
    const previous = channel.response;
    // The answer would never come, and those that wait for it would pile up.
    if (isLive(previous)) {
      request.socket.destroy();
      return;
    }
    channel.response = response;
    response.channel = channel;
    // Requests that were sent without waiting for answers are carried out one
    // after the other (RFC 9112 section 9.3.2).
    if (previous === undefined || previous.writableFinished) {
      handle(request, response);
    } else {
      // Who sends on and on without reading would fill our memory: node:http
      // reads as long as nothing waits to be written.
      if (++channel.waiting > mostWaiting) {
        request.socket.destroy();
        return;
      }
      previous.once("finish", () => {
        channel.waiting--;
        if (!channel.ending) handle(request, response);
      });
    }
  });
  server.on("connection", (socket: Socket) => {
    channels.set(socket, newChannel());
    socket.on("close", () => channels.delete(socket));
  });
  server.on("clientError", (error: ParserError, socket) => {
    const channel = channels.get(socket);
    const response = channel?.response;
    if (isLive(response)) socket.destroy();
    else if (channel && response && !response.writableFinished) {
      // The answer to what came before these bytes is the last one; or they
      // are the body of a request, and then this is its answer.
      channel.ending = true;
      response.once("finish", () => socket.destroy());
      if (!response.req.complete) response.req.fail?.(refusal(error));
    } else if (error.code === "ECONNRESET" || !socket.writable) {
      socket.destroy();
    } else {
      refuse(socket, refusal(error));
    }
  });
  server.on("connect", (_request, socket) => {
    refuse(socket, notImplemented("CONNECT"));
  });

  function close(grace: number): Promise<void> {
    sendReady();
    return new Promise((resolve) => {
      const timer = setTimeout(() => server.closeAllConnections(), grace);
      server.close(() => {
        clearTimeout(timer);
        resolve();
      });
      for (const [socket, channel] of channels) {
        const { response } = channel;
        if (isLive(response)) response?.end(); // as far as it goes at once
        else if (response?.writableFinished === false) {
          channel.ending = true;
          continue;
        }
        socket.destroy();
      }
    });
  }

  return new Promise((resolve, reject) => {
    server.once("error", reject);
    server.listen(port, host, () => {
      server.off("error", reject);
      const address = server.address() as AddressInfo; // as it is no pipe
      resolve({ port: address.port, close });
    });
  });
}

/** Whether an answer goes on that has no end of its own. */
function isLive(response: OutgoingResponse | undefined): boolean {
  return response?.live === true && !response.writableFinished;
}

interface ParserError extends Error {
  readonly code?: string;
  readonly rawPacket?: Uint8Array;
}

/** The answer to bytes that node:http could not make a request of. */
function refusal(error: ParserError): ApiError {
  switch (error.code) {
    case "HPE_HEADER_OVERFLOW":
      return new ApiError(43100);
    case "ERR_HTTP_REQUEST_TIMEOUT":
      return new ApiError(40800);
    case "HPE_INVALID_METHOD": {
      // A well-formed request line whose method the parser has never heard of.
      const start = Buffer.from(error.rawPacket ?? []).toString("latin1");
      const line = /^([!#$%&'*+.^_`|~\w-]+) \S+ HTTP\/1\.[01]\r?\n/.exec(start);
      if (line?.[1] !== undefined && !METHODS.includes(line[1])) {
        return notImplemented(line[1]);
      }
    }
  }
  return new ApiError(
    40000,
    "The request is not well-formed HTTP/1.1 (RFC 9112).",
  );
}

/** 501 for a method that no address of this server has (RFC 9110 section 15.6.2). */
export function notImplemented(method: string): ApiError {
  return new ApiError(
    50100,
    `The method ${method.slice(0, 40)} is not implemented; this server has ${
      implementedMethods.join(", ")
    }.`,
  );
}

/** All methods that some address of this server has. */
export const implementedMethods: readonly string[] = [
  "GET",
  "HEAD",
  "QUERY",
  "OPTIONS",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
];

/** Answers by hand where there is no response object, and closes. */
function refuse(socket: Duplex, error: ApiError): void {
  const body = errorBody(error);
  socket.on("error", () => socket.destroy());
  socket.resume(); // unread bytes would turn the end into a reset
  setTimeout(() => socket.destroy(), 1000).unref();
  socket.end(
    `HTTP/1.1 ${error.status} ${STATUS_CODES[error.status]}\r\n` +
      `Date: ${new Date().toUTCString()}\r\n` +
      `Content-Type: ${contentType}\r\n` +
      `Content-Length: ${Buffer.byteLength(body)}\r\n` +
      `X-Request-Id: ${requestId(undefined)}\r\n` +
      `Connection: close\r\n\r\n${body}`,
  );
}
