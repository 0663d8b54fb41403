/**
 * Tasks: the resource that shows the progress of an import, and the record in
 * which it is stored. A finished task stays until it is deleted, or until it
 * must make room because there are {@linkcode maxTasks}.
 */

import { setTimeout } from "node:timers/promises";
import { tooLong } from "../../admission.ts";
import { errorText, StoreError } from "../../store/error.ts";
import type { Document, Mutation, Store } from "../../store/store.ts";
import type { Api } from "../../api/feature.ts";
import type { Roles } from "../../auth/access.ts";
import { type Declaration } from "../../api/declaration/declaration.ts";
import {
  anyString,
  choice,
  integer,
  optional,
  readOnly,
  string,
  type Values,
} from "../../api/declaration/properties.ts";
import { declarationTable } from "../../api/declaration/remembered.ts";
import type { Records } from "../../api/records/records.ts";
import type { Progress } from "./batch.ts";
import { pathOf } from "./spool.ts";

const rejectedLine = {
  type: "object",
  description: "A line and its errors. Lists of tasks omit the errors.",
};

const count = readOnly(integer({ minimum: 0 }));

/** The properties that clients see; the others of {@linkcode Task} are stored too. */
const properties = {
  type: readOnly(choice("import")),
  collection: readOnly(string({ maxLength: 100 })),
  status: readOnly(choice("queued", "running", "succeeded", "failed")),
  lines: count,
  imported: count,
  rejected: count,
  errors: readOnly({
    ...anyString(), // never compared, because lists omit it
    schema: { type: "array", items: rejectedLine },
  }),
  failure: readOnly(optional(string({ maxLength: 100 }))),
};

export function tasks({ lowest, highest }: Roles): Declaration {
  return {
    name: "tasks",
    singular: "task",
    access: { read: lowest, write: highest, delete: lowest },
    owner: "user_id",
    overseer: highest,
    properties,
  };
}

/** Returns how often names of collections and properties have been exchanged: a request sent before the last time may mean other names. */
export function countRenamings(store: Pick<Store, "table">): number {
  const remembered = store.table(declarationTable).get(1)?.document;
  return Number(remembered?.["renamings"] ?? 0);
}

/** Tasks without their errors: those of 250 tasks would take 30 MB. */
export function listedTasks(roles: Roles): Declaration {
  const { errors: _, ...listed } = properties;
  return { ...tasks(roles), singular: "listed task", properties: listed };
}

/** A file of NDJSON, and where its records go. */
export type Part = {
  readonly collection: string;
  /** The name of the spool file. */
  readonly spool: string;
  /** The values that the URL provides for each record: `{"zoo_id":7}`. */
  readonly given: Values;
};

/** A task as it is stored. Only this feature writes to its table. */
export interface Task extends Document, Progress, Part {
  readonly status: "queued" | "running" | "succeeded" | "failed";
  /** Why it failed. */
  readonly failure: string | null;
  /** The user who sent the body; 0 for the command line, null for a client that was not signed in. */
  readonly user_id: number | null;
  /** Further files of the same command. */
  readonly more?: readonly Part[];
  /** The server that has the body. */
  readonly server?: string;
  /** The highest ids that were used before the import, by the names of its collections. */
  readonly lastIds?: Readonly<Record<string, number>>;
  /** How many names had been exchanged when the body was sent. */
  readonly renamings?: number;
  readonly updated_at: string;
}

/** The parts of the server that imports use. */
export interface ImportContext
  extends Pick<Api, "declaration" | "store" | "now" | "log"> {
  /** The records of the tasks themselves. */
  readonly records: Records;
  /** Returns the records of a collection, if it accepts imports. */
  readonly importable: (collection: string) => Records | undefined;
}

/** Returns the files of a task. */
export function partsOf(task: Task): readonly Part[] {
  const { collection, spool, given, more = [] } = task;
  return [{ collection, spool, given }, ...more];
}

/** The most tasks that are stored. */
const maxTasks = 250;

/** The most bodies that are received at a time, each into a file. */
export const maxUploads = 16;

/** Returns a task, unless it was deleted. */
export function findTask(
  { records }: ImportContext,
  id: number,
): Task | undefined {
  return records.table.get(id)?.document as Task | undefined;
}

function listTasks({ records }: ImportContext): Task[] {
  return records.table.rows().map(({ document }) => document as Task);
}

/** Returns the tasks that are queued or running, the oldest first. */
export function unfinishedTasks(context: ImportContext): Task[] {
  return listTasks(context).filter(isUnfinished);
}

export function isUnfinished({ status }: Task): boolean {
  return status === "queued" || status === "running";
}

/**
 * Returns the mutation that deletes the oldest finished task, if there are too
 * many tasks for another one.
 *
 * @throws {StoreError} overloaded, if none is finished
 */
export function evictOldestFinished(context: ImportContext): Mutation[] {
  const all = listTasks(context);
  if (all.length < maxTasks) return [];
  const task = all.find((task) => !isUnfinished(task));
  if (task) return [["del", tasks.name, task.id]];
  throw new StoreError("overloaded", `${maxTasks} imports are waiting already`);
}

/** Waits, at most 30 s, until there is room for the tasks of all bodies that are being received. */
export async function roomForTask(
  context: ImportContext,
  signal: AbortSignal,
): Promise<void> {
  for (let wait = 0; wait < 300; wait++) {
    if (unfinishedTasks(context).length <= maxTasks - maxUploads) return;
    await setTimeout(100, undefined, { signal })
      .catch(() => signal.throwIfAborted());
  }
  throw tooLong();
}

/** Removes files that a task no longer needs. If that fails, the next start does it. */
export async function removeBodies(
  context: ImportContext,
  parts: readonly Pick<Part, "spool">[],
): Promise<void> {
  const { store } = context;
  for (const { spool } of parts) {
    await store.folder.files.remove(pathOf(store, spool))
      .catch((error) => logFailure(context, error));
  }
}

/** Logs why an import cannot continue. */
export function logFailure({ log }: ImportContext, error: unknown): void {
  if (error instanceof StoreError && error.code === "closed") return;
  log("error", `An import cannot continue: ${errorText(error)}`);
}
