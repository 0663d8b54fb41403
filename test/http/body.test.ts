/** Request bodies: their limits of size and time, in memory and as a stream. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { ApiError } from "../../src/http/errors.ts";
import { readBody, streamBody } from "../../src/http/body.ts";
import { errorResponse, send } from "../../src/http/connection.ts";
import { listen } from "../../src/http/server.ts";
import { exchange as bytesOf } from "../harness.ts";

/** Sends a body to a server that responds with it, and returns the response. */
async function exchange(
  body: string,
  { timeoutMs = 5000 }: { readonly timeoutMs?: number } = {},
): Promise<string> {
  const listener = await listen(async (response) => {
    try {
      let text = "";
      for await (
        const part of streamBody(response, { maxBytes: 10, timeoutMs })
      ) {
        text += part;
      }
      send(response, { status: 200, headers: [], body: text }, []);
    } catch (error) {
      assert.ok(error instanceof ApiError);
      send(response, errorResponse(error), []);
    }
  }, { host: "127.0.0.1", port: 0, limits: { dropTimeoutMs: 50 } });
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

test("a streamed body is what the client sent", async () => {
  const sized = await exchange("Content-Length: 5\r\n\r\nhello");
  assert.match(sized, /^HTTP\/1\.1 200 [^]*\r\n\r\nhello$/);
  const parts = await exchange(`${chunked}2\r\nhe\r\n3\r\nllo\r\n0\r\n\r\n`);
  assert.match(parts, /^HTTP\/1\.1 200 [^]*\r\n\r\nhello$/);
  const none = await exchange("Content-Length: 0\r\n\r\n");
  assert.match(none, /^HTTP\/1\.1 200 [^]*\r\n\r\n$/);
});

test("a body that is too large is rejected, by its Content-Length or as it arrives", async () => {
  for (
    const body of [
      "Content-Length: 11\r\n\r\n",
      `${chunked}b\r\nhello world\r\n`,
    ]
  ) {
    const received = await exchange(body);
    assert.match(received, /^HTTP\/1\.1 413 /);
    assert.match(received, /"errorCode":41300/);
  }
});

test("a body that stalls is given up, and its connection is closed", async () => {
  const received = await exchange("Content-Length: 5\r\n\r\nhe", {
    timeoutMs: 50,
  });
  assert.match(received, /^HTTP\/1\.1 408 /);
  assert.match(received, /^Connection: close\r$/m);
});

test("a small body must arrive in time", async () => {
  const listener = await listen((response) => {
    readBody(response, { maxBytes: 10, timeoutMs: 50 }).catch((error) =>
      send(response, errorResponse(error), [])
    );
  }, { host: "127.0.0.1", port: 0 });
  const received = await bytesOf(
    listener.port,
    "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 5\r\n\r\nhe",
    /40800/,
  );
  await listener.close(0);
  assert.match(received, /^HTTP\/1\.1 408 /);
  assert.match(received, /"errorCode":40800/);
});

test("a body with malformed chunks is rejected", async () => {
  const received = await exchange(`${chunked}zz\r\n`);
  assert.match(received, /^HTTP\/1\.1 400 /);
});
