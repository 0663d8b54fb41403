import assert from "node:assert/strict";
import {
  appendFile,
  readdir,
  readFile,
  rm,
  stat,
  writeFile,
} from "node:fs/promises";
import { Buffer } from "node:buffer";
import { join } from "node:path";
import { test } from "node:test";
import { crc32 } from "node:zlib";
import { encodeLine } from "../../src/store/log/format.ts";
import * as marker from "../../src/store/log/marker.ts";
import { readStore } from "../../src/cli/read.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { openStore, type StoreError } from "../../src/store/store.ts";
import { contents, fill, folderFor, openFor, tables } from "./support.ts";
import { commit } from "../commit.ts";

async function refused(folder: string): Promise<StoreError> {
  const before = await contents(folder);
  try {
    await (await openStore({ folder, tables, marker })).close();
  } catch (error) {
    assert.deepEqual(await contents(folder), before, "a byte was changed");
    return error as StoreError;
  }
  throw new assert.AssertionError({ message: "the store was opened" });
}

test("a torn last write is cut off, saved beside the log, and reported", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const log = join(folder, "wal-1.jsonl");
  const whole = await readFile(log);
  await appendFile(log, '{"crc":"00000000","seq":6,"durable":5,"at":"20');
  const reading = await readStore(folder);
  assert.deepEqual(reading.faults, []);
  assert.equal(reading.tornWrite?.byte, whole.length);
  assert.equal(reading.tornWrite?.line, 7);
  const store = await openFor(t, folder);
  assert.equal(store.seq, 5);
  assert.equal(store.notices.length, 1);
  assert.deepEqual(await readFile(log), whole);
  const kept = (await readdir(folder)).find((name) => name.includes(".torn-"));
  assert.match(
    await readFile(join(folder, kept ?? ""), "utf8"),
    /^\{"crc":"00000000","seq":6,/,
  );
  await commit(store, [["put", "zoos", { id: 6 }]], 0);
  await store.close();
  assert.equal((await openFor(t, folder)).table("zoos").size, 6);
});

test("a complete last line without its newline is kept", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const log = join(folder, "wal-1.jsonl");
  const whole = await readFile(log);
  await writeFile(log, whole.subarray(0, -1));
  const store = await openFor(t, folder);
  assert.equal(store.seq, 5);
  await commit(store, [["put", "zoos", { id: 6 }]], 0);
  await store.close();
  assert.equal((await openFor(t, folder)).seq, 6);
});

test("a damaged line in the middle is refused with its place, and nothing is changed", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const log = join(folder, "wal-1.jsonl");
  const bytes = await readFile(log);
  const at = bytes.indexOf("Zoo 3");
  bytes[at] = 0x5b;
  await writeFile(log, bytes);
  const error = await refused(folder);
  assert.equal(error.code, "damaged");
  assert.deepEqual(error.fault, {
    file: "wal-1.jsonl",
    byte: bytes.lastIndexOf("\n", at) + 1,
    line: 4,
    message: "its checksum does not match",
  });
  assert.match(error.message, /wal-1\.jsonl.*byte \d+, line 4.*sequence is 2/);
});

test("a log whose end lacks writes that the marker proves acknowledged is refused", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  const log = join(folder, "wal-1.jsonl");
  const bytes = await readFile(log);
  const end = bytes.lastIndexOf("\n", bytes.length - 2) + 1;
  await writeFile(log, bytes.subarray(0, end));
  const error = await refused(folder);
  assert.equal(error.code, "damaged");
  assert.equal(error.fault?.byte, end);
  await rm(join(folder, "mark"));
  assert.equal((await openFor(t, folder)).seq, 4);
});

test("a newer format is refused with its number and changes no byte", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 2);
  const meta = join(folder, "meta.json");
  const text = await readFile(meta, "utf8");
  await writeFile(meta, text.replace('"format":3', '"format":7'));
  const error = await refused(folder);
  assert.equal(error.code, "format");
  assert.match(error.message, /format 7/);
});

for (const where of ["meta.json", "wal-1.jsonl"]) {
  test(`format 1 in ${where} is refused with what to do and changes no byte`, async (t) => {
    const folder = await folderFor(t);
    await fill(folder, 2);
    if (where === "meta.json") {
      await writeFile(join(folder, where), '{"format":1}\n');
    } else await beginInFormat1(join(folder, where));
    const error = await refused(folder);
    assert.equal(error.code, "format");
    assert.match(
      error.message,
      /has format 1.*Nothing was changed\. Start version 0\.1\.0 .* once/,
    );
  });
}

/** Changes the header of a log to format 1. */
async function beginInFormat1(log: string): Promise<void> {
  const [header = "", ...lines] = (await readFile(log, "utf8")).split("\n");
  const rest = header.slice(18).replace(/"format":\d+/, '"format":1');
  await writeFile(log, encodeLine(rest) + lines.join("\n"));
}

test("a damaged snapshot is skipped if the logs since the previous one are intact", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  for (const id of [4, 5]) {
    const store = await openFor(t, folder);
    await commit(store, [["put", "zoos", { id, name: `Zoo ${id}` }]], 0);
    await store.checkpoint();
    await store.close();
  }
  const path = join(folder, "snapshot-3.jsonl");
  const bytes = await readFile(path);
  bytes.set(Buffer.from("X"), bytes.indexOf("Zoo 2"));
  await writeFile(path, bytes);
  assert.equal((await readStore(folder)).faults[0]?.file, "snapshot-3.jsonl");
  const before = await contents(folder);
  const store = await openFor(t, folder);
  assert.equal(store.table("zoos").size, 5);
  assert.equal(store.table("zoos").get(2)?.document["name"], "Zoo 2");
  assert.match(store.notices.join(), /snapshot-3\.jsonl is damaged/);
  await store.checkpoint();
  await store.close();
  assert.equal((await openFor(t, folder)).notices.length, 0);
  for (const [name, changed] of before) {
    await writeFile(join(folder, name), changed);
  }
});

test("the interrupted creation of a store is finished", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 0);
  await rm(join(folder, "meta.json"));
  const store = await openFor(t, folder);
  await commit(store, [["put", "zoos", { id: 1 }]], 0);
  await store.close();
  await rm(join(folder, "meta.json"));
  assert.equal((await refused(folder)).fault?.file, "meta.json");
});

test("a store that has lost all but its meta file is refused", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 3);
  for (const name of ["wal-1.jsonl", "mark"]) await rm(join(folder, name));
  const error = await refused(folder);
  assert.equal(error.code, "damaged");
  assert.equal(error.fault?.file, "wal-1.jsonl");
  assert.match(error.message, /wal-1\.jsonl is damaged .*missing/);
  assert.equal((await readStore(folder)).refusal?.message, error.message);
});

for (const log of ["that is gone", "without a transaction"]) {
  test(`a marker that proves transactions prevents a new store beside a log ${log}`, async (t) => {
    const folder = await folderFor(t);
    await fill(folder, 3);
    await rm(join(folder, "meta.json"));
    const path = join(folder, "wal-1.jsonl");
    const [header = ""] = (await readFile(path, "utf8")).split(/(?<=\n)/);
    if (log === "that is gone") await rm(path);
    else await writeFile(path, header);
    const error = await refused(folder);
    assert.equal(error.code, "damaged");
    assert.equal((await readStore(folder)).refusal?.message, error.message);
  });
}

/** A complete line for a log, with its checksum. */
async function lineFor(log: string, rest: string): Promise<Buffer> {
  const [header = ""] = (await readFile(log, "utf8")).split("\n");
  return encodeLine(rest, crc32(JSON.parse(header).salt));
}

for (
  const [what, rest] of [
    [
      "operation",
      '"seq":6,"durable":5,"at":"","by":0,"tx":[["move","zoos",1]]}',
    ],
    ["kind of line", '"seq":6,"note":"hello"}'],
  ] as const
) {
  test(`an ${what} of a later version is refused and nothing is changed`, async (t) => {
    const folder = await folderFor(t);
    await fill(folder, 5);
    const log = join(folder, "wal-1.jsonl");
    await appendFile(log, await lineFor(log, rest));
    const error = await refused(folder);
    assert.equal(error.code, "format");
    assert.match(error.message, /wal-1\.jsonl.*does not know/);
  });
}

test("an intact line of another log does not pass for one of this log", async (t) => {
  const folder = await folderFor(t);
  await fill(join(folder, "one"), 5);
  await fill(join(folder, "two"), 6);
  const log = join(folder, "one/wal-1.jsonl");
  const whole = await readFile(log);
  const other = await readFile(join(folder, "two/wal-1.jsonl"), "utf8");
  const sixth = other.split("\n")[6] ?? "";
  assert.match(sixth, /"seq":6,/);
  await appendFile(log, `${sixth}\n`);
  const error = await refused(join(folder, "one"));
  assert.equal(error.fault?.byte, whole.length);
  assert.equal(error.fault?.message, "its checksum does not match");
  // Without its newline it is the end of a torn write, and not accepted either.
  await writeFile(log, Buffer.concat([whole, Buffer.from(sixth)]));
  assert.equal((await openFor(t, join(folder, "one"))).seq, 5);
});

test("lines after a sector that never reached the disk are cut off with it, unless they are proved acknowledged", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 1);
  const log = join(folder, "wal-1.jsonl");
  const whole = await readFile(log);
  const zeros = Buffer.alloc(1536);
  const line = (durable: number) =>
    lineFor(log, `"seq":9,"durable":${durable},"at":"","by":0,"tx":[]}`);
  await writeFile(
    log,
    Buffer.concat([whole, zeros, Buffer.from("\n"), await line(2)]),
  );
  assert.match((await refused(folder)).message, /last good sequence is 1/);
  await writeFile(
    log,
    Buffer.concat([whole, zeros, Buffer.from("\n"), await line(1)]),
  );
  const store = await openFor(t, folder);
  assert.equal(store.seq, 1);
  assert.equal(store.notices.length, 1);
  assert.deepEqual(await readFile(log), whole);
});

test("a stop is clean on a full disk too, because the marker has its space from the start", async (t) => {
  const folder = await folderFor(t);
  const store = await openFor(t, folder);
  const { size } = await stat(join(folder, "mark"));
  assert.equal(size, 1024);
  await store.close();
});

test("files whose names only resemble those of logs are ignored, and a log far ahead is refused at once", async (t) => {
  const folder = await folderFor(t);
  await fill(folder, 5);
  for (const digits of ["01", "0", "99999999999999999999"]) {
    await writeFile(join(folder, `wal-${digits}.jsonl`), "a copy of a log");
  }
  assert.deepEqual((await readStore(folder)).faults, []);
  assert.equal((await openFor(t, folder)).seq, 5);
  const copy = await folderFor(t);
  await fill(copy, 5);
  await writeFile(
    join(copy, "wal-20261231.jsonl"),
    await readFile(join(copy, "wal-1.jsonl")),
  );
  assert.match(
    (await refused(copy)).message,
    /wal-1\.jsonl is damaged .* seal/,
  );
  const { salvage } = await repairStore(copy, { tables });
  assert.equal(salvage?.tables.get("zoos")?.size, 5);
  assert.equal((await openFor(t, copy)).seq, 5);
});
