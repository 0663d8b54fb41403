/**
 * Request bodies: a small one is read into memory, a large one is a stream that
 * reads from the client only as fast as it is consumed. Both have a size limit
 * and a time limit. node:http finds where a body ends (RFC 9112 section 6).
 */

import { Buffer } from "node:buffer";
import { ApiError } from "./errors.ts";
import type { IncomingRequest, OutgoingResponse } from "./server.ts";

/** The largest body that is read into memory. */
const maxBodyBytes = 1024 * 1024;

/** Time limit for a small body to arrive, and for each further part of a large one. */
const bodyTimeoutMs = 30_000;

/** The client disconnected before it had sent the whole request, so nobody waits for a response. */
export class ClientDisconnected extends Error {
  override readonly name = "ClientDisconnected";
}

/** Returns whether a request has content, possibly of unknown length (RFC 9112 section 6.3). */
export function hasContent({ headers }: IncomingRequest): boolean {
  return headers["transfer-encoding"] !== undefined ||
    Number(headers["content-length"]) > 0;
}

/**
 * Reads the body of a request into memory.
 *
 * @throws {ApiError} 41300 if it is larger than 1 MiB, at once if Content-Length
 * says so; 40000 if its chunks are malformed; 40800 if it takes too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export function readBody(
  request: IncomingRequest,
  timeoutMs = bodyTimeoutMs,
): Promise<Uint8Array> {
  return new Promise((resolve, reject) => {
    if (Number(request.headers["content-length"]) > maxBodyBytes) {
      return reject(tooLarge(maxBodyBytes));
    }
    // A request without content emits no events with `optimizeEmptyRequests`.
    if (request.readableEnded) return resolve(Buffer.alloc(0));
    request.failBody = reject;
    const timer = setTimeout(() => reject(new ApiError(40800)), timeoutMs);
    const chunks: Uint8Array[] = [];
    let length = 0;
    request.on("data", (chunk: Uint8Array) => {
      length += chunk.length;
      if (length <= maxBodyBytes) chunks.push(chunk);
      // Keep reading: many clients read the response only after they have sent all.
      else reject(tooLarge(maxBodyBytes));
    });
    request.on("end", () => {
      clearTimeout(timer);
      const [first] = chunks;
      resolve(first && !chunks[1] ? first : Buffer.concat(chunks));
    });
    // Without an "error" listener an aborted request emits "close" alone. The
    // check saves every complete request an Error with its stack.
    request.on("close", () => {
      clearTimeout(timer);
      if (!request.readableEnded) reject(new ClientDisconnected());
    });
  });
}

/**
 * Yields a body that is too large for memory, part by part.
 *
 * @param options.timeoutMs how long to wait for the next part
 * @throws {ApiError} 41300 if it is larger than `maxBytes`; 40000 if its chunks
 * are malformed; 40800 if nothing arrives for too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export async function* streamBody(
  { req: request, connectionState }: OutgoingResponse,
  { maxBytes, timeoutMs = bodyTimeoutMs }: {
    readonly maxBytes: number;
    readonly timeoutMs?: number;
  },
): AsyncGenerator<Uint8Array, undefined> {
  if (Number(request.headers["content-length"]) > maxBytes) {
    throw tooLarge(maxBytes);
  }
  let failure: Error | undefined;
  let wake = () => {};
  const onEvent = () => wake();
  request.failBody = (error) => {
    failure = error;
    wake();
  };
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
      if (failure) throw failure;
      if (request.destroyed && !request.readableEnded) {
        throw new ClientDisconnected();
      }
      const timer = setTimeout(() => {
        connectionState.isClosing = true; // the rest may still arrive, too late
        request.failBody?.(new ApiError(40800));
      }, timeoutMs);
      await new Promise<void>((resolve) => wake = resolve);
      clearTimeout(timer);
    }
  } finally {
    // Discard the rest: many clients read the response only after they have sent all.
    for (const event of events) request.off(event, onEvent);
    request.resume();
  }
}

function tooLarge(maxBytes: number): ApiError {
  return new ApiError(
    41300,
    `The body is too large: at most ${maxBytes} bytes are allowed.`,
  );
}
