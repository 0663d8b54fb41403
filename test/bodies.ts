/** Helpers for the tests of request bodies. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect } from "node:net";
import { type OutgoingResponse, send } from "../src/http/connection.ts";
import { ApiError, errorResponse } from "../src/http/errors.ts";
import { listen } from "../src/http/server.ts";

/** Reads a body as text. */
type Read = (
  response: OutgoingResponse,
  maxBytes: number,
  timeoutMs: number,
) => Promise<string>;

/** Sends the end of a header and a body to a server that responds with it, and returns the response. */
export async function exchangeBody(
  read: Read,
  body: string,
  timeoutMs = 5000,
): Promise<string> {
  const listener = await listen(async (response) => {
    try {
      const text = await read(response, 10, timeoutMs);
      send(response, { status: 200, headers: [], body: text }, []);
    } catch (error) {
      assert.ok(error instanceof ApiError);
      send(response, errorResponse(error), []);
    }
  }, {
    host: "127.0.0.1",
    port: 0,
    limits: { lingerTimeoutMs: 50, checkIntervalMs: 10 },
  });
  const socket = connect(listener.port, "127.0.0.1", () => {
    socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${body}`);
  });
  let received = "";
  socket.setEncoding("utf8").on("data", (text) => {
    received += text;
    if (!/^Connection: close\r$/m.test(received)) socket.end();
  });
  await once(socket, "close");
  await listener.close(100);
  return received;
}

const chunked = "Transfer-Encoding: chunked\r\n\r\n";

/** The end of a header with a body, and the start of the response to it, of at most 10 bytes. */
export const bodies: Readonly<Record<string, readonly [string, RegExp]>> = {
  "with a length": [
    "Content-Length: 5\r\n\r\nhello",
    /^HTTP\/1\.1 200 [^]*\r\n\r\nhello$/,
  ],
  "in chunks": [
    `${chunked}2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n`,
    /^HTTP\/1\.1 200 [^]*\r\n\r\nhello$/,
  ],
  "of no bytes": [
    "Content-Length: 0\r\n\r\n",
    /^HTTP\/1\.1 200 [^]*\r\n\r\n$/,
  ],
  "that is too large by its Content-Length": [
    "Content-Length: 11\r\n\r\n",
    /^HTTP\/1\.1 413 [^]*"errorCode":41300/,
  ],
  "that is too large as it arrives": [
    `${chunked}b\r\nhello world\r\n`,
    /^HTTP\/1\.1 413 [^]*"errorCode":41300/,
  ],
  "with malformed chunks": [`${chunked}zz\r\n`, /^HTTP\/1\.1 400 /],
};

/** The end of a header with a body that never ends. */
export const stalledBody = "Content-Length: 5\r\n\r\nhe";
