/** Connections on an open network: who is disconnected if there are too many, or if responses are not read. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import process from "node:process";
import { describe, test } from "node:test";
import { guardConnections } from "../../../src/features/open-network/connections.ts";
import { toParts } from "../../../src/features/open-network/lists.ts";
import {
  progressOf,
  type ReadLimits,
  watchReaders,
} from "../../../src/features/open-network/readers.ts";
import {
  type Connection,
  defaultLimits,
  type OutgoingResponse,
  type Response,
  send,
  type ServerLimits,
  type ServerState,
} from "../../../src/http/connection.ts";
import { listen, type Listener } from "../../../src/http/server.ts";

const request = "GET / HTTP/1.1\r\nHost: a\r\n\r\n";

/** Listens, and sends the same response to each request. */
function serveResponse(
  response: Partial<Response>,
  limits: Partial<ReadLimits & ServerLimits> = {},
  onResponse: (response: OutgoingResponse) => void = () => {},
): Promise<Listener> {
  return listen((outgoing) => {
    onResponse(outgoing);
    send(outgoing, { status: 200, headers: [], ...response }, []);
  }, {
    host: "127.0.0.1",
    port: 0,
    limits: { checkIntervalMs: 10, ...limits },
    guardConnections: guardConnections(limits),
  });
}

/** Asserts that a response is a success. */
function assertOk(received: unknown): void {
  assert.match(String(received), /^HTTP\/1\.1 200 /);
}

describe("a connection", () => {
  test("is closed if it holds more requests than it may, while many are held in all", async () => {
    let handled = 0;
    const listener = await listen(() => handled++, {
      host: "127.0.0.1",
      port: 0,
      guardConnections: guardConnections(),
    });
    const open = (requests: number) => {
      const socket = connect(listener.port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write(request.repeat(requests));
      return socket;
    };
    const few = open(2);
    while (handled === 0) await new Promise(setImmediate);
    // A packet has at most 64 KiB, so each holds some 2,000 requests.
    const many = Array.from({ length: 60 }, () => open(3000));
    await new Promise((resolve) => {
      for (const socket of many) socket.resume().once("close", resolve);
    });
    for (const socket of many) socket.destroy();
    // What they held is free again.
    const before = handled;
    const others = open(18);
    while (handled === before) await new Promise(setImmediate);
    await new Promise(setImmediate);
    assert.equal(few.closed || others.closed, false);
    few.destroy();
    others.destroy();
    await listener.close(0);
  });

  test(
    "over the limit closes one that waits for a request, if no client has more than another",
    {
      skip: process.platform !== "linux",
    },
    async () => {
      const listener = await serveResponse({ body: "{}" }, {
        maxConnections: 3,
      });
      const open = async (last: number, isUsed: boolean) => {
        const localAddress = `127.0.0.${last}`;
        const socket = connect({ port: listener.port, localAddress });
        socket.on("error", () => {});
        await once(socket, "connect");
        if (!isUsed) return socket;
        socket.write(request);
        await once(socket, "data");
        return socket;
      };
      const fresh = await open(1, false);
      const [idle, later] = [await open(2, true), await open(3, true)];
      const newcomer = await open(4, false);
      await once(idle.resume(), "close");
      for (const socket of [fresh, later, newcomer]) {
        socket.write(request);
        assertOk(await once(socket, "data"));
        socket.destroy();
      }
      await listener.close(0);
    },
  );

  test("over the limit closes the oldest of the client that has the most", {
    skip: process.platform !== "linux", // which has all of 127.0.0.0/8
  }, async () => {
    const listener = await serveResponse({ body: "{}" }, { maxConnections: 3 });
    const sockets: Socket[] = [];
    for (const last of [1, 1, 1, 2]) {
      const localAddress = `127.0.0.${last}`;
      const socket = connect({ port: listener.port, localAddress });
      await once(socket, "connect");
      sockets.push(socket);
    }
    const [oldest, , , other] = sockets;
    if (oldest && !oldest.closed) await once(oldest.resume(), "close");
    other?.write(request);
    const [received] = other ? await once(other, "data") : [];
    assertOk(received);
    assert.deepEqual(
      sockets.map(({ closed }) => closed),
      [true, false, false, false],
    );
    for (const socket of sockets) socket.destroy();
    await listener.close(0);
  });

  test("is closed if only empty lines follow a response", async () => {
    const listener = await serveResponse({ body: "{}" }, {
      keepAliveTimeoutMs: 40,
      headTimeoutMs: 10,
    });
    const socket = connect(listener.port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write(request);
    const [received] = await once(socket, "data");
    assertOk(received);
    const closed = new Promise((resolve) => socket.on("close", resolve));
    const timer = setInterval(() => socket.write("\r\n"), 1);
    await closed;
    clearInterval(timer);
    await listener.close(0);
  });

  const large = "x".repeat(32 << 20);

  const unread: readonly [string, Partial<Response>][] = [
    ["a large response", { body: large }],
    ["a stream", {
      stream: async function* () {
        for (let at = 0; at < 1000; at++) yield large.slice(0, 1 << 16);
      },
    }],
    ["a live response", {
      live: async (to) => {
        to.write(large);
        await once(to, "close");
      },
    }],
  ];
  for (const [name, response] of unread) {
    test(`whose client does not read ${name} is closed`, async () => {
      let closed: Promise<unknown> | undefined;
      const listener = await serveResponse(
        response,
        { readTimeoutMs: 50 },
        (outgoing) => closed = once(outgoing, "close"),
      );
      const socket = connect(listener.port, "127.0.0.1");
      socket.on("error", () => {});
      socket.write(request);
      await once(socket, "readable");
      await closed;
      socket.destroy();
      await listener.close(0);
    });
  }

  test("is closed if it holds most of too much that waits, and reads nothing; never while it reads", async () => {
    const closed: Promise<unknown>[] = [];
    const listener = await serveResponse(
      toParts({ status: 200, headers: [], body: large }),
      { maxUnreadBytes: 1.5 * large.length, unreadTimeoutMs: 2000 },
      (outgoing) => closed.push(once(outgoing, "close")),
    );
    const { port } = listener;
    const open = async (localAddress: string) => {
      const socket = connect({ port, host: "127.0.0.1", localAddress });
      socket.on("error", () => {}).write(request);
      await once(socket, "readable");
      return socket;
    };
    // The oldest response, which is read slowly.
    const reader = await open("127.0.0.1");
    let isOver = false;
    closed[0]?.then(() => isOver = true);
    const reading = setInterval(() => reader.read(), 30);
    const other = process.platform === "linux" ? "127.0.0.2" : "127.0.0.1";
    const idle = [await open(other), await open(other), await open(other)];
    await Promise.all(closed.slice(1));
    assert.equal(isOver, false);
    clearInterval(reading);
    reader.resume();
    while (reader.bytesRead < large.length) await once(reader, "data");
    for (const socket of [reader, ...idle]) socket.destroy();
    await listener.close(0);
  });

  test("may be idle between two requests for longer than a response may be unread", () => {
    const destroyed: string[] = [];
    const open = (name: string, writableLength: number) => {
      const destroy = () => destroyed.push(name);
      const socket = { bytesWritten: 9, writableLength, destroy };
      return [socket, { socket, pending: [] }];
    };
    const connections = new Map(
      [open("idle", 0), open("unread", 9)] as unknown as [Socket, Connection][],
    );
    const limits = { ...defaultLimits, checkIntervalMs: 10_000 };
    const check = watchReaders({ connections, limits } as ServerState, {
      maxUnreadBytes: 0,
      unreadTimeoutMs: 20_000,
    });
    for (let at = 0; at < 3; at++) check();
    assert.deepEqual(destroyed, ["unread"]); // too much waits
    for (let at = 3; at < 5; at++) check();
    assert.deepEqual(destroyed, ["unread", "unread", "unread"]);
    for (let at = 5; at < 9; at++) check();
    assert.ok(destroyed.includes("idle")); // after 65 seconds, and 10 for a header
  });

  test("is idle only as long as its client reads nothing", () => {
    const socket = { bytesWritten: 0, writableLength: 0 } as Socket;
    const pending: OutgoingResponse[] = [];
    const connection = { socket, pending } as unknown as Connection;
    let last = progressOf(connection, 1000);
    const seconds = (count: number, now: Partial<Socket> = {}) => {
      Object.assign(socket, now);
      for (let at = 0; at < count; at++) {
        last = progressOf(connection, 1000, last);
      }
      return last.idleMs / 1000;
    };
    assert.equal(last.idleMs, 0);
    assert.equal(seconds(40), 40); // before the request
    assert.equal(seconds(1, { bytesWritten: 1000, writableLength: 1000 }), 0);
    assert.equal(seconds(30), 30);
    assert.equal(seconds(1, { writableLength: 999 }), 0); // one byte was read
    // More is written, nothing read.
    const more = { bytesWritten: 2000, writableLength: 1999 };
    assert.equal(seconds(30, more), 30);
    assert.equal(seconds(1, { writableLength: 0 }), 0);
    assert.equal(seconds(1), 1); // after the response
    pending.push({} as OutgoingResponse);
    assert.equal(seconds(9), 0); // the client waits
  });
});

test("a port in use leaves no timer behind", async () => {
  const listener = await serveResponse({ body: "{}" });
  const timers = () =>
    process.getActiveResourcesInfo().filter((each) => each === "Timeout");
  const before = timers();
  const options = { host: "127.0.0.1", port: listener.port };
  await assert.rejects(
    listen(() => {}, { ...options, guardConnections: guardConnections() }),
    { code: "EADDRINUSE" },
  );
  assert.deepEqual(timers(), before);
  await listener.close(0);
});
