/**
 * Request bodies: each has a size limit and a time limit. node:http finds where
 * a body ends (RFC 9112 section 6).
 */

import { Buffer } from "node:buffer";
import { ApiError } from "./errors.ts";
import type { OutgoingResponse } from "./connection.ts";

/** Time limit for a whole small body, and for each part of a large one. */
export const bodyTimeoutMs = 30_000;

/** The largest body that is read into memory, unless its operation sets another limit. */
export const defaultMaxBodyBytes = 64 * 1024;

const empty: Uint8Array = new Uint8Array();

/** The client has disconnected, so nobody is waiting for a response. */
export class ClientDisconnected extends Error {}

/**
 * Reads the body of a request into memory.
 *
 * @param timeoutMs how long the whole body may take
 * @throws {ApiError} 41300 if it is larger than `maxBytes`, at once if
 * Content-Length says so; 40000 if its chunks are malformed; 40800 if it takes
 * too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export async function readBody(
  response: OutgoingResponse,
  maxBytes: number,
  timeoutMs = bodyTimeoutMs,
): Promise<Uint8Array> {
  const { req: request } = response;
  // Without content there may be no call: on Bun, and with `optimizeEmptyRequests`.
  if (!request.hasContent) return empty;
  requestBody(response, maxBytes);
  await undefined; // now what came with the header has been parsed
  const stated = Number(request.headers["content-length"]);
  // Waiting for its events instead would make a POST a tenth slower.
  if (request.readableLength === stated) {
    request.isRead = true;
    return request.read();
  }
  return new Promise((resolve, reject) => {
    let body = empty;
    let length = 0;
    const add = (part: Uint8Array) => {
      const start = length;
      length += part.length;
      if (length > maxBytes) return settle(tooLarge(maxBytes));
      // Not an array of parts: a part of one byte takes 300 bytes of memory.
      if (length > body.length) {
        body = Buffer.concat([body], Math.min(2 * length, maxBytes));
      }
      body.set(part, start);
    };
    const settle = (error = request.readError) => {
      clearTimeout(timer);
      request.off("data", add);
      if (!request.readableEnded) reject(error ?? new ClientDisconnected());
      else resolve(body.subarray(0, length));
      body = empty; // the request may be kept longer
    };
    const timer = setTimeout(() => settle(new ApiError(40800)), timeoutMs);
    request.on("data", add);
    for (const event of ["end", "close", "failed"]) {
      request.once(event, () => settle());
    }
    if (request.readError || request.destroyed) settle();
  });
}

/**
 * Checks the length that a request states, and tells a client that waits for it
 * to send the body (RFC 9110 section 10.1.1).
 *
 * @throws {ApiError} 41300
 */
export function requestBody(
  response: OutgoingResponse,
  maxBytes: number,
): void {
  const { headers, httpVersion } = response.req;
  if (Number(headers["content-length"]) > maxBytes) throw tooLarge(maxBytes);
  if (headers.expect !== undefined && httpVersion === "1.1") {
    response.writeContinue();
  }
}

export function tooLarge(maxBytes: number): ApiError {
  return new ApiError(
    41300,
    `The body is too large: at most ${maxBytes} bytes are allowed.`,
  );
}
