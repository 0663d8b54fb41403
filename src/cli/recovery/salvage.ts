/**
 * Reads everything in a damaged folder that is still readable, for a repair:
 * every line whose own checksum matches, even after a damaged line. Changes
 * nothing.
 *
 * That is possible because a mutation holds a whole document or an id, so a
 * later line can be applied without the one before it. The state begins with
 * the newest snapshot without a fault; the readable lines of a damaged snapshot
 * after it are added to the state that the logs before it give. So each record
 * gets the state of its last readable line. The text of a damaged line usually
 * still shows which records it concerned. An id that may have been assigned is
 * not assigned again: one that a damaged line shows, or that a record refers to,
 * and as many more as unreadable lines can have assigned. If a whole file is gone,
 * nothing else may name those that it assigned.
 */

import type { Buffer } from "node:buffer";
import { join } from "node:path";
import { crc32 } from "node:zlib";
import { declarationTable } from "../../api/declaration/remembered.ts";
import { type Fault, StoreError } from "../../store/error.ts";
import { type OpenFile, readLines, withFile } from "../../store/log/files.ts";
import type { DurabilityMarker } from "../../store/log/marker.ts";
import { generationOf, snapshotsAmong } from "../../store/log/folder.ts";
import {
  checkFormat,
  checkLine,
  type LogHeader,
  type LogLine,
  trimZeros,
} from "../../store/log/format.ts";
import { PackedRow } from "../../store/memory/packed-row.ts";
import {
  restoreCounters,
  type TableDeclaration,
  Tables,
} from "../../store/memory/table.ts";
import { applyTo, type FolderScan } from "../../store/recovery/scan.ts";

/** Everything that is readable in a damaged folder. */
export class Salvage {
  readonly faults: readonly Fault[];
  readonly tables: Tables;
  /** The store's id; "" if no header is readable. */
  storeId = "";
  /** The highest sequence number that is known to have been used. */
  seq = 0;
  /** The number of transactions whose lines, or whose results in a snapshot, are readable. */
  savedTransactions = 0;
  /** The number of damaged transaction lines since the last intact one. */
  damagedTransactions = 0;
  /** The records that damaged lines show, such as `zoos/4`, unless a later line puts or deletes them. */
  readonly damagedRecords = new Set<string>();
  /** The most ids that damaged and missing lines can have assigned. */
  hiddenIds = 0;
  /** How many bytes of each file are there. */
  readonly #lengths = new Map<string, number>();

  constructor(faults: readonly Fault[], declared: readonly TableDeclaration[]) {
    this.faults = faults;
    this.tables = new Tables(declared, { rowClass: PackedRow });
  }

  /** The number of missing transactions, at most. */
  get lostTransactions(): number {
    return this.seq - this.savedTransactions;
  }

  /** Reads a log or snapshot. */
  async readFile(file: OpenFile, name: string): Promise<void> {
    let seed: number | undefined = 0;
    for await (const lines of readLines(file)) {
      for (const { bytes, line, hasNewline } of lines.map(trimZeros)) {
        const parsed = parseLine(bytes, seed);
        const isPadding = bytes.length === 0 && !hasNewline;
        if (isPadding) continue;
        const length = (this.#lengths.get(name) ?? 0) + bytes.length + 1;
        this.#lengths.set(name, length);
        if (parsed === undefined) this.#addDamagedLine(bytes.toString(), line);
        else if (line > 1) {
          try {
            this.#addLine(parsed, name);
          } catch (error) {
            if (error instanceof StoreError) throw error; // of a newer version
            this.#addDamagedLine(bytes.toString(), line);
          }
        } else if (!this.#addHeader(parsed, name)) return;
        if (line === 1) seed = parsed && crc32(parsed.salt);
      }
    }
  }

  /** Applies a header; returns false if its file belongs to another store or generation. */
  #addHeader(header: LogHeader, name: string): boolean {
    const { format, generation, seq, store } = header;
    checkFormat(name, format);
    this.storeId ||= store;
    if (store !== this.storeId || generation !== generationOf(name)) {
      return false;
    }
    if (name.startsWith("snapshot-")) this.savedTransactions ||= seq;
    this.seq = seq;
    this.damagedTransactions = 0;
    restoreCounters(this.tables, header);
    return true;
  }

  /** Applies an intact line, unless it has been applied already; throws if it holds what no version writes. */
  #addLine(line: LogLine, name: string): void {
    const { of, rows = [], seq = 0, tx } = line;
    if (tx !== undefined && seq <= this.seq) return;
    if (!(tx ?? []).every(([kind]) => typeof kind === "string")) {
      throw new TypeError("Not a transaction"); // before a part of it is applied
    }
    applyTo(this.tables, name)(line, seq);
    if (tx !== undefined) {
      this.seq = seq;
      this.savedTransactions++;
      this.damagedTransactions = 0;
    }
    this.noteId("users", line.by ?? 0);
    for (const { id } of rows) this.damagedRecords.delete(`${of}/${id}`);
    for (const [kind, table, target] of tx ?? []) {
      const id = kind === "put" ? target.id : target;
      this.damagedRecords.delete(`${table}/${id}`);
    }
  }

  /** Raises the counters to those that a damaged header still shows. */
  #addDamagedHeader(text: string): void {
    for (const [, name = "", id] of text.matchAll(/"(\w+)":\[(\d{1,15}),/g)) {
      this.tables.get(name)?.advanceCounters(Number(id), 0);
    }
  }

  /** Notes an id that was used: if it is above all others, its record is lost. */
  noteId(table: string, id: number): void {
    const { lastId = Infinity } = this.tables.get(table) ?? {};
    if (id > lastId) this.damagedRecords.add(`${table}/${id}`);
  }

  /** Notes that the end of the logs is gone, of which the marker knows the last one's length and the transactions of all. */
  noteMissing({ generation, offset, seq }: DurabilityMarker): void {
    const length = this.#lengths.get(`wal-${generation}.jsonl`) ?? 0;
    const missing = Math.max(0, offset - length);
    this.hiddenIds += Math.ceil(missing / minRecordLength) + seq - this.seq;
  }

  /**
   * Notes the records that a damaged line mentions. A string in a document
   * cannot look like such a mention, because its quotes are escaped.
   */
  #addDamagedLine(text: string, line: number): void {
    if (line === 1) return this.#addDamagedHeader(text);
    if (text.includes('"tx":')) this.damagedTransactions++;
    const [, of = ""] = /"of":"(\w+)"/.exec(text) ?? [];
    const pattern =
      /(?:\["(put|del)","(\w+)",|(?=\{))(?:\{"id":)?(\d{1,15})(?=[,}\]])/g;
    // A part of it may be gone, with the ids that it assigned.
    this.hiddenIds += Math.ceil((text.length + 1) / minRecordLength);
    for (const [, kind, table = of, id] of text.matchAll(pattern)) {
      const isThere = this.tables.get(table)?.get(Number(id)) !== undefined;
      // Nothing is lost if the line deletes a record that does not exist, or is
      // a snapshot's copy of a record that the logs before it contain.
      const isLoss = kind === "put" || isThere === (kind === "del");
      if (isLoss) this.damagedRecords.add(`${table}/${id}`);
    }
  }
}

/** Tokens were signed for these. */
const authorizations = "authorizations";

/** No line assigns an id with fewer characters. */
const minRecordLength = 32;

/** A property whose values are ids of a table. */
export interface IdProperty {
  readonly of: string;
  readonly property: string;
  readonly target: string;
}

/** Returns the tables that are declared, and those of the collections that a folder remembers, if that line is readable. */
function tablesIn(
  { tables }: Salvage,
  declared: readonly TableDeclaration[],
): readonly TableDeclaration[] {
  const { document } = tables.get(declarationTable)?.get(1) ?? {};
  const others = Object.keys(Object(document?.["names"])).filter((name) =>
    !name.includes(".") && !declared.some((each) => each.name === name)
  );
  return [...declared, ...others.map((name) => ({ name }))];
}

/**
 * Reads a damaged folder. The tables that are declared or that it remembers exist
 * even if none of their records is readable.
 */
export async function salvageFolder(
  scan: FolderScan,
  idProperties: readonly IdProperty[],
): Promise<Salvage> {
  const { marker, options: { tables: declared } } = scan;
  // The first pass only shows what the folder remembers.
  const all = tablesIn(await readFolder(scan, declared), declared);
  const salvage = await readFolder(scan, all);
  const { damagedRecords, damagedTransactions, tables } = salvage;
  salvage.storeId ||= marker?.store ?? "";
  salvage.seq += damagedTransactions;
  if (marker?.store === salvage.storeId && marker.seq > salvage.seq) {
    salvage.noteMissing(marker);
    salvage.seq = marker.seq;
  }
  for (const { of, property, target } of idProperties) {
    for (const { document } of tables.get(of)?.frozen() ?? []) {
      salvage.noteId(target, Number(document[property] ?? 0));
    }
  }
  for (const name of damagedRecords) {
    const [table = "", id] = name.split("/");
    const known = tables.get(table);
    if (known === undefined) damagedRecords.delete(name);
    else known.advanceCounters(Number(id), 0); // no id is used twice
  }
  if (salvage.lostTransactions > 0) {
    // One of them may have ended some.
    const table = tables.get(authorizations);
    for (const { document } of table?.rows().toReversed() ?? []) {
      table?.replace(document.id, undefined);
    }
  }
  for (const table of tables.values()) {
    // No validator stays current.
    table.advanceCounters(table.lastId + salvage.hiddenIds, salvage.seq);
  }
  return salvage;
}

/** Reads the files of a folder that its state needs, as far as they are readable. */
async function readFolder(
  { faults, fileNames, folder, options }: FolderScan,
  tables: readonly TableDeclaration[],
): Promise<Salvage> {
  const salvage = new Salvage(faults, tables);
  const isWhole = (name: string) => !faults.some(({ file }) => file === name);
  const [base = 0] = snapshotsAmong(fileNames.filter(isWhole));
  const at = (name: string) => generationOf(name) ?? -1;
  // By generation; in each, the snapshot comes before the log.
  const names = [...fileNames].sort().sort((a, b) => at(a) - at(b));
  for (const name of names) {
    if (at(name) < base) continue;
    await withFile(
      options.files,
      join(folder, name),
      (file) => salvage.readFile(file, name),
    ).catch((error) => {
      if (error instanceof StoreError) throw error; // of a newer version
      // Otherwise the disk cannot read further, but the other files can still
      // be saved.
    });
  }
  return salvage;
}

/**
 * Parses an intact line; returns undefined for any other. Without the header of
 * a log, its seed is unknown. Then a line of complete JSON is accepted without
 * its checksum, because it could be wrong only if a second fault had changed
 * it.
 */
function parseLine(
  bytes: Buffer,
  seed: number | undefined,
): LogHeader & LogLine | undefined {
  if (seed !== undefined && !checkLine(bytes, seed)) return undefined;
  try {
    return JSON.parse(bytes.toString());
  } catch {
    return undefined;
  }
}
