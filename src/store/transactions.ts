/**
 * A store as the API uses it: transactions that are applied in memory at once,
 * and are durable a moment later. Where they are kept is up to the class that
 * extends {@linkcode Store}: in a folder (file-store.ts), or in etcd.
 */

import { Buffer } from "node:buffer";
import { StoreError } from "./error.ts";
import type { FullDisk } from "./full-disk.ts";
import type { OpenLog, StoreFolder } from "./log/folder.ts";
import { formatTime, lineOverhead, type Mutation } from "./log/format.ts";
import type { Memory } from "./memory/limit.ts";
import { type Pending, TransactionQueue } from "./queue.ts";
import {
  applyMutation,
  rollBack,
  type Table,
  type Tables,
  type Undo,
} from "./memory/table.ts";
import type { CommitOptions } from "./options.ts";

/** How a store begins. */
interface StoreState {
  readonly seq: number;
  readonly tables: Tables;
  readonly memory: Memory | undefined;
  readonly fullDisk?: FullDisk | undefined;
  readonly maxQueueBytes: number;
}

/** An open store. */
export abstract class Store {
  /** The repairs made at startup, as sentences; none after a clean stop. */
  abstract readonly notices: readonly string[];
  /** The folder for files that are not records, and how it is accessed. */
  readonly folder: StoreFolder;
  /** False from a disk fault until a restart. */
  abstract readonly isWritable: boolean;
  /** The log being written, and where its durable part ends. */
  abstract readonly log: Pick<OpenLog, "generation" | "seed" | "offset">;
  /** All tables by name. */
  readonly #tables: Tables;
  /** Bounds the memory of the records; undefined if nothing does. */
  readonly memory: Memory | undefined;
  /** Makes deletes possible on a full disk; undefined if nothing does. */
  readonly fullDisk: FullDisk | undefined;
  protected readonly queue: TransactionQueue;
  /** Called when more transactions are durable, or the next log has begun, with how long the disk took. */
  readonly advanceListeners = new Set<(syncMs: number) => void>();
  /** Settles once the store is closed; undefined while it is open. */
  protected closing: Promise<void> | undefined;

  constructor(
    folder: StoreFolder,
    { seq, tables, memory, fullDisk, maxQueueBytes }: StoreState,
  ) {
    this.folder = folder;
    this.memory = memory;
    this.fullDisk = fullDisk;
    this.queue = new TransactionQueue(seq, maxQueueBytes);
    this.#tables = tables;
  }

  /** The last sequence number applied in memory. */
  get seq(): number {
    return this.queue.lastSeq;
  }

  /** The last sequence number known to be durable. */
  get durableSeq(): number {
    return this.queue.durableSeq;
  }

  /** Resolves once there is room for the transaction of a request; undefined if there is. */
  whenRoom(): Promise<void> | undefined {
    if (!this.queue.isHalfFull) return undefined;
    // If the disk fails, the transaction itself will be refused.
    return this.durable(this.durableSeq + 1)?.catch(() => {});
  }

  protected notify(syncMs: number): void {
    for (const listener of this.advanceListeners) listener(syncMs);
  }

  /** Writes a snapshot now and begins a new log. */
  abstract checkpoint(): Promise<void>;

  /** Makes everything durable, and releases what the store holds. */
  close(): Promise<void> {
    return this.closing ??= this.release().finally(() => this.memory?.close());
  }

  protected abstract release(): Promise<void>;

  /** Adds a transaction to those that are made durable; throws if it cannot be accepted now. */
  protected abstract accept(pending: Pending): void;

  /** All tables by name, whether declared or only in the store. */
  get tables(): ReadonlyMap<string, Table> {
    return this.#tables;
  }

  /** Returns a table; throws if its name is neither declared nor in the store. */
  table(name: string): Table {
    const table = this.#tables.get(name);
    if (table) return table;
    throw new StoreError("unknown-table", `There is no table "${name}"`);
  }

  /**
   * Applies mutations in memory; returns the sequence number. `by` is the user's
   * id, 0 for the server itself. If refused, throws with nothing applied.
   */
  apply(
    mutations: readonly Mutation[],
    by: number,
    options?: CommitOptions,
  ): number {
    return this.transact(by, (apply) => mutations.forEach(apply), options);
  }

  /** Applies mutations one by one, as `run` creates them; if it throws, rolls them back. */
  transact(
    by: number,
    run: (apply: (mutation: Mutation) => void) => void,
    { allowWhenFull = false }: CommitOptions = {},
  ): number {
    const seq = this.seq + 1;
    const bytesBefore = this.memory?.recordBytes ?? 0;
    const mutations: Mutation[] = [];
    const undo: Undo[] = [];
    let puts = 0;
    try {
      run((mutation) => {
        const [kind, name] = mutation;
        if (kind !== "rename") this.table(name);
        if (kind === "put") puts++;
        mutations.push(mutation);
        const undone = applyMutation(this.#tables, mutation, seq);
        if (undone) undo.push(undone);
      });
      if (mutations.length === 0) return this.seq;
      this.memory?.admit(bytesBefore, allowWhenFull);
      const text = JSON.stringify(mutations);
      const bytes = Buffer.byteLength(text) + lineOverhead;
      const at = formatTime(this.folder.now());
      this.accept({ seq, at, by, text, bytes, undo, puts, allowWhenFull });
      return seq;
    } catch (error) {
      rollBack(undo);
      throw error;
    }
  }

  /** Runs a transaction and waits until it is durable; returns what it returned. */
  async settle<Result extends { readonly seq: number }>(
    run: () => Result | Promise<Result>,
  ): Promise<Result> {
    const result = await run();
    await this.durable(result.seq);
    return result;
  }

  /** Returns undefined if all transactions up to `seq` are durable, otherwise a promise that they will be. Call it in the same turn of the event loop as the read; after `disk-full`, read the record again. */
  durable(seq: number): Promise<void> | undefined {
    if (seq <= this.durableSeq) return undefined;
    return new Promise((resolve, reject) => {
      this.queue.onDurable(seq, (error) => error ? reject(error) : resolve());
    });
  }
}
