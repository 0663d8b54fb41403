import assert from "node:assert/strict";
import type { SpoolLine } from "../../src/features/imports/spool.ts";
import { spoolsOf } from "./support.ts";
import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { mkdir, readdir, readFile, stat, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { backupStore } from "../../src/cli/backup.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { readStore, realFiles, type Store } from "../../src/store/store.ts";
import { Disk } from "../torture/disk.ts";
import { Random } from "../torture/random.ts";
import { folderFor, openFor, tables } from "./support.ts";

/** Takes a body to disk and returns its name. */
async function spool(store: Store, ...chunks: string[]): Promise<string> {
  const begun = await spoolsOf(store).create();
  for (const chunk of chunks) await begun.write(Buffer.from(chunk));
  await begun.finish();
  return begun.name;
}

/** The lines of a spool; null for one that is too long. */
async function linesOf(
  store: Store,
  name: string,
  options: { from?: number; longest?: number } = {},
): Promise<{ text: string | null; line: SpoolLine }[]> {
  const found: { text: string | null; line: SpoolLine }[] = [];
  for await (const line of spoolsOf(store).lines(name, options)) {
    found.push({ text: line.bytes?.toString() ?? null, line });
  }
  return found;
}

async function diskFor(t: TestContext): Promise<Disk> {
  const folder = await folderFor(t);
  await mkdir(join(folder, "spool")); // the disk in memory has no folders
  return new Disk({ folder });
}

test("a body is taken to a private file and read back by lines, from any of them on", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  assert.deepEqual(await spoolsOf(store).list(), []);
  const name = await spool(store, '{"a":1}\n{"b"', ':"ä"}\n\n{"c":3}');
  const found = await linesOf(store, name);
  assert.deepEqual(found.map(({ text }) => text), [
    '{"a":1}',
    '{"b":"ä"}',
    "",
    '{"c":3}',
  ]);
  for (const [at, { line }] of found.entries()) {
    const rest = await linesOf(store, name, { from: line.next });
    assert.deepEqual(rest, found.slice(at + 1));
  }
  assert.deepEqual(await linesOf(store, await spool(store)), []);
  assert.equal((await spoolsOf(store).list()).length, 2);
  assert.equal((await stat(join(folder, "spool"))).mode & 0o777, 0o700);
  for (const file of await readdir(join(folder, "spool"))) {
    const { mode } = await stat(join(folder, "spool", file));
    assert.equal(mode & 0o777, 0o600);
  }
  await spoolsOf(store).remove(name);
  await spoolsOf(store).remove(name);
  assert.equal((await spoolsOf(store).list()).includes(name), false);
  await assert.rejects(linesOf(store, name), { code: "unknown-spool" });
});

test("when a spool is finished its bytes, its name and its folder's name are synced", async (t) => {
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
  const begun = await spoolsOf(store).create();
  await begun.write(Buffer.from("line\n"));
  synced.length = 0;
  await begun.finish();
  assert.deepEqual(synced, [join(folder, "spool"), folder]);
});

test("a line too long is told with its place and skipped, and no other is", async (t) => {
  const store = await openFor(t, await folderFor(t));
  const random = new Random(3);
  for (
    const [longest, sizes] of [
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
        // A last line that is empty and has no newline is none.
        const expected = ended || order.at(-1) !== 0
          ? order
          : order.slice(0, -1);
        let byte = 0;
        const places = expected.map((size) => {
          const begin = byte;
          byte = Math.min(begin + size + 1, text.length);
          return { size: size > longest ? -1 : size, byte: begin, next: byte };
        });
        const found = await linesOf(store, name, { longest });
        assert.deepEqual(
          found.map(({ text, line: { byte, next } }) => ({
            size: text?.length ?? -1,
            byte,
            next,
          })),
          places,
        );
        await spoolsOf(store).remove(name);
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
    open: async (path: string, how: "read" | "write" | "create") => {
      const file = await realFiles.open(path, how);
      if (!path.endsWith(".spool")) return file;
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
  const begun = await spoolsOf(store).create();
  await begun.write(Buffer.from("first\n"));
  const block = Buffer.alloc(1 << 20, "x");
  for (let round = 0; round < 40; round++) await begun.write(block);
  await begun.write(Buffer.from("\nlast"));
  await begun.finish();
  assert.equal(begun.bytes, (40 << 20) + 11);
  const found = await linesOf(store, begun.name);
  assert.deepEqual(found.map(({ text }) => text), ["first", null, "last"]);
  assert.deepEqual(found.map(({ line }) => line.byte), [0, 6, (40 << 20) + 7]);
  assert.ok(largest <= 1 << 20, `${largest} bytes at once`);
  // Nor may it all wait in the page cache, before the log.
  assert.ok(syncs >= 5, `${syncs} syncs`);
});

test("a finished spool survives a power cut at any later moment", async (t) => {
  const random = new Random(11);
  let before = 0;
  for (let round = 0; round < 60; round++) {
    const disk = await diskFor(t);
    const store = await openFor(t, disk.folder, {
      files: disk,
      limits: { reserveBytes: 0 },
    });
    const body = randomBytes(3000).toString("hex");
    const begun = await spoolsOf(store).create();
    for (let at = 0; at < body.length; at += 1000) {
      await begun.write(Buffer.from(body.slice(at, at + 1000)));
    }
    const early = disk.crash(await folderFor(t), random).contents();
    if (early.get(`${begun.name}.spool`)?.toString() !== body) before++;
    await begun.finish();
    await store.commit([["put", "zoos", { id: 1, spool: begun.name }]], 0);
    const crashed = disk.crash(await folderFor(t), random);
    const found = crashed.contents().get(`${begun.name}.spool`);
    assert.equal(found?.toString(), body);
    const again = await openFor(t, crashed.folder, { files: crashed });
    const lines = await linesOf(again, begun.name);
    assert.deepEqual(lines.map(({ text }) => text), [body]);
    await again.close();
    await store.close();
  }
  assert.ok(before > 20, "the power cuts take nothing");
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
  test(`${what} leaves nothing of a spool, and the store goes on`, async (t) => {
    const disk = await diskFor(t);
    const limits = { reserveBytes: 0 };
    const store = await openFor(t, disk.folder, { files: disk, limits });
    const begun = await spoolsOf(store).create();
    await begun.write(Buffer.from("first\n"));
    let syncs = 0;
    disk.fate = (step) => {
      const ours = step.name.endsWith(".spool") || kind === "syncFolder";
      if (ours && step.kind === "sync") syncs++;
      return ours && step.kind === kind ? fate : undefined;
    };
    await assert.rejects(async () => {
      await begun.write(Buffer.from("second\n"));
      await begun.finish();
    }, { code });
    assert.ok(syncs <= 1, "a failed fdatasync was tried again");
    disk.fate = () => undefined;
    assert.deepEqual(await spoolsOf(store).list(), []);
    await assert.rejects(linesOf(store, begun.name), { code: "unknown-spool" });
    await store.commit([["put", "zoos", { id: 1 }]], 0);
    assert.equal(store.isWritable, true);
    assert.equal(store.isDiskFull, false);
  });
}

test("a spool never takes the space that the log and its next snapshot need", async (t) => {
  const disk = await diskFor(t);
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  const text = "x".repeat(1000);
  for (let id = 1; id <= 50; id++) {
    await store.commit([["put", "zoos", { id, text }]], 0);
  }
  disk.capacity = 400_000;
  const begun = await spoolsOf(store).create();
  const chunk = Buffer.alloc(10_000, "x");
  await assert.rejects(async () => {
    while (true) await begun.write(chunk);
  }, { code: "disk-full" });
  assert.ok(begun.bytes >= 50_000, `only ${begun.bytes}`);
  assert.deepEqual(await spoolsOf(store).list(), []);
  // Another fills the disk up to the bound and stays: the log still has room.
  const other = await spoolsOf(store).create();
  while (other.bytes + chunk.length < begun.bytes) await other.write(chunk);
  await other.finish();
  await store.checkpoint();
  for (let id = 51; id <= 60; id++) {
    await store.commit([["put", "zoos", { id, text }]], 0);
  }
  assert.equal(store.isDiskFull, false);
});

test("while the disk is full nothing is taken into a spool", async (t) => {
  const disk = await diskFor(t);
  const limits = { reserveBytes: 30_000, maxBatchBytes: 5000, retryMs: 5 };
  const store = await openFor(t, disk.folder, { files: disk, limits });
  disk.capacity = 60_000;
  const text = "x".repeat(1000);
  for (let id = 1; !store.isDiskFull; id++) {
    await store.commit([["put", "zoos", { id, text }]], 0).catch(() => {});
  }
  const begun = await spoolsOf(store).create();
  await assert.rejects(begun.write(Buffer.from("x")), { code: "disk-full" });
  assert.deepEqual(await spoolsOf(store).list(), []);
});

test("check, backup, repair and a restart leave spools alone", async (t) => {
  const folder = await folderFor(t);
  const from = join(folder, "store");
  const store = await openFor(t, from);
  await store.commit([["put", "zoos", { id: 1 }]], 0);
  await store.commit([["put", "zoos", { id: 2 }]], 0);
  const name = await spool(store, "line\n");
  const dropped = await spoolsOf(store).create();
  await dropped.write(Buffer.from("never finished"));
  await dropped.discard();
  await store.close();
  assert.deepEqual((await readStore(from, { tables })).faults, []);
  const to = join(folder, "copy");
  assert.equal((await backupStore(from, to)).records, 2);
  const copy = await openFor(t, to);
  assert.deepEqual(await spoolsOf(copy).list(), []);
  await assert.rejects(linesOf(copy, name), { code: "unknown-spool" });
  const log = join(from, "wal-1.jsonl");
  const bytes = await readFile(log);
  bytes[bytes.indexOf('"seq":1,') + 40] = 0x58;
  await writeFile(log, bytes);
  assert.equal((await repairStore(from)).repaired, true);
  const again = await openFor(t, from);
  assert.deepEqual(await spoolsOf(again).list(), [name]);
  const lines = await linesOf(again, name);
  assert.deepEqual(lines.map(({ text }) => text), ["line"]);
});
