/**
 * Too many failed sign-ins of one client, and what the log says about these and
 * about changes of users. The requests come from
 * several clients, as this machine is a trusted proxy.
 */

import { strict as assert } from "node:assert";
import { beforeEach, describe, test, type TestContext } from "node:test";
import { type FileSystem, type Logger, realFiles } from "../src/store/store.ts";
import { type Running, startApplication } from "./application.ts";
import { adminPassword, type Answer, assertError, lacks } from "./harness.ts";

let time = Date.parse("2026-05-05T12:00:00Z");
let lines: Record<string, unknown>[] = [];

const log: Logger = (level, message, fields) => {
  const more = typeof fields === "function" ? fields() : fields;
  lines.push({ level, message, ...more });
};

beforeEach(() => lines = []);

async function startWith(t: TestContext): Promise<Running> {
  const now = () => time;
  const app = await startApplication({ now, log, trustProxy: "127.0.0.0/8" });
  t.after(() => app.stop());
  return app;
}

function from(client: string): Record<string, string> {
  return { "x-forwarded-for": client };
}

function signIn(
  app: Running,
  password: string,
  { client = "192.0.2.1", username = "admin" } = {},
): Promise<Answer> {
  return app.request("POST", "/v1/authorizations", {
    headers: from(client),
    json: { username, password },
  });
}

/** Returns the lines at the level `info`, without their request ids. */
function reported(): Record<string, unknown>[] {
  return lines.filter(({ level }) => level === "info")
    .map(({ id, level: _, ...line }) => {
      assert.match(String(id), /^\S+$/);
      return line;
    });
}

describe("failed sign-ins", () => {
  const skip = lacks("open-network");

  test(
    "after ten in a minute even the right password is 429, but only from there",
    { skip },
    async (t) => {
      const app = await startWith(t);
      const answers = await Promise.all(
        Array.from({ length: 12 }, () => signIn(app, "wrong")),
      );
      const statuses = answers.map(({ status }) => status).sort();
      assert.deepEqual(statuses, [...Array(10).fill(401), 429, 429]);
      const refused = await signIn(app, adminPassword);
      assertError(refused, 42900);
      assert.equal(refused.headers.get("retry-after"), "60");
      assert.match(
        refused.body.error,
        /sign-ins have failed: try again in 60 s/,
      );
      const elsewhere = await signIn(app, adminPassword, {
        client: "192.0.2.2",
      });
      assert.equal(elsewhere.status, 201);
      time += 60_000;
      assert.equal((await signIn(app, adminPassword)).status, 201);
    },
  );

  test(
    "are logged with client and username, unless no user has it: it can be a password",
    { skip },
    async (t) => {
      const app = await startWith(t);
      await signIn(app, "wrong");
      await signIn(app, "wrong", { username: "my-secret-password" });
      for (let count = 0; count < 10; count++) await signIn(app, "wrong");
      const path = "/v1/authorizations";
      const line = { client: "192.0.2.1", by: undefined, byName: undefined };
      const failed = {
        message: "failed sign-in",
        ...line,
        method: "POST",
        path,
        status: 401,
      };
      const [first, second, ...others] = reported();
      assert.deepEqual(first, { ...failed, username: "admin" });
      assert.deepEqual(second, { ...failed, username: undefined });
      assert.equal(others.length, 10);
      assert.deepEqual(others.at(-1), {
        ...failed,
        message: "Too many sign-ins have failed: try again in 60 s.",
        status: 429,
      });
      assert.doesNotMatch(JSON.stringify(lines), /wrong|secret/);
    },
  );
});

describe("the log", () => {
  test("names who changed which user, and never a password", {
    skip: lacks("open-network"),
  }, async (t) => {
    const app = await startWith(t);
    const { token } = app;
    const headers = from("2001:db8::1");
    const json = {
      username: "kim",
      role: "keeper",
      password: "first of kim's",
    };
    const init = { token, headers };
    await app.request("POST", "/v1/users", { ...init, json });
    const kim = await app.signIn("kim", "first of kim's");
    await app.request("PATCH", "/v1/users/2", {
      ...init,
      json: { role: "viewer" },
    });
    await app.request("DELETE", "/v1/animals/1", { headers, token: kim });
    await app.request("PATCH", "/v1/user", {
      headers,
      token: kim,
      json: { password: "second of kim's" },
    });
    await app.request("PATCH", "/v1/users/2", { ...init, json: { role: "x" } });
    await app.request("DELETE", "/v1/users/2", init);
    const client = "2001:db8:0:0::/64";
    const admin = { client, by: 1, byName: "admin" };
    const user = { id: 2, username: "kim", role: "keeper" };
    const viewer = { ...user, role: "viewer" };
    assert.deepEqual(reported(), [{
      message: "created a user",
      ...admin,
      method: "POST",
      path: "/v1/users",
      status: 201,
      user,
      changed: ["username", "role", "password"],
    }, {
      message: "changed a user",
      ...admin,
      method: "PATCH",
      path: "/v1/users/2",
      status: 201,
      user: viewer,
      changed: ["role"],
    }, {
      message: "This requires the role keeper; yours is viewer.",
      client,
      by: 2,
      byName: "kim",
      method: "DELETE",
      path: "/v1/animals/1",
      status: 403,
    }, {
      message: "changed a user",
      client,
      by: 2,
      byName: "kim",
      method: "PATCH",
      path: "/v1/user",
      status: 201,
      user: viewer,
      changed: ["password"],
    }, {
      message: "deleted a user",
      ...admin,
      method: "DELETE",
      path: "/v1/users/2",
      status: 204,
      user: viewer,
      changed: ["username", "role", "password"],
    }]);
    assert.doesNotMatch(JSON.stringify(lines), /of kim's|scrypt/);
  });

  test("reports no change of a user that failed", async (t) => {
    let isBroken = false;
    const files: FileSystem = {
      ...realFiles,
      async open(path, mode) {
        const file = await realFiles.open(path, mode);
        const sync = file.datasync.bind(file);
        file.datasync = () =>
          isBroken ? Promise.reject(new Error("EIO")) : sync();
        return file;
      },
    };
    const app = await startApplication({ files, log });
    t.after(() => app.stop());
    isBroken = true;
    const answer = await app.request("PATCH", "/v1/users/1", {
      token: app.token,
      json: { username: "root" },
    });
    assert.equal(answer.status, 500, answer.text);
    assert.deepEqual(reported(), []);
  });

  test("has a line for each request at the level debug, without values of parameters", async (t) => {
    const app = await startWith(t);
    const { token } = app;
    lines = [];
    const path = `/v1/zoos?name:ne=${token}&access_token=${token}&${token}&=x`;
    await app.request("GET", path, {
      token,
      headers: { ...from("192.0.2.1"), "x-request-id": "one" },
    });
    const [{ ms = -1, ...line } = {}] = lines;
    assert.deepEqual(line, {
      level: "debug",
      message: "answered",
      id: "one",
      client: "192.0.2.1",
      by: 1,
      byName: "admin",
      method: "GET",
      path: "/v1/zoos?name:ne&access_token&…&…",
      status: 400,
    });
    assert.ok(Number.isSafeInteger(ms) && Number(ms) >= 0);
    assert.equal(lines.length, 1);
  });
});
