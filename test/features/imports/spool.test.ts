/** Spool files: request bodies that are written to disk as they arrive. */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHash, randomBytes } from "node:crypto";
import {
  mkdir,
  readdir,
  readFile,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { test, type TestContext } from "node:test";
import { backupStore } from "../../../src/cli/backup.ts";
import { repairStore } from "../../../src/cli/repair.ts";
import { readStore } from "../../../src/cli/read.ts";
import {
  type OpenMode,
  realFiles,
  type Store,
} from "../../../src/store/store.ts";
import {
  pathOf,
  readSpool,
  removeOtherSpools,
  writeSpool,
} from "../../../src/features/imports/spool.ts";
import { Disk } from "../../torture/disk.ts";
import { Random } from "../../torture/random.ts";
import { folderFor, openFor, tables } from "../../store/support.ts";
import { commit } from "../../commit.ts";

/** A body that arrives in parts. */
async function* bodyOf(
  ...parts: readonly (string | Buffer)[]
): AsyncGenerator<Uint8Array> {
  for (const part of parts) yield Buffer.from(part);
}

/** Writes a body to a spool file and returns its name. */
async function spool(store: Store, ...parts: string[]): Promise<string> {
  const { name, hash } = await writeSpool(store, bodyOf(...parts));
  const expected = createHash("sha256").update(parts.join("")).digest();
  assert.deepEqual(hash, expected);
  return name;
}

/** The lines of a spool file, null for one that is too long, and their offsets. */
async function linesOf(
  store: Store,
  name: string,
  { from: start = 0, maxLineBytes = 1 << 20 } = {},
): Promise<{ text: string | null; byte: number; next: number }[]> {
  const found: { text: string | null; byte: number; next: number }[] = [];
  let byte = start;
  for await (const lines of readSpool(store, name, { start, maxLineBytes })) {
    for (const { bytes, end: next } of lines) {
      const isWhole = next - byte <= maxLineBytes;
      found.push({ text: isWhole ? bytes.toString() : null, byte, next });
      byte = next;
    }
  }
  return found;
}

/** The names of all files that are or become spool files. */
async function spoolFiles(store: Store): Promise<string[]> {
  const { files, folder } = store.folder;
  const found = await files.list(join(folder, "spool")).catch(() => []);
  return found.filter((name) => name.includes(".spool"));
}

async function diskFor(t: TestContext): Promise<Disk> {
  const folder = await folderFor(t);
  await mkdir(join(folder, "spool")); // the simulated disk has no folders
  return new Disk({ folder });
}

test("a body is written to a private file and read back by lines, from any line on", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  assert.deepEqual(await spoolFiles(store), []);
  const name = await spool(store, '{"a":1}\n{"b"', ':"ä"}\n\n{"c":3}');
  const found = await linesOf(store, name);
  assert.deepEqual(found.map(({ text }) => text), [
    '{"a":1}',
    '{"b":"ä"}',
    "",
    '{"c":3}',
  ]);
  for (const [at, { next }] of found.entries()) {
    const rest = await linesOf(store, name, { from: next });
    assert.deepEqual(rest, found.slice(at + 1));
  }
  assert.deepEqual(await linesOf(store, await spool(store)), []);
  assert.equal((await spoolFiles(store)).length, 2);
  assert.equal((await stat(join(folder, "spool"))).mode & 0o777, 0o700);
  for (const file of await readdir(join(folder, "spool"))) {
    const { mode } = await stat(join(folder, "spool", file));
    assert.equal(mode & 0o777, 0o600);
  }
  await store.folder.files.remove(pathOf(store, name));
  await store.folder.files.remove(pathOf(store, name));
  assert.equal((await spoolFiles(store)).length, 1);
  await assert.rejects(linesOf(store, name), { code: "ENOENT" });
});

test("the name of a spool file and of its folder are synced", async (t) => {
  const folder = await folderFor(t);
  const synced: string[] = [];
  const files = {
    ...realFiles,
    syncFolder: (path: string) => {
      synced.push(path);
      return realFiles.syncFolder(path);
    },
  };
  const store = await openFor(t, folder, { files });
  synced.length = 0;
  await spool(store, "line\n");
  assert.deepEqual(synced, [join(folder, "spool"), folder]);
});

test("a line that is too long is skipped and reported with its offset, and no other is", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const random = new Random(3);
  for (
    const [maxLineBytes, sizes] of [
      [10, [0, 9, 10, 11, 12, 40, 10]],
      [300_000, [299_999, 300_000, 300_001, 900_000, 5, 700_000, 262_144]],
    ] as const
  ) {
    for (const ended of [true, false]) {
      for (let round = 0; round < 8; round++) {
        const order = [...sizes, random.pick(sizes)]
          .sort(() => random.next() - 0.5);
        const text = order.map((size) => "x".repeat(size)).join("\n") +
          (ended ? "\n" : "");
        const name = await spool(store, text);
        // An empty last line without a newline does not count.
        const expected = ended || order.at(-1) !== 0
          ? order
          : order.slice(0, -1);
        let byte = 0;
        const places = expected.map((size) => {
          const begin = byte;
          byte = Math.min(begin + size + 1, text.length);
          return {
            size: byte - begin > maxLineBytes ? -1 : size,
            byte: begin,
            next: byte,
          };
        });
        const found = await linesOf(store, name, { maxLineBytes });
        assert.deepEqual(
          found.map(({ text, byte, next }) => ({
            size: text?.length ?? -1,
            byte,
            next,
          })),
          places,
        );
        await store.folder.files.remove(pathOf(store, name));
      }
    }
  }
});

test("a line of any length is skipped with bounded memory", async (t) => {
  const folder = await folderFor(t);
  let largest = 0;
  let syncs = 0;
  const files = {
    ...realFiles,
    open: async (path: string, how: OpenMode) => {
      const file = await realFiles.open(path, how);
      if (!path.includes(".spool")) return file;
      const { read, datasync } = file;
      return Object.assign(file, {
        datasync: () => {
          syncs++;
          return datasync.call(file);
        },
        read: (...args: Parameters<typeof read>) => {
          largest = Math.max(largest, args[0].length);
          return read.apply(file, args);
        },
      });
    },
  };
  const store = await openFor(t, folder, { files });
  const long = Array<Buffer>(40).fill(Buffer.alloc(1 << 20, "x"));
  const body = bodyOf("first\n", ...long, "\nlast");
  const { name } = await writeSpool(store, body);
  const found = await linesOf(store, name);
  assert.deepEqual(found.map(({ text }) => text), ["first", null, "last"]);
  assert.deepEqual(found.map(({ byte }) => byte), [0, 6, (40 << 20) + 7]);
  assert.ok(largest <= 1 << 20, `${largest} bytes at once`);
  // Nor may all of it wait in the page cache, ahead of the log.
  assert.ok(syncs >= 5, `${syncs} syncs`);
});

test("a spool file survives a power cut at any moment after it was written", async (t) => {
  const random = new Random(11);
  const rounds = process.env["WHOLE"] === "1" ? 60 : 12;
  let before = 0;
  for (let round = 0; round < rounds; round++) {
    const disk = await diskFor(t);
    const store = await openFor(t, disk.folder, {
      files: disk,
      limits: { reserveBytes: 0 },
    });
    const body = randomBytes(3000).toString("hex");
    let early: ReadonlyMap<string, Buffer> = new Map();
    const { name } = await writeSpool(
      store,
      (async function* () {
        for (let at = 0; at < body.length; at += 1000) {
          yield Buffer.from(body.slice(at, at + 1000));
        }
        early = disk.crash(await folderFor(t), random).contents();
      })(),
    );
    // Nothing has the name of a spool file before all of it is on the disk.
    assert.equal(early.get(`${name}.spool`), undefined);
    if (early.get(`${name}.spool.tmp`)?.toString() !== body) before++;
    await commit(store, [["put", "zoos", { id: 1, spool: name }]], 0);
    const crashed = disk.crash(await folderFor(t), random);
    const found = crashed.contents().get(`${name}.spool`);
    assert.equal(found?.toString(), body);
    const again = await openFor(t, crashed.folder, { files: crashed });
    const lines = await linesOf(again, name);
    assert.deepEqual(lines.map(({ text }) => text), [body]);
    await again.close();
    await store.close();
  }
  assert.ok(before > rounds / 3, "the power cuts destroy nothing");
});

for (
  const [what, kind, fate, code] of [
    ["a full disk", "write", { error: "ENOSPC", half: true }, "disk-full"],
    ["a quota", "write", { error: "EDQUOT" }, "disk-full"],
    ["a short write", "write", { short: 3 }, "disk-full"],
    ["a failed write", "write", { error: "EIO" }, "EIO"],
    ["a failed fdatasync", "sync", { error: "EIO" }, "EIO"],
    ["a full disk at its fdatasync", "sync", { error: "ENOSPC" }, "disk-full"],
    ["a failed fsync of the folder", "syncFolder", { error: "EIO" }, "EIO"],
  ] as const
) {
  test(`${what} leaves no spool file, and the store continues`, async (t) => {
    const disk = await diskFor(t);
    const limits = { reserveBytes: 0 };
    const store = await openFor(t, disk.folder, { files: disk, limits });
    let syncs = 0;
    const body = (async function* () {
      yield Buffer.from("first\n");
      disk.fate = (step) => {
        const ours = step.name.includes(".spool") || kind === "syncFolder";
        if (ours && step.kind === "sync") syncs++;
        return ours && step.kind === kind ? fate : undefined;
      };
      yield Buffer.from("second\n");
    })();
    await assert.rejects(writeSpool(store, body), { code });
    assert.ok(syncs <= 1, "a failed fdatasync was tried again");
    disk.fate = () => undefined;
    assert.deepEqual(await spoolFiles(store), []);
    await commit(store, [["put", "zoos", { id: 1 }]], 0);
    assert.equal(store.isWritable, true);
    assert.equal(store.fullDisk?.isFull ?? false, false);
  });
}

test("a spool file never takes the space that the log and the next snapshot need", async (t) => {
  const disk = await diskFor(t);
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  const text = "x".repeat(1000);
  for (let id = 1; id <= 50; id++) {
    await commit(store, [["put", "zoos", { id, text }]], 0);
  }
  disk.capacity = 400_000;
  const chunk = Buffer.alloc(10_000, "x");
  let written = -chunk.length; // the last chunk is refused
  const endless = (async function* () {
    for (;; written += chunk.length) yield chunk;
  })();
  await assert.rejects(writeSpool(store, endless), { code: "disk-full" });
  assert.ok(written >= 50_000, `only ${written}`);
  assert.deepEqual(await spoolFiles(store), []);
  // Another one fills the disk up to the limit: the log still has space.
  const chunks = Array<Buffer>(written / chunk.length - 1).fill(chunk);
  await writeSpool(store, bodyOf(...chunks));
  await store.checkpoint();
  for (let id = 51; id <= 60; id++) {
    await commit(store, [["put", "zoos", { id, text }]], 0);
  }
  assert.equal(store.fullDisk?.isFull ?? false, false);
});

test("while the disk is full no body is written", async (t) => {
  const disk = await diskFor(t);
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  disk.capacity = 60_000;
  const text = "x".repeat(1000);
  for (let id = 1; !store.fullDisk?.isFull; id++) {
    await commit(store, [["put", "zoos", { id, text }]], 0).catch(() => {});
  }
  await assert.rejects(spool(store, "x"), {
    code: "disk-full",
    message:
      /^The disk is too full .*: only \d+ bytes are left for all else\. Nothing was imported$/,
  });
  assert.deepEqual(await spoolFiles(store), []);
});

test("check, backup, repair and a restart leave spool files alone", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  const store = await openFor(t, from);
  await commit(store, [["put", "zoos", { id: 1 }]], 0);
  await commit(store, [["put", "zoos", { id: 2 }]], 0);
  const name = await spool(store, "line\n");
  await writeFile(join(from, "spool", "0.spool.tmp"), "never finished");
  await store.close();
  assert.deepEqual((await readStore(from, { tables })).faults, []);
  const to = join(folder, "copy");
  assert.equal((await backupStore(from, to)).records, 2);
  const copy = await openFor(t, to);
  assert.deepEqual(await spoolFiles(copy), []);
  await assert.rejects(linesOf(copy, name), { code: "ENOENT" });
  const log = join(from, "wal-1.jsonl");
  const bytes = await readFile(log);
  bytes[bytes.indexOf('"seq":1,') + 40] = 0x58;
  await writeFile(log, bytes);
  assert.notEqual((await repairStore(from)).backupFolder, undefined);
  const again = await openFor(t, from);
  assert.deepEqual(
    (await spoolFiles(again)).sort(),
    ["0.spool.tmp", `${name}.spool`].sort(),
  );
  await removeOtherSpools(again, [name]);
  assert.deepEqual(await spoolFiles(again), [`${name}.spool`]);
  const lines = await linesOf(again, name);
  assert.deepEqual(lines.map(({ text }) => text), ["line"]);
});

test("a link in place of the folder of spool files is refused, and nothing behind it is removed", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, join(folder, "store"));
  const other = join(folder, "other");
  await mkdir(other);
  await writeFile(join(other, "precious.spool"), "of another server");
  await symlink(other, join(store.folder.folder, "spool"));
  const refusal = {
    code: "unusable",
    message: /must be a folder, not a link/,
  };
  await assert.rejects(removeOtherSpools(store, []), refusal);
  await assert.rejects(spool(store, "line\n"), refusal);
  assert.deepEqual(await readdir(other), ["precious.spool"]);
});

test("at most 4,096 lines are read at a time, so that many empty ones delay nothing else", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const { name } = await writeSpool(store, bodyOf(Buffer.alloc(10_000, "\n")));
  const counts: number[] = [];
  for await (const lines of readSpool(store, name, {})) {
    counts.push(lines.length);
  }
  assert.deepEqual(counts, [4096, 4096, 1808]);
});
