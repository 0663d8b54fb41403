/**
 * Request bodies: a small one is read into memory, a large one is a stream that
 * reads from the client only as fast as it is consumed. Both have a size limit
 * and a time limit. node:http finds where a body ends (RFC 9112 section 6).
 */

import { Buffer } from "node:buffer";
import { ApiError } from "./errors.ts";
import type { IncomingRequest, OutgoingResponse } from "./connection.ts";

/** Time limit for a whole small body, and for each part of a large one. */
const bodyTimeoutMs = 30_000;

/** The client has disconnected, so nobody is waiting for a response. */
export class ClientDisconnected extends Error {
  override readonly name = "ClientDisconnected";
}

/** How much of a body to accept. */
export interface BodyLimits {
  readonly maxBytes: number;
  readonly timeoutMs?: number;
}

/**
 * Reads the body of a request into memory.
 *
 * @param limits.timeoutMs how long the whole body may take
 * @throws {ApiError} 41300 if it is larger than `maxBytes`, at once if
 * Content-Length says so; 40000 if its chunks are malformed; 40800 if it takes
 * too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export function readBody(
  response: OutgoingResponse,
  { maxBytes, timeoutMs = bodyTimeoutMs }: BodyLimits,
): Promise<Uint8Array> {
  const { req: request } = response;
  return new Promise((resolve, reject) => {
    checkLength(request, maxBytes);
    // A request without content emits no events with `optimizeEmptyRequests`.
    if (request.readableEnded) return resolve(Buffer.alloc(0));
    if (request.bodyError) return reject(request.bodyError);
    requestBody(response);
    let chunks: Uint8Array[] = [];
    let length = 0;
    const onData = (chunk: Uint8Array) => {
      length += chunk.length;
      if (length <= maxBytes) chunks.push(chunk);
      else fail(tooLarge(maxBytes));
    };
    const fail = (error: Error) => {
      clearTimeout(timer);
      request.off("data", onData);
      chunks = []; // frees the memory, as the rest can take a while
      reject(error);
    };
    const timer = setTimeout(() => fail(new ApiError(40800)), timeoutMs);
    request.onBodyError = fail;
    request.on("data", onData);
    request.on("end", () => {
      clearTimeout(timer);
      const [first] = chunks;
      resolve(first && !chunks[1] ? first : Buffer.concat(chunks));
    });
    // Without an "error" listener an aborted request emits only "close". The
    // check saves every complete request the creation of an Error with its
    // stack.
    request.on("close", () => {
      if (!request.readableEnded) fail(new ClientDisconnected());
    });
  });
}

/**
 * Yields a body that is too large for memory, part by part.
 *
 * @param limits.timeoutMs how long to wait for the next part
 * @throws {ApiError} 41300 if it is larger than `maxBytes`; 40000 if its chunks
 * are malformed; 40800 if nothing arrives for too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export async function* streamBody(
  response: OutgoingResponse,
  { maxBytes, timeoutMs = bodyTimeoutMs }: BodyLimits,
): AsyncGenerator<Uint8Array, undefined> {
  const { req: request } = response;
  checkLength(request, maxBytes);
  requestBody(response);
  let wake = () => {};
  const onEvent = () => wake();
  request.onBodyError = onEvent;
  const events = ["readable", "end", "close"];
  for (const event of events) request.on(event, onEvent);
  try {
    for (let length = 0; !request.readableEnded;) {
      const part: Uint8Array | null = request.read();
      if (part !== null) {
        length += part.length;
        if (length > maxBytes) throw tooLarge(maxBytes);
        yield part;
        continue;
      }
      if (request.bodyError) throw request.bodyError;
      if (request.destroyed && !request.readableEnded) {
        throw new ClientDisconnected();
      }
      const timer = setTimeout(
        () => request.failBody(new ApiError(40800)),
        timeoutMs,
      );
      await new Promise<void>((resolve) => wake = resolve);
      clearTimeout(timer);
    }
  } finally {
    for (const event of events) request.off(event, onEvent);
  }
}

function checkLength({ headers }: IncomingRequest, maxBytes: number): void {
  if (Number(headers["content-length"]) > maxBytes) throw tooLarge(maxBytes);
}

/** Tells a client that waits for it to send the body (RFC 9110 section 10.1.1). */
function requestBody(response: OutgoingResponse): void {
  const { headers, httpVersion } = response.req;
  const isExpected = headers.expect !== undefined && httpVersion === "1.1";
  if (isExpected) response.writeContinue();
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError(
    41300,
    `The body is too large: at most ${maxBytes} bytes are allowed.`,
  );
}
