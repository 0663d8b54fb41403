/**
 * Tasks: what takes longer than a request may. A body of lines is taken to
 * disk, its task is answered, and the lines go into the store in the
 * background, one task after the other, a batch a transaction. A batch and the
 * task's progress are one transaction, so a start after a crash goes on where
 * the last durable batch ended: each line exactly once.
 *
 * While the disk is full a task waits, and goes on when there is space. On a
 * store that is read-only it stands still until a restart. It fails where its
 * user has lost the right to write.
 */

import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { setImmediate as turn, setTimeout as wait } from "node:timers/promises";
import { mayAccess } from "../../auth/access.ts";
import type { FieldError } from "../../http/errors.ts";
import {
  type Document,
  formatTime,
  type Logger,
  type Mutation,
  type Row,
  type Store,
  StoreError,
} from "../../store/store.ts";
import { roleOf } from "../../api/accounts/authentication.ts";
import { collection } from "../../api/declaration/declaration.ts";
import { importBatch, longestLine, type Progress } from "./batch.ts";
import {
  array,
  choice,
  integer,
  type Json,
  optional,
  readOnly,
  string,
} from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import type {
  RequestContext,
  Result,
  RunOnce,
} from "../../api/request-context.ts";
import type { SpoolLine, Spools } from "./spool.ts";

const count = readOnly(integer({ minimum: 0 }));

/** What is shown; stored are also `user_id`, `spool`, `given`, `byte` and `line`. */
export const tasks = collection({
  name: "tasks",
  singular: "task",
  access: { read: "viewer", write: "keeper", delete: "viewer" },
  owner: "user_id",
  properties: {
    type: readOnly(choice("import")),
    collection: readOnly(string({ maxLength: 100 })),
    status: readOnly(choice("queued", "running", "succeeded", "failed")),
    lines: count,
    imported: count,
    rejected: count,
    errors: readOnly(array()),
    failure: readOnly(optional(string({ maxLength: 100 }))),
  },
});

/** A task as it is stored. */
interface Task extends Document, Progress {
  readonly collection: string;
  readonly status: "queued" | "running" | "succeeded" | "failed";
  /** Why it failed. */
  readonly failure: string | null;
  readonly user_id: number;
  readonly spool: string;
  readonly given: Readonly<Record<string, Json>>;
  readonly updated_at: string;
}

/** A line that did not go in, as a task lists it. */
export interface RejectedLine {
  readonly line: number;
  readonly errors: readonly FieldError[];
}

/** What a batch may hold. */
const batchLines = 500;
const batchBytes = 1 << 18;

/** How long progress without a record to put may be unsaved, in ms. */
const saveDelay = 250;

/** How long to wait before trying again what the store did not take, in ms. */
const patience = 1000;

/** So many are kept; the finished ones go first. */
const mostKept = 250;

/** What tasks work with. */
export interface TaskOptions {
  readonly store: Store;
  readonly spools: Spools;
  /** The records of the tasks themselves. */
  readonly records: Records;
  /** Where records can be imported, by the collection's name. */
  readonly importable: ReadonlyMap<string, Records>;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
}

/** Makes tasks, shows them and works them off. */
export class Tasks {
  readonly #on: TaskOptions;
  readonly #stopping = new AbortController();
  #working: Promise<void> | undefined;

  constructor(options: TaskOptions) {
    this.#on = options;
  }

  /** Removes what no task needs any more, and goes on with what is unfinished. To be called before the first request. */
  async start(): Promise<void> {
    const { spools } = this.#on;
    const needed = this.#all().filter(isUnfinished).map(({ spool }) => spool);
    for (const name of await spools.list()) {
      if (!needed.includes(name)) await spools.remove(name);
    }
    this.#wake();
  }

  /** Resolves when nothing is left to do, or nothing can be done. */
  async idle(): Promise<void> {
    await this.#working;
  }

  /** Ends the work behind the batch that is under way. */
  async stop(): Promise<void> {
    this.#stopping.abort();
    await this.#working;
  }

  /**
   * Removes one, which ends it: what is in stays in.
   *
   * @throws {ApiError} 40401
   */
  remove(call: RequestContext): Result {
    const task = this.#get(call.ids[0] ?? 0);
    const result = this.#on.records.delete(call, false);
    this.#removed(task, result.seq).catch((error) => this.#tell(error));
    return result;
  }

  async #removed(task: Task | undefined, seq: number): Promise<void> {
    try {
      await this.#on.store.durable(seq);
      if (task) await this.#on.spools.remove(task.spool);
    } finally {
      this.#wake(); // on a full disk it may be there again
    }
  }

  /**
   * Takes lines to disk and makes a task of them.
   *
   * @throws {ApiError} 40401, 41200; whatever `body` throws
   */
  async receive(
    call: RequestContext,
    body: AsyncIterable<Uint8Array>,
    { records, once }: { readonly records: Records; readonly once: RunOnce },
  ): Promise<Result> {
    const { store, spools } = this.#on;
    records.prepareCreate(call); // told before all of it is sent
    const spool = await spools.create();
    let kept = false;
    try {
      const hash = createHash("sha256");
      for await (const bytes of body) {
        hash.update(bytes);
        await spool.write(bytes);
      }
      call.reauthenticate();
      return await once(hash.digest(), async (storeResponse) => {
        await spool.finish();
        call.reauthenticate();
        const given = records.prepareCreate(call);
        const { name: collection } = records.collection;
        const task = { collection, given, spool: spool.name };
        const result = this.#queue({ ...call, storeResponse }, task);
        kept = true;
        try {
          await store.durable(result.seq);
        } catch (error) {
          // If the outcome is unknown, it may be there after a restart.
          kept = !(error instanceof StoreError && error.code === "disk-full");
          throw error;
        }
        this.#wake();
        return result;
      });
    } finally {
      // What cannot be removed now is removed at the next start.
      if (!kept) await spool.discard().catch(() => {});
    }
  }

  #queue(
    call: RequestContext,
    task: Pick<Task, "collection" | "given" | "spool">,
  ): Result {
    const { records, now } = this.#on;
    const { representation } = records;
    const at = formatTime(now());
    const document: Document = {
      id: records.nextId(),
      type: "import",
      status: "queued",
      lines: 0,
      imported: 0,
      rejected: 0,
      errors: [],
      failure: null,
      created_at: at,
      updated_at: at,
      user_id: call.caller?.id ?? 0,
      byte: 0,
      line: 0,
      ...task,
    };
    const operations = [records.putMutation(document), ...this.#outdated()];
    return records.commit(call, operations, {
      status: 202,
      headers: ["Location", representation.url(document.id)],
      body: representation.asStandalone(representation.serialize(document)),
    });
  }

  /** What goes for a new task. */
  #outdated(): Mutation[] {
    const all = this.#all();
    if (all.length < mostKept) return [];
    const task = all.find((task) => !isUnfinished(task));
    if (task) return [["del", tasks.name, task.id]];
    throw new StoreError("overloaded", `${mostKept} tasks wait already.`);
  }

  #all(): Task[] {
    return this.#on.records.table.rows().map(taskOf);
  }

  #get(id: number): Task | undefined {
    const row = this.#on.records.table.get(id);
    return row && taskOf(row);
  }

  #wake(): void {
    this.#working ??= this.#work();
  }

  async #work(): Promise<void> {
    const { signal } = this.#stopping;
    try {
      await turn();
      while (!signal.aborted) {
        const task = this.#all().find(isUnfinished);
        if (task === undefined) return;
        try {
          await this.#carryOut(task);
        } catch (error) {
          const { code = "" } = error instanceof StoreError ? error : {};
          if (code !== "disk-full" && code !== "overloaded") throw error;
          await wait(patience, undefined, { signal }).catch(() => {});
        }
      }
    } catch (error) {
      this.#tell(error);
    } finally {
      this.#working = undefined; // in the turn of the last look
    }
  }

  /** Works a task off, from where it was left. */
  async #carryOut(task: Task): Promise<void> {
    const lines = this.#on.spools.lines(task.spool, {
      from: task.byte,
      longest: longestLine,
    });
    try {
      await this.#import(task, lines);
    } catch (error) {
      const lost = error instanceof StoreError &&
        error.code === "unknown-spool";
      if (error instanceof StoreError && !lost) throw error;
      this.#tell(error);
      const failure = lost
        ? "What was sent is not on the disk any more."
        : "What was sent cannot be read.";
      const current = this.#get(task.id);
      if (current) await this.#end(current, failure);
    } finally {
      await lines.return(undefined);
    }
  }

  async #import(
    task: Task,
    lines: AsyncGenerator<SpoolLine, undefined>,
  ): Promise<void> {
    const { store, importable, now, records: own } = this.#on;
    const records = importable.get(task.collection);
    let current = task;
    let saved = performance.now();
    let waiting: SpoolLine[] = [];
    while (true) {
      await turn();
      await fill(waiting, lines);
      // From here to the transaction nothing else can run.
      if (this.#stopping.signal.aborted || !this.#get(task.id)) return;
      const failure = this.#objection(task, records);
      if (records === undefined || failure !== null || waiting.length === 0) {
        return await this.#end(current, failure);
      }
      const { given, user_id } = task;
      const seq = store.transact(user_id, (apply) => {
        const into = { records, given, apply, now: now() };
        const batch = importBatch(waiting, { progress: current, ...into });
        const { imported } = current;
        waiting = waiting.slice(batch.used);
        current = { ...current, ...batch.progress, status: "running" };
        const late = performance.now() > saved + saveDelay;
        if (current.imported === imported && !late) return;
        current = this.#next(current);
        apply(own.putMutation(current));
        saved = performance.now();
      });
      await store.durable(seq);
    }
  }

  /** Why a task must not go on; null where it may. */
  #objection(
    { user_id, collection }: Task,
    records: Records | undefined,
  ): string | null {
    if (records === undefined) return `There are no ${collection} any more.`;
    if (user_id === 0) return null; // from the command line
    const user = this.#on.store.table("users").get(user_id)?.document;
    return mayAccess(roleOf(user?.["role"]), records.collection.access.write)
      ? null
      : "Its user may not write any more.";
  }

  /** Ends a task, with why where it failed. */
  async #end(task: Task, failure: string | null): Promise<void> {
    const { store, spools, records } = this.#on;
    const status = failure === null ? "succeeded" : "failed";
    const ended = this.#next({ ...task, status, failure });
    await store.commit([records.putMutation(ended)], task.user_id);
    await spools.remove(task.spool).catch((error) => this.#tell(error));
  }

  /** A task with a later time of change. */
  #next(task: Task): Task {
    const updated_at = this.#on.records.timestamp(task.updated_at);
    return { ...task, updated_at };
  }

  #tell(error: unknown): void {
    if (error instanceof StoreError && error.code === "closed") return;
    const text = error instanceof Error ? error.message : String(error);
    this.#on.log("error", `A task cannot go on: ${text}`);
  }
}

/** Takes lines until there are enough for a batch. */
async function fill(
  waiting: SpoolLine[],
  lines: AsyncGenerator<SpoolLine, undefined>,
): Promise<void> {
  while (waiting.length < batchLines) {
    const [first, last] = [waiting[0], waiting.at(-1)];
    if (first && last && last.next - first.byte > batchBytes) return;
    const { value } = await lines.next();
    if (value === undefined) return;
    waiting.push(value);
  }
}

function isUnfinished({ status }: Task): boolean {
  return status === "queued" || status === "running";
}

/** Only this file puts tasks. */
function taskOf({ document }: Row): Task {
  return document as Task;
}
