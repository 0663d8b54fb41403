/**
 * This version opens folders of file format 2. Each of format-2/ is the real
 * folder of a real stop: its files as they were, compressed, and in
 * expected.json the records that version read.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { gunzipSync } from "node:zlib";
import { readStore } from "../../src/cli/read.ts";
import * as marker from "../../src/store/log/marker.ts";
import {
  openStore,
  type Store,
  StoreError,
  type StoreOptions,
  type Table,
} from "../../src/store/store.ts";
import { root } from "../harness.ts";
import { encodeHeader, format } from "../../src/store/log/format.ts";
import { Disk, type Fate } from "../torture/disk.ts";
import { Random } from "../torture/random.ts";
import { contents, folderFor, openFor } from "./support.ts";
import { commit } from "../commit.ts";

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
  readonly expected: State;
}

const goodSpecimens = [
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
    assert.equal(store.notices.length, torn.length);
    await store.close();
    assert.equal(
      formatOf((await contents(folder)).get("meta.json")),
      format,
      "earlier versions would open the folder",
    );

    const again = await openFor(t, folder, { tables: [], limits });
    assert.deepEqual(stateIn(again, expected), withoutSeqs(expected));
    const [table = ""] = Object.keys(expected.tables);
    await commit(again, [["put", table, { id: 1_000_000 }]], 0);
    await again.checkpoint();
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

function openOn(disk: Disk, more: Partial<StoreOptions> = {}): Promise<Store> {
  const { folder } = disk;
  return openStore({
    folder,
    files: disk,
    tables: [],
    limits,
    marker,
    ...more,
  });
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

/** The specimens on a simulated disk; the last ones as a power cut during a rotation, or the creation, leaves them. */
async function onDisk(): Promise<[string, Specimen][]> {
  const specimens: [string, Specimen][] = [];
  for (const name of goodSpecimens) {
    specimens.push([name, await readSpecimen(name)]);
  }
  const { files, expected } = await readSpecimen("format-2/clean-stop");
  for (const name of ["snapshot-3.jsonl", "mark"]) files.delete(name);
  specimens.push(["without its snapshot", { files, expected }]);
  // The first log gets its name before the store is complete.
  const first = (await readSpecimen("format-2/first-log")).files;
  const [header = ""] = String(first.get("wal-1.jsonl")).split(/(?<=\n)/);
  const start = { store: "6f", generation: 1, salt: "6f", seq: 0, at: "" };
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
      "format-2/clean-stop",
      "format-2/first-log",
      "format-2/torn",
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
  assert.ok(refused > 0, "none was refused");
});
