/**
 * Reads everything in a damaged folder that is still readable, for a repair:
 * every line whose own checksum matches, also those after a damaged line.
 * Changes nothing.
 *
 * That is possible because a mutation holds a whole document or an id, so a
 * later line can be applied without the one before it. The state begins with
 * the newest snapshot without a fault; of a damaged one after it the readable
 * lines are added to what the logs before it say. So each record is as its last
 * readable line says. The text of a damaged line usually still shows which
 * records it was about.
 */

import type { Buffer } from "node:buffer";
import { join } from "node:path";
import { StoreError } from "../error.ts";
import { type OpenFile, readLines, withFile } from "../log/files.ts";
import { names, snapshotsAmong } from "../log/folder.ts";
import {
  type ApplyLine,
  checkLine,
  crcLength,
  type LogLine,
  LogScan,
  scanLog,
} from "../log/format.ts";
import {
  createTables,
  getOrCreateTable,
  type TableDeclaration,
  type Tables,
} from "../memory/table.ts";
import { scanFormat1Snapshot } from "./format-1.ts";
import { applyTo, type FolderScan } from "./scan.ts";

/** A record that a damaged line shows, and that no later line puts or deletes. */
export interface DamagedRecord {
  readonly table: string;
  readonly id: number;
  /** `put` or `del`; undefined if the line is of a snapshot. */
  readonly kind: string | undefined;
}

/** Everything that is readable in a damaged folder. */
export class Salvage {
  readonly tables: Tables;
  /** The store's id; "" if no header is readable. */
  storeId = "";
  /** The highest sequence number that anything shows to have been used. */
  seq = 0;
  /** How many transactions are missing, at most. */
  lostTransactions = 0;
  /** The number of damaged lines since the last whole one. */
  damagedLines = 0;
  /** By table and id. */
  readonly damagedRecords = new Map<string, DamagedRecord>();

  constructor(declared: readonly TableDeclaration[]) {
    this.tables = createTables(declared);
  }

  /** Returns whether a file is of this store, as far as its header shows. */
  owns({ header }: LogScan): boolean {
    this.storeId ||= header?.store ?? "";
    return header === undefined || header.store === this.storeId;
  }

  /** Applies a whole line, unless it is there twice or of another store. */
  addLine(line: LogLine, seq: number, scan: LogScan): void {
    if (!this.owns(scan)) return;
    const { of, rows = [], tx = [] } = line;
    if (line.tx !== undefined) {
      if (seq <= this.seq) return;
      this.advanceTo(seq - 1);
      this.seq = seq;
      this.damagedLines = 0;
    }
    applyTo({ tables: this.tables, options: {} }, scan.name)(line, seq, scan);
    for (const { id } of rows) this.damagedRecords.delete(`${of}/${id}`);
    for (const [kind, table, target] of tx) {
      const id = kind === "put" ? target.id : target;
      this.damagedRecords.delete(`${table}/${id}`);
    }
  }

  /** Notes the records that a damaged line shows. No string of a document looks like one, as its quotes are escaped. */
  addDamagedLine(text: string): void {
    const [, of = ""] = /"of":"(\w+)"/.exec(text) ?? [];
    if (of === "") this.damagedLines++;
    const pattern =
      /(?:\["(put|del)","(\w+)",|(?=\{))(?:\{"id":)?(\d{1,15})(?=[,}\]])/g;
    for (const [, kind, table = of, id] of text.matchAll(pattern)) {
      this.damagedRecords.set(`${table}/${id}`, {
        table,
        id: Number(id),
        kind,
      });
    }
  }

  /** Counts the transactions up to a sequence number as lost. */
  advanceTo(seq: number): void {
    if (seq <= this.seq) return;
    this.lostTransactions += seq - this.seq;
    this.seq = seq;
    this.damagedLines = 0;
  }
}

/** Reads a damaged folder; `declared` are tables that exist even if none of their records is readable. */
export async function salvageFolder(
  { faults, fileNames, folder, generation, marker, options }: FolderScan,
  declared: readonly TableDeclaration[],
): Promise<Salvage> {
  const salvage = new Salvage(declared);
  const { tables } = salvage;
  const whole = fileNames.filter((name) =>
    !faults.some(({ file }) => file === name)
  );
  const candidates: string[] = [];
  for (let at = snapshotsAmong(whole)[0] ?? 0; at <= generation; at++) {
    candidates.push(`snapshot-${at}.json`, names.snapshot(at), names.log(at));
  }
  const chain = candidates.filter((name) => fileNames.includes(name));
  for (const name of chain) {
    const path = join(folder, name);
    const log = await withFile(
      options.files,
      path,
      (file) => readFile(file, name, salvage),
    ).catch((error) => {
      if (error instanceof StoreError) throw error; // of a newer version
      return new LogScan(name); // the disk cannot read on
    });
    if (!salvage.owns(log)) continue;
    const isBase = name === chain[0] && name.startsWith("snapshot-");
    if (isBase) salvage.seq = log.highestSeq;
    else salvage.advanceTo(log.highestSeq);
    for (const [each, last] of Object.entries(log.header?.last ?? {})) {
      getOrCreateTable(tables, each).advanceCounters(...last);
    }
  }
  salvage.advanceTo(salvage.seq + salvage.damagedLines);
  salvage.storeId ||= marker?.store ?? "";
  if (marker?.store === salvage.storeId) salvage.advanceTo(marker.seq);
  for (const [name, { id, table }] of salvage.damagedRecords) {
    const known = tables.get(table);
    if (known === undefined) salvage.damagedRecords.delete(name);
    else known.advanceCounters(id, 0); // no id is used twice
  }
  for (const table of tables.values()) {
    table.advanceCounters(0, salvage.seq); // no validator stays current
  }
  return salvage;
}

async function readFile(
  file: OpenFile,
  name: string,
  salvage: Salvage,
): Promise<LogScan> {
  const apply: ApplyLine = (line, seq, scan) =>
    salvage.addLine(line, seq, scan);
  if (name.endsWith(".json")) return scanFormat1Snapshot(file, name, apply);
  return scanLog(file, name, apply, {
    seed: await findSeed(file),
    onDamage: (line) => salvage.addDamagedLine(line.toString()),
  });
}

/** Returns the seed of a log whose header may be damaged: the one from which the checksums of two lines start. */
async function findSeed(file: OpenFile): Promise<number | undefined> {
  const seeds = new Set<number>();
  for await (const lines of readLines(file)) {
    for (const { bytes } of lines) {
      const seed = seedOf(bytes);
      if (seeds.has(seed) && checkLine(bytes, seed)) return seed;
      seeds.add(seed);
    }
  }
  return undefined;
}

/** Computes the CRC-32 of a line backwards, to the seed that it started from. */
function seedOf(line: Buffer): number {
  let crc = ~Number(`0x${line.toString("latin1", 8, 16)}`);
  for (const byte of line.subarray(crcLength).toReversed()) {
    for (let bit = 0; bit < 8; bit++) {
      crc = crc < 0 ? (crc ^ 0xedb88320) << 1 | 1 : crc << 1;
    }
    crc ^= byte;
  }
  return ~crc >>> 0;
}
