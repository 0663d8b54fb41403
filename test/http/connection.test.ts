/** Connections: pipelined requests, malformed messages, and the shutdown of the server. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import { heldFiles, type Running, startApplication } from "../application.ts";
import { exchange } from "../harness.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

/** Returns the text of a request. */
function wire(head: string, token: string, body?: unknown): string {
  const text = body === undefined ? "" : JSON.stringify(body);
  const fields = body === undefined
    ? ""
    : `Content-Type: application/json\r\nContent-Length: ${
      Buffer.byteLength(text)
    }\r\n`;
  return `${head} HTTP/1.1\r\nHost: localhost\r\n` +
    `Authorization: Bearer ${token}\r\n${fields}\r\n${text}`;
}

/** Returns the status of each response in the received text. */
function statuses(received: string): number[] {
  return Array.from(
    received.matchAll(/HTTP\/1\.1 (\d{3}) /g),
    ([, status]) => Number(status),
  );
}

describe("a connection", () => {
  let app: Running;
  before(async () => {
    app = await startApplication();
  });
  after(() => app.stop());

  test("has its requests handled in order", async () => {
    const { token } = app;
    const { body } = await app.request("POST", "/v1/zoos", {
      token,
      json: zoo,
    });
    const { url } = body;
    const received = await exchange(
      app.port,
      wire(`PATCH ${url}`, token, { city: "Emmen" }) +
        wire(`GET ${url}?fields=city`, token) +
        wire(`DELETE ${url}`, token) +
        wire(`GET ${url}`, token),
      /deleted for good/,
    );
    assert.deepEqual(statuses(received), [201, 200, 204, 410]);
    assert.match(received, /\{"id":\d+,"city":"Emmen"\}/);
  });

  test("gets a response to a malformed body, and is closed", async () => {
    const head = "POST /v1/authorizations HTTP/1.1\r\nHost: localhost\r\n" +
      "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n";
    for (const chunk of ["ZZ\r\n", "1\r\n{}}}\r\n"]) {
      const received = await exchange(app.port, head + chunk);
      assert.deepEqual(statuses(received), [400], chunk);
      assert.match(received, /"errorCode":40000/);
      assert.match(received, /^Connection: close\r$/mi);
    }
  });

  test("gets the response to its last valid request before the error", async () => {
    const { token } = app;
    const good = wire("POST /v1/zoos", token, zoo);
    const received = await exchange(app.port, `${good}NONSENSE\r\n\r\n`);
    assert.equal(statuses(received)[0], 201);
    assert.match(received, /Artis/);
  });

  test("is redirected with only valid characters in Location", async () => {
    const received = await exchange(
      app.port,
      'GET /v1/zoos/?a="<>\\ HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n',
    );
    assert.deepEqual(statuses(received), [308]);
    assert.match(received, /^Location: \/v1\/zoos\?a=%22%3C%3E%5C\r$/m);
  });

  test("must send Host, and HTTP/1", async () => {
    const table: readonly [string, RegExp][] = [
      ["GET /v1/zoos HTTP/1.1\r\n\r\n", /must have a Host field/],
      ["GET /v1/zoos HTTP/2.0\r\nHost: a\r\n\r\n", /HTTP\/1\.1, not HTTP\/2/],
    ];
    for (const [bytes, message] of table) {
      const received = await exchange(app.port, bytes, /\}$/);
      assert.deepEqual(statuses(received), [400]);
      assert.match(received, message);
      assert.match(received, /"errorCode":40000/);
    }
    const old = await exchange(app.port, "GET /v1 HTTP/1.0\r\n\r\n");
    assert.deepEqual(statuses(old), [200]);
  });

  test("gets the methods of all URLs together from OPTIONS *", async () => {
    const { text } = await app.request("GET", "/");
    const records = ["zoos", "users", "authorizations"]
      .map((name) => `/v1/${name}/1`);
    const all = new Set<string>();
    for (
      const path of [...Object.values<string>(JSON.parse(text)), ...records]
    ) {
      const { headers } = await app.request("OPTIONS", path);
      for (const method of headers.get("allow")?.split(", ") ?? []) {
        all.add(method);
      }
    }
    const star = "OPTIONS * HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n";
    const received = await exchange(app.port, star);
    const allow = /^Allow: (.*)\r$/m.exec(received)?.[1] ?? "";
    assert.deepEqual(allow.split(", ").sort(), [...all].sort());
  });

  test("gets 501 for every method that no URL has, whether node:http knows it or not", async () => {
    const table = [
      "BREW /v1/zoos HTTP/1.1\r\nHost: a\r\n\r\n",
      "CONNECT example.org:80 HTTP/1.1\r\nHost: example.org:80\r\n\r\n",
    ];
    for (const bytes of table) {
      const received = await exchange(app.port, bytes);
      assert.deepEqual(statuses(received), [501], bytes);
      assert.match(received, /"errorCode":50100/);
      assert.match(received, /^Date: .* GMT\r$/m);
    }
  });
});

test("a client that sends without reading is disconnected before it uses much memory", async () => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  const release = hold();
  const socket = connect(app.port, "127.0.0.1");
  try {
    socket.on("error", () => {}); // bytes that are still being sent meet a reset
    const closed = once(socket, "close");
    // The first request waits for the disk, and all others wait for the first.
    socket.write(wire("POST /v1/zoos", app.token, zoo));
    socket.write(wire("GET /v1/zoos", app.token).repeat(17));
    await closed;
  } finally {
    release();
    socket.destroy();
    await app.stop();
  }
});

test("the maximum number of pipelined requests all get their responses, in order", async () => {
  const app = await startApplication();
  try {
    const gets = Array.from(
      { length: 16 },
      (_, at) =>
        wire(`GET /v1/zoos?limit=${1 + at % 100}&offset=${at}`, app.token),
    );
    const last = wire("GET /v1/last", app.token);
    const received = await exchange(
      app.port,
      gets.join("") + last,
      /There is no such URL/,
    );
    assert.deepEqual(statuses(received), [...Array(16).fill(200), 404]);
  } finally {
    await app.stop();
  }
});

test("a response in progress when the server stops says that it is the last one", async () => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  const release = hold();
  try {
    const post = wire("POST /v1/zoos", app.token, zoo);
    // The second one is not handled, as its client can tell from the missing
    // response.
    const received = exchange(app.port, post + post);
    const { seq } = app.store;
    while (app.store.seq === seq) await app.request("GET", "/v1/animals");
    const stopped = app.stop();
    release();
    await stopped;
    assert.deepEqual(statuses(await received), [201]);
    assert.match(await received, /^Connection: close\r$/mi);
    assert.equal(app.store.table("zoos").size, 1);
  } finally {
    release();
  }
});
