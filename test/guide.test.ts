/**
 * The operator's guide, data/README.md, is accurate: every command in it is run,
 * on a server of the test in place of the service. readme.test.ts does the same
 * for the README.
 */

import { strict as assert } from "node:assert";
import { execFile, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { createServer, type RequestListener } from "node:http";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { pathToFileURL } from "node:url";
import { promisify } from "node:util";
import { collectionsFile } from "./collections.ts";
import {
  type Block,
  blocksIn,
  hasStatuses,
  responsesTo,
  shell,
} from "./commands.ts";
import {
  adminPassword,
  command,
  freePort,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";

const guide = await readFile(join(root, "data/README.md"), "utf8");
const blocks = blocksIn(guide);
const done = new Set<Block>();

let folder: string;
let server: Server;
before(async () => {
  folder = await temporaryFolder();
  server = await start({
    args: ["--seed", join(root, "data/seed.json")],
    folder: join(folder, "store"),
  });
});
after(async () => {
  await server.stop();
  await removeFolder(folder);
});

/** Replaces the paths and programs of the service by those of the test. */
function adapt(script: string): string {
  const words = [process.execPath, ...command].map((word) => `'${word}'`);
  return script
    .replaceAll("node build/main.js", words.join(" "))
    .replaceAll("/var/lib/zoo-api-backups", join(folder, "backups"))
    .replaceAll("/var/lib/zoo-api", join(folder, "store"))
    .replaceAll("/opt/zoo-api/backup.sh", join(folder, "backup.sh"))
    .replaceAll("/opt/zoo-api", root)
    .replace(/^ *systemctl .*?( &&)?$/gm, "true$1")
    .replace("chown -R zoo-api", 'chown -R "$(id -u)"')
    .replaceAll("http://localhost:3000", server.origin);
}

/** Returns the only block that contains a text, adapted to the paths of the test. */
function blockWith(text: string): string {
  const [block, ...others] = blocks.filter((each) => each.text.includes(text));
  assert.ok(block !== undefined && others.length === 0, text);
  done.add(block);
  return adapt(block.text);
}

const env = { COLLECTIONS: collectionsFile, ADMIN_PASSWORD: adminPassword };
const settings = () =>
  `${blockWith("export DATA_DIR=/var/lib/zoo-api\numask")}
cd '${folder}'
`;

/** Runs blocks after the first one, which sets the folder. */
function runBlocks(script: string, input = ""): Promise<string> {
  return shell(`set -e\n${settings()}${script}`, { env, input });
}

/** Returns the names of the backups. */
async function backups(): Promise<string[]> {
  return (await readdir(join(folder, "backups"))).toSorted();
}

/** Returns the command of the line for cron, which the unit has too. */
function backupCommand(): string {
  const [, line = ""] = /^0 3 \* \* \* zoo-api (.*)$/m.exec(guide) ?? [];
  assert.ok(guide.includes(`\nExecStart=${line}\n`), line);
  return adapt(line);
}

test("an administrator manages users while the server runs", async () => {
  const block = blocks.find(hasStatuses);
  assert.ok(block);
  done.add(block);
  const responses = await responsesTo(adapt(block.text), { env });
  assert.equal(responses.length, 5);
  assert.match(responses[1] ?? "", /\[\{"id":2,"username":"robin"/);
});

test("means per hour are computed, and what is old is deleted", async () => {
  const [first, last, ...others] = blocks.filter(hasStatuses);
  assert.ok(first && last && others.length === 0);
  done.add(last);
  const [setup = ""] = first.text.split("\n#");
  const script = adapt(`${setup}\n${last.text}`);
  const [means = "", task = ""] = await responsesTo(script, { env });
  assert.match(means, /"hour\(created_at\)":"[^"]*:00:00Z","count":250,/);
  assert.match(task, /"matched":0,"deleted":0,/);
});

/** Writes a block of JavaScript for the server of the test, and imports it. */
async function load(name: string) {
  const file = join(folder, `${name}.mjs`);
  await writeFile(file, blockWith(`// ${name}.js`));
  return await import(pathToFileURL(file).href);
}

test("the data provider for react-admin lists, reads, creates, changes and deletes", async () => {
  const token = await server.signIn();
  Object.assign(globalThis, { localStorage: { getItem: () => token } });
  const { dataProvider } = await load("dataProvider");
  const sort = { field: "name", order: "DESC" };
  const pagination = { page: 2, perPage: 5 };
  const zoos = await dataProvider.getList("zoos", {
    pagination,
    sort,
    filter: { "name:contains": "zoo " },
  });
  assert.ok(zoos.total > zoos.data.length);
  assert.ok(zoos.data.every(({ name }: { name: string }) => /zoo/i.test(name)));
  const names = zoos.data.map(({ name }: { name: string }) => name);
  assert.deepEqual(names, names.toSorted().reverse());
  const many = await dataProvider.getMany("zoos", { ids: [1, 3] });
  assert.deepEqual(many.data.map(({ id }: { id: number }) => id), [1, 3]);
  // As its button for exports asks.
  const all = await dataProvider.getList("animals", {
    pagination: { page: 1, perPage: 1000 },
    sort: { field: "id", order: "ASC" },
    filter: {},
  });
  const allIds = all.data.map(({ id }: { id: number }) => id);
  assert.ok(all.total > 200);
  assert.equal(new Set(allIds).size, all.total);
  const ids = allIds.slice(0, 120);
  const of120 = await dataProvider.getMany("animals", { ids });
  assert.deepEqual(of120.data.map(({ id }: { id: number }) => id), ids);
  const inZoo = await dataProvider.getManyReference("animals", {
    target: "zoo_id",
    id: 1,
    pagination: { page: 1, perPage: 100 },
    sort: { field: "id", order: "ASC" },
    filter: {},
  });
  assert.equal(inZoo.total, inZoo.data.length);
  assert.ok(inZoo.total > 0);
  const data = { name: "Own zoo", city: "Bern", country: "CH" };
  const created = (await dataProvider.create("zoos", { data })).data;
  const { id } = created;
  const update = {
    id,
    data: { ...created, city: "Biel" },
    previousData: created,
  };
  assert.equal((await dataProvider.update("zoos", update)).data.city, "Biel");
  await dataProvider.updateMany("zoos", { ids: [id], data: { city: "Basel" } });
  assert.equal((await dataProvider.getOne("zoos", { id })).data.city, "Basel");
  await assert.rejects(
    dataProvider.create("zoos", { data: { name: "" } }),
    { status: 422 },
  );
  const other = (await dataProvider.create("zoos", { data })).data;
  await dataProvider.delete("zoos", { id, previousData: created });
  await dataProvider.deleteMany("zoos", { ids: [other.id] });
  await assert.rejects(dataProvider.getOne("zoos", { id }), { status: 410 });
});

test("queries for TanStack Query read pages, and a change overwrites nobody else's", async () => {
  const { zooPage, oneZoo, changeZoo } = await load("queries");
  const { signal } = new AbortController();
  const { zoos, total } = await zooPage(2).queryFn({ signal });
  assert.equal(total, 16);
  assert.ok(Array.isArray(zoos));
  const { zoo, etag } = await oneZoo(1).queryFn({ signal });
  const { mutationFn } = changeZoo(await server.signIn());
  const change = (city: string) =>
    mutationFn({ id: 1, etag, changes: { city } });
  assert.equal((await change("Elsewhere")).city, "Elsewhere");
  await assert.rejects(change("Late"), { status: 412 });
  const now = await oneZoo(1).queryFn({ signal });
  const back = { id: 1, etag: now.etag, changes: { city: zoo.city } };
  assert.equal((await mutationFn(back)).city, zoo.city);
});

test(
  "a device sends until the server is there, and its record is stored once",
  {
    skip: spawnSync("python3", ["--version"]).status !== 0,
  },
  async (t) => {
    const file = join(folder, "device.py");
    await writeFile(file, blockWith("# device.py"));
    const port = await freePort();
    const token = await server.signIn();
    const store = join(folder, "device-store");
    const record = { name: "Once", city: "Bern", country: "CH" };
    const sending = promisify(execFile)("python3", [file], {
      env: {
        ...process.env,
        URL: `http://127.0.0.1:${port}/v1/zoos`,
        TOKEN: "wrong",
        RECORD: JSON.stringify(record),
      },
    });
    const other = await start({ port, folder: store });
    t.after(() => other.stop());
    await assert.rejects(sending, /RuntimeError: .*The token is not valid/);
    const url = `${server.origin}/v1/zoos`;
    const { stdout } = await promisify(execFile)("python3", [file], {
      env: {
        ...process.env,
        URL: url,
        TOKEN: token,
        RECORD: JSON.stringify(record),
      },
    });
    assert.match(stdout, /'name': 'Once'/);
    const found = await server.request("GET", "/v1/zoos?name=Once");
    assert.equal(found.body.length, 1);
    await server.request("DELETE", found.body[0]?.url ?? "", { token });
  },
);

test(
  "a device sends the same key until the response is complete, whatever a proxy says",
  {
    skip: spawnSync("python3", ["--version"]).status !== 0,
  },
  async (t) => {
    const keys = new Set<unknown>();
    const answers: readonly RequestListener[] = [
      (_, response) => response.writeHead(409).end('{"errorCode":40902}'),
      (_, response) => {
        const date = "Fri, 01 Jan 2027 00:00:00 GMT";
        response.writeHead(502, { "Retry-After": date }).end("<h1>Bad gateway");
      },
      (_, response) => {
        response.writeHead(201, { "Content-Length": 99 }).write('{"id":');
        setImmediate(() => response.destroy());
      },
      (_, response) => response.writeHead(201).end('{"id": 7}'),
    ];
    let count = 0;
    const proxy = createServer((request, response) => {
      keys.add(request.headers["idempotency-key"]);
      request.resume().on("end", () => answers[count++]?.(request, response));
    }).listen(0, "127.0.0.1");
    t.after(() => proxy.close());
    await once(proxy, "listening");
    const file = join(folder, "device.py");
    await writeFile(file, blockWith("# device.py"));
    const { port } = proxy.address() as AddressInfo;
    const { stdout } = await promisify(execFile)("python3", [file], {
      env: {
        ...process.env,
        URL: `http://127.0.0.1:${port}/v1/zoos`,
        TOKEN: "any",
        RECORD: "{}",
      },
    });
    assert.equal(stdout, "{'id': 7}\n");
    assert.deepEqual([keys.size, count], [1, answers.length]);
  },
);

test("the script makes a backup, and only then deletes the oldest ones", async () => {
  const old = Array.from({ length: 14 }, (_, i) => `2001-01-${10 + i}-030000`);
  for (const name of [...old, "2001-01-30-030000.part"]) {
    await mkdir(join(folder, "backups", name), { recursive: true });
  }
  await writeFile(join(folder, "backup.sh"), blockWith("#!/bin/sh"));
  const output = await shell(backupCommand(), { env });
  assert.match(output, /^no fault$/m);
  const names = await backups();
  assert.deepEqual(names.slice(0, -1), old.slice(1));
  assert.match(names.at(-1) ?? "", /^20\d\d-\d\d-\d\d-\d{6}$/);
  const { mode } = await stat(join(folder, "backups", names.at(-1) ?? ""));
  assert.equal(mode & 0o777, 0o700);
});

test("the script keeps the backup that it has just made, also if the clock is behind", async () => {
  const before = await backups();
  const name = "1970-01-01-000107";
  const bin = join(folder, "bin");
  await mkdir(bin);
  await writeFile(join(bin, "date"), `echo ${name}\n`, { mode: 0o755 });
  const output = await shell(`PATH='${bin}':$PATH\n${backupCommand()}`, {
    env,
  });
  assert.match(output, /^no fault$/m);
  assert.deepEqual(await backups(), [name, ...before.slice(1)]);
});

test("a backup that fails ends the script, and deletes nothing", async () => {
  const before = await backups();
  const broken = (await readFile(join(folder, "backup.sh"), "utf8"))
    .replace(join(folder, "store"), join(folder, "missing"));
  await writeFile(join(folder, "broken.sh"), broken);
  const failing = backupCommand().replace("backup.sh", "broken.sh");
  const output = await shell(`! ${failing}`, { env });
  assert.match(output, /missing: there is no such/);
  const names = (await backups()).filter((name) => !name.endsWith(".part"));
  assert.deepEqual(names, before);
});

test("systemd accepts the units", {
  skip: spawnSync("systemd-analyze", ["--version"]).status === 0
    ? false
    : "systemd-analyze is not installed",
}, async () => {
  const files: string[] = [];
  for (const block of blocks) {
    if (block.language !== "ini") continue;
    const kind = block.text.includes("[Timer]") ? "timer" : "service";
    const file = join(folder, `zoo-api-backup.${kind}`);
    assert.ok(guide.includes(`/zoo-api-backup.${kind}\``));
    await writeFile(file, block.text);
    files.push(file);
  }
  assert.equal(files.length, 2);
  const { status, stdout, stderr } = spawnSync(
    "systemd-analyze",
    ["verify", "--man=no", ...files],
    { encoding: "utf8" },
  );
  assert.equal(stdout + stderr, "");
  assert.equal(status, 0);
});

test("a drill opens the newest backup beside the server", async () => {
  const port = String(await freePort());
  const drill = blockWith("DRILL=").replaceAll("3999", port);
  const output = await runBlocks(drill);
  assert.match(output, /^animals: 250 records/m);
  assert.match(output, /"status":"ok"/);
});

test("the table of files names those that a server has", async () => {
  const names = await readdir(server.folder);
  assert.ok(names.length > 4, names.join());
  for (const name of names) {
    const shown = name.replace(/\d+(?=\.jsonl$)/, "7")
      .replace(/^lock-\w+/, "lock-…");
    assert.match(guide, new RegExp(`^\\|.*\`${shown}\``, "m"));
  }
});

test("records and users move to another data folder", async (t) => {
  const token = await server.signIn();
  const json = { username: "kim", password: "a long enough one" };
  const { status } = await server.request("POST", "/v1/users", { token, json });
  assert.equal(status, 201);
  await runBlocks(blockWith("export users --with-hashes"));
  const { mode } = await stat(join(folder, "files/users.ndjson"));
  assert.equal(mode & 0o777, 0o600);
  const moved = join(folder, "moved");
  const output = await runBlocks(
    `export DATA_DIR='${moved}'\n${blockWith("import --from")}`,
  );
  assert.match(output, /^imported 328 users, .*, rejected 0$/m);
  const other = await start({ folder: moved });
  t.after(() => other.stop());
  assert.ok(await other.signIn("kim", "a long enough one"));
});

test("a stopped server is restored, and its admin gets a new password", async (t) => {
  const token = await server.signIn();
  await server.request("DELETE", "/v1/animals/7", { token });
  await server.end();
  const restore = blockWith("zoo-api.new");
  // It may be needed again before the old folder is deleted, or on a new machine.
  await runBlocks(restore);
  await runBlocks(restore);
  await removeFolder(server.folder);
  await runBlocks(restore);
  // Without a backup the folder stays as it is.
  const missing = join(folder, "no-backups");
  await assert.rejects(
    runBlocks(restore.replaceAll(join(folder, "backups"), missing)),
  );
  const output = await runBlocks(
    blockWith("user password admin"),
    "another long one\n",
  );
  assert.match(output, /^1\tadmin\tadmin\t/m);
  const again = await start({ folder: server.folder, hashesFully: true });
  t.after(() => again.stop());
  assert.ok(await again.signIn("admin", "another long one"));
  const { status } = await again.request("GET", "/v1/animals/7");
  assert.equal(status, 200);
});

test("every block of commands is run", () => {
  const all = blocks.filter(({ language }) => language === "sh");
  assert.deepEqual(all.filter((block) => !done.has(block)), []);
});
