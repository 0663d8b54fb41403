/** How many connections may wait to be accepted. */

import { strict as assert } from "node:assert";
import { readFileSync } from "node:fs";
import { connect, type Socket } from "node:net";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Handler } from "../../src/http/connection.ts";
import { listen } from "../../src/http/server.ts";

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
