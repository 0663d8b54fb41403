/** The commands, and servers as processes, with a store in etcd. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { spawn } from "node:child_process";
import { once } from "node:events";
import { cp, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import {
  adminPassword,
  assertError,
  command,
  commandEnvironment,
  jwtSecret,
  lacks,
  removeFolder,
  root,
  run,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { loadApi } from "../../src/cli/declaration/load-api.ts";
import { createReader, findEtcd } from "../../src/cli/command-line.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { follow } from "../follower.ts";
import { runHere, type ServerHere, startHere } from "../in-process.ts";
import { ended, sendLines, taskWhen } from "../lines.ts";
import { eventually } from "../application.ts";
import { Gateway } from "./gateway.ts";

/** Returns a new etcd, the value of `STORE` for it, and an empty folder. */
async function prepare(t: TestContext) {
  const gateway = new Gateway();
  const { endpoints: [url = ""] } = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  return { gateway, folder, store: `${url.replace("http", "etcd")}/zoo` };
}

/** Runs a command that must succeed, and returns what it prints. */
async function output(
  args: readonly string[],
  options: Parameters<typeof run>[1] = {},
): Promise<string> {
  const { code, stdout, stderr } = await run(args, options);
  assert.equal(code, 0, `${args.join(" ")}: ${stdout}${stderr}`);
  return stdout;
}

/** Starts a server that has an admin only if the store has. */
function serve(
  t: TestContext,
  store: string,
  options: Parameters<typeof start>[0] = {},
): Promise<Server> {
  const starting = start({
    isNew: true,
    ...options,
    env: { STORE: store, ...options.env },
  });
  t.after(async () => (await starting.catch(() => undefined))?.stop());
  return starting;
}

test("everything is copied to etcd and back, and the commands work there; tokens stay valid", async (t) => {
  const { folder, store } = await prepare(t);
  const first = join(folder, "first");
  const env = { JWT_SECRET: "", ADMIN_PASSWORD: adminPassword };
  const seed = join(root, "data/seed.json");
  const server = await start({
    folder: first,
    isNew: true,
    args: ["--seed", seed],
    env,
  });
  const token = await server.signIn();
  await server.stop();
  const inFolder = ["--data-dir", first];
  const inEtcd = ["--store", store, "--data-dir", join(folder, "own")];
  const animals = await output(["export", "animals", ...inFolder]);
  assert.equal(animals.split("\n").length, 251);

  const copied = await output(["copy", "--from", first, "--to", store]);
  assert.match(
    copied,
    /^copied \d+ records up to sequence \d+ to .*, and read/,
  );
  assert.equal(await output(["export", "animals", ...inEtcd]), animals);
  const counts = (text: string) =>
    text.split("\n").filter((line) => line.includes("highest id"));
  assert.deepEqual(
    counts(await output(["check", ...inEtcd])),
    counts(await output(["check", ...inFolder])),
  );
  const again = await run(["copy", "--from", first, "--to", store]);
  assert.equal(again.code, 1);
  assert.match(again.stderr, /there is a store in etcd under zoo\//);

  const input = `${adminPassword}\n`;
  await output(["user", "add", "anna", ...inEtcd], { input });
  assert.match(await output(["user", "list", ...inEtcd]), /\tanna\t/);
  assert.match(await output(["log", "users", ...inEtcd]), /created users\/2 /);
  const lines = join(folder, "lines");
  const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
  await writeFile(lines, `${JSON.stringify(zoo)}\n`);
  await output(["import", "zoos", lines, ...inEtcd]);

  const served = await serve(t, store, { env });
  const { status, body } = await served.request("GET", "/v1/user", { token });
  assert.equal(status, 200);
  assert.equal(body["username"], "admin");
  const list = await served.request(
    "GET",
    "/v1/zoos?name=Artis&city=Amsterdam",
  );
  assert.ok(list.body.length > 0);

  const zoos = await output(["export", "zoos", ...inEtcd]);
  for (const [command, to] of [["copy", "second"], ["backup", "third"]]) {
    const path = join(folder, `${to}`);
    const args = command === "copy"
      ? ["copy", "--from", store, "--to", path]
      : ["backup", path, ...inEtcd];
    assert.equal(
      (await output(args)).match(/^copied (\d+)/)?.length,
      2,
    );
    assert.ok((await readdir(path)).includes("secret"));
    const exported = ["export", "zoos", "--data-dir", path];
    assert.equal(await output(exported), zoos);
  }
});

test("an import that was in progress in etcd ends in a copy of it", async (t) => {
  const { folder, store, gateway } = await prepare(t);
  const server = await serve(t, store, { folder: join(folder, "own") });
  const token = await server.signIn();
  // It ends before the next batch.
  const raw = `${JSON.stringify({ name: "A", city: "B", country: "NL" })}\n`;
  const { body } = await sendLines(server, "/v1/zoos", {
    token,
    raw: raw.repeat(50_000),
  });
  await taskWhen(server, {
    url: body.url,
    token,
    until: ({ imported }) => imported > 0,
  });
  await server.end("SIGKILL");
  assert.ok(gateway.keys.length > 0);
  const copy = join(folder, "copy");
  const { code, stderr } = await run(["copy", "--from", store, "--to", copy]);
  assert.equal(code, 0, stderr);
  assert.match(
    stderr,
    /an import of zoos \(task 1\) is not finished: .* its server finishes it, .* a running server ends it as it is; it fails in a copy, /,
  );
  const next = await startHere({ folder: copy, isNew: true });
  t.after(() => next.stop());
  const task = await taskWhen(next, {
    url: "/v1/tasks/1",
    token: await next.signIn(),
    until: ended,
  });
  assert.equal(task.failure, "The request body is no longer on the disk.");
  await next.end();
});

test("an import that is stopped says how long it can be finished", async (t) => {
  const { folder, store, gateway } = await prepare(t);
  const file = join(folder, "zoos.ndjson");
  const line = JSON.stringify({ name: "A", city: "B", country: "NL" });
  await writeFile(file, `${line}\n`.repeat(50_000));
  const own = ["--store", store, "--data-dir", join(folder, "own")];
  const child = spawn(process.execPath, [
    ...command,
    ...["import", "zoos", file, ...own],
  ], { env: commandEnvironment(), stdio: ["ignore", "ignore", "pipe"] });
  const ended = once(child, "close");
  let stderr = "";
  child.stderr.setEncoding("utf8").on("data", (text) => stderr += text);
  const batches = () => gateway.keys.filter((key) => /^log\//.test(key)).length;
  await eventually(() => batches() > 4 || child.exitCode !== null);
  child.kill("SIGINT");
  const [code] = await ended;
  assert.equal(code, 1, stderr);
  assert.match(
    stderr,
    /finishes it if it begins within a minute; after that, a/,
  );
});

test("an import that somebody cancels on a server says so, and how many records are in", async (t) => {
  const { folder, store } = await prepare(t);
  const server = await serve(t, store, { folder: join(folder, "server") });
  const token = await server.signIn();
  const file = join(folder, "zoos.ndjson");
  const line = JSON.stringify({ name: "A", city: "B", country: "NL" });
  await writeFile(file, `${line}\n`.repeat(50_000));
  const own = ["--store", store, "--data-dir", join(folder, "own")];
  const importing = run(["import", "zoos", file, ...own]);
  const url = "/v1/tasks/1";
  const isThere = async () => {
    const { status } = await server.request("GET", url, { token });
    return status === 200;
  };
  while (!await isThere());
  await taskWhen(server, { url, token, until: ({ imported }) => imported > 0 });
  const { status } = await server.request("DELETE", url, { token });
  assert.equal(status, 204);
  const { code, stderr } = await importing;
  assert.equal(code, 1, stderr);
  const { headers } = await server.request("HEAD", "/v1/zoos", { token });
  const count = headers.get("x-total-count");
  assert.equal(
    stderr,
    `zoo-api: the import was cancelled with DELETE /v1/tasks/1: ${count} records are in\n`,
  );
});

test("what cannot be done with etcd is refused with what is allowed", async (t) => {
  const { folder, store, gateway } = await prepare(t);
  const refusals = [
    [["copy", "--to", store], /name a store with --from/],
    [
      ["copy", "--from", "etcd://", "--to", store],
      /zoo-api: --from: "etcd:\/\/" is not allowed/,
    ],
    [
      ["copy", "--from", store, "--to", join(folder, "to")],
      /there is no store in etcd/,
    ],
    [
      ["copy", "--from", join(folder, "none"), "--to", store],
      /none: there is no such/,
    ],
    [
      ["copy", "--from", folder, "--to", "ectd://zoo:hunter@h/zoo"],
      /--to: "ectd:\/\/…@h\/zoo" is not allowed: it must be file, or etcd:/,
    ],
    [
      ["copy", "--from", folder, "--to", "etcd:/zoo:hun/ter@h/zoo"],
      /--to: "etcd:\/…@h\/zoo" is not allowed/,
    ],
    [
      ["copy", "--from", folder, "--to", "etcd:zoo:hunter@h/zoo"],
      /--to: "etcd:…@h\/zoo" is not allowed/,
    ],
    [["backup", "etcd://zoo:hunter@h/zoo"], /name a folder, not a URL/],
    [["repair", "--store", store], /only a folder can be repaired/],
    [
      ["check", "--store", "redis://127.0.0.1/zoo"],
      /file, or etcd:\/\/HOST:PORT/,
    ],
    [["check", "--store", "etcd://127.0.0.1:1"], /file, or etcd:\/\/HOST:PORT/],
  ] as const;
  for (const [args, message] of refusals) {
    const { code, stderr, stdout } = await run(args);
    assert.ok(code === 1 || code === 2, `${args.join(" ")}: ${code}`);
    assert.match(stderr + stdout, message);
  }
  assert.deepEqual(gateway.keys, []);
});

test("no store is begun or sought in the folder of a server whose store is in etcd", async (t) => {
  const { folder, store } = await prepare(t);
  const own = join(folder, "own");
  const lines = join(folder, "zoos.ndjson");
  await writeFile(lines, "");
  const input = "correct horse battery";
  const add = ["user", "add", "kim", "--data-dir", own];
  const added = await runHere([...add, "--store", store], { input });
  assert.equal(added.code, 0, added.stderr);
  assert.deepEqual(await readdir(own), ["server"]);
  for (
    const words of [
      ["user", "add", "kim"],
      ["import", "zoos", lines],
      ...lacks("marker") ? [] : [["serve", "--port", "0"]],
      ["user", "password", "kim"],
      ["user", "list"],
      ["prune", "answers"],
      ["check"],
      ["repair"],
      ["export", "zoos"],
      ["log"],
      ["backup", join(folder, "backup")],
    ]
  ) {
    const args = [...words, "--data-dir", own];
    const { code, stderr } = await runHere(args, { input });
    assert.equal(code, words[0] === "check" ? 2 : 1, words.join(" "));
    const message =
      `${own} belongs to a server whose store is in etcd under zoo/: give --store, or name another folder`;
    assert.equal(stderr, `zoo-api: ${message}\n`, words.join(" "));
    assert.deepEqual(await readdir(own), ["server"], words.join(" "));
  }
  // Beside a store it says nothing.
  const both = join(folder, "both");
  await startHere({ folder: both, isNew: true }).then((each) => each.end());
  await cp(join(own, "server"), join(both, "server"));
  await rm(join(both, "mark"), { force: true });
  const checked = await runHere(["check", "--data-dir", both]);
  assert.equal(checked.code, 0, checked.stderr);
});

test("a command that needs a store says that there is none under a mistyped prefix, and writes nothing", async (t) => {
  const { folder, gateway, store } = await prepare(t);
  const own = join(folder, "own");
  for (
    const words of [
      ["prune", "answers"],
      ["prune", "x"],
      ["user", "password", "admin"],
      ["user", "list"],
      ["check"],
      ["export", "zoos"],
      ["log"],
      ["backup", join(folder, "backup")],
    ]
  ) {
    const args = [...words, "--store", store, "--data-dir", own];
    const { code, stderr } = await runHere(args, { input: "correct horse" });
    assert.equal(code, words[0] === "check" ? 2 : 1, words.join(" "));
    const message = "zoo-api: there is no store in etcd under zoo/\n";
    assert.equal(stderr, message, words.join(" "));
  }
  assert.deepEqual(gateway.keys, []);
  assert.deepEqual(await readdir(folder), []);
});

test("a check reports all for which a server would not start, with exit code 2; records can be copied if they are complete", async (t) => {
  const { folder, store, gateway } = await prepare(t);
  const first = await serve(t, store, { env: { JWT_SECRET: "" } });
  await first.stop();
  const own = ["--data-dir", join(folder, "own")];
  const restore = gateway.save();
  const changes: readonly [string, () => void, RegExp][] = [
    ["log", () => gateway.set("log/0000000000000001", ""), /it is empty/],
    ["gap", () => gateway.remove("log/0000000000000001"), /"log\/0{15}1"/],
    ["head", () => gateway.remove("head"), /"head" .*is missing/],
    ["secret", () => gateway.set("secret", "abc"), /"secret" .*32 bytes/],
    ["incarnation", () => gateway.set("incarnation", ""), /"incarnation" /],
  ];
  for (const [name, change, message] of changes) {
    restore();
    change();
    const { keys, head } = gateway;
    const check = await run(["check", "--store", store, ...own]);
    assert.equal(check.code, 2, `${name}: ${check.stdout}${check.stderr}`);
    assert.match(check.stdout, new RegExp(`^fault: .*${message.source}`, "m"));
    const isRead = ["secret", "incarnation"].includes(name);
    const to = join(folder, `of-${name}`);
    const backup = await run(["backup", to, "--store", store, ...own]);
    assert.equal(backup.code, isRead ? 0 : 1, `${name}: ${backup.stderr}`);
    if (!isRead) assert.match(backup.stderr, message);
    assert.deepEqual([gateway.keys, gateway.head], [keys, head]);
  }
});

test("two servers that start at once create one admin and sign with one secret", async (t) => {
  const { store, gateway } = await prepare(t);
  const env = { JWT_SECRET: "" };
  const servers = await Promise.all([
    serve(t, store, { env }),
    serve(t, store, { env }),
  ]);
  const [one, other] = servers;
  const token = await one?.signIn();
  const users = await other?.request("GET", "/v1/users", {
    token: String(token),
  });
  assert.equal(users?.status, 200);
  assert.deepEqual(users?.body.map(({ username }) => username), ["admin"]);
  assert.ok(gateway.keys.includes("secret"));
});

const declaration = (extra: string) => `
  export default ({ collection, string, optional }) => ({
    collections: [collection({
      name: "notes", singular: "note",
      access: { read: "anyone", write: "viewer", delete: "viewer" },
      properties: { text: string({ maxLength: 100 })${extra} },
    })],
  });`;

test("prune deletes hidden data while a server changes the same record, and keeps its change", async (t) => {
  const { folder, store, gateway } = await prepare(t);
  const [before, after] = [join(folder, "1.mjs"), join(folder, "2.mjs")];
  const title = ", title: optional(string({ maxLength: 50 }))";
  await writeFile(before, declaration(title));
  await writeFile(after, declaration(""));
  const first = await serve(t, store, { env: { COLLECTIONS: before } });
  const token = await first.signIn();
  const json = { text: "a", title: "T" };
  await first.request("POST", "/v1/notes", { token, json });
  await first.stop();
  const server = await serve(t, store, { env: { COLLECTIONS: after } });
  let isSent = false;
  let isChanged = false;
  gateway.faultOf = (_path, { success: [log] = [] }) => {
    const { value = "" } = log?.request_put ?? {};
    const isPrune = Buffer.from(value, "base64").includes('"by":0');
    isSent ||= isPrune;
    return isPrune && !isChanged ? "no leader" : undefined;
  };
  const pruned = output([
    ...["prune", "notes.title", "--store", store, "--collections", after],
    ...["--data-dir", join(folder, "own")],
  ]);
  while (!isSent) await new Promise(setImmediate);
  const { status } = await server.request("PATCH", "/v1/notes/1", {
    token,
    json: { text: "b" },
  });
  assert.equal(status, 201);
  isChanged = true;
  assert.match(await pruned, /^deleted .*notes\.title/);
  await server.stop();
  const last = await serve(t, store, { env: { COLLECTIONS: before } });
  const { body } = await last.request("GET", "/v1/notes/1");
  assert.deepEqual([body["text"], body["title"]], ["b", null]);
});

test("a server with another declaration takes over; the first one refuses until its own is back", async (t) => {
  const { folder, store } = await prepare(t);
  const files = ["", ", title: optional(string({ maxLength: 50 }))"];
  const [one, other] = await Promise.all(files.map(async (extra, at) => {
    const file = join(folder, `notes-${at}.mjs`);
    await writeFile(file, declaration(extra));
    return { COLLECTIONS: file, JWT_SECRET: jwtSecret };
  }));
  const first = await serve(t, store, { env: { ...one } });
  assert.equal((await first.request("GET", "/v1/notes")).status, 200);
  const second = await serve(t, store, { env: { ...other } });
  assert.equal((await second.request("GET", "/v1/notes")).status, 200);
  assertError(await first.request("GET", "/v1/notes"), 50302);
  const health = await first.request("GET", "/health");
  assert.equal(health.status, 503);
  assert.match(String(health.body["notices"]), /changed the declaration/);
  await second.stop();
  const third = await serve(t, store, { env: { ...one } });
  assert.equal((await third.request("GET", "/v1/notes")).status, 200);
  while ((await first.request("GET", "/health")).status !== 200);
  assert.equal((await first.request("GET", "/v1/notes")).status, 200);
});

const people = (options: string, name = "people") => `
  export default ({ collection, string, optional }) => ({
    collections: [collection({
      name: "${name}", singular: "person", ${options},
      properties: { name: string({ maxLength: 100 }) },
    })],
  });`;

const open = 'access: { read: "anyone", write: "viewer", delete: "viewer" }';

const otherPolicies = [
  open.replace("anyone", "admin"),
  `${open}, keep: { days: 30 }`,
];

for (const [at, options] of otherPolicies.entries()) {
  test(
    `a server that would show or keep other records than another one refuses requests, and ends its events: ${options}`,
    { skip: lacks("evolution") || lacks("events") },
    async (t) => {
      const { folder, gateway, store } = await prepare(t);
      const serveHere = async (options: string) => {
        const name = `people-${at}-${options.length}.mjs`;
        const file = join(folder, name);
        await writeFile(file, people(options));
        const env = { STORE: store, COLLECTIONS: file };
        const server = await startHere({ isNew: true, env });
        t.after(() => server.stop());
        return server;
      };
      const first = await serveHere(open);
      const token = await first.signIn();
      const follower = await follow(first.port, token);
      await follower.until(() => follower.lastEventId !== "");
      gateway.isWatchSilent = true;
      const second = await serveHere(options);
      const log = /people has other access or retention: {read:.*/.exec(
        second.output(),
      );
      const [change = ""] = log ?? [];
      assert.match(change, /formerly {read:anyone,.*:viewer}/);
      const json = { name: "Ada" };
      const url = "/v1/people";
      const created = await second.request("POST", url, { token, json });
      assert.equal(created.status, 201);
      // It learns of the other declaration by this request.
      assertError(await first.request("GET", url), 50302);
      assertError(await first.request("POST", url, { token, json }), 50302);
      const health = await first.request("GET", "/health");
      assert.equal(health.status, 503);
      assert.match(String(health.body["notices"]), /changed the declaration/);
      await follower.until(() => follower.events.length > 0);
      assert.deepEqual(follower.events, []);
      const next = await follow(second.port, token, follower.lastEventId);
      assert.equal((await next.next()).type, "reset");
      next.cut();
      await second.end();
      const third = await serveHere(open);
      assert.equal((await third.request("GET", url)).body.length, 1);
      while ((await first.request("GET", "/health")).status !== 200);
      assert.equal((await first.request("GET", url)).body.length, 1);
      for (const server of [third, first]) await server.end();
    },
  );
}

test(
  "a server goes on once a declaration with another collection is taken back",
  { skip: lacks("evolution") },
  async (t) => {
    const { folder, store } = await prepare(t);
    const serveHere = async (name: string, text: string) => {
      const file = join(folder, name);
      await writeFile(file, text);
      const env = { STORE: store, COLLECTIONS: file };
      const server = await startHere({ isNew: true, env });
      t.after(() => server.stop());
      return server;
    };
    const more = people(open).replace(
      "})],",
      `}), collection({
      name: "notes", singular: "note", ${open},
      properties: { text: string({ maxLength: 9 }) },
    })],`,
    );
    const statusOf = async (server: ServerHere) =>
      (await server.request("GET", "/v1/people")).status;
    const first = await serveHere("one.mjs", people(open));
    assert.equal(await statusOf(first), 200);
    const second = await serveHere("two.mjs", more);
    const token = await second.signIn();
    const json = { text: "a" };
    const { status } = await second.request("POST", "/v1/notes", {
      token,
      json,
    });
    assert.equal(status, 201);
    assert.equal(await statusOf(first), 503);
    await second.end();
    const third = await serveHere("three.mjs", people(open));
    assert.equal(await statusOf(third), 200);
    while (await statusOf(first) !== 200);
    for (const server of [third, first]) await server.end();
  },
);

test(
  "a server without the feature that remembers access is not suspended by the first one with it",
  { skip: lacks("evolution") || lacks("conditional") },
  async (t) => {
    const { folder, store } = await prepare(t);
    const file = join(folder, "people.mjs");
    await writeFile(file, people(open));
    const env = { STORE: store, COLLECTIONS: file };
    const few = { ...env, FEATURES: "conditional" };
    const first = await startHere({ isNew: true, env: few });
    t.after(() => first.stop());
    const second = await startHere({ isNew: true, env });
    t.after(() => second.stop());
    for (const server of [second, first]) {
      const { status } = await server.request("GET", "/v1/people");
      assert.equal(status, 200);
    }
    for (const server of [second, first]) await server.end();
  },
);

test(
  "a server of an older version, which remembers no access, suspends no other one",
  {
    skip: lacks("evolution"),
  },
  async (t) => {
    const { folder, store } = await prepare(t);
    const file = join(folder, "people.mjs");
    await writeFile(file, people(open));
    const env = { STORE: store, COLLECTIONS: file };
    const server = await startHere({ isNew: true, env });
    t.after(() => server.stop());
    const etcd = await findEtcd(createReader(new Map(), { STORE: store }));
    let isPut = false;
    const older = await openDataFolder(
      join(folder, "older"),
      await loadApi(file),
      {
        etcd,
        adaptRecords({ apply, store }) {
          const { policies, ...known } = {
            ...store.table("_declaration").get(1)?.document,
          };
          isPut = policies !== undefined;
          apply(["put", "_declaration", { ...known, id: 1 }]);
          return false;
        },
      },
    );
    await older.close();
    assert.ok(isPut);
    assert.equal((await server.request("GET", "/v1/people")).status, 200);
    await server.end();
  },
);
