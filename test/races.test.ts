/** What happens while a request is still on its way: bodies arrive slowly, passwords are hashed slowly. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { after, before, describe, test } from "node:test";
import { holdHashes, type Running, startApplication } from "./application.ts";
import { adminPassword } from "./harness.ts";

/** A request whose body stops after its first byte, until `finish` sends the rest and returns the response. */
async function slowly(
  app: Running,
  head: string,
  token: string,
  body: unknown,
): Promise<{ finish: () => Promise<string> }> {
  const text = JSON.stringify(body);
  const socket: Socket = connect(app.port, "127.0.0.1");
  let received = "";
  socket.setEncoding("utf8").on("data", (part) => received += part);
  const closed = once(socket, "close");
  socket.write(
    `${head} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n` +
      `Authorization: Bearer ${token}\r\nExpect: 100-continue\r\n` +
      "Content-Type: application/json\r\n" +
      `Content-Length: ${Buffer.byteLength(text)}\r\n\r\n`,
  );
  // The server asks for the body once it has checked the header.
  while (!received.includes("100 Continue")) await once(socket, "data");
  socket.write(text.slice(0, 1));
  return {
    async finish() {
      socket.write(text.slice(1));
      await closed;
      return received;
    },
  };
}

describe("a caller who has lost the right", () => {
  let app: Running;
  before(async () => {
    app = await startApplication();
  });
  after(() => app.stop());

  async function makeUser(username: string, role: string): Promise<string> {
    const { token } = app;
    const json = { username, role, password: adminPassword };
    const { body } = await app.request("POST", "/v1/users", { token, json });
    return `/v1/users/${body.id}`;
  }

  test("cannot finish a request that began while it was allowed", async () => {
    const url = await makeUser("eve", "admin");
    const eve = await app.signIn("eve");
    const json = { username: "mallory", role: "admin", password: "0123456789" };
    const request = await slowly(app, "POST /v1/users", eve, json);
    await app.request("DELETE", url, { token: app.token });
    assert.match(await request.finish(), /^HTTP\/1\.1 401 .*40104/ms);
    const found = await app.request("GET", "/v1/users?username=mallory", {
      token: app.token,
    });
    assert.equal(found.text, "[]");
  });

  test("cannot restore a password with a token that has ended", async () => {
    await makeUser("ada", "viewer");
    const stolen = await app.signIn("ada");
    const json = { password: "of the attacker" };
    const request = await slowly(app, "PATCH /v1/user", stolen, json);
    const changed = await app.request("PATCH", "/v1/user", {
      token: await app.signIn("ada"),
      json: { password: "of the owner" },
    });
    assert.equal(changed.status, 201);
    assert.match(await request.finish(), /HTTP\/1\.1 401 /);
    await assert.rejects(app.signIn("ada", "of the attacker"), /40101/);
    assert.ok(await app.signIn("ada", "of the owner"));
  });

  test("cannot write with the role it had", async () => {
    const url = await makeUser("bob", "keeper");
    const bob = await app.signIn("bob");
    const json = { name: "Artis", city: "Amsterdam", country: "NL" };
    const request = await slowly(app, "POST /v1/zoos", bob, json);
    const demoted = await app.request("PATCH", url, {
      token: app.token,
      json: { role: "viewer" },
    });
    assert.equal(demoted.status, 201);
    assert.match(await request.finish(), /HTTP\/1\.1 403 /);
    const zoos = await app.request("GET", "/v1/zoos");
    assert.equal(zoos.text, "[]");
  });

  test("is stopped also while a password is being hashed", async (t) => {
    const url = await makeUser("carol", "admin");
    const carol = await app.signIn("carol");
    const hashes = holdHashes(t);
    const posts = Array.from(
      { length: 6 },
      (_, number) =>
        app.request("POST", "/v1/users", {
          token: carol,
          json: {
            username: `late${number}`,
            role: "admin",
            password: adminPassword,
          },
        }),
    );
    await hashes.begun(2);
    hashes.computeOne();
    assert.equal((await Promise.race(posts)).status, 201);
    await hashes.begun(2);
    await app.request("DELETE", url, { token: app.token });
    hashes.computeAll();
    const statuses = (await Promise.all(posts)).map(({ status }) => status);
    assert.deepEqual(statuses.sort(), [201, 401, 401, 401, 401, 401]);
    const late = await app.request(
      "GET",
      "/v1/users?username:starts=late",
      { token: app.token },
    );
    assert.equal(late.headers.get("x-total-count"), "1");
  });

  test("cannot sign in with a password that is changed while it is checked", async (t) => {
    const url = await makeUser("dora", "viewer");
    const hashes = holdHashes(t);
    const changing = app.request("PATCH", url, {
      token: app.token,
      json: { password: "another password" },
    });
    await hashes.begun(1);
    const signingIn = app.signIn("dora");
    await hashes.begun(2);
    hashes.computeOne();
    assert.equal((await changing).status, 201);
    hashes.computeAll();
    await assert.rejects(signingIn, /40101/);
  });

  test("has no authorization that survives a new password", async (t) => {
    const url = await makeUser("dana", "viewer");
    const hashes = holdHashes(t);
    const signingIn = app.signIn("dana");
    await hashes.begun(1);
    const changing = app.request("PATCH", url, {
      token: app.token,
      json: { password: "another password" },
    });
    await hashes.begun(2);
    hashes.computeOne();
    const token = await signingIn;
    hashes.computeAll();
    assert.equal((await changing).status, 201);
    const { status } = await app.request("GET", "/v1/user", { token });
    assert.equal(status, 401);
  });

  test("creates one of two users with the same name", async () => {
    const json = { username: "twin", password: adminPassword };
    const { token } = app;
    const answers = await Promise.all(
      [1, 2, 3].map(() => app.request("POST", "/v1/users", { token, json })),
    );
    const statuses = answers.map(({ status }) => status).sort();
    assert.deepEqual(statuses, [201, 422, 422]);
  });
});

describe("sign-ins while passwords are hashed", () => {
  let app: Running;
  before(async () => {
    app = await startApplication();
  });
  after(() => app.stop());

  test("wait for their turn, sixty at once", async (t) => {
    const hashes = holdHashes(t);
    const signIns = Array.from({ length: 60 }, () => app.signIn("admin"));
    await hashes.begun(2);
    hashes.computeAll();
    assert.equal(new Set(await Promise.all(signIns)).size, 60);
  });

  test("are abandoned when their connections close", async (t) => {
    const table = app.store.table("authorizations");
    const { lastId } = table;
    const hashes = holdHashes(t);
    const others = Array.from({ length: 2 }, () => app.signIn("admin"));
    await hashes.begun(2);
    const body = JSON.stringify({ username: "admin", password: adminPassword });
    const socket = connect(app.port, "127.0.0.1");
    socket.write(
      "POST /v1/authorizations HTTP/1.1\r\nHost: localhost\r\n" +
        `Content-Type: application/json\r\nContent-Length: ${body.length}\r\n\r\n${body}` +
        "GET /v1/zoos HTTP/1.1\r\nHost: localhost\r\n\r\n",
    );
    await once(socket, "connect");
    // By the response to this, the server has read what was sent before.
    for (let round = 0; round < 3; round++) {
      await app.request("GET", "/v1/zoos");
    }
    socket.destroy();
    for (let round = 0; round < 3; round++) {
      await app.request("GET", "/v1/zoos");
    }
    hashes.computeAll();
    await Promise.all(others);
    await app.signIn("admin"); // comes after it, had it stayed
    assert.equal(table.lastId, lastId + 3);
  });
});
