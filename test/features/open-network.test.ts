/** Messages that others could read differently, and service to everybody: CONTRACT section 9. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { connect } from "node:net";
import { test } from "node:test";
import { authorize, send, serve, signIn } from "../server.ts";

const server = await serve({
  FEATURES: "open-network,memory,indexes",
  NODE_OPTIONS: "--max-old-space-size=64",
});
const { origin } = server;
const { hostname, port } = new URL(origin);

/** Sends bytes, and returns the status lines and all that came until the connection has ended. */
function exchange(text: string): Promise<{ codes: string[]; all: string }> {
  return new Promise((resolve, reject) => {
    let all = "";
    connect(Number(port), hostname).setEncoding("latin1")
      .on("data", (part) => all += part)
      .on("error", reject)
      .on("close", () => {
        const codes = all.match(/(?<=HTTP\/1\.1 )\d{3}(?= )/g) ?? [];
        resolve({ codes, all });
      }).end(text);
  });
}

const get = (target: string, ...fields: string[]) =>
  `GET ${target} HTTP/1.1\r\n${
    ["Host: a", ...fields].map((field) => `${field}\r\n`).join("")
  }\r\n`;
const post = (...fields: string[]) =>
  `POST /v1/authorizations HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n${
    fields.map((field) => `${field}\r\n`).join("")
  }\r\n`;

const entry = '{"username":"admin","password":"admin-password"}';

/** What is sent, and the status of what is answered: nothing after a refused message is taken for a request. */
const messages: [text: string, status: string][] = [
  [get("/v1"), "200"],
  [get("http://other.example:81/v1"), "200"],
  [get("http:///v1"), "400"],
  [get("http://a b/v1"), "400"],
  [get("http://u@a/v1"), "400"],
  [get("/v1", "Host: a"), "400"],
  [get("/v1").replace("Host: a\r\n", ""), "400"],
  [get("/v1").replace("Host: a", "Host: a/b"), "400"],
  [get("/v1").replace("1.1", "1.0").replace("Host: a\r\n", ""), "200"],
  [get("/v1").replace("1.1", "1.2"), "400"],
  [get("/v1", "Authorization: Bearer a", "Authorization: Bearer b"), "400"],
  [post("Content-Length: 2", "Content-Type: text/plain") + "{}", "400"],
  [post("Content-Length: 2", "Content-Length: 2") + "{}", "400"],
  [
    post("Content-Length: 2", "Idempotency-Key: a", "Idempotency-Key: b") +
    "{}",
    "400",
  ],
  [post("Transfer-Encoding: gzip, chunked") + "0\r\n\r\n", "501"],
  [
    post("Transfer-Encoding: chunked", "Content-Length: 3") + "0\r\n\r\n",
    "400",
  ],
  [get("/v1", "Expect: something"), "417"],
  [get("/v1", ...Array.from({ length: 70 }, (_, at) => `X-${at}: 1`)), "431"],
  [get("/v1", `X: ${"a".repeat(17_000)}`), "431"],
  ["nonsense\r\n\r\n", "400"],
  [get("/v1").replace("GET", "BREW"), "501"],
  [get(`/v1?${"a".repeat(17_000)}`), "414"],
  [post(`Content-Length: ${entry.length}`) + entry, "201"],
  [
    post(`Content-Length: ${entry.length}`, "Expect: 100-continue") + entry,
    "100",
  ],
  [post("Content-Length: 9999", "Expect: 100-continue"), "413"],
];
for (const [text, status] of messages) {
  test(`${JSON.stringify(text.slice(0, 70))} is ${status}`, async () => {
    const { codes, all } = await exchange(text);
    assert.equal(codes[0], status, all);
    assert.match(all, /^X-Request-Id: [!-~]{1,64}\r$/mi);
    if (Number(status) < 400) return;
    assert.ok(all.includes(`"errorCode":${status}00,`));
    const { codes: two } = await exchange(text + get("/v1"));
    if (codes[0] !== "417") assert.deepEqual(two, [status]);
  });
}

test("Sign-ins at once are all served, also after invalid ones", async () => {
  for (let count = 0; count < 10; count++) {
    const body = { username: "admin", password: "x", expires_in: count };
    await send(origin, "/v1/authorizations", { body });
  }
  const answers = await Promise.all(
    Array.from({ length: 60 }, () => signIn(origin)),
  );
  assert.ok(answers.every(({ status }) => status === 201));
});

test("Requests that are sent ahead are answered in order", async () => {
  const ahead = (length: number, x = "") =>
    exchange(
      get(`/v1/zoos/1?x=${x}`).repeat(length) + get("/v1") +
        (x ? "" : "no request\r\n\r\n"),
    );
  const { codes } = await ahead(200);
  assert.deepEqual(codes, [...Array(200).fill("400"), "200", "400"]);
  // More than a small heap may hold at once.
  assert.equal((await ahead(2000, "x".repeat(1000))).codes.length, 2001);
});

test("A GET right behind a POST sees what that makes", async () => {
  const { Authorization } = await authorize(origin);
  const body = '{"name":"behind","city":"b","country":"NL"}';
  const { all } = await exchange(
    post(`Authorization: ${Authorization}`, `Content-Length: ${body.length}`)
      .replace("authorizations", "zoos") + body + get("/v1/zoos?name=behind"),
  );
  assert.match(all, /X-Total-Count: 1/i);
});

test("256 connections of one address get nothing but their success", async () => {
  const lists = [
    "/v1/zoos",
    "/v1/animals?name:contains=a&sortby=name",
    "/health",
  ];
  const answers = await Promise.all(
    Array.from(
      { length: 256 },
      (_, at) => exchange(get(lists[at % 3] ?? "", "Connection: close")),
    ),
  );
  assert.ok(answers.every(({ codes }) => codes.join() === "200"));
});

test("Beyond 1,000 connections the newest of the busiest address ends", async () => {
  const { origin } = await serve({ FEATURES: "open-network" });
  const { port } = new URL(origin);
  const open = async (localAddress: string) => {
    const socket = connect({
      port: Number(port),
      host: hostname,
      localAddress,
    });
    await once(socket.resume(), "connect");
    return socket;
  };
  const many = [];
  while (many.length < 1000) many.push(await open("127.0.0.1"));
  const ends = many.map((socket) => once(socket, "close"));
  const other = await open("127.0.0.2");
  other.write(get("/health"));
  await once(other, "data");
  await Promise.race(ends);
  assert.equal(many.findIndex(({ closed }) => closed), 999);
  for (const socket of [other, ...many]) socket.destroy();
});

test("Guesses of a password are limited for a name", async () => {
  const statuses: number[] = [];
  for (let count = 0; count < 12; count++) {
    const username = ["somebody", " SomeBody"][count % 2];
    const body = { username, password: `wrong-password-${count}` };
    const { status } = await send(origin, "/v1/authorizations", {
      body,
    });
    statuses.push(status);
  }
  assert.deepEqual(statuses, [...Array(10).fill(401), 429, 429]);
});

test("The log has refusals and changes of users, without secrets", async () => {
  const body = { username: "viewer", password: "viewer-password" };
  const sent = { admin: "/v1/users", viewer: "/v1/zoos?x=viewer-password" };
  for (const [who, path] of Object.entries(sent)) {
    const headers = await authorize(origin, who);
    await send(origin, path, { headers, body });
  }
  // The first two are of the guesses.
  const lines =
    /"status":401}[^]*"status":429}[^]*"created a user".*"username":"viewer"}[^]*"path":"\/v1\/zoos\?x","status":403}/;
  while (!lines.test(server.output)) await once(server.child.stdout, "data");
  assert.doesNotMatch(server.output, /-password/);
});
