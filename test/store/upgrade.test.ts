/**
 * This version opens folders of the last versions with file formats 1 and 2.
 * Each of format-1/ and format-2/ is the real folder of a real stop: its files
 * as they were, compressed, and in expected.json the records that version read.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { backupStore } from "../../src/cli/backup.ts";
import { repairStore } from "../../src/cli/repair.ts";
import { readStore } from "../../src/cli/read.ts";
import {
  openStore,
  type Store,
  StoreError,
  type StoreOptions,
  type Table,
} from "../../src/store/store.ts";
import { lacks, moduleOf, root, start } from "../harness.ts";
import { ended, taskWhen } from "../lines.ts";
import { encodeHeader, format } from "../../src/store/log/format.ts";
import { Disk, type Fate } from "../torture/disk.ts";
import { Random } from "../torture/random.ts";
import { contents, folderFor, openFor } from "./support.ts";

interface TableState {
  readonly lastId: number;
  readonly lastSeq: number;
  readonly rows: readonly (readonly [seq: number, document: unknown])[];
}

interface State {
  readonly seq: number;
  readonly tables: Readonly<Record<string, TableState>>;
}

interface Specimen {
  readonly files: Map<string, Buffer>;
  readonly expected: State & { readonly refused?: unknown };
}

const goodSpecimens = [
  "format-1/clean-stop",
  "format-1/first-log",
  "format-1/killed",
  "format-1/torn",
  "format-1/damaged-snapshot",
  "format-1/server",
  "format-2/clean-stop",
  "format-2/first-log",
  "format-2/torn",
];
/** Tests every step and byte instead of a sample; in the whole check. */
const isWhole = process.env["WHOLE"] === "1";
const limits = { reserveBytes: 0, markerDelayMs: 60_000 };

async function readSpecimen(name: string): Promise<Specimen> {
  const folder = join(root, "test/store", name);
  const files = new Map<string, Buffer>();
  for (const entry of await readdir(folder, { recursive: true })) {
    if (!entry.endsWith(".gz")) continue;
    const bytes = gunzipSync(await readFile(join(folder, entry)));
    files.set(entry.replace(/\.gz$/, ""), bytes);
  }
  const expected = JSON.parse(String(files.get("expected.json")));
  files.delete("expected.json");
  return { files, expected };
}

/** Creates a real folder with a specimen's files. */
async function unpack(folder: string, { files }: Specimen): Promise<string> {
  for (const [name, bytes] of files) {
    const path = join(folder, name);
    await mkdir(dirname(path), { recursive: true, mode: 0o700 });
    await writeFile(path, bytes);
  }
  return folder;
}

function stateOf(seq: number, tables: readonly Table[]): State {
  const states = tables.map((table): [string, TableState] => {
    const { lastId, lastSeq } = table;
    const rows = table.rows().map(({ seq, document }) =>
      [seq, document] as const
    );
    return [table.name, { lastId, lastSeq, rows }];
  });
  return { seq, tables: Object.fromEntries(states) };
}

/** The state of an open store; a snapshot does not hold each record's sequence. */
function stateIn(store: Store, { tables }: State, seqs = false): State {
  const names = Object.keys(tables);
  const state = stateOf(store.seq, names.map((name) => store.table(name)));
  return seqs ? state : withoutSeqs(state);
}

function withoutSeqs({ seq, tables }: State): State {
  const entries = Object.entries(tables).map(
    ([name, table]): [string, TableState] => [
      name,
      { ...table, rows: table.rows.map(([, row]) => [0, row]) },
    ],
  );
  return { seq, tables: Object.fromEntries(entries) };
}

function formatOf(bytes: Buffer | undefined): number {
  return JSON.parse(String(bytes).split("\n")[0] ?? "").format;
}

for (const name of goodSpecimens) {
  test(`a folder of an older format (${name}) is upgraded with all its records, ids and sequences`, async (t) => {
    const specimen = await readSpecimen(name);
    const { expected } = specimen;
    const folder = await unpack(await folderFor(t), specimen);
    // Only the names: after damage, a checkpoint removes old files meanwhile.
    const top = async () =>
      (await readdir(folder)).filter((each) => each !== "reserve");
    const reading = await readStore(folder);
    assert.equal(reading.refusal, undefined);
    assert.deepEqual(
      stateOf(reading.seq, [...reading.tables.values()]),
      expected,
    );
    const store = await openFor(t, folder, { tables: [], limits });
    assert.deepEqual(stateIn(store, expected, true), expected);
    const torn = (await top()).filter((each) => each.includes(".torn-"));
    assert.equal(torn.length, name.endsWith("torn") ? 1 : 0);
    const skipped = name === "format-1/damaged-snapshot" ? 1 : 0;
    assert.equal(store.notices.length, torn.length + skipped);
    await store.close();
    const { generation } = store.position;
    const files = await contents(folder);
    for (const each of ["meta.json", `wal-${generation}.jsonl`]) {
      assert.equal(formatOf(files.get(each)), format);
    }

    const again = await openFor(t, folder, { tables: [], limits });
    assert.deepEqual(stateIn(again, expected), withoutSeqs(expected));
    assert.equal(
      again.position.generation,
      generation,
      "it was upgraded twice",
    );
    const [table = ""] = Object.keys(expected.tables);
    await again.commit([["put", table, { id: 1_000_000 }]], 0);
    await again.checkpoint();
    await again.close();
    const { faults, seq } = await readStore(folder);
    assert.deepEqual(faults, []);
    assert.equal(seq, expected.seq + 1);
    for (const each of await top()) {
      if (/^(wal|snapshot)-\d+\./.test(each) && !each.includes(".torn-")) {
        const bytes = (await contents(folder)).get(each);
        assert.equal(formatOf(bytes), format, `${each} is left`);
      }
    }
  });
}

test("a damaged folder of format 1 is refused unchanged, and can be repaired", async (t) => {
  const specimen = await readSpecimen("format-1/damaged");
  const folder = await unpack(await folderFor(t), specimen);
  const before = await contents(folder);
  await assert.rejects(openStore({ folder, tables: [], limits }), (error) => {
    assert.ok(error instanceof StoreError);
    assert.deepEqual(error.fault, specimen.expected.refused);
    return true;
  });
  assert.deepEqual(await contents(folder), before);
  assert.equal((await repairStore(folder)).salvage?.lostTransactions, 1);
  const store = await openFor(t, folder, { tables: [], limits });
  assert.equal(store.table("zoos").get(9)?.document["name"], "zoos 9");
  assert.equal(store.table("zoos").lastId, 9);
});

test("a folder of format 1 whose files are damaged anywhere is refused unchanged, or nothing is missing", async (t) => {
  const { files, expected } = await readSpecimen("format-1/clean-stop");
  const folder = await folderFor(t);
  for (const [name, bytes] of files) {
    for (let byte = 0; byte < bytes.length; byte += isWhole ? 17 : 997) {
      const damaged = Buffer.from(bytes);
      damaged[byte] = (damaged[byte] ?? 0) ^ 1;
      const disk = Disk.of(folder, new Map([...files, [name, damaged]]));
      const before = disk.contents();
      const store = await openOn(disk).catch((error) => {
        assert.ok(error instanceof StoreError, `${name} ${byte}: ${error}`);
        assert.deepEqual(disk.contents(), before);
      });
      if (store === undefined) continue;
      assert.deepEqual(stateIn(store, expected), withoutSeqs(expected));
      await store.close();
    }
  }
});

function openOn(disk: Disk, more: Partial<StoreOptions> = {}): Promise<Store> {
  const { folder } = disk;
  return openStore({ folder, files: disk, tables: [], limits, ...more });
}

/**
 * Some snapshots of format 2 do not have the ids that were used under the
 * former name of a collection. These are known again if the log is replayed
 * instead.
 */
function withoutForgottenIds({ seq, tables }: State, expected: State): State {
  const entries = Object.entries(tables).map(
    ([name, table]): [string, TableState] => {
      const isForgotten = expected.tables[name]?.lastId === 0;
      return [name, isForgotten ? { ...table, lastId: 0 } : table];
    },
  );
  return { seq, tables: Object.fromEntries(entries) };
}

/** Opens what is on a disk, twice, and compares it. */
async function check(disk: Disk, expected: State): Promise<void> {
  for (let time = 0; time < 2; time++) {
    const store = await openOn(disk);
    const state = withoutForgottenIds(stateIn(store, expected), expected);
    await store.close();
    assert.deepEqual(state, withoutSeqs(expected));
    assert.equal(formatOf(disk.contents().get("meta.json")), format);
  }
}

/** The specimens on a simulated disk; the last one as a power cut during a rotation leaves it. */
async function onDisk(): Promise<[string, Specimen][]> {
  const specimens: [string, Specimen][] = [];
  for (const name of goodSpecimens) {
    if (name === "format-1/server") continue; // it is large
    specimens.push([name, await readSpecimen(name)]);
  }
  const { files, expected } = await readSpecimen("format-1/clean-stop");
  for (const name of ["snapshot-3.json", "mark"]) files.delete(name);
  specimens.push(["without its snapshot", { files, expected }]);
  // The first log gets its name before the store is complete.
  const [header = ""] = String(
    (await readSpecimen("format-1/first-log")).files.get("wal-1.jsonl"),
  ).split(/(?<=\n)/);
  const salt: string = JSON.parse(header).salt;
  const start = { store: "6f", generation: 1, salt, seq: 0, at: "" };
  const nothing = { seq: 0, tables: {} };
  for (const line of [Buffer.from(header), encodeHeader(start).line]) {
    const files = new Map([["wal-1.jsonl", line]]);
    const name = `format ${formatOf(line)}, whose creation was cut off`;
    specimens.push([name, { files, expected: nothing }]);
  }
  return specimens;
}

test("a crash at any step of an upgrade loses nothing", async (t) => {
  const random = new Random(1);
  const folder = await folderFor(t);
  let states = 0;
  for (const [name, { files, expected }] of await onDisk()) {
    for (const half of [false, true]) {
      for (
        let number = 1, ended = false;
        !ended;
        number += isWhole ? 1 : 13
      ) {
        const disk = Disk.of(folder, files);
        disk.fate = (step): Fate => {
          if (step.number < number) return undefined;
          if (step.number > number || !half) disk.kill();
          return half ? { error: "EIO", half: true } : undefined;
        };
        const store = await openOn(disk).catch(() => undefined);
        ended = disk.steps < number;
        disk.kill();
        await store?.close().catch(() => {});
        const left = [disk.copy(folder)];
        for (let state = 0; state < 2; state++) {
          left.push(disk.crash(folder, random));
        }
        for (const each of left) {
          const where = `${name}, ${half ? "within" : "before"} step ${number}`;
          await check(each, expected).catch((error) => {
            throw new Error(`${where}: ${error.stack}`);
          });
          states++;
        }
      }
    }
  }
  assert.ok(states > (isWhole ? 500 : 70), `only ${states} states`);
});

test("if any operation of an upgrade fails, the start is refused, and the next one succeeds", async (t) => {
  const folder = await folderFor(t);
  for (const [name, { files, expected }] of await onDisk()) {
    for (
      let number = 1, ended = false;
      !ended;
      number += isWhole ? 1 : 9
    ) {
      const disk = Disk.of(folder, files);
      const error = number % 2 === 0 ? "EIO" : "ENOSPC";
      disk.fate = (step) => step.number === number ? { error } : undefined;
      const store = await openOn(disk).catch((error) => {
        assert.ok(error instanceof StoreError, `${name} ${number}: ${error}`);
      });
      ended = disk.steps < number;
      await store?.close();
      disk.fate = () => undefined;
      await check(disk, expected).catch((failed) => {
        const last = disk.trace.find((each) => each.startsWith(`${number} `));
        throw new Error(`${name}, ${last}: ${failed.stack}`);
      });
    }
  }
});

test("an upgrade without enough space is refused, and succeeds once there is enough", async (t) => {
  const folder = await folderFor(t);
  let refused = 0;
  for (
    const name of [
      "format-1/clean-stop",
      "format-1/first-log",
      "format-1/torn",
      "format-2/clean-stop",
    ]
  ) {
    const { files, expected } = await readSpecimen(name);
    let used = 0;
    for (const { length } of files.values()) used += length;
    for (let spare = 0, ended = false; !ended; spare += isWhole ? 100 : 500) {
      const disk = Disk.of(folder, files);
      disk.capacity = used + spare;
      const more = {
        limits: { ...limits, reserveBytes: 500, maxBatchBytes: 500 },
      };
      const store = await openOn(disk, more).catch((error) => {
        assert.equal(error.code, "disk-full", `${name} ${spare}: ${error}`);
        refused++;
      });
      ended = store !== undefined;
      await store?.close();
      disk.capacity = Infinity;
      await check(disk, expected);
    }
  }
  assert.ok(refused > 3, `only ${refused} were refused`);
});

test("a backup of a folder of format 1 is a copy that can be upgraded", async (t) => {
  const specimen = await readSpecimen("format-1/killed");
  const folder = await folderFor(t);
  await unpack(join(folder, "store"), specimen);
  const to = join(folder, "copy");
  const { seq } = await backupStore(join(folder, "store"), to);
  assert.equal(seq, specimen.expected.seq);
  const store = await openFor(t, to, { tables: [], limits });
  const { expected } = specimen;
  assert.deepEqual(stateIn(store, expected), withoutSeqs(expected));
});

test("a server finishes the import that it was killed in before the upgrade", {
  skip: lacks("imports") || lacks("idempotency"),
}, async (t) => {
  const folder = await unpack(
    await folderFor(t),
    await readSpecimen("format-1/server"),
  );
  // An hour after the first POST with a key, whose response is kept for a day.
  const clock = `
    const since = performance.now() - Date.parse("2026-11-22T00:03:22Z");
    Date.now = () => Math.floor(performance.now() - since);`;
  const nodeArgs = ["--import", moduleOf(clock)];
  const server = await start({ folder, hashesFully: true, nodeArgs });
  try {
    const token = await server.signIn("admin", "a long enough one");
    const url = "/v1/tasks/1";
    const task = await taskWhen(server, { url, token, until: ended });
    assert.equal(task.status, "succeeded", JSON.stringify(task));
    assert.equal(task.lines, 6000);
    assert.equal(task.imported + task.rejected, 6000);
    const headers = { accept: "application/x-ndjson" };
    const path = "/v1/zoos/2/animals";
    const { text } = await server.request("GET", path, { headers });
    const found = text.match(/"name":"Line \d+"/g) ?? [];
    assert.equal(found.length, task.imported, "a line is missing or doubled");
    assert.equal(new Set(found).size, task.imported);
    await server.signIn("kim", "a long enough one");
    const retry = await server.request("POST", "/v1/zoos", {
      token,
      headers: { "idempotency-key": '"first-key"' },
      json: { name: "Zoo <N>", city: "Nice", country: "FR" },
    });
    assert.equal(retry.status, 201, retry.text);
    assert.equal(retry.body.id, 17);
  } finally {
    await server.stop();
  }
});
