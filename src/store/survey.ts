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
import {
  errorCode,
  errorText,
  type Fault,
  StoreError,
  type StoreErrorCode,
} from "./error.ts";
import { type FileSystem, readSmall } from "./files.ts";
import {
  type Apply,
  type LogScan,
  type Operation,
  refuseNewer,
  scanLog,
} from "./log.ts";
import { type Mark, readMark } from "./mark.ts";
import { readSnapshot, type SnapshotScan } from "./snapshot.ts";
import { type TableDeclaration, Tables } from "./table.ts";

/** The names of the files of a data folder. */
export const names = {
  meta: "meta.json",
  log: (generation: number): string => `wal-${generation}.jsonl`,
  snapshot: (generation: number): string => `snapshot-${generation}.json`,
};

/** Why a folder cannot be opened as it is. */
export interface Refusal {
  readonly code: StoreErrorCode;
  readonly fault: Fault;
}

/** What a data folder says. */
export interface Survey {
  /** False when the folder holds no store, or one that was never finished. */
  readonly exists: boolean;
  readonly store: string;
  readonly tables: Tables;
  /** The highest sequence that was read. */
  readonly seq: number;
  /** The snapshot that the state was read from; 0 when from the first log. */
  readonly base: number;
  readonly baseSize: number;
  /** The last log. */
  readonly generation: number;
  readonly log: LogScan | undefined;
  readonly mark: Mark | undefined;
  /** What a power cut left of the last write: it would be cut off. */
  readonly torn: Fault | undefined;
  readonly faults: readonly Fault[];
  /** The first fault that forbids to open the store. */
  readonly refusal: Refusal | undefined;
  /** All generations whose files were seen, ascending. */
  readonly logs: readonly number[];
  readonly snapshots: readonly number[];
}

/** How to read a folder. */
export interface SurveyOptions {
  readonly files: FileSystem;
  readonly tables: readonly TableDeclaration[];
  /** Reads the earlier generation as well, to find its faults. */
  readonly thorough: boolean;
}

/** Reads a data folder without changing anything in it. */
export async function surveyFolder(
  folder: string,
  options: SurveyOptions,
): Promise<Survey> {
  const surveyor = new Surveyor(folder, options);
  await surveyor.run();
  return surveyor;
}

class Surveyor implements Survey {
  readonly #folder: string;
  readonly #options: SurveyOptions;
  exists = false;
  store = "";
  tables: Tables;
  seq = 0;
  base = 0;
  baseSize = 0;
  generation = 0;
  log: LogScan | undefined;
  mark: Mark | undefined;
  torn: Fault | undefined;
  faults: Fault[] = [];
  refusal: Refusal | undefined;
  logs: readonly number[] = [];
  snapshots: readonly number[] = [];

  constructor(folder: string, options: SurveyOptions) {
    this.#folder = folder;
    this.#options = options;
    this.tables = new Tables(options.tables);
  }

  async run(): Promise<void> {
    const found = await this.#options.files.list(this.#folder);
    const generations = (pattern: RegExp) =>
      found.flatMap((name) => {
        const number = pattern.exec(name)?.[1];
        return number === undefined ? [] : [Number(number)];
      }).sort((one, other) => one - other);
    this.logs = generations(/^wal-([1-9]\d*)\.jsonl$/);
    this.snapshots = generations(/^snapshot-([1-9]\d*)\.json$/);
    if (!await this.#readMeta()) return;
    this.exists = true;
    this.mark = await readMark(this.#options.files, this.#folder);
    this.generation = Math.max(
      this.logs.at(-1) ?? 0,
      this.snapshots.at(-1) ?? 0,
    );
    await this.#readState();
    if (this.#options.thorough) await this.#readEarlier();
  }

  /** Whether there is a store at all: its meta file is written last. */
  async #readMeta(): Promise<boolean> {
    const { files } = this.#options;
    const bytes = await readSmall(files, this.#folder, names.meta);
    if (bytes === undefined) {
      const first = this.logs.length === 1 && this.logs[0] === 1;
      if (this.snapshots.length === 0 && this.logs.length === 0) return false;
      if (first && this.snapshots.length === 0) {
        const log = await this.#readLog(1, () => {});
        if (log.header !== undefined && log.size === log.end && log.seq === 0) {
          return false;
        }
      }
      this.#refuse("damaged", whole(names.meta, "it is missing"));
      return true;
    }
    try {
      const meta = JSON.parse(bytes.toString()) as Record<string, unknown>;
      refuseNewer(meta["format"]);
      if (typeof meta["store"] !== "string") throw new Error("no store");
      this.store = meta["store"];
    } catch (error) {
      if (error instanceof StoreError) {
        this.#refuse(error.code, whole(names.meta, error.message));
      } else {
        this.#refuse("damaged", whole(names.meta, "it is not readable"));
      }
    }
    return true;
  }

  /** Reads from the newest snapshot that leads to the end of the last log. */
  async #readState(): Promise<void> {
    if (this.refusal?.code === "format") return;
    // Without a snapshot the first log alone can begin a state: the empty one.
    const bases = [...this.snapshots].reverse();
    if (this.logs[0] === 1) bases.push(0);
    if (bases.length === 0) {
      this.#refuse(
        "damaged",
        whole(names.log(1), "it is missing, and no snapshot stands for it"),
      );
      return;
    }
    const first = this.refusal;
    let best: Refusal | undefined;
    for (const base of bases) {
      this.refusal = undefined;
      this.tables = new Tables(this.#options.tables);
      this.torn = undefined;
      this.log = undefined;
      this.base = base;
      this.seq = 0;
      if (base === 0 || await this.#readBase(base)) await this.#readLogs();
      if (this.refusal === undefined) break;
      best ??= this.refusal;
      // Only a damaged snapshot may be passed over, not a damaged log.
      if (this.#refusedOver(best) || this.#refusedOver(this.refusal)) break;
    }
    if (this.refusal !== undefined) this.refusal = best;
    this.refusal = first ?? this.refusal;
  }

  #refusedOver(refusal: Refusal): boolean {
    return refusal.code === "format" ||
      !refusal.fault.file.startsWith("snapshot-");
  }

  async #readBase(generation: number): Promise<boolean> {
    const name = names.snapshot(generation);
    const scan = await this.#readSnapshot(generation, this.tables);
    for (const fault of scan.faults) this.#refuse("damaged", fault);
    const { head } = scan;
    if (head === undefined || scan.faults.length > 0) return false;
    if (head.generation !== generation || this.#isForeign(head.store)) {
      this.#refuse(
        "damaged",
        whole(name, "it belongs to another log or store"),
      );
      return false;
    }
    this.seq = head.seq;
    this.baseSize = scan.size;
    return true;
  }

  async #readLogs(): Promise<void> {
    const last = this.generation;
    for (let at = Math.max(this.base, 1); at <= last; at++) {
      const name = names.log(at);
      if (!this.logs.includes(at)) {
        this.#refuse("damaged", whole(name, "it is missing"));
        return;
      }
      const before = this.seq;
      const log = await this.#readLog(at, this.#applier());
      this.log = log;
      this.#judgeLog(log, { name, at, before });
      if (log.header !== undefined) this.seq = log.seq;
      if (this.refusal !== undefined) return;
    }
    const durable = this.mark?.store === this.store ? this.mark?.seq ?? 0 : 0;
    if (durable > this.seq) {
      this.#refuse("damaged", {
        file: names.log(last),
        byte: this.log?.end ?? 0,
        line: 0,
        message: `it ends at sequence ${this.seq}, but the mark proves that ` +
          `sequence ${durable} was acknowledged`,
      });
    }
  }

  #judgeLog(
    log: LogScan,
    place: {
      readonly name: string;
      readonly at: number;
      readonly before: number;
    },
  ): void {
    const { header, bad } = log;
    const last = place.at === this.generation;
    const faults = bad.map(({ byte, line, message }): Fault => ({
      file: place.name,
      byte,
      line,
      message,
    }));
    const [fault] = faults;
    if (header === undefined) {
      this.#refuse(
        "damaged",
        fault ?? whole(place.name, "it has no header"),
      );
      return;
    }
    const fits = header.generation === place.at &&
      header.seq === place.before && !this.#isForeign(header.store);
    if (!fits) {
      this.#refuse(
        "damaged",
        whole(place.name, "its header does not continue what is before it"),
      );
    }
    if (fault === undefined) {
      if (!last && !log.sealed) {
        this.#refuse("damaged", {
          file: place.name,
          byte: log.end,
          line: 0,
          message: "it ends without a seal, though another log follows",
        });
      }
      return;
    }
    // The rules 1, 2, 5 and 4 of the head of this file; 3 is in the scan.
    const marked = this.mark?.store === header.store ? this.mark.seq : 0;
    const refused = !last || log.sealed ||
      Math.max(log.proven, marked) > log.seq || !bad.every(({ torn }) => torn);
    if (refused) { for (const each of faults) this.#refuse("damaged", each); }
    else this.torn = fault;
  }

  #isForeign(store: string): boolean {
    if (this.store === "") this.store = store;
    return this.store !== store;
  }

  #applier(): Apply {
    const tables = this.tables;
    return (operations, seq) => {
      for (const operation of operations) applyTo(tables, operation, seq);
    };
  }

  /** Looks for faults in what the state did not need. */
  async #readEarlier(): Promise<void> {
    const spare = new Tables([]);
    for (const generation of this.snapshots) {
      if (generation >= this.base) continue;
      const scan = await this.#readSnapshot(generation, spare);
      this.faults.push(...scan.faults);
    }
    for (const generation of this.logs) {
      if (generation >= this.base) continue;
      const { bad, sealed, end } = await this.#readLog(generation, () => {});
      const file = names.log(generation);
      for (const { byte, line, message } of bad) {
        this.faults.push({ file, byte, line, message });
      }
      if (bad.length === 0 && !sealed) {
        const message = "it ends without a seal, though another log follows";
        this.faults.push({ file, byte: end, line: 0, message });
      }
    }
  }

  async #readSnapshot(
    generation: number,
    tables: Tables,
  ): Promise<SnapshotScan> {
    const name = names.snapshot(generation);
    const path = join(this.#folder, name);
    const file = await this.#options.files.open(path, "read");
    try {
      return await readSnapshot(file, name, tables);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#refuse(error.code, whole(name, error.message));
      return { head: undefined, count: 0, size: 0, faults: [] };
    } finally {
      await file.close();
    }
  }

  async #readLog(generation: number, apply: Apply): Promise<LogScan> {
    const name = names.log(generation);
    const path = join(this.#folder, name);
    const file = await this.#options.files.open(path, "read");
    try {
      return await scanLog(file, apply);
    } catch (error) {
      if (!(error instanceof StoreError)) throw error;
      this.#refuse(error.code, whole(name, error.message));
      const { size } = await file.stat();
      return {
        header: undefined,
        seq: this.seq,
        end: 0,
        size,
        sealed: false,
        unended: false,
        bad: [],
        proven: 0,
        beyond: 0,
      };
    } finally {
      await file.close();
    }
  }

  #refuse(code: StoreErrorCode, fault: Fault): void {
    const known = this.faults.some((each) =>
      each.file === fault.file && each.byte === fault.byte &&
      each.message === fault.message
    );
    if (!known) this.faults.push(fault);
    this.refusal ??= { code, fault };
  }
}

/** Applies one operation that the log holds. */
export function applyTo(
  tables: Tables,
  operation: Operation,
  seq: number,
): void {
  const [kind, name, target] = operation;
  if (kind === "put") tables.obtain(name).put(target, seq);
  else if (kind === "del") tables.obtain(name).delete(target, seq);
  else {
    throw new StoreError(
      "format",
      `it holds the operation ${JSON.stringify(kind)}, unknown to this version`,
    );
  }
}

/** The refusal of a survey as an error. */
export function refuse(folder: string, survey: Survey): StoreError | undefined {
  const { refusal, seq } = survey;
  if (refusal === undefined) return undefined;
  const { file, byte, line, message } = refusal.fault;
  if (refusal.code === "format") {
    return new StoreError(
      "format",
      `Cannot open ${folder}: ${file}: ${message}`,
      { folder, fault: refusal.fault },
    );
  }
  const place = line === 0 ? `byte ${byte}` : `byte ${byte}, line ${line}`;
  return new StoreError(
    "damaged",
    `Cannot open ${folder}: ${file} is damaged (${place}: ${message}); the ` +
      `last good sequence is ${seq}. Nothing was changed. The command ` +
      `"repair" keeps a copy of all that it cuts off`,
    { folder, fault: refusal.fault, seq },
  );
}

/** A fault of a whole file. */
function whole(file: string, message: string): Fault {
  return { file, byte: 0, line: 0, message };
}

/** Whether an error says that a file went away while it was about to be read. */
export function isGone(error: unknown): boolean {
  return errorCode(error) === "ENOENT" || errorText(error).includes("ENOENT");
}
