/** Exports: a collection as NDJSON, streamed as fast as the client reads it. */

import { strict as assert } from "node:assert";
import { readFile } from "node:fs/promises";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { assertError, root, type Server, start } from "../../harness.ts";
import { type ServerHere, startHere } from "../../in-process.ts";
import {
  heldFiles,
  type Running,
  startApplication,
} from "../../application.ts";
import { fetchLines, fromLines, lines } from "../../lines.ts";

const json = "application/json";

describe("an export", () => {
  let server: ServerHere;
  let token: string;
  before(async () => {
    server = await startHere({
      args: ["--seed", join(root, "data/seed.json")],
    });
    token = await server.signIn();
  });
  after(() => server.stop());

  test("is all records of a collection, one line each, without URLs", async () => {
    const { status, headers, text } = await fetchLines(server, "/v1/animals");
    assert.equal(status, 200);
    assert.equal(headers.get("content-type"), lines);
    assert.equal(headers.get("x-total-count"), "250");
    assert.equal(headers.get("link"), null);
    assert.match(headers.get("vary") ?? "", /\bAccept\b/);
    assert.ok(text.endsWith("}\n"));
    const records = fromLines(text);
    assert.equal(records.length, 250);
    for (const at of [0, 249]) {
      const { url, body } = await server
        .request("GET", `/v1/animals/${records[at]?.id}`)
        .then(({ body }) => ({ url: body.url, body }));
      const { url: _, zoo_url, link, ...record } = body;
      assert.ok(url && zoo_url && link);
      assert.deepEqual(records[at], record);
      assert.deepEqual(Object.keys(records[at]), Object.keys(record));
    }
  });

  test("accepts the parameters of the collection, including its limits", async () => {
    await followsParameters("sex=female&sortby=weight_kg&order=desc");
    await followsParameters("sortby=species,weight_kg&order=asc,desc");
  });

  async function followsParameters(query: string): Promise<void> {
    const all = fromLines(
      (await fetchLines(server, `/v1/animals?${query}`)).text,
    );
    assert.ok(all.length > 30, String(all.length));
    const pages: number[] = [];
    for (let offset = 0; offset < all.length; offset += 100) {
      const page = await server.request(
        "GET",
        `/v1/animals?${query}&limit=100&offset=${offset}`,
      );
      pages.push(...page.body.map(({ id }: { id: number }) => id));
    }
    assert.deepEqual(all.map(({ id }) => id), pages);
    const some = await fetchLines(
      server,
      `/v1/animals?${query}&limit=2&offset=3&fields=name,url`,
    );
    assert.deepEqual(
      fromLines(some.text),
      all.slice(3, 5).map(({ id, name }) => ({
        id,
        name,
        url: `/v1/animals/${id}`,
      })),
    );
    assert.equal(some.headers.get("x-total-count"), String(all.length));
    assert.match(some.headers.get("link") ?? "", /offset=5.*rel="next"/);
    const rest = await fetchLines(server, `/v1/animals?${query}&offset=3`);
    assert.deepEqual(fromLines(rest.text), all.slice(3));
    const asked = await server.request("QUERY", "/v1/animals", {
      raw: query,
      headers: {
        accept: lines,
        "content-type": "application/x-www-form-urlencoded",
      },
    });
    assert.deepEqual(fromLines(asked.text), all);
    const own = await fetchLines(server, "/v1/zoos/3/animals?name:contains=a");
    assert.ok(fromLines(own.text).every(({ zoo_id }) => zoo_id === 3));
    const none = await fetchLines(server, "/v1/animals?name=Nobody");
    assert.deepEqual([none.status, none.text], [200, ""]);
  }

  test("is for clients that prefer it, if the URL has it", async () => {
    const cases = [
      [lines, lines],
      [`${lines};q=0.5, ${json};q=0.4`, lines],
      [`${lines};q=0.5, ${json}`, json],
      ["application/*", json],
      ["*/*", json],
      [`${lines};q=0, */*`, json],
      [`image/png, ${lines};q=0.1`, lines],
    ];
    for (const [accept = "", type = ""] of cases) {
      const { status, headers } = await server.request("GET", "/v1/zoos", {
        headers: { accept },
      });
      assert.equal(status, 200, accept);
      assert.ok(headers.get("content-type")?.startsWith(type), accept);
    }
    for (const path of ["/v1/zoos/1", "/v1", "/health"]) {
      const { status } = await fetchLines(server, path);
      assert.equal(status, 406, path);
    }
    const wrong = await fetchLines(server, "/v1/zoos?colour=red");
    assertError(wrong, 40003);
    assert.equal((await fetchLines(server, "/v1/employees")).status, 401);
    const users = await fetchLines(server, "/v1/users", token);
    assert.deepEqual(
      fromLines(users.text).map(({ username, password }) => ({
        username,
        password,
      })),
      [{ username: "admin", password: undefined }],
    );
  });

  test("has a validator of its own, and supports HEAD", async () => {
    const first = await fetchLines(server, "/v1/zoos");
    const etag = first.headers.get("etag") ?? "";
    const same = await server.request("GET", "/v1/zoos", {
      headers: { accept: lines, "if-none-match": etag },
    });
    assert.equal(same.status, 304);
    const other = await server.request("GET", "/v1/zoos", {
      headers: { "if-none-match": etag },
    });
    assert.equal(other.status, 200);
    const head = await server.request("HEAD", "/v1/zoos", {
      headers: { accept: lines },
    });
    assert.equal(head.status, 200);
    assert.equal(head.text, "");
    for (const name of ["content-type", "x-total-count", "etag"]) {
      assert.equal(head.headers.get(name), first.headers.get(name));
    }
  });
});

describe("an export of many records", () => {
  const count = 50_000;
  let server: Server;
  let token: string;
  before(async () => {
    const animal = {
      zoo_id: 1,
      animal_type_id: 3,
      name: "Before",
      species: "x".repeat(100),
    };
    server = await start({
      seed: {
        zoos: [{ name: "Artis", city: "Amsterdam", country: "NL" }],
        animals: Array(count).fill(animal),
      },
    });
    token = await server.signIn();
  });
  after(() => server.stop());

  /** Requests an export, and reads only the beginning. */
  async function ask(): Promise<Socket> {
    const socket = connect(server.port, "127.0.0.1");
    socket.write(
      `GET /v1/animals HTTP/1.1\r\nHost: a\r\nAccept: ${lines}\r\n` +
        "Connection: close\r\n\r\n",
    );
    await new Promise((resolve, reject) => {
      socket.once("readable", resolve);
      socket.once("error", reject);
    });
    return socket;
  }

  test("is a consistent snapshot, whatever is written while it runs", async () => {
    const socket = await ask();
    for (const id of [1, count - 1]) {
      const changed = await server.request("PATCH", `/v1/animals/${id}`, {
        token,
        json: { name: "After" },
      });
      assert.equal(changed.status, 201);
    }
    const gone = await server.request("DELETE", `/v1/animals/${count}`, {
      token,
    });
    assert.equal(gone.status, 204);
    let text = "";
    for await (const part of socket.setEncoding("utf8")) text += part;
    assert.match(text, new RegExp(`^X-Total-Count: ${count}\r$`, "m"));
    assert.match(text, /\r\n0\r\n\r\n$/, "it has its end");
    assert.equal(text.match(/"name":"Before"/g)?.length, count);
    assert.doesNotMatch(text, /After/);
  });

  test("waits for clients that do not read, and takes little memory for them", {
    skip: process.platform !== "linux",
  }, async () => {
    const before = await memory(server);
    const sockets = await Promise.all(Array.from({ length: 16 }, ask));
    for (let each = 0; each < 50; each++) {
      const { status } = await server.request("GET", "/v1/zoos");
      assert.equal(status, 200);
      await wait(2);
    }
    const grown = await memory(server) - before;
    // All of them would be some 200 MB.
    assert.ok(grown < 100 * 2 ** 20, `${grown} bytes`);
    const waiting = fetchLines(server, "/v1/animals");
    for (const socket of sockets) socket.destroy();
    assert.equal((await waiting).status, 200);
  });
});

describe("exports that wait for a write to be durable", () => {
  const { files, hold } = heldFiles();
  let app: Running;
  before(async () => {
    app = await startApplication({ files });
  });
  after(() => app.stop());

  test("wait for their turn, forty at once, over all collections", async () => {
    const json = { name: "Artis", city: "Amsterdam", country: "NL" };
    const { token } = app;
    await app.request("POST", "/v1/zoos", { token, json });
    const headers = { accept: lines };
    const release = hold();
    try {
      const animal = { zoo_id: 1, animal_type_id: 1, name: "Nala" };
      const writes = [
        app.request("POST", "/v1/zoos", { token, json }),
        app.request("POST", "/v1/animals", { token, json: animal }),
      ];
      while (app.store.table("animals").size === 0) await wait(1);
      const asked = Array.from(
        { length: 40 },
        (_, each) =>
          app.request("GET", each % 2 ? "/v1/zoos" : "/v1/animals", {
            headers,
          }),
      );
      const head = app.request("HEAD", "/v1/zoos", { headers });
      release();
      for (const { status } of await Promise.all(asked)) {
        assert.equal(status, 200);
      }
      assert.equal((await head).status, 200, "HEAD needs no turn");
      await Promise.all(writes);
    } finally {
      release();
    }
  });

  test("end their turns when their clients disconnect", async () => {
    const release = hold();
    const json = { name: "Artis", city: "Amsterdam", country: "NL" };
    const { size } = app.store.table("zoos");
    const write = app.request("POST", "/v1/zoos", { token: app.token, json });
    try {
      while (app.store.table("zoos").size === size) await wait(1);
      const headers = { accept: lines };
      const ask =
        `GET /v1/zoos HTTP/1.1\r\nHost: a\r\nAccept: ${lines}\r\n\r\n`;
      const sockets = Array.from({ length: 17 }, () => {
        const socket = connect(app.port, "127.0.0.1");
        socket.write(ask);
        return socket;
      });
      for (const socket of sockets) await once(socket, "connect");
      for (let round = 0; round < 3; round++) {
        await app.request("GET", "/v1/animals");
      }
      for (const socket of sockets) socket.destroy();
      const asked = app.request("GET", "/v1/zoos", { headers });
      release();
      assert.equal((await asked).status, 200);
    } finally {
      release();
    }
    assert.equal((await write).status, 201);
  });
});

/** The memory that a server holds, in bytes. */
async function memory({ child }: Server): Promise<number> {
  const status = await readFile(`/proc/${child.pid}/status`, "utf8");
  return Number(/^VmRSS:\s+(\d+) kB$/m.exec(status)?.[1]) * 1024;
}
