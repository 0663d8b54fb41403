/**
 * Reading a data folder: which files count, what they say, and whether that
 * can be believed. Nothing here changes a byte.
 *
 * The state is the newest snapshot, then its log and any later log. At the
 * first bad line after the good sequence k of a log:
 *
 * 1. the log has a successor, or bytes follow its seal: refused;
 * 2. the mark or a later whole line proves that more than k was durable:
 *    acknowledged writes are lost: refused;
 * 3. a last line that is whole by its CRC and lacks only its newline is kept;
 * 4. every bad line up to the end is one that a power cut leaves: it was never
 *    acknowledged, and is cut off (its bytes are kept beside the log);
 * 5. else refused.
 *
 * A damaged snapshot is passed over for the one before it only when the chain
 * of logs from there is whole.
 */

import { join } from "node:path";
import { errorCode, errorText, type Fault, StoreError } from "../error.ts";
import {
  type FileSystem,
  type OpenFile,
  ReadError,
  readSmallFile,
  withFile,
} from "../log/files.ts";
import {
  type ApplyLine,
  type LogScan,
  type LogStart,
  refuseNewer,
  scanLog,
  unknown,
} from "../log/format.ts";
import { type DurabilityMarker, readMarker } from "../log/marker.ts";
import {
  createTables,
  getOrCreateTable,
  type TableDeclaration,
  type Tables,
} from "../memory/table.ts";

/** The names of the files of a data folder. */
export const names = {
  meta: "meta.json",
  log: (generation: number): string => `wal-${generation}.jsonl`,
  snapshot: (generation: number): string => `snapshot-${generation}.jsonl`,
};

/** The generation of a log or snapshot, by its file's name. */
export function generationOf(name: string): number | undefined {
  const found = /^(?:wal|snapshot)-(\d+)\.jsonl$/.exec(name);
  return found === null ? undefined : Number(found[1]);
}

/** The generations of all snapshots or logs among some names, ascending. */
export function generationsOf(
  names: Iterable<string>,
  kind: "snapshot" | "wal",
): number[] {
  return [...names].filter((name) => name.startsWith(`${kind}-`))
    .flatMap((name) => generationOf(name) ?? [])
    .sort((one, other) => one - other);
}

/** What a data folder says. */
export class FolderScan {
  /** False when the folder holds no store, or one that was never finished. */
  exists = false;
  /** The store's id. */
  store = "";
  tables: Tables = new Map();
  /** The last good sequence. */
  seq = 0;
  /** The snapshot from which the state was read; 0 when from the first log. */
  baseGeneration = 0;
  /** How long that snapshot is. */
  baseBytes = 0;
  /** The last log, and what it says. */
  generation = 0;
  log: LogScan | undefined;
  marker: DurabilityMarker | undefined;
  /** What a power cut left of the last write: it would be cut off. */
  torn: Fault | undefined;
  readonly faults: Fault[] = [];
  /** Why the store cannot be opened as it is. */
  refusal: StoreError | undefined;
}

/** How to read a folder. */
export interface FolderScanOptions {
  readonly files: FileSystem;
  readonly tables: readonly TableDeclaration[];
  /** Also looks for faults where the state does not come from. */
  readonly thorough?: boolean;
  /** Goes on from this snapshot although something is damaged. */
  readonly salvageFrom?: number;
}

/** Reads a data folder without changing anything in it. */
export async function scanFolder(
  folder: string,
  options: FolderScanOptions,
): Promise<FolderScan> {
  const { files } = options;
  const present = new Set(await files.list(folder));
  const generations = [...present].flatMap((name) => generationOf(name) ?? []);
  const survey = new FolderScan();
  survey.exists = present.has(names.meta);
  survey.generation = Math.max(0, ...generations);
  survey.marker = await readMarker(files, folder);
  const read = new Set<string>();

  const refuse = (fault: Fault): never => {
    if (!survey.faults.includes(fault)) survey.faults.push(fault);
    throw damaged(folder, fault, survey.seq);
  };

  const readLog = (
    name: string,
    apply: ApplyLine = () => {},
  ): Promise<LogScan> => {
    if (!present.has(name)) return refuse(whole(name, "it is missing"));
    read.add(name);
    const scan = (file: OpenFile) => scanLog(file, name, apply);
    return withFile(files, join(folder, name), scan)
      .catch((error) => unreadable(name, error));
  };
  /** A file that cannot be read is damaged; one that has gone may be looked for again. */
  const unreadable = (file: string, error: unknown): never => {
    if (error instanceof StoreError || errorCode(error) === "ENOENT") {
      throw error;
    }
    const byte = error instanceof ReadError ? error.byte : 0;
    return refuse({ file, byte, line: 0, message: errorText(error) });
  };

  /** Whether what a file says of itself continues what was read so far. */
  const fits = (start: LogStart, generation: number, seq: number) => {
    if (survey.store === "") survey.store = start.store;
    return start.store === survey.store && start.generation === generation &&
      start.seq === seq;
  };

  /** The sequence that the mark proves to have been acknowledged. */
  const marked = () =>
    survey.marker?.store === survey.store ? survey.marker.seq : 0;

  const readMeta = async () => {
    const bytes = await readSmallFile(files, folder, names.meta)
      .catch((error) => unreadable(names.meta, error));
    if (bytes === undefined) {
      const marked = survey.marker !== undefined && survey.marker.seq > 0;
      if (survey.generation === 0 && !marked) return;
      // The first log is made before: one without a transaction is no store.
      const first = survey.generation === 1
        ? await readLog(names.log(1))
        : null;
      if (
        first?.header !== undefined && first.size === first.end &&
        first.seq === 0 && !marked
      ) return;
      survey.exists = true;
      refuse(whole(names.meta, "it is missing"));
      return;
    }
    let meta: { readonly format?: unknown; readonly store?: unknown } = {};
    try {
      meta = JSON.parse(bytes.toString()) ?? {};
    } catch {
      refuse(whole(names.meta, "it is not JSON"));
    }
    refuseNewer(names.meta, meta.format);
    if (typeof meta.store === "string") survey.store = meta.store;
    else refuse(whole(names.meta, "it does not name the store"));
  };

  const readState = async (base: number) => {
    survey.baseGeneration = base;
    survey.seq = 0;
    survey.tables = createTables(options.tables);
    survey.log = survey.torn = undefined;
    let end = 0;
    const first = Math.max(base, 1);
    const length = Math.max(survey.generation - first + 1, 1);
    const logs = Array.from({ length }, (_, at) => names.log(first + at));
    for (const name of base > 0 ? [names.snapshot(base), ...logs] : logs) {
      const scan = await readLog(
        name,
        ({ tx = [], of = "", rows = [] }, seq) => {
          const table = (name: string) => getOrCreateTable(survey.tables, name);
          for (const document of rows) table(of).load(document, seq);
          for (const [kind, of, target] of tx) {
            if (kind === "put") table(of).put(target, seq);
            else if (kind === "del") table(of).delete(target, seq);
            else throw unknown(name, `operation "${kind}" is one`);
          }
        },
      );
      judge(name, scan);
      end = scan.end;
    }
    if (marked() > survey.seq) {
      const message =
        `it ends at sequence ${survey.seq}, but the mark proves ` +
        `that ${marked()} was acknowledged`;
      refuse({
        file: names.log(survey.generation),
        byte: end,
        line: 0,
        message,
      });
    }
  };

  /** The rules of the head of this file; rule 3 is kept by the scan itself. */
  const judge = (file: string, scan: LogScan) => {
    const generation = generationOf(file) ?? 0;
    const begins = file === names.snapshot(generation);
    const last = file === names.log(survey.generation);
    const { header, faults } = last ? scan : sound(file, scan);
    const [fault] = faults;
    const seq = begins ? header?.seq ?? 0 : survey.seq;
    if (header === undefined || !fits(header, generation, seq)) {
      return refuse(
        fault ?? whole(file, "its header does not continue what is before it"),
      );
    }
    survey.seq = scan.seq;
    if (begins) survey.baseBytes = scan.size;
    else survey.log = scan;
    for (const [each, last] of Object.entries(header.last ?? {})) {
      getOrCreateTable(survey.tables, each).advanceCounters(...last);
    }
    if (fault === undefined) return;
    const known = Math.max(scan.provenSeq, marked());
    if (last && !scan.isSealed && scan.isTorn && known <= scan.seq) {
      survey.torn = fault;
    } else {
      survey.faults.push(...faults);
      if (!begins || options.salvageFrom === undefined) refuse(fault);
    }
  };

  /** Looks for faults in a file from which the state does not come. */
  const readSpare = async (file: string) => {
    const scan = await readLog(file);
    const last = file === names.log(survey.generation);
    const { faults } = last ? scan : sound(file, scan);
    survey.faults.push(...faults);
  };

  const attempt = async (work: () => Promise<void>) => {
    try {
      await work();
      return undefined;
    } catch (error) {
      if (error instanceof StoreError) return error;
      throw error;
    }
  };

  survey.refusal = await attempt(readMeta);
  if (!survey.exists || survey.refusal?.code === "format") return survey;
  const snapshots = generations.filter((each) =>
    present.has(names.snapshot(each))
  );
  const bases = [...new Set(snapshots)].sort((one, other) => other - one);
  // Without a snapshot the first log alone can begin a state: the empty one.
  if (present.has(names.log(1)) || bases.length === 0) bases.push(0);
  const { salvageFrom } = options;
  let first: StoreError | undefined;
  for (const base of salvageFrom === undefined ? bases : [salvageFrom]) {
    const refusal = await attempt(() => readState(base));
    first ??= refusal;
    // Only a damaged snapshot may be passed over, never a damaged log.
    if (refusal === undefined) first = undefined;
    if (!refusal?.fault?.file.startsWith("snapshot-")) break;
  }
  survey.refusal ??= first;
  for (const file of options.thorough ? present : []) {
    if (generationOf(file) === undefined || read.has(file)) continue;
    const error = await attempt(() => readSpare(file));
    if (error !== undefined) survey.faults.push(whole(file, error.message));
  }
  return survey;
}

function damaged(folder: string, fault: Fault, seq: number): StoreError {
  const { file, byte, line, message } = fault;
  const place = line === 0 ? `byte ${byte}` : `byte ${byte}, line ${line}`;
  return new StoreError(
    "damaged",
    `Cannot open ${folder}: ${file} is damaged (${place}: ${message}); the ` +
      `last good sequence is ${seq}. Nothing was changed. The command ` +
      `"repair" keeps a copy of all that it cuts off`,
    { fault, seq },
  );
}

/** What must end with a seal: a snapshot, and a log that has a successor. */
function sound(file: string, scan: LogScan): LogScan {
  if (scan.faults.length === 0 && !scan.isSealed) {
    const message = "it ends without a seal, though another log follows";
    scan.faults.push({ file, byte: scan.end, line: 0, message });
  }
  return scan;
}

/** A fault of a whole file. */
function whole(file: string, message: string): Fault {
  return { file, byte: 0, line: 0, message };
}
