/** The commands of an operator: check, repair and back up a data folder. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { execFile, spawn } from "node:child_process";
import fs, { closeSync, openSync } from "node:fs";
import {
  appendFile,
  cp,
  mkdir,
  readdir,
  readFile,
  rename,
  rm,
  writeFile,
} from "node:fs/promises";
import { syncBuiltinESMExports } from "node:module";
import { dirname, join } from "node:path";
import process from "node:process";
import { after, before, test, type TestContext } from "node:test";
import { promisify } from "node:util";
import { createFirstAdmin } from "../src/first-start.ts";
import { createUser } from "../src/api/operator.ts";
import { visibleTask } from "../src/api/tasks/tasks.ts";
import { openDataFolder } from "../src/data-folder.ts";
import { type Mutation, openStore } from "../src/store/store.ts";
import { sample } from "./collections.ts";
import {
  command,
  removeFolder,
  run,
  start,
  storedAdmin,
  temporaryFolder,
} from "./harness.ts";
import { runHere, startHere } from "./in-process.ts";
import { commit } from "./commit.ts";
import { fromLines, toLines } from "./lines.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const at = "2026-05-01T08:00:00.000Z";
const times = { created_at: at, updated_at: at };

let original: string;
before(async () => {
  original = join(await temporaryFolder(), "store");
  const server = await startHere({ folder: original });
  const token = await server.signIn();
  for (let count = 0; count < 5; count++) {
    await server.request("POST", "/v1/zoos", { token, json: zoo });
  }
  assert.equal(await server.end(), 0);
  await server.stop();
});
after(() => removeFolder(dirname(original)));

/** Returns a copy of a folder in which a server has created five zoos, one transaction each. */
async function filled(t: TestContext): Promise<string> {
  const top = await temporaryFolder();
  t.after(() => removeFolder(top));
  const folder = join(top, "store");
  await cp(original, folder, { recursive: true });
  return folder;
}

/** Changes one byte in a line of the log. */
async function damage(folder: string, line: number): Promise<void> {
  const file = join(folder, "wal-1.jsonl");
  const lines = (await readFile(file, "utf8")).split("\n");
  lines[line - 1] = lines[line - 1]?.replace("Artis", "Artos") ?? "";
  await writeFile(file, lines.join("\n"));
}

test("check and repair say of a damaged snapshot that nothing is lost while the log before it is good", async (t) => {
  const folder = await filled(t);
  const store = await openStore({ folder, tables: [] });
  await store.checkpoint();
  await store.close();
  const snapshot = join(folder, "snapshot-2.jsonl");
  const text = await readFile(snapshot, "utf8");
  await writeFile(snapshot, text.replace("Artis", "Artos"));
  const ends = "all records are in the other files, and the next snapshots " +
    "replace the damaged ones\n";
  const checked = await runHere(["check", "--data-dir", folder]);
  assert.equal(checked.code, 2);
  assert.match(checked.stdout, /^zoos: 5 records/m);
  assert.match(checked.stdout, /^fault: snapshot-2\.jsonl, byte \d+/m);
  assert.ok(checked.stdout.endsWith(ends), checked.stdout);
  const repaired = await runHere(["repair", "--data-dir", folder]);
  assert.equal(repaired.code, 0);
  assert.match(repaired.stdout, /^fault: snapshot-2\.jsonl, byte \d+/);
  assert.ok(repaired.stdout.endsWith(`there was nothing to repair: ${ends}`));

  const again = await openStore({ folder, tables: [] });
  assert.match(again.notices.join(), /snapshot-2\.jsonl is damaged/);
  await again.checkpoint();
  await again.checkpoint();
  await again.close();
  const mended = await runHere(["check", "--data-dir", folder]);
  assert.equal(mended.code, 0, mended.stdout);
});

test("an export to a folder leaves all files or none, and says which could not be written", async (t) => {
  const folder = await filled(t);
  const to = join(folder, "..", "export");
  const words = ["export", "--to", to, "--data-dir", folder];
  await mkdir(to);
  const { open } = fs;
  const full = t.mock.method(
    fs,
    "open",
    (path: string, flags: string, ...others: [number, () => void]) => {
      // The file is there, but the disk is full.
      if (flags === "wx") closeSync(openSync(path, flags));
      open(flags === "wx" ? "/dev/full" : path, flags.slice(0, 1), ...others);
    },
  );
  const failed = await runHere(words);
  full.mock.restore();
  assert.equal(failed.code, 1);
  assert.match(
    failed.stderr,
    /^zoo-api: cannot write \S+\/zoos\.ndjson\.part: .*ENOSPC/,
  );
  assert.deepEqual(await readdir(to), []);
  assert.equal((await runHere(words)).code, 0);
  const names = ["animals.ndjson", "employees.ndjson", "zoos.ndjson"];
  assert.deepEqual((await readdir(to)).sort(), names);
  const zoos = await readFile(join(to, "zoos.ndjson"), "utf8");
  assert.equal(zoos.match(/\n/g)?.length, 5);
});

test("of two exports to one folder one is whole, and the other removes nothing of it", async (t) => {
  const folder = await filled(t);
  const to = join(folder, "..", "export");
  const words = ["export", "--to", to, "--data-dir", folder];
  // The other one is at work, or was killed, at its first or a later file.
  for (const name of ["zoos.ndjson.part", "animals.ndjson.part"]) {
    await mkdir(to, { recursive: true });
    await writeFile(join(to, name), "half a li");
    const { code, stderr } = await runHere(words);
    assert.equal(code, 1, stderr);
    assert.ok(
      stderr.startsWith(`zoo-api: ${join(to, name)} exists: another export`),
    );
    assert.deepEqual(await readdir(to), [name]);
    assert.equal(await readFile(join(to, name), "utf8"), "half a li");
    await rm(join(to, name));
  }
  // The other one ends after this one has seen an empty folder.
  const { readdir: list } = fs.promises;
  let isFirst = true;
  t.mock.method(fs.promises, "readdir", async (path: string) => {
    const found = await list(path);
    if (path === to && isFirst) {
      isFirst = false;
      await writeFile(join(to, "animals.ndjson"), "of the other");
    }
    return found;
  });
  syncBuiltinESMExports();
  const late = await runHere(words);
  t.mock.restoreAll();
  syncBuiltinESMExports();
  assert.equal(late.code, 1, late.stdout);
  assert.match(late.stderr, /animals\.ndjson exists already: nothing was/);
  assert.deepEqual(await readdir(to), ["animals.ndjson"]);
  const left = await readFile(join(to, "animals.ndjson"), "utf8");
  assert.equal(left, "of the other");
});

test("check distinguishes a clean folder, a torn write and damage, and finds all damage", async (t) => {
  const folder = await filled(t);
  const check = () => run(["check", "--data-dir", folder]);
  const clean = await check();
  assert.equal(clean.code, 0, clean.stdout);
  assert.match(clean.stdout, /^zoos: 5 records, highest id 5$/m);
  assert.match(clean.stdout, /^log: generation 1, sequence 8\nno fault$/m);

  await appendFile(join(folder, "wal-1.jsonl"), '{"crc":"01234567","se');
  const torn = await check();
  assert.equal(torn.code, 1, torn.stdout);
  assert.match(torn.stdout, /^torn: wal-1\.jsonl, byte \d+, line 10: /m);

  await damage(folder, 6);
  await damage(folder, 8);
  const damaged = await check();
  assert.equal(damaged.code, 2, damaged.stdout);
  assert.match(damaged.stdout, /^fault: wal-1\.jsonl, byte \d+, line 6: /m);
  assert.match(damaged.stdout, /^fault: wal-1\.jsonl, byte \d+, line 8: /m);
});

test("a repair says that an import which is not finished may lose lines", async (t) => {
  const folder = await filled(t);
  const store = await openStore({ folder, tables: [{ name: "tasks" }] });
  const task = { type: "import", collection: "zoos", imported: 1, spool: "x" };
  const tasks = ["failed", "running"].map((status, at): Mutation => [
    "put",
    "tasks",
    { ...task, id: at + 1, status },
  ]);
  await commit(store, tasks, 0);
  await store.close();
  await damage(folder, 7);
  const args = ["repair", "--dry-run", "--data-dir", folder];
  const { stdout } = await runHere(args);
  assert.match(stdout, /\nan import is not finished: when it resumes, lines /);
});

test("a damaged folder is refused unchanged, repaired with a copy, and then served", async (t) => {
  const folder = await filled(t);
  await damage(folder, 7);
  const before = await readFile(join(folder, "wal-1.jsonl"));
  await assert.rejects(start({ folder }), (error) => {
    assert.match(String(error), /wal-1\.jsonl is damaged.*line 7/);
    for (const words of ["repair --dry-run", "repair"]) {
      const typed = `"zoo-api ${words} --data-dir '${folder}'"`;
      assert.ok(String(error).includes(typed), String(error));
    }
    return true;
  });

  const dry = await runHere(["repair", "--dry-run", "--data-dir", folder]);
  assert.equal(dry.code, 2, dry.stderr);
  assert.match(dry.stdout, /\nthis is what a repair would lose; nothing was/);
  assert.deepEqual(await readFile(join(folder, "wal-1.jsonl")), before);
  const repaired = await runHere(["repair", "--data-dir", folder]);
  assert.equal(repaired.code, 0, repaired.stderr);
  assert.match(repaired.stdout, /^fault: wal-1\.jsonl, byte \d+, line 7: /m);
  assert.match(
    repaired.stdout,
    /^lost transactions: 1\nall sign-ins end, as one may have ended some\nlost records: 1\n {2}zoos\/3\nrepaired; the/m,
  );
  assert.equal(dry.stdout.split("this")[0], repaired.stdout.split("rep")[0]);
  const [copy = ""] = (await readdir(folder)).filter((name) =>
    name.startsWith("damaged-")
  );
  assert.deepEqual(await readFile(join(folder, copy, "wal-1.jsonl")), before);

  const server = await startHere({ folder });
  const zoos = await server.request("GET", "/v1/zoos");
  assert.equal(zoos.headers.get("x-total-count"), "4");
  const token = await server.signIn();
  const made = await server.request("POST", "/v1/zoos", { token, json: zoo });
  assert.equal(made.status, 201);
  const refused = await runHere(["repair", "--data-dir", folder]);
  assert.equal(refused.code, 1);
  assert.match(refused.stderr, /running server/);
  await server.end();
  await server.stop();

  const again = await runHere(["repair", "--data-dir", folder]);
  assert.equal(again.stdout, "there was nothing to repair\n");
});

/** A folder of an API with beds and plants. */
async function garden(t: TestContext) {
  const top = await temporaryFolder();
  t.after(() => removeFolder(top));
  const COLLECTIONS = join(top, "garden.mjs");
  await writeFile(
    COLLECTIONS,
    `const access = { read: "anyone", write: "keeper", delete: "keeper" };
    const of = { access, properties: {} };
    export default ({ collection }) => ({ collections: [
      collection({ name: "beds", singular: "bed", ...of }),
      collection({ name: "plants", singular: "plant", ...of }),
    ] });`,
  );
  return {
    top,
    folder: join(top, "store"),
    env: { COLLECTIONS },
    /** Starts a server on a folder, sends requests without properties, and returns the ids of what was created. */
    async send(folder: string, ...requests: [method: string, path: string][]) {
      const server = await startHere({ folder, env: { COLLECTIONS } });
      const token = await server.signIn();
      const ids = [];
      for (const [method, path] of requests) {
        const body = method === "POST" ? { json: {} } : {};
        const answer = await server.request(method, path, { token, ...body });
        ids.push(answer.body?.id);
      }
      assert.equal(await server.end(), 0);
      return ids;
    },
  };
}

const postPlant: [string, string] = ["POST", "/v1/plants"];

test("a repair without the declaration of the folder gives no id twice, and the folder stays that of its API", async (t) => {
  const { top, folder, send } = await garden(t);
  const ids = await send(
    folder,
    ["POST", "/v1/beds"],
    postPlant,
    postPlant,
    postPlant,
  );
  assert.deepEqual(ids, [1, 1, 2, 3]);
  const file = join(folder, "wal-1.jsonl");
  const lines = (await readFile(file, "utf8")).split("\n");
  const damaged = lines.map((line) =>
    line.includes('["put","plants"') ? line.replace("_at", "_it") : line
  );
  await writeFile(file, damaged.join("\n"));
  for (
    const [name, other] of [["sample", ""], ["missing", join(top, "no.js")]]
  ) {
    const copy = join(top, name ?? "");
    await cp(folder, copy, { recursive: true });
    const env = { COLLECTIONS: other ?? "", DATA_DIR: copy };
    const { stdout, stderr, code } = await runHere(["repair"], { env });
    assert.equal(code, 0, stderr);
    assert.match(
      stdout,
      /\nlost records: 3\n {2}plants\/1\n {2}plants\/2\n {2}plants\/3\nrecords were not validated: /,
    );
    await assert.rejects(
      start({ folder: copy }),
      /the data folder has beds, plants, but the declaration has zoos, /,
    );
    const [id] = await send(copy, postPlant);
    assert.ok(Number(id) > 3, `${id}`);
  }
  // A start with this declaration would work.
  const plots = (await readFile(join(top, "garden.mjs"), "utf8"))
    .replace('name: "beds"', 'name: "plots", renamed: "beds"')
    .replace('name: "plants"', 'name: "herbs"');
  const renamed = join(top, "plots.mjs");
  await writeFile(renamed, plots);
  const env = { COLLECTIONS: renamed, DATA_DIR: folder };
  const { stdout } = await runHere(["repair", "--dry-run"], { env });
  assert.match(stdout, /\n {2}plants\/3\nthis is what a repair would lose/);
});

test("a repair without the declaration keeps the ids that only a damaged header shows", async (t) => {
  const { top, folder, send } = await garden(t);
  await send(folder, ["POST", "/v1/beds"], postPlant, postPlant, [
    "DELETE",
    "/v1/plants/1",
  ], ["DELETE", "/v1/plants/2"]);
  const copy = join(top, "copy");
  await runHere(["backup", copy, "--data-dir", folder]);
  const [snapshot = ""] = (await readdir(copy)).filter((name) =>
    name.startsWith("snapshot-")
  );
  const file = join(copy, snapshot);
  const text = await readFile(file, "utf8");
  await writeFile(file, text.replace('"format":', '"farmat":'));
  const repaired = await runHere(["repair", "--data-dir", copy]);
  assert.equal(repaired.code, 0, repaired.stderr);
  const [id] = await send(copy, postPlant);
  assert.ok(Number(id) > 2, `${id}`);
});

test("a repair of a log whose end is gone gives no id twice, as the marker knows its length", async (t) => {
  const { top, folder, env, send } = await garden(t);
  await send(folder, postPlant, postPlant);
  const before = (await readFile(join(folder, "wal-1.jsonl"))).length;
  const ids = await send(folder, postPlant, postPlant, postPlant);
  assert.deepEqual(ids, [3, 4, 5]);
  const [log = ""] = (await readdir(folder)).filter((name) =>
    name.startsWith("wal-")
  );
  const bytes = await readFile(join(folder, log));
  const zeros = Buffer.alloc(bytes.length - before);
  const cases = { cut: [], zeroed: [zeros] };
  for (const [name, rest] of Object.entries(cases)) {
    const copy = join(top, name);
    await cp(folder, copy, { recursive: true });
    const kept = Buffer.concat([bytes.subarray(0, before), ...rest]);
    await writeFile(join(copy, log), kept);
    const repaired = await runHere(["repair", "--data-dir", copy], { env });
    assert.equal(repaired.code, 0, repaired.stderr);
    assert.match(repaired.stdout, /\nlost transactions: [1-9]\d*\n/);
    const [id] = await send(copy, postPlant);
    assert.ok(Number(id) > 5, `${name}: ${id}`);
  }
});

test("a repair and a check list the first twenty records with dangling references", async (t) => {
  const folder = join(await temporaryFolder(), "store");
  t.after(() => removeFolder(join(folder, "..")));
  const tables = [{ name: "zoos" }, { name: "animals" }];
  const store = await openStore({ folder, tables });
  const place = { city: "Amsterdam", country: "NL", ...times };
  for (const id of [1, 2]) {
    await commit(store, [["put", "zoos", { id, name: "Artis", ...place }]], 0);
  }
  for (let id = 1; id <= 30; id++) {
    const zoo_id = id > 25 ? 2 : 1;
    const ada = { id, zoo_id, name: "Ada", animal_type_id: 1, ...times };
    await commit(store, [["put", "animals", ada]], 0);
  }
  await store.close();
  const check = () => runHere(["check", "--data-dir", folder]);
  assert.equal((await check()).code, 0);
  await damage(folder, 2);
  const repaired = await runHere(["repair", "--data-dir", folder]);
  assert.equal(repaired.code, 0, repaired.stderr);
  const line =
    /^animals\.zoo_id: 25 records do not fit \(id 1, 2, .*, 19, 20, …\): "zoo_id" is 1, which does not exist: .*\n/m;
  const [listed = "none"] = line.exec(repaired.stdout) ?? [];
  const after = await check();
  assert.equal(after.code, 2);
  assert.ok(after.stdout.endsWith(listed), repaired.stdout + after.stdout);
});

test("a repair that leaves a unique value twice says so, and so does each start until its copy is deleted", async (t) => {
  const folder = join(await temporaryFolder(), "store");
  t.after(() => removeFolder(join(folder, "..")));
  const place = { city: "Amsterdam", country: "NL", ...times };
  const store = await openDataFolder(folder, sample);
  await commit(store, [["put", "users", storedAdmin]], 0);
  await commit(store, [["put", "zoos", { id: 1, name: "Artis", ...place }]], 0);
  const job = { zoo_id: 1, name: "Ada", job_title: "Keeper", ...times };
  for (const [id, email] of [[1, "a@b.cd"], [1, "Artis@b.cd"], [2, "a@b.cd"]]) {
    const document = { id: Number(id), ...job, email: String(email) };
    await commit(store, [["put", "employees", document]], 0);
  }
  await store.close();
  await damage(folder, 6);
  const repaired = await runHere(["repair", "--data-dir", folder]);
  const line =
    /^employees\.email: 2 records do not fit \(id 1, 2\): "email" is already in use/m;
  assert.match(repaired.stdout, line);
  assert.match((await runHere(["check", "--data-dir", folder])).stdout, line);

  const server = await startHere({ folder });
  t.after(() => server.stop());
  const notice =
    /The folder was repaired: .*zoo-api check.* delete damaged-\d+/;
  assert.match(server.output(), notice);
  const { body } = await server.request("GET", "/health");
  assert.match(body.notices.join(), notice);
  const token = await server.signIn();
  const json = { email: "c@b.cd" };
  const path = "/v1/employees/2";
  const changed = await server.request("PATCH", path, { token, json });
  assert.equal(changed.status, 201, changed.text);
  await server.end();
  const sound = await runHere(["check", "--data-dir", folder]);
  assert.equal(sound.code, 0, sound.stdout);
  for (const name of await readdir(folder)) {
    if (!name.startsWith("damaged-")) continue;
    await rm(join(folder, name), { recursive: true });
  }
  const again = await openDataFolder(folder, sample);
  assert.deepEqual(again.notices, []);
  await again.close();
});

test("check says that the files are of a newer format", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  await writeFile(join(folder, "meta.json"), '{"format":9}\n');
  const { code, stdout } = await runHere(["check", "--data-dir", folder]);
  assert.equal(code, 2);
  assert.match(
    stdout,
    /^fault: Cannot read meta\.json: this version.* does not know format 9/m,
  );
});

test("a folder without a store, such as one whose disk is not mounted, is no store without faults", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  for (
    const words of [
      ["check"],
      ["repair"],
      ["repair", "--dry-run"],
      ["export", "zoos"],
      ["export", "--to", join(folder, "files")],
      ["backup", `${folder}-copy`],
      ["log"],
      ["user", "list"],
      ["prune", "answers"],
    ]
  ) {
    const result = await runHere([...words, "--data-dir", folder]);
    const code = words[0] === "check" ? 2 : 1; // 1 promises that a start helps
    assert.equal(result.code, code, `${words.join(" ")}: ${result.stdout}`);
    assert.match(result.stderr, /: there is no store in it$/m, words.join(" "));
  }
  assert.deepEqual(await readdir(folder), []);
});

test("--dry-run is refused with other commands", async () => {
  const { code, stderr } = await runHere(["check", "--dry-run"]);
  assert.equal(code, 2);
  assert.match(stderr, /--dry-run is only allowed with repair/);
});

test("nothing is exported from a damaged folder as if it were complete", async (t) => {
  const folder = await filled(t);
  await damage(folder, 6);
  for (const command of [["export", "zoos"], ["user", "list"]]) {
    const result = await runHere([...command, "--data-dir", folder]);
    assert.equal(result.code, 1);
    assert.equal(result.stdout, "");
    assert.match(result.stderr, /wal-1\.jsonl is damaged/);
  }
});

test("an output that fails is an error, a reader that stops reading is not", async (t) => {
  const folder = await filled(t);
  const shell = (script: string) =>
    new Promise<{ code: number | null; errors: string }>((resolve) => {
      const words = [process.execPath, ...command].map((word) => `'${word}'`);
      const text = `${words.join(" ")} ${script}`;
      const child = spawn("sh", ["-c", text], {
        env: { DATA_DIR: folder, PATH: process.env["PATH"] },
        stdio: ["ignore", "ignore", "pipe"],
      });
      let errors = "";
      child.stderr.setEncoding("utf8").on("data", (part) => errors += part);
      child.on("close", (code) => resolve({ code, errors }));
    });
  const full = await shell("export zoos > /dev/full");
  assert.equal(full.code, 1);
  assert.match(
    full.errors,
    /^zoo-api: cannot print what was done, so look before you repeat it: ENOSPC/,
  );
  const head = await shell("export zoos | true");
  assert.deepEqual(head, { code: 0, errors: "" });
  // What a command does is done even so.
  const to = join(folder, "..", "unread");
  assert.equal((await shell(`export --to '${to}' > /dev/full`)).code, 1);
  const files = await readdir(to);
  assert.ok(files.includes("zoos.ndjson"));
  assert.ok(files.every((name) => name.endsWith(".ndjson")));
  await damage(folder, 7);
  assert.equal((await shell("repair > /dev/full")).code, 1);
  const checked = await runHere(["check", "--data-dir", folder]);
  assert.equal(checked.code, 0, checked.stdout);
});

test("a server whose output cannot be written continues", async (t) => {
  const folder = await filled(t);
  const server = await start({ folder, env: { LOG: "debug" } });
  try {
    server.child.stdout?.destroy();
    for (let count = 0; count < 3; count++) {
      const { status } = await server.request("GET", "/v1/zoos");
      assert.equal(status, 200);
    }
    assert.equal(await server.end(), 0);
  } finally {
    await server.stop();
  }
});

test("a backup of a running server restores by a plain copy, tokens and all", async (t) => {
  const folder = await filled(t);
  const to = join(folder, "../copy");
  const server = await start({ folder, env: { JWT_SECRET: "" } });
  const token = await server.signIn();
  const made = await runHere(["backup", to, "--data-dir", folder]);
  assert.equal(made.code, 0, made.stderr);
  assert.match(made.stdout, /^copied \d+ records up to sequence \d+ to /);
  const twice = await runHere(["backup", to, "--data-dir", folder]);
  assert.equal(twice.code, 1);
  assert.equal(
    twice.stderr,
    `zoo-api: Cannot copy to ${to}: it is not empty: name another folder\n`,
  );
  const same = await runHere(["copy", "--from", folder, "--to", folder]);
  assert.equal(same.code, 1);
  assert.equal(
    same.stderr,
    `zoo-api: Cannot copy to ${folder}: it is not empty: name another folder\n`,
  );
  const words = ["copy", "--from", folder, "--to"];
  const moved = await runHere([...words, join(folder, "../moved")]);
  assert.equal(moved.code, 0);
  assert.equal(
    moved.stderr,
    `zoo-api: a server uses ${folder}: what it still writes there is not in the copy\n`,
  );
  await server.stop();
  const quiet = await runHere([...words, join(folder, "../quiet")]);
  assert.deepEqual([quiet.code, quiet.stderr], [0, ""]);

  const restored = await startHere({ folder: to, env: { JWT_SECRET: "" } });
  const user = await restored.request("GET", "/v1/user", { token });
  assert.equal(user.status, 200);
  const zoos = await restored.request("GET", "/v1/zoos");
  assert.equal(zoos.headers.get("x-total-count"), "5");
  await restored.end();
  await restored.stop();
});

test("an admin is also created if there were others before, and its random password is shown on a terminal, not in a log or file", async (t) => {
  const top = await temporaryFolder();
  t.after(() => removeFolder(top));
  const dataDir = join(top, "store");
  const store = await openDataFolder(dataDir, sample);
  const logged: unknown[] = [];
  const log = (...line: readonly unknown[]) => void logged.push(line);
  let shown = "";
  const { stdout } = process;
  const { isTTY } = stdout;
  stdout.isTTY = true;
  const write = t.mock.method(stdout, "write", (text: string) => {
    shown += text;
    return true;
  });
  const declaration = sample;
  const config = { declaration, DATA_DIR: dataDir, ADMIN_PASSWORD: undefined };
  const password = "a long enough one";
  await createUser(store, sample, { username: "mia", password });
  for (let start = 1; start <= 2; start++) {
    await createFirstAdmin(store, config, { log, print: log });
  }
  write.mock.restore();
  stdout.isTTY = isTTY;
  await store.close();
  assert.match(shown, /^The password of admin is [\w-]{20}\n$/);
  assert.deepEqual(logged, [["info", "created user admin"]]);
  assert.ok(!(await readdir(dataDir)).includes("admin-password"));
});

test(
  "a copy that finds no space leaves nothing, and the message names it",
  {
    skip: process.platform === "win32" ? "it needs ulimit" : false,
  },
  async (t) => {
    const folder = await filled(t);
    const own = join(folder, "..");
    const shell = promisify(execFile);
    // The largest file may have no bytes at all.
    const script = 'ulimit -f 0; exec "$0" "$@"';
    const inFull = async (...args: readonly string[]) => {
      const words = ["-c", script, process.execPath, ...command, ...args];
      const env = { DATA_DIR: folder, PATH: process.env["PATH"] };
      const failed = await shell("sh", words, { env }).catch((error) => error);
      assert.equal(failed.code, 1, failed.stderr);
      return failed.stderr.split("\n", 1).join(); // the rest is of the coverage
    };
    const copy = join(own, "copy");
    assert.equal(
      await inFull("backup", copy),
      `zoo-api: cannot copy to ${copy}: EFBIG: file too large, write`,
    );
    assert.ok(!(await readdir(own)).includes("copy"));
  },
);

test("an entry of another kind than a start accepts is named by check too, which exits with 2", async (t) => {
  const folder = await filled(t);
  const names = ["mark", "reserve", "secret", "meta.json.tmp", "spool"];
  for (const name of names) {
    const path = join(folder, name);
    const away = `${folder}-${name}`;
    await rename(path, away).catch(() => {});
    if (name === "spool") await writeFile(path, "");
    else await mkdir(path);
    const check = await runHere(["check", "--data-dir", folder]);
    const line = `fault: ${name}: it is a link or of the wrong kind; move it`;
    assert.ok(check.stdout.includes(`\n${line} away\n`), check.stdout);
    assert.equal(check.code, 2);
    const serve = ["serve", "--port", "0", "--data-dir", folder];
    const { code, stderr } = await runHere(serve);
    assert.equal(code, 1, name);
    assert.match(stderr, /^zoo-api: .*\n$/, name);
    await rm(path, { recursive: true });
    await rename(away, path).catch(() => {});
  }
  const env = { JWT_SECRET: "s".repeat(32) };
  await rm(join(folder, "secret"), { force: true });
  await mkdir(join(folder, "secret"));
  const file = `${folder}-secret`;
  await writeFile(file, env.JWT_SECRET);
  for (const each of [env, { JWT_SECRET: "", JWT_SECRET_FILE: file }]) {
    const unused = await runHere(["check", "--data-dir", folder], {
      env: each,
    });
    assert.equal(unused.code, 0, unused.stdout);
  }
});

/** Rows that no server stores, each with the property that is wrong. */
const malformedRows: readonly (readonly [Mutation, string])[] = [
  [["put", "zoos", { id: 9, ...zoo }], "zoos.created_at"],
  [
    ["put", "zoos", { id: 9, ...zoo, ...times, updated_at: "x\r\ny" }],
    "zoos.updated_at",
  ],
  [
    ["put", "users", { ...storedAdmin, id: 9, username: "ada", password: "x" }],
    "users.password",
  ],
  [
    ["put", "authorizations", { id: 9, user_id: 1, created_at: at }],
    "authorizations.expires_at",
  ],
  [["put", "tasks", { id: 9, ...times, more: [null] }], "tasks.more"],
  [["put", "answers", { id: 9, by: null }], "answers.by"],
  [["put", "_awaited", { id: 9, items: "nope" }], "_awaited.items"],
  [["put", "_awaited", { id: 9, items: "[5]" }], "_awaited.items"],
  [["put", "_awaited", { id: 9, items: "[]", names: 5 }], "_awaited.names"],
  [["put", "_declaration", { id: 1, names: null }], "_declaration.names"],
  [
    ["put", "_declaration", { id: 1, names: { zoos: 5 }, newNames: {} }],
    "_declaration.names",
  ],
  [
    ["put", "_declaration", { id: 1, names: {}, newNames: {}, owners: 5 }],
    "_declaration.owners",
  ],
  [["put", "_history", { id: 9 }], "_history.from"],
  [["put", "_retention", { id: 9, at: "now" }], "_retention.at"],
];

test("a large seed leaves no log that takes as much memory to read", async (t) => {
  const folder = join(await temporaryFolder(), "store");
  const seed = { zoos: Array(30_000).fill(zoo) };
  const server = await startHere({ folder, seed });
  t.after(() => server.stop());
  const names = await readdir(folder);
  assert.ok(names.includes("snapshot-2.jsonl"), names.join());
});

test("check finds no fault in a failed task, however long its names are", async (t) => {
  const folder = await filled(t);
  const tables = [{ name: "tasks" }];
  const store = await openStore({ folder, tables });
  const collection = "a".repeat(100); // the longest name
  const failed = {
    ...visibleTask(1, "import", collection, at),
    status: "failed",
    failure: `The collection "${collection}" no longer exists.`,
    user_id: null,
  };
  await commit(store, [["put", "tasks", failed]], 0);
  await store.close();
  const { code, stdout } = await runHere(["check", "--data-dir", folder]);
  assert.equal(code, 0, stdout);
});

test("check names each row that no server stores, and nothing ends with a stack trace", async (t) => {
  for (const [mutation, name] of malformedRows) {
    const folder = await filled(t);
    const tables = [{ name: mutation[1] }];
    const store = await openStore({ folder, tables });
    await commit(store, [mutation], 0);
    await store.close();
    const place = ["--data-dir", folder];
    const check = await runHere(["check", ...place]);
    const line = `${name}: 1 record does not fit (id `;
    assert.ok(check.stdout.includes(`\n${line}`), check.stdout + check.stderr);
    assert.equal(check.code, 2, name);
    const exported = await runHere(["export", "zoos", ...place]);
    if (exported.code !== 0) {
      assert.match(
        exported.stderr,
        /^zoo-api: unexpected TypeError: .*"zoo-api check" lists.*\n$/,
      );
    }
    await startHere({ folder }).then(
      (server) => server.stop(),
      ({ message }) =>
        assert.match(message, /code 1: zoo-api: unexpected .*\n$/),
    );
  }
});

test("no control character of a file or an argument reaches the terminal", async (t) => {
  const folder = await filled(t);
  const name = "\u009b31mred\u0085";
  const file = join(folder, "..", "odd.ndjson");
  await writeFile(file, toLines([{ [name]: 1 }]));
  for (const words of [["import", "zoos", file], ["export", name]]) {
    const { code, stderr } = await runHere([...words, "--data-dir", folder]);
    assert.notEqual(code, 0);
    assert.match(stderr, /\\u009b31mred\\u0085/);
    assert.doesNotMatch(stderr, /[^\n\P{Cc}]/u);
  }
});

test("each rejected line of an import is one line of its output", async (t) => {
  const folder = await filled(t);
  const file = join(folder, "..", "odd.ndjson");
  await writeFile(file, toLines([{ "x\nline 2: fine\ty": 1 }]));
  const words = ["import", "zoos", file, "--data-dir", folder];
  const { stderr } = await runHere(words);
  assert.match(stderr, /^line 1: .*x\\u000aline 2: fine\\u0009y.*$/m);
  assert.doesNotMatch(stderr, /^line 2/m);
});

test("what a declaration prints is not in an export", async (t) => {
  const folder = await filled(t);
  const file = join(folder, "..", "printing.mjs");
  await writeFile(
    file,
    `import own from "node:console";
console.log("loaded");
own.log("imported");
export default ({ collection, string }) => {
  console.info("declared");
  return {
    title: "Zoos",
    collections: [
      collection({ name: "zoos", singular: "zoo", access: { read: "anyone", write: "keeper", delete: "admin" }, properties: {
        name: string({ maxLength: 100 }),
        city: string({ maxLength: 100 }),
        country: string({ maxLength: 2 }),
      } }),
    ],
  };
};
`,
  );
  const { code, stdout, stderr } = await runHere(
    ["export", "zoos", "--data-dir", folder, "--collections", file],
  );
  assert.equal(code, 0, stderr);
  assert.equal(stderr, "loaded\nimported\ndeclared\n");
  assert.deepEqual(fromLines(stdout).map(({ id }) => id), [1, 2, 3, 4, 5]);
});
