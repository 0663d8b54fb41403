/**
 * The body of an import: a stream that reads from the client only as fast as it
 * is consumed.
 */

import {
  bodyTimeoutMs,
  ClientDisconnected,
  requestBody,
  tooLarge,
} from "../../http/body.ts";
import { StoreError } from "../../store/error.ts";
import { ApiError } from "../../http/errors.ts";
import type { OutgoingResponse } from "../../http/connection.ts";

/**
 * Yields a body that is too large for memory, part by part.
 *
 * @param timeoutMs how long to wait for the next part
 * @throws {ApiError} 41300 if it is larger than `maxBytes`; 40000 if its chunks
 * are malformed; 40800 if nothing arrives for too long
 * @throws {ClientDisconnected} if the connection ends before the body does
 */
export async function* streamBody(
  response: OutgoingResponse,
  maxBytes: number,
  timeoutMs = bodyTimeoutMs,
): AsyncGenerator<Uint8Array, undefined> {
  const { req: request } = response;
  if (request.readableDidRead) {
    const message = "The request must be sent again: its body is gone";
    throw new StoreError("overloaded", message);
  }
  requestBody(response, maxBytes);
  let wake = () => {};
  const onEvent = () => wake();
  const events = ["readable", "end", "close", "failed"];
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
      if (request.readError) throw request.readError;
      if (request.destroyed && !request.readableEnded) {
        throw new ClientDisconnected();
      }
      const late = new ApiError(40800);
      const timer = setTimeout(() => request.failBody(late), timeoutMs);
      await new Promise<void>((resolve) => wake = resolve);
      clearTimeout(timer);
    }
  } finally {
    for (const event of events) request.off(event, onEvent);
  }
}
