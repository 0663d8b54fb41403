/**
 * The order in which a request is checked: of two errors the earlier one is
 * reported, and nothing is changed. And requests that are hardly HTTP.
 */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect } from "node:net";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  assertError,
  exchange,
  type Server,
  signInNew,
  start,
} from "../harness.ts";
import { seed } from "../seed.ts";

const tokens = new Map([["stranger", "not.a.token"]]);
let server: Server;
/** All records, which no request here changes. */
let unchanged: string;

before(async () => {
  server = await start({ seed });
  const token = await server.signIn();
  tokens.set("admin", token);
  for (const role of ["viewer", "keeper"]) {
    const user = { token, username: role, role };
    tokens.set(role, await signInNew(server, user));
  }
  unchanged = await state();
});

after(() => server.stop());

/** All records; reading them shows that the server is alive. */
async function state(): Promise<string> {
  const paths = ["/v1/zoos", "/v1/animals", "/v1/employees", "/v1/users"];
  const answers = await Promise.all(
    paths.map((path) =>
      server.request("GET", path, { token: tokens.get("admin") })
    ),
  );
  for (const { status, text } of answers) assert.equal(status, 200, text);
  return answers.map(({ text }) => text).join();
}

/** The parts of a request besides its first line. */
interface Sent {
  /** The caller: nobody by default; a stranger has an invalid token. */
  readonly as?: string;
  readonly accept?: string;
  /** The media type of the body, JSON by default. */
  readonly type?: string;
  readonly coding?: string;
  readonly body?: string;
}

/** Sends a request, `METHOD /path`, and asserts that it changed nothing. */
async function send(line: string, sent: Sent): Promise<Answer> {
  const [method = "", path = ""] = line.split(" ");
  const headers: Record<string, string> = {};
  if (sent.accept !== undefined) headers["accept"] = sent.accept;
  if (sent.coding !== undefined) headers["content-encoding"] = sent.coding;
  if (sent.body !== undefined) {
    headers["content-type"] = sent.type ?? "application/json";
  }
  const answer = await server.request(method, path, {
    token: tokens.get(sent.as ?? "nobody"),
    headers,
    ...(sent.body === undefined ? {} : { raw: sent.body }),
  });
  assert.equal(await state(), unchanged);
  return answer;
}

const zoo = '{"name":"Zoo","city":"Ghent","country":"BE"}';
const large = "[".repeat(2 ** 20 + 1);

// Each error, caused by the simplest request.
const stranger: Sent = { as: "stranger" };
const viewer: Sent = { as: "viewer" };
const keeper: Sent = { as: "keeper" };
const admin: Sent = { as: "admin" };
const png: Sent = { accept: "image/png" };
const plain: Sent = { as: "keeper", type: "text/plain", body: zoo };
const gzip: Sent = { as: "keeper", coding: "gzip", body: zoo };
const tooLarge: Sent = { as: "keeper", body: large };
const noJson: Sent = { as: "keeper", body: "{" };
const noObject: Sent = { as: "keeper", body: "[]" };
const empty: Sent = { as: "keeper", body: "{}" };
const badName: Sent = { as: "keeper", body: '{"name":5}' };
const twice: Sent = { as: "keeper", body: '{"name":5,"name":5}' };
const demoted: Sent = { as: "admin", body: '{"role":"viewer"}' };
const badPassword = '{"role":"viewer","password":"short"}';
const wrongPassword: Sent = { body: '{"username":"admin","password":"x"}' };
const noPassword: Sent = { body: '{"username":"admin","password":5}' };

/** One request per row: what is wrong with it, its first line, the other parts, the code. */
type Row = readonly [string, string, Sent, number];

const alone: readonly Row[] = [
  ["bad percent-encoding", "GET /v1/zoos/%zz", {}, 40000],
  ["no address", "GET /v1/nope", {}, 40400],
  ["a method that is not here", "PUT /v1/zoos", {}, 40500],
  ["a method that is nowhere", "PROPFIND /v1/zoos", {}, 50100],
  ["no credentials", "GET /v1/users", {}, 40100],
  ["bad credentials", "GET /v1/users", stranger, 40102],
  ["a bad token, needed or not", "GET /v1/zoos", stranger, 40102],
  ["a wrong password", "POST /v1/authorizations", wrongPassword, 40101],
  ["a role too low", "GET /v1/users", viewer, 40300],
  ["no format to offer", "GET /v1/zoos", png, 40600],
  ["an unknown parameter", "GET /v1/zoos?nope=1", {}, 40003],
  ["a repeated parameter", "GET /v1/zoos?limit=1&limit=1", {}, 40003],
  ["a parameter's value", "GET /v1/zoos?limit=x", {}, 40004],
  ["a media type", "POST /v1/zoos", plain, 41500],
  ["a coding", "POST /v1/zoos", gzip, 41500],
  ["a body too large", "POST /v1/zoos", tooLarge, 41300],
  ["a missing body", "POST /v1/zoos", { ...keeper, body: "" }, 40001],
  ["a body that is no JSON", "POST /v1/zoos", noJson, 40001],
  ["a body that is no object", "POST /v1/zoos", noObject, 40002],
  ["no such record", "GET /v1/zoos/999", {}, 40401],
  ["a deleted record", "GET /v1/zoos/3", {}, 41000],
  ["a wrong record", "POST /v1/zoos", empty, 42200],
  ["related records", "DELETE /v1/zoos/1", admin, 40900],
  ["the last admin", "DELETE /v1/users/1", admin, 40901],
  ["the last admin's role", "PATCH /v1/users/1", demoted, 40901],
];

const pairs: readonly Row[] = [
  ["HTTP, address", "GET /v1/nope/%zz", {}, 40000],
  ["HTTP, version", "GET /v2/%", {}, 40000],
  ["HTTP, method", "DELETE /v1/users/%4", {}, 40000],
  ["HTTP, credentials", "GET /v1/users/%zz", stranger, 40000],

  ["address, method", "DELETE /v1/nope", {}, 40400],
  ["id, method", "POST /v1/zoos/01", {}, 40400],
  ["address, unknown method", "PROPFIND /v1/nope", {}, 40400],
  ["address, credentials", "GET /v1/users/abc", {}, 40400],
  ["address, role", "DELETE /v1/zoos/0", viewer, 40400],
  ["address, Accept", "GET /v1/nope", png, 40400],
  ["address, body", "PUT /v1/zoos/x", noJson, 40400],

  ["method, credentials", "PUT /v1/users", {}, 40500],
  ["method, bad credentials", "PUT /v1/zoos", stranger, 40500],
  ["method, role", "PUT /v1/users", viewer, 40500],
  ["unknown method, credentials", "PROPFIND /v1/users", {}, 50100],
  ["method, parameters", "PUT /v1/zoos?nope=1", {}, 40500],
  ["method, media type", "PUT /v1/zoos", plain, 40500],
  ["method, record", "POST /v1/zoos/999", { ...keeper, body: zoo }, 40500],

  ["credentials, role", "POST /v1/users", { ...empty, ...stranger }, 40102],
  ["credentials, Accept", "GET /v1/users", png, 40100],
  ["bad credentials, Accept", "GET /v1/zoos", { ...stranger, ...png }, 40102],
  ["credentials, parameters", "GET /v1/users?nope=1", {}, 40100],
  ["credentials, body", "POST /v1/zoos", { body: "{" }, 40100],
  ["credentials, record", "GET /v1/employees/999", {}, 40100],
  ["credentials, deleted record", "GET /v1/zoos/3/employees", {}, 40100],

  ["role, Accept", "GET /v1/users", { ...keeper, ...png }, 40300],
  ["role, parameters", "GET /v1/users?nope=1", viewer, 40300],
  ["role, media type", "POST /v1/zoos", { ...plain, ...viewer }, 40300],
  ["role, body", "POST /v1/zoos", { ...noJson, ...viewer }, 40300],
  ["role, validation", "POST /v1/zoos", { ...empty, ...viewer }, 40300],
  ["role, record", "DELETE /v1/zoos/999", keeper, 40300],
  ["role, conflict", "DELETE /v1/zoos/1", keeper, 40300],

  ["Accept, parameters", "GET /v1/zoos?nope=1", png, 40600],
  ["Accept, a parameter's value", "GET /v1/zoos?limit=x", png, 40600],
  ["Accept, record", "GET /v1/zoos/999", png, 40600],
  ["Accept, deleted record", "GET /v1/zoos/3", png, 40600],

  ["parameters, media type", "POST /v1/zoos?nope=1", plain, 40003],
  ["parameters, body", "POST /v1/zoos?nope=1", noJson, 40003],
  ["parameters, record", "GET /v1/zoos/999?nope=1", {}, 40003],
  ["parameters, deleted record", "GET /v1/zoos/3?nope=1", {}, 40003],
  ["parameters, deleted zoo", "GET /v1/zoos/3/animals?limit=x", {}, 40004],
  ["value, record", "DELETE /v1/zoos/999?cascade=yes", admin, 40004],
  ["parameters, validation", "PATCH /v1/zoos/1?nope=1", badName, 40003],
  ["parameters, conflict", "DELETE /v1/zoos/1?nope=1", admin, 40003],

  ["media type, size", "POST /v1/zoos", { ...plain, body: large }, 41500],
  ["media type, JSON", "POST /v1/zoos", { ...plain, body: "{" }, 41500],
  ["coding, JSON", "POST /v1/zoos", { ...gzip, body: "{" }, 41500],
  ["media type, record", "PUT /v1/zoos/999", plain, 41500],
  ["media type, validation", "PUT /v1/zoos/1", { ...plain, body: "{}" }, 41500],

  ["size, JSON", "PUT /v1/zoos/1", tooLarge, 41300],
  ["size, record", "PUT /v1/zoos/999", tooLarge, 41300],
  ["JSON, record", "PUT /v1/zoos/999", noJson, 40001],
  ["JSON, no zoo", "POST /v1/zoos/999/animals", noJson, 40001],
  ["an object, record", "PATCH /v1/zoos/3", noObject, 40002],
  ["names, validation", "PATCH /v1/zoos/1", twice, 40001],

  ["record, validation", "PUT /v1/zoos/999", empty, 40401],
  ["deleted record, validation", "PATCH /v1/zoos/3", badName, 40401],
  ["zoo, validation", "POST /v1/zoos/999/animals", empty, 40401],
  [
    "record through its zoo, validation",
    "PUT /v1/zoos/2/animals/1",
    empty,
    40401,
  ],

  [
    "validation, conflict",
    "PATCH /v1/users/1",
    { ...admin, body: badPassword },
    42200,
  ],
  [
    "media type, sign-in",
    "POST /v1/authorizations",
    { ...plain, as: "nobody" },
    41500,
  ],
  ["validation, sign-in", "POST /v1/authorizations", noPassword, 42200],
];

describe("an error by itself", () => {
  for (const [what, line, sent, code] of alone) {
    test(`${what} is ${code}: ${line}`, async () => {
      assertError(await send(line, sent), code);
    });
  }
});

describe("of two errors the earlier one is reported", () => {
  for (const [what, line, sent, code] of pairs) {
    test(`${what.replace(", ", " before ")}: ${line}`, async () => {
      assertError(await send(line, sent), code);
    });
  }

  test("and a trailing slash before both", async () => {
    for (const method of ["GET", "DELETE", "POST"]) {
      const line = `${method} /v1/users/?nope=1`;
      const answer = await send(line, { ...stranger, ...png });
      assert.equal(answer.status, 308, answer.text);
      assert.equal(answer.headers.get("location"), "/v1/users?nope=1");
    }
  });
});

describe("Accept", () => {
  for (
    const [accept, status] of [
      ["application/json", 200],
      ["APPLICATION/JSON", 200],
      ["application/*", 200],
      ["*/*", 200],
      ["image/png, */*;q=0.1", 200],
      ["image/png;q=1, application/json;q=0.001", 200],
      ["image/png, application/*; q=0.5", 200],
      ["image/png", 406],
      ["image/*", 406],
      ["application/json;q=0", 406],
      ["*/*;q=0", 406],
      ["application/*;q=0.0, image/png", 406],
    ] as const
  ) {
    test(`${accept} gets ${status}`, async () => {
      for (const path of ["/v1", "/v1/zoos", "/v1/zoos/1"]) {
        const answer = await send(`GET ${path}`, { accept });
        if (status === 406) assertError(answer, 40600);
        else {
          assert.equal(answer.status, 200, answer.text);
          const type = answer.headers.get("content-type");
          assert.equal(type, "application/json; charset=utf-8");
        }
        const head = await send(`HEAD ${path}`, { accept });
        assert.equal(head.status, status);
      }
    });
  }
});

describe("a parameter of a record's URL, or of a write", () => {
  for (
    const [line, code] of [
      ["GET /v1/zoos/1?limit=1", 40003],
      ["GET /v1/zoos/1?cascade=true", 40003],
      ["GET /v1/zoos/1?fields=name&fields=foo", 40004],
      ["GET /v1/zoos/1/animals/1?sortby=id", 40003],
      ["GET /v1/users/1?limit=1", 40003],
      ["POST /v1/zoos?fields=name", 40003],
      ["PUT /v1/zoos/1?nope=1", 40003],
      ["PATCH /v1/zoos/1?fields=name", 40003],
      ["DELETE /v1/zoos/2?nope=1", 40003],
      ["DELETE /v1/zoos/2?cascade=true&cascade=true", 40003],
      ["DELETE /v1/zoos/2?cascade=yes", 40004],
      ["DELETE /v1/animals/1?cascade=true", 40003],
    ] as const
  ) {
    test(`${line} is refused by its name`, async () => {
      const body = line.startsWith("P") ? { body: zoo } : {};
      const answer = await send(line, { ...admin, ...body });
      assertError(answer, code);
      const [, name = ""] = /\?(\w+)/.exec(line) ?? [];
      assert.ok(answer.body.error.includes(name), answer.body.error);
    });
  }

  test("may be fields if a record is read", async () => {
    const { status, body } = await send("GET /v1/zoos/1?fields=name", {});
    assert.equal(status, 200);
    assert.equal(body.id, 1);
    assert.equal(body.name, "Tierpark");
    assert.equal(body.city, undefined);
  });
});

describe("on the wire", () => {
  /** Sends bytes until the server closes the connection, and asserts that the server stays alive. */
  async function wire(bytes: string) {
    const received = await exchange(server.port, bytes);
    assert.equal(await state(), unchanged);
    const end = received.indexOf("\r\n\r\n");
    const [, status = ""] = /^HTTP\/1\.1 (\d{3}) /.exec(received) ?? [];
    const head = received.slice(0, end);
    const [, type = ""] = /^content-type: (.*)$/im.exec(head) ?? [];
    return { status: Number(status), type, content: received.slice(end + 4) };
  }

  /** Asserts an error as {@linkcode assertError} does. */
  function assertRefused(
    { status, type, content }: Awaited<ReturnType<typeof wire>>,
    code: number,
  ): void {
    const headers = new Headers({ "content-type": type });
    const body = JSON.parse(content);
    assertError({ status, headers, text: content, body }, code);
  }

  const ending = "Host: a.example\r\nConnection: close\r\n\r\n";

  for (
    const [what, bytes] of [
      ["words", "hello there\r\n\r\n"],
      ["a TLS greeting", "\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"],
      ["another protocol", "GET /v1/zoos SPDY/3\r\n\r\n"],
      [
        "a field without a colon",
        `GET /v1/zoos HTTP/1.1\r\nnonsense\r\n${ending}`,
      ],
      [
        "a space before the colon",
        `GET /v1/zoos HTTP/1.1\r\nAccept : */*\r\n${ending}`,
      ],
      [
        "a length that is none",
        `POST /v1/zoos HTTP/1.1\r\nContent-Length: x\r\n${ending}`,
      ],
    ] as const
  ) {
    test(`${what} instead of HTTP get a 400`, async () => {
      assertRefused(await wire(bytes), 40000);
    });
  }

  test("headers too large get a 431, whatever the URL", async () => {
    for (const path of ["/v1/zoos", "/v1/nope"]) {
      const padding = `X-Padding: ${"x".repeat(20_000)}`;
      const bytes = `GET ${path} HTTP/1.1\r\n${padding}\r\n${ending}`;
      assertRefused(await wire(bytes), 43100);
    }
  });

  test("a target may be an absolute URL", async () => {
    const answer = await wire(
      `GET http://other.example:81/v1/zoos/1?fields=id HTTP/1.1\r\n${ending}`,
    );
    assert.equal(answer.status, 200, answer.content);
    assert.equal(JSON.parse(answer.content).id, 1);
  });

  test("a request without Accept gets JSON", async () => {
    const answer = await wire(`GET /v1/zoos/1 HTTP/1.1\r\n${ending}`);
    assert.equal(answer.status, 200);
    assert.equal(answer.type, "application/json; charset=utf-8");
  });

  for (
    const target of [
      "//",
      "///",
      "//v1/zoos",
      "/v1//zoos",
      "http://[",
      "http://",
      "http://[::1",
      "http://a.example:99999/v1/nope",
      "/%",
      "?",
      "*",
    ]
  ) {
    test(`the target ${target} does no harm`, async () => {
      const answer = await wire(`GET ${target} HTTP/1.1\r\n${ending}`);
      assert.ok(answer.status >= 200 && answer.status < 500, answer.content);
      if (answer.status < 400) return;
      const body = JSON.parse(answer.content);
      assert.equal(Math.floor(body.errorCode / 100), answer.status);
      assert.equal(body.errorMsg, body.error);
    });
  }

  test("a client that disconnects in the middle does no harm", async () => {
    const head = `POST /v1/zoos HTTP/1.1\r\nHost: a.example\r\n`;
    const fields = `Authorization: Bearer ${tokens.get("admin")}\r\n` +
      "Content-Type: application/json\r\nContent-Length: 100\r\n\r\n";
    const socket = connect(server.port, "127.0.0.1");
    await once(socket, "connect");
    await new Promise((done) => socket.write(`${head}${fields}{"name":`, done));
    socket.destroy();
    await once(socket, "close");
    assert.equal(await state(), unchanged);
  });
});
