/** What busy clients, and long responses, may take of each turn of the event loop. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import { performance } from "node:perf_hooks";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import { maxWriteBytes, send } from "../../src/http/connection.ts";
import { type Handler, listen } from "../../src/http/server.ts";

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/** Listens until the test has ended; returns a function that opens a connection. */
async function serve(t: TestContext, handle: Handler) {
  const host = "127.0.0.1";
  const listener = await listen(handle, { host, port: 0 });
  const sockets: Socket[] = [];
  const open = () => {
    const socket = connect(listener.port, host);
    sockets.push(socket.on("error", () => {}));
    return socket;
  };
  t.after(async () => {
    for (const socket of sockets) socket.destroy();
    await listener.close(0);
  });
  return open;
}

test("a new connection does not wait for hundreds of requests of those before it", async (t) => {
  let handled = 0;
  const open = await serve(t, (response) => {
    handled++;
    const end = performance.now() + 1;
    while (performance.now() < end);
    send(response, { status: 200, headers: [], body: "{}" }, []);
  });
  const count = 60;
  for (let index = 1; index < count; index++) {
    const socket = open();
    socket.on("data", () => socket.write(request));
    socket.write(request);
  }
  const last = open();
  last.write(request);
  await once(last, "data");
  // Each accepted after all those before it have sent a request, it would be
  // the sum of 1 to 60.
  assert.ok(handled <= 5 * count, `${handled} requests`);
});

test("as many connections can wait to be accepted as can be open", {
  skip: process.platform !== "linux" ||
    Number(readFileSync("/proc/sys/net/core/somaxconn", "utf8")) < 1000,
}, async (t) => {
  const open = await serve(t, () => {});
  let connected = 0;
  for (let count = 0; count < 900; count++) {
    open().on("connect", () => connected++);
  }
  // One is accepted per turn, but the operating system connects them at once.
  for (let turns = 0; turns < 10; turns++) await nextTurn();
  assert.equal(connected, 900);
});

test("all long responses together write one part per turn of the event loop", async (t) => {
  const bytes = Buffer.alloc(3 * maxWriteBytes);
  let parts = 0;
  const open = await serve(t, (response) => {
    const write = response.write.bind(response);
    response.write = (part: Uint8Array) => {
      parts++;
      return write(part);
    };
    send(response, { status: 200, headers: [], body: bytes }, []);
  });
  let maxParts = 0;
  const countParts = () => {
    maxParts = Math.max(maxParts, parts);
    parts = 0;
    counting = setImmediate(countParts);
  };
  let counting = setImmediate(countParts);
  const sockets = Array.from({ length: 20 }, open);
  await Promise.all(sockets.map((socket) => once(socket, "connect")));
  const lengths = await Promise.all(sockets.map(async (socket) => {
    socket.write(request.replace("\r\n\r\n", "\r\nConnection: close\r\n\r\n"));
    let received = 0;
    socket.on("data", ({ length }: Buffer) => received += length);
    await once(socket, "close");
    return received;
  }));
  clearImmediate(counting);
  for (const length of lengths) assert.ok(length > bytes.length);
  assert.ok(maxParts <= 2, `${maxParts} parts in a turn`);
});
