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

  test("stays open after an error in a body that came with its header", async () => {
    const signIn = wire("POST /v1/authorizations", app.token, {});
    const received = await exchange(app.port, signIn, /\}\]\}$/);
    assert.deepEqual(statuses(received), [422]);
    assert.match(received, /^Connection: keep-alive\r$/m);
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

  test("gets 400 for a method that node:http does not know, and no response to CONNECT", async () => {
    const brew = "BREW /v1/zoos HTTP/1.1\r\nHost: a\r\n\r\n";
    const received = await exchange(app.port, brew);
    assert.deepEqual(statuses(received), [400]);
    assert.match(received, /"errorCode":40000/);
    assert.match(received, /^Date: .* GMT\r$/m);
    const connect = "CONNECT a:80 HTTP/1.1\r\nHost: a:80\r\n\r\n";
    assert.equal(await exchange(app.port, connect).catch(() => ""), "");
    assert.equal((await app.request("GET", "/v1/zoos")).status, 200);
  });
});

/** Requests whose ids count from 0, each for another page. */
function numbered(count: number, token: string, path = "/v1/zoos?"): string {
  return Array.from(
    { length: count },
    (_, at) =>
      wire(`GET ${path}limit=${1 + at % 5}`, token)
        .replace("Host:", `X-Request-Id: n${at}\r\nHost:`),
  ).join("");
}

/** Sends text, in segments of a length, and returns the ids of so many responses. */
async function idsOf(
  port: number,
  { text, length, count }: { text: string; length: number; count: number },
): Promise<number[]> {
  const socket = connect(port, "127.0.0.1");
  socket.setEncoding("latin1");
  const ids: number[] = [];
  let rest = "";
  socket.on("data", (received) => {
    const [last = "", ...heads] = (rest + received).split("HTTP/1.1 200 ")
      .reverse();
    // The header of the last response may be incomplete.
    const isWhole = last.includes("\r\n\r\n");
    rest = isWhole ? "" : `HTTP/1.1 200 ${last}`;
    for (const head of [...heads.reverse(), isWhole ? last : ""]) {
      const [, id] = /^X-Request-Id: n(\d+)\r$/m.exec(head) ?? [];
      if (id !== undefined) ids.push(Number(id));
    }
    if (ids.length >= count) socket.end();
  });
  for (let at = 0; at < text.length; at += length) {
    socket.write(text.slice(at, at + length));
    await new Promise((resolve) => setImmediate(resolve));
  }
  await once(socket, "close");
  return ids;
}

for (const count of [18, 5000]) {
  for (const path of ["/v1/zoos?", "/v1/animals?name:contains=x&"]) {
    for (const length of [Infinity, 1777]) {
      const how = length === Infinity ? "at once" : "in segments";
      test(`${count} pipelined requests for ${path}, sent ${how}, get their responses in order`, async (t) => {
        const app = await startApplication();
        t.after(() => app.stop());
        const text = numbered(count, app.token, path);
        const ids = await idsOf(app.port, { text, length, count });
        assert.deepEqual(ids, Array.from({ length: count }, (_, at) => at));
      });
    }
  }
}

test("nothing more is received from a client that sends without reading, until it reads", async (t) => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  t.after(() => app.stop());
  const release = hold();
  t.after(release);
  const socket = connect(app.port, "127.0.0.1");
  t.after(() => socket.destroy());
  // The first request waits for the disk, and all others wait for the first.
  const count = 30_000; // more than the buffers of sockets hold
  socket.write(wire("POST /v1/zoos", app.token, zoo));
  const request = wire("GET /v1/last", app.token);
  socket.write(request.repeat(count));
  let sent = 0;
  do {
    sent = socket.bytesWritten - socket.writableLength;
    await new Promise((resolve) => setTimeout(resolve, 200));
  } while (socket.bytesWritten - socket.writableLength > sent);
  assert.ok(socket.writableLength > 0, "the client has sent everything");
  release();
  let received = 0;
  socket.setEncoding("latin1");
  let rest = "";
  socket.on("data", (text) => {
    const parts = (rest + text).split("HTTP/1.1 404 ");
    rest = (rest + text).slice(-12);
    received += parts.length - 1;
    if (rest.includes("HTTP/1.1 404 ")) received--;
    if (received >= count) socket.end();
  });
  await once(socket, "close");
  assert.equal(received, count);
});

test("the connection closes before a pipelined request with a body", async (t) => {
  const { files, hold } = heldFiles();
  const app = await startApplication({ files });
  t.after(() => app.stop());
  const post = wire("POST /v1/zoos", app.token, zoo);
  const get = wire("GET /v1/zoos?limit=1", app.token);
  const release = hold();
  const received = exchange(app.port, post + get + get + post + get);
  const { seq } = app.store;
  while (app.store.seq === seq) await app.request("GET", "/v1/animals");
  release();
  assert.deepEqual(statuses(await received), [201, 200, 200]);
  assert.equal(app.store.table("zoos").size, 1);
  assert.match((await received).slice(-600), /^Connection: close\r$/m);
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
