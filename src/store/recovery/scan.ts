/**
 * Reads a data folder and decides whether its contents can be trusted. Changes
 * nothing.
 *
 * The state is the newest snapshot, then its log and every later log. At the
 * first bad line of a log, after the last good sequence number k:
 *
 * 1. If another log follows, or the bad line is after the seal, the folder is
 *    refused: only the end of the last log can be torn.
 * 2. If the marker or a later intact line proves that more than k was durable,
 *    it is refused: acknowledged writes are lost.
 * 3. A last line that matches its CRC and lacks only its newline is good.
 * 4. If a power cut explains every bad line up to the end, they were never
 *    acknowledged: they are cut off, and their bytes saved beside the log.
 * 5. Anything else is refused.
 *
 * A damaged snapshot is skipped in favor of the one before it, but only if
 * every log since that one is good.
 */

import { join } from "node:path";
import { errorCode, errorText, type Fault, StoreError } from "../error.ts";
import { type FileSystem, readSmallFile, withFile } from "../log/files.ts";
import { generationOf, names, snapshotsAmong } from "../log/folder.ts";
import {
  type ApplyLine,
  checkFormat,
  format,
  type LogLine,
  LogScan,
  scanLog,
  unknown,
} from "../log/format.ts";
import type { DurabilityMarker } from "../log/marker.ts";
import {
  applyMutation,
  getOrCreateTable,
  restoreCounters,
  type TableDeclaration,
  type TableOptions,
  Tables,
} from "../memory/table.ts";

/** A data folder that is being read, and what was found in it. */
export class FolderScan {
  readonly folder: string;
  readonly options: FolderScanOptions;
  /** The names of its files. */
  fileNames: readonly string[] = [];
  /** False if the folder holds no store. */
  exists = false;
  /** True unless `meta.json` names the current format. */
  isOutdated = true;
  /** The store's id. */
  storeId = "";
  tables = new Tables();
  /** The last good sequence number. */
  seq = 0;
  /** The generation of the snapshot that the state begins with; 0 if it begins with the first log. */
  baseGeneration = 0;
  /** The length of that snapshot. */
  baseBytes = 0;
  /** True if {@linkcode reopenLog} has made the end of the last log durable. */
  isCopied = false;
  /** The generation of the last log, and what was found in it. */
  generation = 0;
  log = new LogScan("");
  marker: DurabilityMarker | undefined;
  /** The remains of a write that a power cut interrupted. */
  tornWrite: Fault | undefined;
  /** The first ones of each file. */
  readonly faults: Fault[] = [];
  /** Why the store cannot be opened as it is. */
  refusal: StoreError | undefined;

  constructor(folder: string, options: FolderScanOptions) {
    this.folder = folder;
    this.options = options;
  }
}

/** How to read a folder. */
export interface FolderScanOptions extends TableOptions {
  readonly files: FileSystem;
  readonly tables: readonly TableDeclaration[];
  /** Reads and writes the marker; without it, nothing does. */
  readonly marker?: typeof import("../log/marker.ts");
  /** Receives each transaction before it is applied, from the oldest snapshot on. */
  readonly onTransaction?: (line: LogLine, tables: Tables) => void;
  /** Reads a file, if not as usual. */
  readonly scanLog?: typeof scanLog;
}

/** Reads a data folder. */
export async function scanFolder(
  folder: string,
  options: FolderScanOptions,
): Promise<FolderScan> {
  const scan = new FolderScan(folder, options);
  const fileNames = scan.fileNames = await options.files.list(folder);
  const generations = fileNames.map((name) => generationOf(name) ?? 0);
  scan.generation = Math.max(0, ...generations);
  scan.marker = await options.marker?.readMarker(options.files, folder);
  scan.exists = scan.generation > 0 || fileNames.includes(names.meta) ||
    (scan.marker?.seq ?? 0) > 0;
  scan.refusal = await refusalOf(readMeta(scan));
  if (!scan.exists || scan.refusal?.code === "format") return scan;
  const refusal = await readNewestState(scan);
  scan.refusal ??= refusal;
  return scan;
}

/** Reads `meta.json`, which marks a store as completely created or repaired. */
async function readMeta(scan: FolderScan): Promise<void> {
  const { folder, options } = scan;
  const { meta } = names;
  const bytes = await readSmallFile(options.files, folder, meta)
    .catch((error) => refuseUnreadable(scan, meta, error));
  if (bytes === undefined) {
    // Only the first log is created before it.
    if (scan.generation > 1 || scan.marker?.seq) {
      refuse(scan, wholeFile(meta, "it is missing"));
    }
    return;
  }
  const [, digits] = /^\{"format":(\d+)/.exec(bytes.toString()) ?? [];
  if (digits === undefined) {
    return refuse(scan, wholeFile(meta, "it does not name the format"));
  }
  checkFormat(meta, Number(digits));
  scan.isOutdated = digits !== `${format}`;
}

/** Reads the state from the newest good snapshot; returns why it cannot be used. */
async function readNewestState(
  scan: FolderScan,
): Promise<StoreError | undefined> {
  const { options, fileNames } = scan;
  const bases = snapshotsAmong(fileNames);
  // Without a snapshot the state begins with the first log.
  if (fileNames.includes(names.log(1)) || bases.length === 0) bases.push(0);
  if (options.onTransaction !== undefined) bases.reverse();
  let first: StoreError | undefined;
  for (const base of bases) {
    const refusal = await refusalOf(readState(scan, base));
    if (refusal === undefined) return undefined;
    first ??= refusal;
    // Only a damaged snapshot may be skipped, never a damaged log.
    if (!refusal.fault?.file.startsWith("snapshot-")) break;
  }
  return first;
}

/** Reads the state from one snapshot and all logs since. */
async function readState(scan: FolderScan, base: number): Promise<void> {
  scan.baseGeneration = base;
  scan.storeId = "";
  scan.seq = 0;
  scan.tables = new Tables(scan.options.tables, scan.options);
  scan.tornWrite = undefined;
  if (base > 0) await readPart(scan, names.snapshot(base));
  let generation = Math.max(base, 1);
  do {
    await readPart(scan, names.log(generation));
  } while (generation++ < scan.generation);
}

/** Reads a snapshot or log into the tables, by the rules at the head of this file. */
async function readPart(scan: FolderScan, name: string): Promise<void> {
  const { options, tables } = scan;
  const log = await readFile(scan, name, applyTo(tables, name, options));
  const { header, faults: [fault], seq } = log;
  const isSnapshot = name.startsWith("snapshot-");
  scan.storeId ||= header?.store ?? "";
  if (
    header?.store !== scan.storeId ||
    header.generation !== generationOf(name) ||
    !isSnapshot && header.seq !== scan.seq
  ) {
    const message = "its header does not continue the file before it";
    return refuse(scan, fault ?? wholeFile(name, message));
  }
  scan.seq = seq;
  if (isSnapshot) scan.baseBytes = log.size;
  else scan.log = log;
  restoreCounters(tables, header);
  const isLast = name === names.log(scan.generation);
  const marked = markedSeq(scan);
  if (fault !== undefined) {
    const isLost = Math.max(log.provenSeq, marked) > seq;
    if (isLast && !log.isSealed && log.isTorn && !isLost) {
      scan.tornWrite = fault;
      return;
    }
    scan.faults.push(...log.faults);
    refuse(scan, fault);
  }
  if (isLast && marked > seq) {
    const message = `it ends at sequence ${seq}, but the marker proves that ` +
      `${marked} was acknowledged`;
    refuse(scan, wholeFile(name, message, log.end));
  }
}

/** Reads a snapshot or log. All but the last log must end with a seal. */
export async function readFile(
  scan: FolderScan,
  name: string,
  apply: ApplyLine,
): Promise<LogScan> {
  const { folder, options, fileNames } = scan;
  if (!fileNames.includes(name)) refuse(scan, wholeFile(name, "it is missing"));
  const log = await withFile(
    options.files,
    join(folder, name),
    (file) => (options.scanLog ?? scanLog)(file, name, apply),
  ).catch((error) => refuseUnreadable(scan, name, error));
  const isLast = name === names.log(scan.generation);
  const isEnded = log.isSealed && !log.isPadded;
  if (!isLast && !isEnded && log.faults.length === 0) {
    log.faults.push(
      wholeFile(name, "it does not end with a valid seal", log.end),
    );
  }
  return log;
}

/** Returns the function that applies the lines of a file to the tables. */
export function applyTo(
  tables: Tables,
  name: string,
  { onTransaction, memory }: Partial<FolderScanOptions> = {},
): ApplyLine {
  return (line, seq) => {
    const { tx, of = "", rows = [] } = line;
    if (memory?.isExceeded) return memory.skip(tx ?? rows);
    if (tx !== undefined) onTransaction?.(line, tables);
    for (const document of rows) {
      checkId(name, of, document);
      getOrCreateTable(tables, of).load(document, seq);
    }
    for (const mutation of tx ?? []) {
      if (mutation[0] === "put") checkId(name, mutation[1], mutation[2]);
      if (applyMutation(tables, mutation, seq) === undefined) {
        throw unknown(name, `the mutation "${mutation[0]}"`, mutation[0]);
      }
    }
  };
}

/** Throws if an id is none that this version gives. */
function checkId(file: string, table: string, document: unknown): void {
  const { id } = Object(document);
  if (Number.isSafeInteger(id) && id > 0) return;
  throw unknown(file, `the id ${JSON.stringify(id)} in ${table}`);
}

/** Returns the sequence number that the marker proves to have been acknowledged. */
function markedSeq({ marker, storeId }: FolderScan): number {
  return marker?.store === storeId ? marker.seq : 0;
}

/** Refuses a file that the disk cannot read. One that is gone may be tried again, and one that this user may not open says nothing of its content. */
function refuseUnreadable(
  scan: FolderScan,
  file: string,
  error: unknown,
): never {
  const isOpenError = /^(?:ENOENT|EACCES|EPERM|EMFILE|ENFILE)$/
    .test(errorCode(error));
  if (error instanceof StoreError || isOpenError) throw error;
  refuse(scan, wholeFile(file, errorText(error)));
}

function refuse({ folder, faults, seq }: FolderScan, fault: Fault): never {
  if (!faults.includes(fault)) faults.push(fault);
  const { file, byte, line, message } = fault;
  const place = line === 0 ? `byte ${byte}` : `byte ${byte}, line ${line}`;
  throw new StoreError(
    "damaged",
    `Cannot open ${folder}: ${file} is damaged (${place}: ${message}); the ` +
      `last good sequence is ${seq}. Nothing was changed. ` +
      `"zoo-api repair --dry-run --data-dir '${folder}'" shows what a repair ` +
      `would lose; "zoo-api repair --data-dir '${folder}'" makes the store ` +
      "usable again and keeps a copy of every file; add --collections as for the server",
    { fault },
  );
}

export function refusalOf(
  work: Promise<void>,
): Promise<StoreError | undefined> {
  return work.then(() => undefined, (error) => {
    if (error instanceof StoreError) return error;
    throw error;
  });
}

/** Describes a fault that is not in a line. */
export function wholeFile(file: string, message: string, byte = 0): Fault {
  return { file, byte, line: 0, message };
}
