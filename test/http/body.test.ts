/** Request bodies in memory: their limits of size and time. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, Socket } from "node:net";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { ClientDisconnected, readBody } from "../../src/http/body.ts";
import {
  IncomingRequest,
  OutgoingResponse,
} from "../../src/http/connection.ts";
import { listen } from "../../src/http/server.ts";
import { bodies, exchangeBody, stalledBody } from "../bodies.ts";

async function read(
  ...args: Parameters<typeof readBody>
): Promise<string> {
  return (await readBody(...args)).toString();
}

for (const [kind, [body, expected]] of Object.entries(bodies)) {
  test(`a body ${kind} is read, or refused`, async () => {
    assert.match(await exchangeBody(read, body), expected);
  });
}

for (const kind of ["with a length", "in chunks"]) {
  test(`a body ${kind} that has arrived before it is read is read`, async () => {
    const [body = "", expected = /never/] = bodies[kind] ?? [];
    const readLate: typeof read = async (response, limits) => {
      await once(response.req, "readable");
      await nextTurn();
      return await read(response, limits);
    };
    assert.match(await exchangeBody(readLate, body), expected);
  });
}

test("a body ends with an error if its client disconnects, before it is read or while it is", async () => {
  for (const isLate of [false, true]) {
    let settle: (reading: Promise<string>) => void = () => {};
    const reading = new Promise<string>((resolve) => settle = resolve);
    const listener = await listen(async (response) => {
      socket.resetAndDestroy(); // an orderly end would be a malformed body
      if (isLate) {
        await new Promise((resolve) => response.req.on("close", resolve));
      }
      settle(read(response, 10));
    }, { host: "127.0.0.1", port: 0 });
    const socket = connect(listener.port, "127.0.0.1", () => {
      socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${stalledBody}`);
    });
    await assert.rejects(reading, ClientDisconnected);
    await listener.close(0);
  }
});

test("a small body must arrive in time", async () => {
  const received = await exchangeBody(read, stalledBody, 50);
  assert.match(received, /^HTTP\/1\.1 408 [^]*"errorCode":40800/);
  assert.match(received, /^Connection: close\r$/m);
});

test("a small body is copied as it arrives, so that its parts need not be kept", async () => {
  const request = new IncomingRequest(new Socket());
  request.headers = { "transfer-encoding": "chunked" };
  const body = readBody(new OutgoingResponse(request), 100);
  const text = "in parts of one byte each";
  for (const [index, byte] of Buffer.from(text).entries()) {
    const part = Buffer.of(byte);
    request.push(part);
    await nextTurn();
    if (index > 0) part.fill("?"); // the first may be the only one
  }
  request.push(null);
  assert.equal(Buffer.from(await body).toString(), text);
});
