/** Request bodies in memory: their limits of size and time. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { Socket } from "node:net";
import { test } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { type BodyLimits, readBody } from "../../src/http/body.ts";
import {
  IncomingRequest,
  OutgoingResponse,
  send,
} from "../../src/http/connection.ts";
import { listen } from "../../src/http/server.ts";
import { bodies, exchangeBody, stalledBody } from "../bodies.ts";
import { exchange as bytesOf } from "../harness.ts";

async function read(
  response: OutgoingResponse,
  limits: BodyLimits,
): Promise<string> {
  return (await readBody(response, limits)).toString();
}

for (const [kind, [body, expected]] of Object.entries(bodies)) {
  test(`a body ${kind} is read, or refused`, async () => {
    assert.match(await exchangeBody(read, body), expected);
  });
}

test("a small body must arrive in time", async () => {
  const received = await exchangeBody(read, stalledBody, 50);
  assert.match(received, /^HTTP\/1\.1 408 [^]*"errorCode":40800/);
  assert.match(received, /^Connection: close\r$/m);
});

test("a small body is copied as it arrives, so that its parts need not be kept", async () => {
  const request = new IncomingRequest(new Socket());
  const body = readBody(new OutgoingResponse(request), { maxBytes: 100 });
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

test("small parts of a body that nobody reads are joined, and those of one that is dropped are not kept", async () => {
  const letters = Buffer.from("abcdefghij".repeat(1000));
  const pushAll = (request: IncomingRequest) => {
    for (const byte of letters) request.push(Buffer.of(byte));
  };
  const unread = new IncomingRequest(new Socket());
  pushAll(unread);
  const parts: Uint8Array[] = [];
  unread.on("data", (part) => parts.push(part));
  while (unread.read() !== null);
  assert.deepEqual(Buffer.concat(parts), letters);
  assert.ok(parts.length <= 256, `${parts.length} parts`);
  const dropped = new IncomingRequest(new Socket());
  dropped.on("data", () => dropped.pause());
  await nextTurn();
  pushAll(dropped);
  assert.ok(dropped.readableLength <= 256, `${dropped.readableLength} bytes`);
});

test("after many small parts a body is received in the next turn of the event loop", async () => {
  let turns = 0;
  let partsOfTurn = 0;
  let maxParts = 0;
  const count = () => {
    turns++;
    maxParts = Math.max(maxParts, partsOfTurn);
    partsOfTurn = 0;
    counting = setImmediate(count);
  };
  let counting = setImmediate(count);
  const listener = await listen((response) => {
    response.req.on("data", () => partsOfTurn++);
    response.req.on(
      "end",
      () => send(response, { status: 200, headers: [], body: "{}" }, []),
    );
  }, { host: "127.0.0.1", port: 0 });
  const received = await bytesOf(
    listener.port,
    `POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n${
      "1\r\na\r\n".repeat(60_000)
    }0\r\n\r\n`,
    /\}$/,
  );
  clearImmediate(counting);
  await listener.close(0);
  assert.match(received, /^HTTP\/1\.1 200 /);
  assert.ok(maxParts <= 11_000, `${maxParts} parts in one of ${turns} turns`);
});
