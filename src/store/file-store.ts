/**
 * Opens the store in a folder. While it is open, transactions are applied in
 * memory at once and made durable by the log's writer.
 */

import { resolve } from "node:path";
import { Checkpoints, type StoreContext } from "./checkpoints.ts";
import { closedError, errorText, StoreError } from "./error.ts";
import type { FullDisk } from "./full-disk.ts";
import type { FastWrites } from "./log/fast-writes.ts";
import { isNoSpaceError } from "./log/files.ts";
import {
  makeFolder,
  type OpenLog,
  type StoreFolder,
  storeFolder,
} from "./log/folder.ts";
import { acquireLock } from "./log/lock.ts";
import type { MarkerWriter } from "./log/marker.ts";
import { LogWriter } from "./log/writer.ts";
import { defaultLimits, type Logger, type StoreLimits } from "./options.ts";
import type { Pending } from "./queue.ts";
import { createStore, reopenLog } from "./recovery/reopen.ts";
import {
  type FolderScan,
  type FolderScanOptions,
  scanFolder,
} from "./recovery/scan.ts";
import { Store } from "./transactions.ts";

/** How to open a store. */
export interface StoreOptions
  extends Omit<FolderScanOptions, "files">, Partial<StoreFolder> {
  readonly folder: string;
  readonly log?: Logger;
  readonly limits?: Partial<StoreLimits>;
  /** Makes deletes possible on a full disk; nothing does by default. */
  readonly fullDisk?: typeof FullDisk;
  /** Makes writes faster; nothing does by default. */
  readonly fastWrites?: FastWrites | undefined;
}

/** Opens the store in a folder; creates both if they do not exist. */
export async function openStore(options: StoreOptions): Promise<Store> {
  const path = resolve(options.folder);
  try {
    return await openLocked({ ...options, folder: path });
  } catch (error) {
    if (error instanceof StoreError) throw error;
    const code = isNoSpaceError(error) ? "disk-full" : "unusable";
    throw new StoreError(code, `Cannot open ${path}: ${errorText(error)}`, {
      cause: error,
    });
  }
}

async function openLocked(options: StoreOptions): Promise<Store> {
  const { fastWrites, log = () => {}, memory } = options;
  const place = storeFolder(options);
  const { folder: path, files } = place;
  const limits = { ...defaultLimits, ...options.limits };
  await makeFolder(files, path);
  const { folder, release } = await acquireLock(place);
  try {
    const scanOptions = { ...options, files };
    let scan = await scanFolder(path, scanOptions);
    if (!scan.exists) {
      await createStore(folder);
      scan = await scanFolder(path, scanOptions);
    }
    if (scan.refusal?.cause === "rename") {
      // Few logs hold one: its code is imported late.
      await import("./memory/exchange.ts");
      scan = await scanFolder(path, scanOptions);
    }
    if (scan.refusal !== undefined) throw scan.refusal;
    memory?.requireFit(path);
    const closing = new AbortController();
    const context = { folder, limits, log, scan, closing };
    const fullDisk = options.fullDisk && new options.fullDisk(context);
    return new FileStore({
      ...context,
      fastWrites,
      fullDisk,
      release,
      marker: await options.marker?.openMarker(context),
      openLog: await (fullDisk?.open() ?? reopenLog(folder, scan)),
    });
  } catch (error) {
    memory?.close();
    await release();
    throw error;
  }
}

/** Describes the damage that this start, or a repair before it, has dealt with. */
function noticesOf(
  { tornWrite, log, faults, fileNames }: FolderScan,
): string[] {
  const notices = faults.map(({ file, byte, line, message }) =>
    `${file} is damaged (byte ${byte}, line ${line}: ${message}) and was ` +
    "skipped: the previous generation and the logs since are complete"
  );
  const replaced = fileNames.find((name) => name.startsWith("damaged-"));
  if (replaced !== undefined) {
    notices.push(
      `The folder was repaired: correct the records that "zoo-api check" ` +
        `lists, if any, then delete ${replaced}`,
    );
  }
  if (tornWrite !== undefined) {
    notices.push(
      `${tornWrite.file} ended with a torn write at byte ${tornWrite.byte}, ` +
        `line ${tornWrite.line}: ${log.size - log.end} bytes that were never ` +
        "acknowledged were cut off and saved beside it",
    );
  }
  return notices;
}

/** The results of startup, for a new {@linkcode Store}. */
interface StoreParts extends StoreContext {
  readonly openLog: OpenLog;
  readonly fastWrites: FastWrites | undefined;
  readonly marker: MarkerWriter | undefined;
  readonly fullDisk: FullDisk | undefined;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
}

/** A store in a folder. */
class FileStore extends Store {
  readonly notices: readonly string[];
  readonly #parts: StoreParts;
  readonly #writer: LogWriter;
  readonly #checkpoints: Checkpoints;

  constructor(parts: StoreParts) {
    const { folder, limits: { maxQueueBytes }, log, scan, fullDisk } = parts;
    const { options: { memory } } = scan;
    super(folder, { ...scan, memory, fullDisk, maxQueueBytes });
    this.#parts = parts;
    this.notices = noticesOf(scan);
    for (const notice of this.notices) log("error", notice);
    this.#writer = new LogWriter(parts.openLog, this.queue, {
      ...parts,
      beforeWrite: () => fullDisk?.beforeWrite(),
      onAdvance: (syncMs) => this.#onAdvance(syncMs),
      onRollback: (error) => this.#onRollback(error),
    });
    this.#checkpoints = new Checkpoints(parts, this.#writer, fullDisk);
    fullDisk?.start(this.#writer, () => this.checkpoint());
    if (scan.faults.length > 0) this.checkpoint().catch(() => {});
  }

  get isWritable(): boolean {
    return this.#writer.fault === undefined;
  }

  get log(): OpenLog {
    return this.#writer.log;
  }

  protected accept(pending: Pending): void {
    if (this.closing !== undefined) throw closedError();
    const { fault: cause } = this.#writer;
    if (cause !== undefined) {
      throw new StoreError(
        "read-only",
        "The store is read-only after a disk fault",
        { cause },
      );
    }
    this.fullDisk?.admit(pending);
    this.queue.add(pending);
    this.#writer.wake();
  }

  checkpoint(): Promise<void> {
    return this.#checkpoints.run();
  }

  #onAdvance(syncMs: number): void {
    this.notify(syncMs);
    this.#parts.marker?.touch(this.#writer);
    if (!this.fullDisk?.isFull) this.#checkpoints.runIfDue();
  }

  #onRollback(error: StoreError): void {
    this.#parts.log("error", error.message);
    if (error.code === "disk-full") this.fullDisk?.enterFullMode();
  }

  protected async release(): Promise<void> {
    const { closing, marker, release } = this.#parts;
    try {
      closing.abort(closedError());
      await this.#checkpoints.close();
      await this.fullDisk?.close();
      await this.#writer.close(() => marker?.close(this.#writer));
    } finally {
      await release();
    }
  }
}
