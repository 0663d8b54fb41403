/**
 * The task of a deletion. It goes through the collection in the order of the ids:
 * a record is deleted if it matches when its turn comes, or matched until the
 * task itself emptied a reference of it. Each batch is one transaction with the
 * task's progress, so after a crash it resumes after the last durable batch, and
 * each record is counted once.
 */

import { createHash } from "node:crypto";
import { performance } from "node:perf_hooks";
import { setImmediate as nextTick } from "node:timers/promises";
import { type Actor, mayAccess } from "../../auth/access.ts";
import {
  type Collection,
  isVisible,
  readValue,
} from "../../api/declaration/declaration.ts";
import { declarationTable } from "../../api/declaration/remembered.ts";
import { matches, parseQuery } from "../../api/query/parameters.ts";
import {
  type Changes,
  checkChanges,
  followReferences,
  TooManyChanges,
} from "../../api/records/deleting.ts";
import type { Records } from "../../api/records/records.ts";
import type { Scope } from "../../api/request-context.ts";
import {
  finished,
  isUnfinished,
  saveTask,
  senderOf,
  type Task as AnyTask,
  type TaskContext,
  touch,
} from "../../api/tasks/tasks.ts";
import { errorText, StoreError } from "../../store/error.ts";
import type { Document, Mutation, Row, Store } from "../../store/store.ts";
import { isMarked, planOne, refusalOf, withMarks } from "./plan.ts";

/** A deletion as it is stored. */
export interface Deletion extends AnyTask {
  readonly matched: number;
  readonly deleted: number;
  readonly cascaded: number;
  readonly errors: readonly Document[];
  /** The parameters that select the records, and the values that the URL demands, or that tell the sender's own from those of others. */
  readonly filters: readonly (readonly [string, string])[];
  readonly given: Scope["conditions"];
  /** A digest of the declaration that it means; undefined if an earlier version stored it, which ends it. */
  readonly rules?: string;
  readonly cascade: boolean;
  /** The id of the last record that was looked at, and that of the last one to look at. */
  readonly after: number;
  readonly upTo: number;
}

/** The parts of the server that deletions use. */
export interface DeletionContext extends TaskContext {
  readonly recordsOf: (collection: string) => Records | undefined;
}

/** How long the planning of a batch may take. */
const maxBatchMs = 3;

/** The longest time between two saves of progress while nothing matches. */
const saveIntervalMs = 250;

/** The most errors that a task lists. */
const maxErrors = 100;

/** A step of a deletion: what it works with, valid until the next wait. */
interface Step {
  readonly task: Deletion;
  readonly records: Records;
  readonly isMatch: (row: Row) => boolean;
  /** Marks the records that match now among those that mutations change. */
  readonly mark: (mutations: readonly Mutation[]) => Mutation[];
  readonly caller: Actor | undefined;
}

/** Where a run is: the rows as they were when it began, and when its progress was saved. */
interface Cursor {
  readonly rows: Iterator<Row>;
  next: IteratorResult<Row>;
  savedAt: number;
}

/** Works off a task, or resumes it; throws a StoreError if the store refuses a batch. Any other error ends this task alone. */
export async function runDeletion(
  context: DeletionContext,
  id: number,
  signal: AbortSignal,
): Promise<void> {
  try {
    await deleteMatches(context, id, signal);
  } catch (error) {
    if (error instanceof StoreError) throw error;
    context.log("error", `A deletion cannot continue: ${errorText(error)}`);
    await finish(context, id, "An unexpected error ended it.");
  }
}

async function deleteMatches(
  context: DeletionContext,
  id: number,
  signal: AbortSignal,
): Promise<void> {
  const first = await stepOf(context, id);
  if (first === undefined) return;
  const rows = first.records.table.frozen()[Symbol.iterator]();
  const cursor = { rows, next: rows.next(), savedAt: performance.now() };
  while (!signal.aborted) {
    const step = await stepOf(context, id);
    if (step === undefined) return;
    const { seq, large, isDone } = deleteBatch(context, step, cursor);
    await context.store.durable(seq);
    if (large) await deleteLarge(context, id, large, signal);
    else if (isDone) return await finish(context, id, null);
  }
}

/** Deletes what matches among the next rows, in one transaction; stops at one with too many others to delete with it. */
function deleteBatch(
  { store, records: tasks, ...context }: DeletionContext,
  { task, records, caller, isMatch, mark }: Step,
  cursor: Cursor,
) {
  const { upTo } = task;
  const deadline = performance.now() + maxBatchMs;
  let current = task;
  let large: Row | undefined;
  const isPast = () => cursor.next.done || cursor.next.value.document.id > upTo;
  const seq = store.transact(task.user_id ?? 0, (apply) => {
    for (; !isPast(); cursor.next = cursor.rows.next()) {
      const { id } = cursor.next.value.document;
      if (id <= current.after) continue;
      if (performance.now() > deadline) break;
      const row = records.table.get(id);
      if (row !== undefined && isMatch(row)) {
        try {
          const mutations = planOne(records, row, caller, task.cascade);
          mark(mutations).forEach(apply);
          current = counted(context, current, mutations, 1);
        } catch (error) {
          large = error instanceof TooManyChanges ? row : undefined;
          if (large && task.cascade) break;
          current = withRejected(current, id, error);
        }
      }
      current = { ...current, after: id };
    }
    const isChanged = current.matched > task.matched;
    if (!isChanged && performance.now() < cursor.savedAt + saveIntervalMs) {
      return;
    }
    cursor.savedAt = performance.now();
    const next = { ...current, status: "running" as const };
    apply(
      tasks.putMutation(touch({ store, records: tasks, ...context }, next)),
    );
  }, { allowWhenFull: true });
  return { seq, large, isDone: isPast() };
}

/**
 * Deletes a record to which very many refer: first those, the farthest first, so
 * that no reference ever leads nowhere, and the record itself last.
 */
async function deleteLarge(
  context: DeletionContext,
  id: number,
  root: Row,
  signal: AbortSignal,
): Promise<void> {
  const first = await stepOf(context, id);
  if (first === undefined) return;
  let isRefused: unknown;
  const queue = await planLarge(first.records, root, first.caller)
    .catch((error): Planned[] => {
      isRefused = error;
      return [];
    });
  while (!signal.aborted) {
    const step = await stepOf(context, id);
    const row = step?.records.table.get(root.document.id);
    if (!step || !row || !step.isMatch(row)) return; // it was changed meanwhile
    const seq = isRefused === undefined
      ? deleteSome(context, step, queue)
      : reject(context, step.task, root.document.id, isRefused);
    await context.store.durable(seq);
    if (isRefused !== undefined || queue.length === 0) return;
  }
}

/**
 * Plans all changes of a deletion, however many, the root first.
 *
 * @throws {ApiError} 40300, 40900 if one of them must not be made
 */
async function planLarge(
  records: Records,
  root: Row,
  caller: Actor | undefined,
): Promise<Planned[]> {
  const of = records.collection;
  const changes: Changes = new Map([[root, { of, next: undefined }]]);
  const limits = { maxRecords: Infinity, maxBytes: Infinity };
  let deadline = 0;
  for (const _ of followReferences(records, changes, limits)) {
    if (performance.now() < deadline) continue;
    await nextTick();
    deadline = performance.now() + maxBatchMs;
  }
  const all = [...changes];
  for (let at = 0; at < all.length; at += 1000) {
    await nextTick();
    checkChanges(records, caller, new Map(all.slice(at, at + 1000)));
  }
  return all;
}

/** A change that a large deletion plans. */
type Planned = readonly [
  Row,
  { readonly of: Collection; readonly next?: Document | undefined },
];

/** Makes the last changes of a queue and removes them from it, in one transaction. */
function deleteSome(
  context: DeletionContext,
  { task, caller, mark }: Step,
  queue: Planned[],
): number {
  const { store, records: tasks, recordsOf } = context;
  const deadline = performance.now() + maxBatchMs;
  let current: Deletion = task;
  return store.transact(task.user_id ?? 0, (apply) => {
    for (
      let last = queue.at(-1);
      last && performance.now() < deadline;
      last = queue.at(-1)
    ) {
      queue.pop();
      const [{ document: planned }, { of, next }] = last;
      const isRoot = queue.length === 0;
      const root = queue[0] ?? last;
      const records = recordsOf(of.name);
      const row = store.table(of.name).get(planned.id);
      try {
        if (row === undefined || records === undefined) { /* gone meanwhile */ }
        else if (next) {
          const emptied = emptyReferences(records, row, next, root);
          if (emptied) {
            checkChanges(
              records,
              caller,
              new Map([[row, { of, next: emptied }]]),
            );
            mark([records.putMutation(emptied)]).forEach(apply);
          }
        } else if (leadsTo(root, store, of, planned.id)) {
          const mutations = planOne(records, row, caller, true);
          mark(mutations).forEach(apply);
          current = counted(context, current, mutations, Number(isRoot));
        }
      } catch (error) {
        // Very many refer to it by now: it is planned anew.
        if (isRoot && error instanceof TooManyChanges) break;
        const refused = withRejected(current, planned.id, error);
        if (isRoot) current = refused;
      }
      if (isRoot) current = { ...current, after: planned.id };
    }
    const next = { ...current, status: "running" as const };
    apply(tasks.putMutation(touch(context, next)));
  }, { allowWhenFull: true });
}

/** Returns whether a record is the root, or must go with it: it may have been moved since the plan was made. Required references form no circle. */
function leadsTo(
  root: Planned,
  store: Store,
  of: Pick<Collection, "name" | "parents">,
  id: number,
): boolean {
  const [{ document }, { of: { name } }] = root;
  if (of.name === name && id === document.id) return true;
  const found = store.table(of.name).get(id)?.document;
  return of.parents.some(({ isRequired, property, target }) =>
    isRequired && leadsTo(root, store, target, Number(found?.[property]))
  );
}

/** Returns a record without the references that a plan empties; undefined if none of them leads to what is deleted any more. */
function emptyReferences(
  records: Records,
  { document }: Row,
  next: Document,
  root: Planned,
): Document | undefined {
  const { collection: { parents }, store } = records;
  const emptied = parents.filter(({ property, target }) =>
    next[property] === null &&
    leadsTo(root, store, target, Number(document[property]))
  );
  if (emptied.length === 0) return undefined;
  const nulls = Object.fromEntries(
    emptied.map(({ property }) => [property, null]),
  );
  const updated_at = records.timestamp(document["updated_at"]);
  return { ...document, ...nulls, updated_at };
}

/** Adds mutations to the progress, of which so many delete records that match; what ends with a user, such as a sign-in, is not counted. */
function counted(
  { recordsOf }: Pick<DeletionContext, "recordsOf">,
  task: Deletion,
  mutations: readonly Mutation[],
  matched: number,
): Deletion {
  const all = mutations
    .filter(([kind, name]) => kind === "del" && recordsOf(name)).length;
  return {
    ...task,
    matched: task.matched + matched,
    deleted: task.deleted + matched,
    cascaded: task.cascaded + all - matched,
  };
}

/** Adds a record that cannot be deleted to the progress. */
function withRejected(task: Deletion, id: number, error: unknown): Deletion {
  const { code, message } = refusalOf(error);
  // With cascade, a reference that would be empty breaks a rule.
  const advice = code === 40900 && task.cascade
    ? " Delete first what refers to it, or repeat the request if that matches too."
    : "";
  const errors = [{
    field: "",
    code: code === 40900 ? "reference" : "rule",
    message: message + advice,
  }];
  return {
    ...task,
    matched: task.matched + 1,
    rejected: task.rejected + 1,
    errors: task.errors.length < maxErrors
      ? [...task.errors, { id, errors }]
      : task.errors,
  };
}

/** Commits that a record cannot be deleted. */
function reject(
  context: DeletionContext,
  task: Deletion,
  id: number,
  error: unknown,
): number {
  const next = { ...withRejected(task, id, error), after: id };
  const mutation = context.records.putMutation(touch(context, next));
  return context.store.apply([mutation], task.user_id ?? 0, {
    allowWhenFull: true,
  });
}

/** Returns what the next step works with; undefined if the task has ended, or must not go on. */
async function stepOf(
  context: DeletionContext,
  id: number,
): Promise<Step | undefined> {
  await nextTick();
  const task = findDeletion(context, id);
  if (task === undefined || !isUnfinished(task)) return undefined;
  const records = context.recordsOf(task.collection);
  const caller = senderOf(context, task);
  const failure = abortReason(context, task, records, caller);
  if (records === undefined || failure !== null) {
    await finish(context, id, failure);
    return undefined;
  }
  const { collection, table } = records;
  const by = String(id);
  const { filters } = parseQuery(collection, new Map(task.filters));
  if (filters.length === 0) throw new Error("the task has no filter");
  const scope = { conditions: task.given };
  const isMatch = (row: Row) =>
    isVisible(collection, row.document, caller) &&
    (isMarked(by, row.document) ||
      records.isInScope(row, scope) &&
        filters.every((each) =>
          matches(readValue(row.document, each.property), each)
        ));
  const mark = (mutations: readonly Mutation[]) =>
    withMarks(mutations, by, table, isMatch);
  return { task, records, caller, isMatch, mark };
}

/** Returns why a task must not continue; null if it may. */
function abortReason(
  { store }: DeletionContext,
  { collection: name, rules, filters }: Deletion,
  records: Records | undefined,
  caller: Actor | undefined,
): string | null {
  if (records === undefined) {
    return `The collection "${name}" no longer exists.`;
  }
  if (rules !== digestOfRules(store)) {
    return "The declaration was changed after the request.";
  }
  const { access } = records.collection;
  // The matches tell of the records, but for one that the request has named.
  const isOne = filters.every(([name]) => name === "id");
  const roles = isOne ? [access.delete] : [access.delete, access.read];
  return roles.every((role) => mayAccess(caller?.grants, role))
    ? null
    : "The user no longer has the rights that the request had.";
}

/** Returns a digest of the remembered declaration: under another one, filters and references could mean other records, unlike under other policies. */
export function digestOfRules(store: Pick<Store, "table">): string {
  const remembered = store.table(declarationTable).get(1)?.document;
  return createHash("sha256")
    .update(JSON.stringify({ ...remembered, policies: undefined }))
    .digest("base64url").slice(0, 16);
}

/** Returns a deletion, unless it was removed. */
export function findDeletion(
  { records }: Pick<TaskContext, "records">,
  id: number,
): Deletion | undefined {
  const task = records.table.get(id)?.document as Deletion | undefined;
  return task?.type === "deletion" ? task : undefined;
}

/** Ends a task, with the reason if it failed; what it searched for, such as a person's name, is not kept with it. */
async function finish(
  context: DeletionContext,
  id: number,
  failure: string | null,
): Promise<void> {
  const task = findDeletion(context, id);
  if (task === undefined || !isUnfinished(task)) return;
  const ended = finished(context, { ...task, filters: [] }, failure);
  await saveTask(context, ended, { allowWhenFull: true });
}
