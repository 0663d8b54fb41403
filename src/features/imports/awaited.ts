/**
 * References to records that come later in an import, or in a circle. The record
 * is stored without such a reference, and what it awaits in a table of the
 * feature's own, in the same transaction. Once all lines are read, or the import
 * has ended in any other way, each reference is set. A record whose reference
 * leads to no record of the import, or that breaks a rule with it, is rejected
 * after all, and with it those that refer to it. So nobody sees a reference that
 * leads nowhere, and a crash, a copy of the store or a deleted task leaves no
 * record half done.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick } from "node:timers/promises";
import { type Collection, ownerOf } from "../../api/declaration/declaration.ts";
import {
  checkRules,
  enforceRules,
  fieldError,
  validate,
  validationError,
} from "../../api/declaration/validation.ts";
import { awaitedTable, presentName } from "../../api/own-tables.ts";
import { deletionOf } from "../../api/records/deleting.ts";
import type { Records } from "../../api/records/records.ts";
import { localOperator } from "../../api/operator.ts";
import { errorCode } from "../../store/error.ts";
import { isUnfinished, touch } from "../../api/tasks/tasks.ts";
import {
  type Document,
  formatTime,
  type Mutation,
  type Store,
} from "../../store/store.ts";
import {
  addErrors,
  anotherRecord,
  type AwaitedItem,
  errorsOf,
  maxBatchMs,
  provisionalTime,
} from "./batch.ts";
import {
  createdBy,
  type IsOwn,
  newRun,
  presentProperty,
  transactAs,
  wasDeleted,
} from "./run.ts";
import { findTask, type ImportContext, type Task } from "./task.ts";

/** The references that some records of an import await, as they are stored. */
interface Awaited extends Document {
  /** The id of the import's task, which may be gone. */
  readonly task: number;
  readonly user_id: number | null;
  /** The collection of the records. */
  readonly of: string;
  /** The properties with references; undefined if an earlier version stored it. */
  readonly names?: readonly string[];
  /** True once its import has ended: what was shown as imported is not rejected any more. */
  readonly hasEnded?: true;
  /** The items as JSON, which takes less memory. */
  readonly items: string;
}

/** The most records that are rejected at once because another one is. */
const maxConsequences = 10_000;

/** How many rows are forgotten in one transaction. */
const maxForgotten = 500;

/** Returns the mutation that stores what records of a task await. */
export function awaitedMutation(
  { store }: ImportContext,
  { id: task, user_id }: Task,
  of: string,
  items: readonly AwaitedItem[],
): Mutation {
  const id = store.table(awaitedTable).lastId + 1;
  const names = new Set(items.flatMap(([, , each]) => Object.keys(each)));
  const row = { id, task, user_id, of, names: [...names] };
  return ["put", awaitedTable, { ...row, items: JSON.stringify(items) }];
}

/** Returns what is awaited, of a task or of all; but where a collection or property is not declared, it awaits that. */
function awaitedOf(
  { store, importable }: ImportContext,
  task?: number,
): Awaited[] {
  return store.table(awaitedTable).rows()
    .map(({ document }) => document as Awaited)
    .filter((each) => task === undefined || each.task === task)
    .filter(({ of, names = [] }) => {
      const { collection } = importable(presentName(store, of)) ?? {};
      return collection &&
        names.every((name) =>
          collection.visibleProperties.has(
            presentProperty(store, collection.name, name),
          )
        );
    });
}

/** Returns the id of an import whose task was deleted while its records await others. */
export function findAbandoned(context: ImportContext): number | undefined {
  return awaitedOf(context).find(({ task: id }) => {
    const task = findTask(context, id);
    return task === undefined || !isUnfinished(task);
  })?.task;
}

/** Sets the references that the records of a task await, and forgets these. */
export async function settleAwaited(
  context: ImportContext,
  task: number,
  signal: AbortSignal,
): Promise<void> {
  const rows = awaitedOf(context, task);
  const user_id = rows[0]?.user_id ?? null;
  const items = itemsOf(context, rows);
  const stored = findTask(context, task);
  const current = { ...context, run: context.run ?? newRun(context) };
  const isOwn = createdBy(current, stored, rows);
  const hasEnded = rows[0]?.hasEnded ?? false;
  for (let isDone = rows.length === 0; !isDone && !signal.aborted;) {
    await nextTick();
    const settled = settleItems(
      current,
      { task, user_id, isOwn, hasEnded },
      items,
    );
    await context.store.durable(settled.seq);
    isDone = settled.isDone;
  }
  while (rows.length > 0 && !signal.aborted) {
    await nextTick();
    const some = rows.splice(0, maxForgotten)
      .map(({ id }): Mutation => ["del", awaitedTable, id]);
    const { store } = context;
    await store.durable(store.apply(some, user_id ?? 0));
  }
}

/** Marks what records of an import await for longer than that takes: a name that is not declared. */
export async function markEnded(
  { store }: ImportContext,
  task: number,
): Promise<void> {
  for (const { document } of store.table(awaitedTable).rows()) {
    if (document["task"] !== task) continue;
    const marked = { ...document, hasEnded: true };
    await store.durable(store.apply([["put", awaitedTable, marked]], 0));
  }
}

type Items = Generator<readonly [of: string, AwaitedItem?], undefined>;

/** Yields what is awaited, with the present names; and something after each row, so that the work can pause. */
function* itemsOf({ store }: ImportContext, rows: readonly Awaited[]): Items {
  for (const { of: former, items } of rows) {
    const of = presentName(store, former);
    for (const item of JSON.parse(items) as AwaitedItem[]) {
      const [id, line, references, time] = item;
      const named = Object.entries(references).map(([name, target]) => [
        presentProperty(store, of, name),
        target,
      ]);
      yield [of, [id, line, Object.fromEntries(named), time]];
    }
    yield [of];
  }
}

/** Settles the next items in one transaction with the progress of their task. */
function settleItems(
  context: ImportContext,
  { task: id, user_id, isOwn, hasEnded }: {
    readonly task: number;
    readonly user_id: number | null;
    readonly isOwn: IsOwn;
    readonly hasEnded: boolean;
  },
  items: Items,
): { readonly seq: number; readonly isDone: boolean } {
  const { importable, records: tasks } = context;
  const deadline = performance.now() + maxBatchMs;
  let isDone = false;
  const seq = transactAs(context, user_id, (apply) => {
    let task = findTask(context, id);
    do {
      const { value, done = false } = items.next();
      isDone = done;
      const [of = "", item] = value ?? [];
      const records = importable(of);
      if (!item || !records) continue;
      const { mutations = [], errors = [], rejected = 0 } = settleItem(
        records,
        item,
        {
          isOwn,
          isDeleted: (of, id) => wasDeleted(context, of, id) && isOwn(of, id),
          knowsAll: task?.created !== undefined,
          // A cancelled import undoes nothing, either.
          hasEnded: hasEnded || task === undefined,
        },
      );
      mutations.forEach(apply);
      if (errors.length === 0 || task === undefined) continue;
      const place = task.more ? { collection: of } : {};
      const line = { ...place, line: item[1], errors };
      task = {
        ...task,
        errors: addErrors(task.errors, line),
        imported: task.imported - rejected,
        rejected: task.rejected + rejected,
      };
    } while (!isDone && performance.now() < deadline);
    if (task !== undefined && task !== findTask(context, id)) {
      apply(tasks.putMutation(touch(context, task)));
    }
  });
  return { seq, isDone };
}

/** The outcome for a record that awaits references. */
interface Settled {
  readonly mutations?: readonly Mutation[];
  readonly errors?: ReturnType<typeof errorsOf>;
  /** How many records are rejected after all. */
  readonly rejected?: number;
}

/** Throws if a reference leads to a record that the import has not created: it got the id of one that never came. */
function requireOwn(
  { collection, store }: Records,
  isOwn: IsOwn,
  open: readonly (readonly [name: string, id: number])[],
): void {
  const errors = open.flatMap(([name, id]) => {
    const { target } = collection.visibleProperties.get(name) ?? {};
    const isOther = target && store.table(target.name).get(id) &&
      !isOwn(target.name, id);
    return isOther ? [anotherRecord(collection, name, id)] : [];
  });
  if (errors.length > 0) throw validationError(errors);
}

/** Sets the references of a record that are still empty, but for those to records that somebody has deleted during this run; one that somebody has changed meanwhile stays as it is. */
function settleItem(
  records: Records,
  [id, , references, time]: AwaitedItem,
  { isOwn, isDeleted, knowsAll, hasEnded }: {
    readonly isOwn: IsOwn;
    readonly isDeleted: (of: string, id: number) => boolean;
    readonly knowsAll: boolean;
    readonly hasEnded: boolean;
  },
): Settled {
  const { collection, store, table } = records;
  const previous = table.get(id)?.document;
  if (previous === undefined) return {}; // rejected, or deleted by somebody
  const empty = Object.entries(references)
    .filter(([name]) => (previous[name] ?? null) === null);
  if (empty.length === 0) return {};
  const { created_at, updated_at } = previous;
  const isChanged =
    updated_at !== provisionalTime(time ?? Date.parse(String(created_at)));
  const errors = empty.flatMap(([name, id]) => {
    const { target } = collection.visibleProperties.get(name) ?? {};
    const cause = isChanged
      ? "the record was changed"
      : target && isDeleted(target.name, id)
      ? `${id} was deleted`
      : undefined;
    const reason = `stays empty: ${cause} meanwhile`;
    return cause ? [fieldError(name, { code: "reference", reason })] : [];
  });
  if (isChanged) return { errors };
  const open = empty.filter(([name]) =>
    !errors.some(({ field }) => field === name)
  );
  try {
    if (knowsAll) requireOwn(records, isOwn, open);
    const owner = ownerOf(collection, previous);
    const declared = open.filter(([name]) =>
      collection.visibleProperties.has(name)
    );
    // The sender has created both records, and may be gone.
    validate(collection, Object.fromEntries(declared), {
      ...{ store, table, caller: localOperator, owner, previous },
      partial: true,
    });
    const next: Document = {
      ...previous,
      ...Object.fromEntries(open), // hidden if it is no longer declared
      updated_at: time === undefined
        ? records.timestamp(updated_at)
        : formatTime(time),
    };
    enforceRules(collection, next);
    return { mutations: [records.putMutation(next)], errors };
  } catch (error) {
    errors.push(...reasonsOf(error, collection));
    return hasEnded && fits(collection, previous)
      ? { errors } // it was shown as imported
      : planRejection(records, previous, { errors, isOwn });
  }
}

/** A record that refers to a rejected one: what becomes of it. */
interface Consequence {
  readonly of: Collection;
  /** Without the references that lead nowhere. */
  readonly document: Document;
  readonly isDeleted: boolean;
}

/**
 * Plans the rejection of a record that an import has created, with those that
 * refer to it. One that others require stays, without its reference, if it fits
 * its rules so. If a record refers to it that somebody else has created, or
 * changed since, or very many do, it stays in any case.
 */
function planRejection(
  records: Records,
  document: Document,
  { errors = [], isOwn }: Settled & { readonly isOwn: IsOwn },
): Settled {
  const { collection, store } = records;
  const all = new Map<string, Consequence>();
  const add = (of: Collection, document: Document, mustGo: boolean) => {
    const isDeleted = mustGo || !isRequired(store, of, document.id) ||
      !fits(of, document);
    const name = `${of.name}/${document.id}`;
    all.delete(name); // moves it to the end, so that it is visited again
    all.set(name, { of, document, isDeleted });
  };
  add(collection, document, false);
  for (const { of, document: { id }, isDeleted } of all.values()) { // grows while it is iterated over
    for (
      const { source, property, isRequired } of isDeleted ? of.children : []
    ) {
      for (const row of store.table(source.name).rowsWith(property, id)) {
        const known = all.get(`${source.name}/${row.document.id}`);
        if (known?.isDeleted) continue;
        const mayChange = all.size <= maxConsequences &&
          isOwn(source.name, row.document.id, row);
        if (!mayChange) return { errors: [...errors, stays] };
        const { document = row.document } = known ?? {};
        add(source, { ...document, [property]: null }, isRequired);
      }
    }
  }
  const changes = [...all.values()].reverse(); // those that require another one first
  // The line reports the record itself; if that stays, it is stored so.
  const others = changes.filter(({ document: { id }, of }) =>
    id !== document.id || of !== collection
  );
  return {
    mutations: changes.flatMap(({ of, document: each, isDeleted }) => {
      if (isDeleted) return [deletionOf(of, each)];
      // With its time: if it awaits more, it is known by that.
      return each === document ? [] : [["put", of.name, each]];
    }),
    errors: [
      ...errors,
      ...consequenceError(
        "Rejected with it, as they refer to it",
        others.filter(({ isDeleted }) => isDeleted),
      ),
      ...consequenceError(
        "Stays, but without its reference to it",
        others.filter(({ isDeleted }) => !isDeleted),
      ),
    ],
    rejected: changes.filter(({ isDeleted }) => isDeleted).length,
  };
}

/** It names none of the others, which may be private. */
const stays = {
  field: "",
  code: "reference" as const,
  message:
    "The record stays without that reference, since records refer to it that somebody else has created or changed, or too many to reject with it.",
};

/** Returns an error that names records, the last one first; none without any. */
function consequenceError(title: string, records: readonly Consequence[]) {
  if (records.length === 0) return [];
  const names = records.map(({ of: { singular }, document: { id } }) =>
    `${singular} ${id}`
  ).reverse();
  const rest = names.splice(10).length;
  const more = rest > 0 ? ` and ${rest} more` : "";
  const message = `${title}: ${names.join(", ")}${more}.`;
  return [{ field: "", code: "reference" as const, message }];
}

/** Returns the errors of a record that is rejected; a check that fails cannot judge it. */
function reasonsOf(error: unknown, { name }: Collection) {
  if (errorCode(error) !== "rule") return errorsOf(error);
  const message = `The check of ${name} failed.`;
  return [{ field: "", code: "rule" as const, message }];
}

/** Returns whether other records require one. */
function isRequired(store: Store, { children }: Collection, id: number) {
  return children.some(({ source, property, isRequired }) =>
    isRequired && store.table(source.name).count(property, id) > 0
  );
}

/** Returns whether a record fits the rules of its collection, as far as they can judge it. */
function fits(collection: Collection, document: Document): boolean {
  try {
    return checkRules(collection, document).length === 0;
  } catch {
    return true;
  }
}
