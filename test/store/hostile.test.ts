/** Data folders that somebody has tampered with: refused with what was found, soon, and without a stack trace. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { execFileSync } from "node:child_process";
import { mkdir, readdir, rename, symlink, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { readStore } from "../../src/cli/read.ts";
import { encodeHeader, encodeLine } from "../../src/store/log/format.ts";
import * as marker from "../../src/store/log/marker.ts";
import { openStore } from "../../src/store/store.ts";
import { runHere } from "../in-process.ts";
import { fill, folderFor, openFor, tables } from "./support.ts";
import { commit } from "../commit.ts";

const isWindows = process.platform === "win32";

/** Every file of a store that a start reads. */
const fileNames = ["wal-1.jsonl", "meta.json", "mark"];

/** Asserts that a start names the file, and so does `check`. */
async function assertRefused(folder: string, name: string): Promise<void> {
  const message = new RegExp(`/${name}: it must be a file, not a link`);
  const options = { folder, tables, marker };
  await assert.rejects(openStore(options), { message }, name);
  for (const command of ["check", "serve"]) {
    const env = { DATA_DIR: folder, PORT: "0" };
    const { code, stdout, stderr } = await runHere([command], { env });
    assert.notEqual(code, 0, name);
    assert.doesNotMatch(stderr, /\n\s+at /, name);
    const fault = new RegExp(
      `fault: ${name}: it is a link or|${message.source}`,
    );
    assert.match(stdout + stderr, fault);
  }
}

test(
  "neither a FIFO nor a link in a data folder passes for a file, or hangs a start",
  {
    skip: isWindows,
  },
  async (t) => {
    for (const name of fileNames) {
      for (const isLink of [false, true]) {
        const own = await folderFor(t);
        const folder = join(own, "store");
        await mkdir(folder, { mode: 0o700 });
        await fill(folder, 3);
        const away = join(own, "away");
        await rename(join(folder, name), away);
        if (isLink) await symlink(away, join(folder, name));
        else execFileSync("mkfifo", [join(folder, name)]);
        await assertRefused(folder, name);
        assert.ok((await readdir(folder)).includes(name));
      }
    }
  },
);

test("the data folder itself may be a link", {
  skip: isWindows,
}, async (t) => {
  const own = await folderFor(t);
  await fill(join(own, "disk"), 3);
  await symlink(join(own, "disk"), join(own, "store"));
  const folder = join(own, "store");
  const { faults, seq } = await readStore(folder, { tables });
  assert.deepEqual([faults, seq], [[], 3]);
  const store = await openFor(t, folder);
  await commit(store, [["put", "zoos", { id: 4 }]], 0);
});

/** Writes a store whose log has some lines, each with its right checksum. */
async function craft(folder: string, lines: readonly string[]): Promise<void> {
  await mkdir(folder, { mode: 0o700, recursive: true });
  const at = "2026-01-01T00:00:00.000Z";
  const header = { store: "s", generation: 1, salt: "12", seq: 0, at };
  const { line, seed } = encodeHeader(header);
  const bytes = lines.map((each, index) =>
    encodeLine(
      `"seq":${index + 1},"durable":0,"at":"${at}","by":0,"tx":${each}}`,
      seed,
    )
  );
  await writeFile(join(folder, "wal-1.jsonl"), Buffer.concat([line, ...bytes]));
  await writeFile(join(folder, "meta.json"), '{"format":3}');
}

test("an id that no server gives is refused, by each command and at the start", async (t) => {
  const ids = ["-5", "0", "1.5", '"7"', "null", "9007199254740992", "{}"];
  const documents = ids.map((id) => [id, `{"id":${id},"name":"B"}`]);
  for (
    const [id, document] of [...documents, ["undefined", "null"]]
  ) {
    const folder = join(await folderFor(t), "store");
    await craft(folder, [
      '[["put","zoos",{"id":1,"name":"A"}]]',
      `[["put","zoos",${document}]]`,
    ]);
    const message = new RegExp(
      `wal-1\\.jsonl.* does not know the id ${id} in zoos\\. Nothing was changed`,
    );
    await assert.rejects(openStore({ folder, tables }), { message }, id);
    const { code, stdout, stderr } = await runHere(["check"], {
      env: { DATA_DIR: folder },
    });
    assert.equal(code, 2, id);
    assert.match(stdout + stderr, message);
    assert.doesNotMatch(stderr, /\n\s+at /);
  }
});

test("a line of what no version writes is refused in a sentence, and a repair keeps the lines after it", async (t) => {
  for (
    const line of [
      "5",
      "{}",
      "[5]",
      "[null]",
      '[["del","zoos",1],5]',
      '[["put","zoos",{"id":1,"name":"B"}],null]',
    ]
  ) {
    const folder = join(await folderFor(t), "store");
    await craft(folder, [
      '[["put","zoos",{"id":1,"name":"A"}]]',
      line,
      '[["put","zoos",{"id":3,"name":"C"}]]',
    ]);
    const env = { DATA_DIR: folder };
    for (const command of [["check"], ["repair", "--dry-run"], ["repair"]]) {
      const { code, stdout, stderr } = await runHere(command, { env });
      assert.equal(
        code,
        command.length === 1 && command[0] === "repair" ? 0 : 2,
      );
      assert.match(stdout + stderr, /wal-1\.jsonl/);
      assert.doesNotMatch(stderr, /\n\s+at /);
      if (command[0] === "repair") {
        assert.match(stdout, /^lost transactions: 1$/m, line.slice(0, 40));
      }
    }
    const store = await openFor(t, folder);
    const ids = store.table("zoos").rows().map((row) => row.document.id);
    assert.deepEqual([ids, store.seq], [[1, 3], 3]);
  }
});

test("of very many faults the first hundred are described", async (t) => {
  const folder = join(await folderFor(t), "store");
  await craft(folder, ['[["put","zoos",{"id":1,"name":"A"}]]']);
  const path = join(folder, "wal-1.jsonl");
  await writeFile(path, "not a line of a log\n".repeat(130_000), { flag: "a" });
  const scan = await readStore(folder, { tables });
  assert.equal(scan.refusal?.code, "damaged");
  assert.equal(scan.faults.length, 100);
  await assert.rejects(openStore({ folder, tables }), { code: "damaged" });
  for (const command of [["check"], ["repair", "--dry-run"]]) {
    const { code, stdout, stderr } = await runHere(command, {
      env: { DATA_DIR: folder },
    });
    assert.equal(code, 2, stderr);
    assert.ok(stdout.length < 20_000, `${stdout.length} characters`);
    if (command[0] === "check") {
      assert.match(stdout, /only the first 100 faults of each file are listed/);
    }
  }
});
