/**
 * Tasks: the resource that shows the progress of work in the background, and
 * the record in which that is stored. A finished task stays until it is deleted,
 * or until it must make room because there are {@linkcode maxTasks}. Only
 * features load this: each does one type of work.
 */

import { setTimeout } from "node:timers/promises";
import { tooLong } from "../../admission.ts";
import type { Actor } from "../../auth/access.ts";
import type { Roles } from "../../auth/access.ts";
import type { Response } from "../../http/connection.ts";
import { asShared } from "../../store/shared.ts";
import { StoreError } from "../../store/error.ts";
import {
  type CommitOptions,
  type Document,
  formatTime,
  type Mutation,
  type Store,
} from "../../store/store.ts";
import type { Declaration } from "../declaration/declaration.ts";
import {
  anyString,
  choice,
  integer,
  optional,
  readOnly,
  string,
} from "../declaration/properties.ts";
import { declarationTable } from "../declaration/remembered.ts";
import type { Api } from "../feature.ts";
import { localOperator } from "../operator.ts";
import type { Records } from "../records/records.ts";

const rejected = {
  type: "object",
  description:
    "What was rejected, a line or a record, and its errors. Lists of tasks omit the errors.",
};

const count = readOnly(integer({ minimum: 0 }));

/** A number that only one type of work has. */
const own = {
  ...readOnly(optional(integer({ minimum: 0 }))),
  omitsNull: true as const,
};

/** The properties that clients see. */
const properties = {
  type: readOnly(choice("import", "deletion")),
  collection: readOnly(string({ maxLength: 100 })),
  status: readOnly(choice("queued", "running", "succeeded", "failed")),
  lines: own,
  imported: own,
  matched: own,
  deleted: own,
  cascaded: own,
  rejected: count,
  errors: readOnly({
    ...anyString(), // never compared, because lists omit it
    schema: { type: "array", items: rejected },
  }),
  failure: readOnly(optional(string({ maxLength: 200 }))),
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

/** Tasks without their errors: those of 250 tasks would take 30 MB. */
export function listedTasks(roles: Roles): Declaration {
  const { errors: _, ...listed } = properties;
  return { ...tasks(roles), singular: "listed task", properties: listed };
}

/** A task as it is stored; each type has more. Only features write to its table. */
export interface Task extends Document {
  readonly type: "import" | "deletion";
  readonly collection: string;
  readonly status: "queued" | "running" | "succeeded" | "failed";
  /** Why it failed. */
  readonly failure: string | null;
  readonly rejected: number;
  /** The user who sent the request; 0 for the command line, null for a client that was not signed in. */
  readonly user_id: number | null;
  /** The role that they had then; undefined if an earlier version stored it. */
  readonly role?: string;
  /** True if that was the highest one, which sees the records of all users; undefined likewise. */
  readonly isHighest?: boolean;
  /** The server that works on it, if several share the store. */
  readonly server?: string;
  /** How many names had been exchanged when the request was sent. */
  readonly renamings?: number;
  readonly updated_at: string;
}

/** The parts of the server that tasks use. */
export interface TaskContext
  extends Pick<Api, "declaration" | "store" | "now" | "log"> {
  /** The records of the tasks themselves. */
  readonly records: Records;
}

/** The most tasks that are stored. */
const maxTasks = 250;

/** How many of them bodies that are being received may become. */
const maxReceived = 16;

/** Returns the stored form of a new task. */
export function newTask(
  { records, now, store, declaration: { roles } }: TaskContext,
  { type, collection, sender }: Pick<Task, "type" | "collection"> & {
    readonly sender: Actor | undefined;
  },
): Document {
  const shared = asShared(store);
  const at = formatTime(now());
  return {
    ...visibleTask(records.nextId(), type, collection, at),
    user_id: sender?.id ?? null,
    ...sender && {
      role: sender.role,
      isHighest: sender.role === roles.highest,
    },
    renamings: countRenamings(store),
    ...shared && { server: shared.serverId },
  };
}

/** Returns the visible properties of a new task. */
export function visibleTask(
  id: number,
  type: Task["type"],
  collection: string,
  at: string,
): Document {
  const counts = type === "import"
    ? { lines: 0, imported: 0 }
    : { matched: 0, deleted: 0, cascaded: 0 };
  return {
    id,
    type,
    collection,
    status: "queued",
    ...counts,
    rejected: 0,
    errors: [],
    failure: null,
    created_at: at,
    updated_at: at,
  };
}

/** Returns the response to a request that begins a task. */
export function queuedResponse(
  { representation }: Records,
  task: Document,
): Response {
  return {
    status: 202,
    headers: ["Location", representation.url(task.id)],
    body: representation.asStandalone(representation.serialize(task)),
  };
}

/** Stores a task, durably. */
export async function saveTask(
  { records, store }: TaskContext,
  task: Task,
  options?: CommitOptions,
): Promise<void> {
  const saved = records.putMutation(task);
  await store.durable(store.apply([saved], task.user_id ?? 0, options));
}

/** Returns the tasks of a type, or of all, that are queued or running, the oldest first. */
export function unfinishedTasks(
  { records }: { readonly records: Pick<Records, "table"> },
  type?: Task["type"],
): Task[] {
  return records.table.rows().map(({ document }) => document as Task)
    .filter((task) =>
      isUnfinished(task) && (type === undefined || task.type === type)
    );
}

export function isUnfinished({ status }: Pick<Task, "status">): boolean {
  return status === "queued" || status === "running";
}

/**
 * Returns the mutation that deletes the oldest finished task, if there are too
 * many tasks for another one.
 *
 * @throws {StoreError} overloaded, if none is finished
 */
export function evictOldestFinished({ records }: TaskContext): Mutation[] {
  if (records.table.size < maxTasks) return [];
  const row = records.table.rows()
    .find(({ document }) => !isUnfinished(document as Task));
  if (row) return [["del", tasks.name, row.document.id]];
  throw new StoreError("overloaded", `${maxTasks} tasks are waiting already`);
}

/** Waits, at most 30 s, until there is room for the tasks of all requests that are being received. */
export async function roomForTask(
  context: TaskContext,
  signal: AbortSignal,
): Promise<void> {
  for (let wait = 0; wait < 300; wait++) {
    if (unfinishedTasks(context).length <= maxTasks - maxReceived) return;
    await setTimeout(100, undefined, { signal })
      .catch(() => signal.throwIfAborted());
  }
  throw tooLong();
}

/**
 * Returns the user whose request a task works off, with the rights that they
 * had then: they did not ask for more. Undefined if they have lost any of these,
 * or another role is the highest now, as the task would then find, or own, other
 * records than they asked for.
 */
export function senderOf(
  { store, declaration: { roles } }: TaskContext,
  { user_id: id, role: former, isHighest: was }: Pick<
    Task,
    "user_id" | "role" | "isHighest"
  >,
): Actor | undefined {
  if (id === 0) return localOperator;
  if (id === null) return undefined;
  const current = String(store.table("users").get(id)?.document["role"]);
  const role = former ?? current;
  const grants = roles.grantsOf(role);
  const isHighest = role === roles.highest;
  const isKept = grants && roles.grantsOf(current)?.has(role) &&
    (was ?? isHighest) === isHighest;
  return isKept ? { id, role, grants } : undefined;
}

/** Returns whether this server works on a task: of several that share a store, the one to which it was sent. */
export function isOwnTask(
  { store }: Pick<TaskContext, "store">,
  { server }: Pick<Task, "server">,
): boolean {
  const shared = asShared(store);
  return shared === undefined || server === shared.serverId;
}

/** Returns how often names of collections and properties have been exchanged: a request sent before the last time may mean other names. */
export function countRenamings(store: Pick<Store, "table">): number {
  const remembered = store.table(declarationTable).get(1)?.document;
  return Number(remembered?.["renamings"] ?? 0);
}

/** Sets a task's time of change. */
export function touch<T extends Task>({ records }: TaskContext, task: T): T {
  return { ...task, updated_at: records.timestamp(task.updated_at) };
}

/** Returns a task after its work, with the reason if it failed. */
export function finished<T extends Task>(
  context: TaskContext,
  task: T,
  failure: string | null,
): T {
  const status = failure === null ? "succeeded" : "failed";
  return touch(context, { ...task, status, failure });
}

/** Why the store may refuse a batch of a task, and accept it later. */
export const refusals: readonly string[] = [
  "disk-full",
  "memory-full",
  "overloaded",
  "unreachable",
  "outcome-unknown",
];
