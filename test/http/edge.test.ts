/** The limits of connections, headers, bodies and time for a client on an open network. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import { string } from "../../src/api/declaration/properties.ts";
import {
  type Connection,
  type OutgoingResponse,
  type Response,
  send,
  type ServerLimits,
} from "../../src/http/connection.ts";
import { readBody } from "../../src/http/body.ts";
import { ApiError, errorResponse } from "../../src/http/errors.ts";
import { listen, type Listener } from "../../src/http/server.ts";
import { collections } from "../collections.ts";
import { type Running, startApplication } from "../application.ts";
import { exchange } from "../harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

function statuses(received: string): number[] {
  return Array.from(
    received.matchAll(/HTTP\/1\.1 (\d{3}) /g),
    ([, status]) => Number(status),
  );
}

/** Asserts that a response has everything that each error must have. */
function assertError(received: string, code: number, name = ""): void {
  const message = `${name}: ${received.slice(0, 500)}`;
  assert.deepEqual(statuses(received), [Math.floor(code / 100)], message);
  assert.match(received, /^Date: .* GMT\r$/m, message);
  assert.match(received, /^X-Request-Id: \S+\r$/m, message);
  assert.match(received, /^X-Content-Type-Options: nosniff\r$/m, message);
  const body = JSON.parse(received.slice(received.indexOf("\r\n\r\n")));
  assert.equal(body.errorCode, code, message);
}

/** Returns a request without a body. */
function get(path: string, ...fields: readonly string[]): string {
  return [`GET ${path} HTTP/1.1`, "Host: a", ...fields, "", ""].join("\r\n");
}

const end = "Connection: close";

describe("the header of a request", () => {
  let app: Running;
  before(async () => {
    app = await startApplication();
  });
  after(() => app.stop());

  const rejected: readonly [string, string, number][] = [
    ["two Hosts", get("/v1", "Host: a"), 40000],
    ["an empty Host", "GET /v1 HTTP/1.1\r\nHost:\r\n\r\n", 40000],
    ["a path in Host", "GET /v1 HTTP/1.1\r\nHost: a/b\r\n\r\n", 40000],
    ["a user in Host", "GET /v1 HTTP/1.1\r\nHost: u@h\r\n\r\n", 40000],
    ["a list in Host", "GET /v1 HTTP/1.1\r\nHost: a, b\r\n\r\n", 40000],
    ["half an escape in Host", "GET /v1 HTTP/1.1\r\nHost: %zz\r\n\r\n", 40000],
    [
      "no IPv6 address in Host",
      "GET /v1 HTTP/1.1\r\nHost: [:::::]\r\n\r\n",
      40000,
    ],
    ["half an address in the target", get("http://[/v1"), 40000],
    ["a user in the target", get("http://u@a/v1"), 40000],
    ["half an escape in the target", get("http://%zz/v1"), 40000],
    ["no IPv6 address in the target", get("http://[:::::]/v1"), 40000],
    ["no Host", "GET /v1 HTTP/1.1\r\n\r\n", 40000],
    [
      "a repeated field",
      get("/v1", "Authorization: a", "authorization: b"),
      40000,
    ],
    ["two types", get("/v1", "Content-Type: a/b", "Content-Type: a/b"), 40000],
    [
      "two lengths",
      get("/v1", "Content-Length: 0", "Content-Length: 0"),
      40000,
    ],
    ["two keys", get("/v1", "Idempotency-Key: a", "Idempotency-Key: b"), 40000],
    [
      "two dates",
      get(
        "/v1",
        ...Array(2).fill("If-Unmodified-Since: Thu, 01 Jan 1970 00:00:00 GMT"),
      ),
      40000,
    ],
    [
      "two dates of a copy",
      get(
        "/v1",
        ...Array(2).fill("If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT"),
      ),
      40000,
    ],
    [
      "a length and a coding",
      get("/v1", "Content-Length: 5", "Transfer-Encoding: chunked"),
      40000,
    ],
    [
      "a coding and a length",
      get("/v1", "Transfer-Encoding: chunked", "Content-Length: 5"),
      40000,
    ],
    ["two codings", get("/v1", "Transfer-Encoding: gzip, chunked"), 50100],
    [
      "a coding other than chunked",
      get("/v1", "Transfer-Encoding: gzip"),
      50100,
    ],
    [
      "an empty coding",
      get("/v1", "Transfer-Encoding:", "Content-Length: 0"),
      40000,
    ],
    [
      "a coding in HTTP/1.0",
      "POST /v1/zoos HTTP/1.0\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\nGET /v1 HTTP/1.0\r\n\r\n",
      40000,
    ],
    ["65 fields", get("/v1", ...Array(64).fill("A: b")), 43100],
    [
      "a field after 2,000",
      get("/v1", ...Array(2000).fill("A:"), "Authorization: x"),
      43100,
    ],
    ["17 KiB of fields", get("/v1", `A: ${"b".repeat(17_000)}`), 43100],
    ["a URL of 8 KiB and a byte", get(`/${"a".repeat(8192)}`), 41400],
    ["a URL of 17 KiB", get(`/${"a".repeat(17_000)}`), 43100],
    ["an unknown method", "BREW / HTTP/1.1\r\nHost: a\r\n\r\n", 40000],
    ["half an authority", get("http://["), 40000],
    ["an empty authority", get("http:///v1"), 40000],
    ["another expectation", get("/v1", "Expect: 200-ok"), 41700],
  ];
  for (const [name, bytes, code] of rejected) {
    test(`with ${name} is rejected with ${code}`, async () => {
      assertError(await exchange(app.port, bytes, /\}$/), code, name);
    });
  }

  const accepted: readonly [string, string][] = [
    ["64 fields", get("/v1", end, ...Array(62).fill("A: b"))],
    [
      "a Host with a port",
      `GET /v1 HTTP/1.1\r\nHost: [::1]:80\r\n${end}\r\n\r\n`,
    ],
    ["an absolute target", get("http://a.example:80/v1", end)],
    ["a URL of 8 KiB", get(`/v1?fields=${"a".repeat(8181)}`, end)],
    ["HTTP/1.0", "GET /v1 HTTP/1.0\r\nExpect: x\r\n\r\n"],
  ];
  for (const [name, bytes] of accepted) {
    test(`with ${name} is accepted`, async () => {
      const [status = 0] = statuses(await exchange(app.port, bytes));
      assert.ok(status === 200 || status === 400, `${status}`);
      if (status === 400) assert.match(name, /URL/); // the parameter is unknown
    });
  }

  test("with bytes after it that are not HTTP gets its response, and the connection closes", async () => {
    const received = await exchange(app.port, get("/v1") + "NONSENSE\r\n\r\n");
    assert.deepEqual(statuses(received), [200]);
    assert.match(received, /^Connection: close\r$/m);
  });

  test("of HTTP/1.0 with a coding is the last of its connection", async () => {
    const post = "POST /v1/zoos HTTP/1.0\r\nConnection: keep-alive\r\n" +
      "Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n";
    const received = await exchange(app.port, post + get("/v1"));
    assert.deepEqual(statuses(received), [400]);
    assert.match(received, /^Connection: close\r$/m);
    const waiting = await exchange(app.port, get("/v1/zoos/9") + post);
    assert.deepEqual(statuses(waiting), [404]);
  });

  test("with a malformed body that follows others ends the connection after their responses", async () => {
    const broken = [
      "POST /v1/authorizations HTTP/1.1",
      "Host: a",
      "Content-Type: application/json",
      "Transfer-Encoding: chunked",
      "",
      "PATCH /v1 HTTP/1.1",
      "",
      "",
    ].join("\r\n");
    const waiting = get("/v1/zoos/9") + get("/v1/zoos");
    const received = await exchange(app.port, waiting + broken);
    assert.deepEqual(statuses(received), [404, 200]);
  });

  test("that asks for an upgrade gets the same response as without", async () => {
    const upgrade = ["Connection: Upgrade", "Upgrade: x"];
    const received = await exchange(app.port, get("/v1", ...upgrade));
    assert.deepEqual(statuses(received), [200]);
    assert.match(received, /^Connection: close\r$/m);
    // A client sends the request after it again, as it gets no response.
    const both = get("/v1", ...upgrade) + get("/v1/zoos");
    assert.deepEqual(statuses(await exchange(app.port, both)), [200]);
    const body = JSON.stringify({ username: "nobody", password: "x" });
    const post = await exchange(
      app.port,
      `POST /v1/authorizations HTTP/1.1\r\nHost: a\r\n${
        upgrade.join("\r\n")
      }\r\n` +
        "Content-Type: application/json\r\n" +
        `Content-Length: ${body.length}\r\n\r\n${body}`,
    );
    assert.deepEqual(statuses(post), [401]);
  });

  test("that expects 100 Continue gets it once the body is wanted", async () => {
    const body = JSON.stringify(zoo);
    const head = (token: string, length: number) =>
      `POST /v1/zoos HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${token}\r\n` +
      "Expect: 100-continue\r\nContent-Type: application/json\r\n" +
      `Content-Length: ${length}\r\n\r\n`;
    assertError(await exchange(app.port, head("x", 80)), 40102);
    const tooLong = (1 << 20) + 1;
    assertError(await exchange(app.port, head(app.token, tooLong)), 41300);
    const socket = connect(app.port, "127.0.0.1");
    socket.write(head(app.token, body.length));
    const [first] = await once(socket, "data");
    assert.equal(String(first), "HTTP/1.1 100 Continue\r\n\r\n");
    socket.write(body);
    const [second] = await once(socket, "data");
    assert.deepEqual(statuses(String(second)), [201]);
    socket.destroy();
  });

  test("of an import whose body is malformed from the start gets 400", async () => {
    const head =
      `POST /v1/zoos HTTP/1.1\r\nHost: a\r\nAuthorization: Bearer ${app.token}\r\n` +
      "Content-Type: application/x-ndjson\r\nTransfer-Encoding: chunked\r\n\r\n";
    assertError(await exchange(app.port, `${head}zz\r\n`), 40000);
  });
});

describe("a body", () => {
  let app: Running;
  before(async () => {
    const [zoos, ...others] = collections;
    assert.ok(zoos);
    const essay = string({ maxLength: 20_000 });
    const declarations = [
      { ...zoos, properties: { ...zoos.properties, essay } },
      ...others,
    ];
    app = await startApplication({ declarations });
  });
  after(() => app.stop());

  const json = { "content-type": "application/json" };
  const form = { "content-type": "application/x-www-form-urlencoded" };
  const sizes: readonly [string, string, Record<string, string>, number][] = [
    ["POST", "/v1/authorizations", json, 8 * 1024],
    ["POST", "/v1/animals", json, 64 * 1024],
    ["PATCH", "/v1/animals/1", json, 64 * 1024],
    ["QUERY", "/v1/animals", form, 64 * 1024],
  ];
  for (const [method, path, headers, maxBytes] of sizes) {
    test(`of ${method} ${path} may have ${maxBytes} bytes`, async () => {
      const { token } = app;
      const [start, fill] = method === "QUERY" ? ["name=", "x"] : ["", " "];
      const most = { token, headers, raw: start.padEnd(maxBytes, fill) };
      const { status } = await app.request(method, path, most);
      assert.equal(status, method === "QUERY" ? 200 : 400);
      const more = { token, headers, raw: start.padEnd(maxBytes + 1, fill) };
      const { body } = await app.request(method, path, more);
      assert.equal(body.errorCode, 41300);
    });
  }

  test("may have four bytes for each declared character of its record", async () => {
    const { token } = app;
    const options = { token, headers: json };
    const post = (essay: string) =>
      app.request("POST", "/v1/zoos", { ...options, json: { ...zoo, essay } });
    const { status } = await post("\u{1D11E}".repeat(20_000));
    assert.equal(status, 201);
    const { body } = await post("\u{1D11E}".repeat(23_000));
    assert.equal(body.errorCode, 41300);
  });
});

/** Starts a server that sends the same response to every request. */
function serveResponse(
  response: Partial<Response>,
  limits: Partial<ServerLimits> = {},
  onResponse: (response: OutgoingResponse) => void = () => {},
): Promise<Listener> {
  return listen((outgoing) => {
    onResponse(outgoing);
    const { readError } = outgoing.req;
    const error = readError instanceof ApiError && errorResponse(readError);
    send(outgoing, error || { status: 200, headers: [], ...response }, []);
  }, {
    host: "127.0.0.1",
    port: 0,
    limits: { checkIntervalMs: 10, ...limits },
  });
}

describe("a connection", () => {
  test("over the limit is closed without a response", async () => {
    const listener = await serveResponse({ body: "{}" }, { maxConnections: 1 });
    const first = connect(listener.port, "127.0.0.1");
    await once(first, "connect");
    assert.equal(await exchange(listener.port, "").catch(() => ""), "");
    first.write(get("/"));
    const [received] = await once(first, "data");
    assert.deepEqual(statuses(String(received)), [200]);
    first.destroy();
    await listener.close(0);
  });

  test("is closed at the end of the time to stop, whatever it sent", async () => {
    const stream = async function* () {
      while (true) yield "x".repeat(10_000);
    };
    const listener = await serveResponse({ stream });
    const socket = connect(listener.port, "127.0.0.1");
    socket.on("error", () => {});
    socket.write(get("/") + get("/"));
    await once(socket, "data"); // and continues to read
    const closed = once(socket, "close");
    await listener.close(50);
    await closed;
  });

  test("is closed if nothing comes or goes for too long", async () => {
    let closed: Promise<unknown> | undefined;
    const listener = await serveResponse(
      { body: "x".repeat(32 << 20) },
      { silenceTimeoutMs: 50 },
      (outgoing) => closed = once(outgoing, "close"),
    );
    const socket = connect(listener.port, "127.0.0.1");
    socket.on("error", () => {}).write(get("/"));
    await once(socket, "readable"); // and does not read
    await closed;
    socket.destroy();
    await listener.close(0);
  });

  test("is closed if a header takes too long, or if it is idle", async () => {
    const hasty = await serveResponse({ body: "{}" }, { headTimeoutMs: 50 });
    const late = await exchange(hasty.port, "GET / HT");
    assert.deepEqual(statuses(late), [408]);
    await hasty.close(0);
    // Another server, with the default timeout, as a busy machine may take a
    // while to send a header.
    const idle = await serveResponse({ body: "{}" }, {
      keepAliveTimeoutMs: 50,
    });
    const received = await exchange(idle.port, get("/"));
    assert.deepEqual(statuses(received), [200]);
    await idle.close(0);
  });

  test("is closed after a response to a body that was not read, once it has arrived or is late or too long", async () => {
    const limits = { lingerTimeoutMs: 50, maxDroppedBytes: 1000 };
    let closed: Promise<unknown> | undefined;
    let dropped = 0;
    const listener = await serveResponse(
      { status: 401, body: "{}" },
      limits,
      ({ req }) => {
        req.on("data", ({ length }: Buffer) => dropped += length);
        closed = once(req.socket, "close");
      },
    );
    const bodies = [
      "Content-Length: 2\r\n\r\n{}",
      "Content-Length: 1000\r\n\r\nabc",
      "Transfer-Encoding: chunked\r\n\r\n",
      `Content-Length: 9000000\r\n\r\n${"x".repeat(9_000_000)}`,
    ];
    for (const body of bodies) {
      const { port } = listener;
      const host = "127.0.0.1";
      const socket = connect({ port, host, allowHalfOpen: true });
      socket.on("error", () => {});
      dropped = 0;
      socket.write(`POST / HTTP/1.1\r\nHost: a\r\n${body}`);
      const [received] = await once(socket, "data");
      assert.deepEqual(statuses(String(received)), [401]);
      assert.match(String(received), /^Connection: close\r$/m);
      await closed; // although the client keeps its side open
      assert.ok(dropped < 1 << 18, `${dropped} bytes`);
      socket.destroy();
    }
    await listener.close(0);
  });

  for (const version of ["1.0", "1.1"]) {
    test(`is not reset while a client that asked to close it still sends: HTTP/${version}`, async () => {
      const listener = await serveResponse({ status: 401, body: "{}" });
      const { port } = listener;
      const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
      socket.write(
        `POST / HTTP/${version}\r\nHost: a\r\n${end}\r\nContent-Length: 900000\r\n\r\n`,
      );
      await once(socket.resume(), "end");
      socket.end("x".repeat(900_000));
      await once(socket, "close"); // rejects if it is reset
      await listener.close(0);
    });
  }

  test("of HTTP/1.0 ends with its download, which has no chunks, whatever TE says", async () => {
    const listener = await serveResponse({
      async *stream() {
        yield "a";
        yield "b";
      },
    });
    const received = await exchange(
      listener.port,
      "GET / HTTP/1.0\r\nTE: chunked\r\n\r\n",
    );
    assert.match(received, /^Connection: close\r$/m);
    assert.doesNotMatch(received, /^Transfer-Encoding/im);
    assert.match(received, /\r\n\r\nab$/);
    await listener.close(0);
  });

  test("of HTTP/1.0 ends with a response without a length: no later request is handled", async () => {
    const withoutLength: Partial<Response>[] = [{ status: 204 }, {
      status: 304,
    }, {
      async *stream() {
        yield "a";
      },
    }];
    for (const response of withoutLength) {
      let handled = 0;
      const listener = await serveResponse(response, {}, () => handled++);
      const request = "GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n";
      const received = await exchange(listener.port, request + request);
      assert.equal(statuses(received).length, 1);
      assert.match(received, /^Connection: close\r$/m);
      assert.equal(handled, 1);
      await listener.close(0);
    }
  });

  test("lasts as long as a response whose request has a body that nobody reads", async () => {
    const lingerTimeoutMs = 100;
    const listener = await serveResponse(
      {
        async *stream() {
          await delay(5 * lingerTimeoutMs);
          yield "late";
        },
      },
      { lingerTimeoutMs },
    );
    const received = await exchange(
      listener.port,
      get("/", "Transfer-Encoding: chunked") + "0\r\n\r\n",
    );
    assert.match(received, /\r\n4\r\nlate\r\n0\r\n\r\n$/);
    await listener.close(0);
  });

  test("begins no response that would never end, because its client is gone", async () => {
    let begun = 0;
    let handled = () => {};
    const isHandled = new Promise<void>((resolve) => handled = resolve);
    const listener = await listen(async (response) => {
      socket.destroy();
      await once(response.req.socket, "close");
      const live = () => Promise.resolve(void begun++);
      send(response, { status: 200, headers: [], live }, []);
      handled();
    }, { host: "127.0.0.1", port: 0 });
    const socket = connect(listener.port, "127.0.0.1");
    socket.write(get("/"));
    await isHandled;
    assert.equal(begun, 0);
    await listener.close(0);
  });

  test("delivers the 413 to a client that is still sending", async () => {
    const listener = await listen((response) => {
      readBody(response, 10).catch((error: ApiError) =>
        send(response, errorResponse(error), [])
      );
    }, { host: "127.0.0.1", port: 0 });
    const length = 64 << 20;
    const head = "POST / HTTP/1.1\r\nHost: a\r\n";
    const part = Buffer.alloc(1 << 16, "x");
    const chunk = Buffer.concat([
      Buffer.from(`${(1 << 16).toString(16)}\r\n`),
      part,
      Buffer.from("\r\n"),
    ]);
    const bodies = [
      [`Content-Length: ${length}`, part],
      ["Transfer-Encoding: chunked", chunk],
    ] as const;
    for (const [field, bytes] of bodies) {
      const socket = connect(listener.port, "127.0.0.1");
      socket.write(`${head}${field}\r\n\r\n`);
      for (let sent = 0; sent < length; sent += 1 << 16) socket.write(bytes);
      let received = "";
      while (!received.endsWith("}")) {
        const [text] = await once(socket, "data");
        received += text;
      }
      assert.ok(socket.writableLength > 0, "it is still sending");
      assert.match(received, /^HTTP\/1\.1 413 /);
      assert.match(received, /^Connection: close\r$/m);
      socket.destroy();
    }
    await listener.close(0);
  });

  test("is told that the server stops before it is closed", async () => {
    const listener = await serveResponse({ body: "{}" });
    const socket = connect(listener.port, "127.0.0.1");
    socket.write(get("/"));
    const [first] = await once(socket, "data");
    assert.match(String(first), /^Connection: keep-alive\r$/m);
    const stopped = listener.close(0, 1000);
    socket.write(get("/"));
    const [second] = await once(socket, "data");
    assert.match(String(second), /^Connection: close\r$/m);
    await once(socket, "close");
    await stopped;
  });

  for (const isFollowed of [false, true]) {
    const last = isFollowed ? "that to the request after it" : "no other";
    test(
      `is closed after a response that had begun when the server stopped, and ${last}`,
      {
        timeout: 60_000,
      },
      async () => {
        let finish = () => {};
        const finished = new Promise<void>((resolve) => finish = resolve);
        let connection: Connection | undefined;
        const listener = await serveResponse(
          {
            async *stream() {
              yield "a";
              await finished;
              yield "b";
            },
          },
          { keepAliveTimeoutMs: 1e9, silenceTimeoutMs: 0 },
          ({ connectionState }) => connection = connectionState,
        );
        const socket = connect(listener.port, "127.0.0.1");
        socket.write(get("/"));
        let received = "";
        socket.on("data", (text: Buffer) => received += text);
        await once(socket, "data");
        assert.match(received, /^Connection: keep-alive\r$/m);
        const stopped = listener.close(1e9);
        if (isFollowed) socket.write(get("/"));
        while (isFollowed && connection?.pending.length === 1) await delay(1);
        finish();
        await once(socket, "end");
        assert.match(received, /b\r\n0\r\n\r\n$/);
        assert.deepEqual(statuses(received), isFollowed ? [200, 200] : [200]);
        await stopped;
      },
    );
  }

  test(
    "is not closed by a stop while its client still has to read a response",
    {
      timeout: 60_000,
    },
    async () => {
      const body = "x".repeat(60_000);
      let last: OutgoingResponse | undefined;
      let count = 0;
      const listener = await serveResponse({ body }, {}, (response) => {
        last = response;
        count++;
      });
      const socket = connect(listener.port, "127.0.0.1").pause();
      while (!last?.socket?.writableLength) {
        const before = count;
        socket.write(get("/"));
        while (count === before) await delay(1);
        await delay(5);
      }
      const stopped = listener.close(1e9);
      let received = 0;
      socket.on("data", ({ length }: Buffer) => received += length).resume();
      await once(socket, "close");
      assert.ok(
        received > count * body.length,
        `${received} of ${count} bodies`,
      );
      await stopped;
    },
  );

  test("has no request handled after the server has ended it", async () => {
    let handled = 0;
    const listener = await serveResponse({ body: "{}" }, {}, () => handled++);
    const { port } = listener;
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.write(get("/"));
    await once(socket, "data");
    const stopped = listener.close(1e9);
    await once(socket.resume(), "end");
    socket.end(get("/"));
    await stopped;
    assert.equal(handled, 1);
  });

  test("is not reset by a stop while a client sends a body that nobody reads", {
    timeout: 60_000,
  }, async () => {
    const listener = await serveResponse({ status: 401, body: "{}" });
    const { port } = listener;
    const socket = connect({ port, host: "127.0.0.1", allowHalfOpen: true });
    socket.write(
      "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 900000\r\n\r\n",
    );
    await once(socket, "data");
    const stopped = listener.close(1e9);
    await once(socket, "end");
    socket.end("x".repeat(900_000));
    await once(socket, "close"); // rejects if it is reset
    await stopped;
  });
});
