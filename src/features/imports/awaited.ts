/**
 * References to records that come later in an import, or in a circle. The record
 * is stored without such a reference, and what it awaits in a table of the
 * feature's own, in the same transaction. Once all lines are read, or the import
 * has ended in any other way, each reference is set; a record whose reference
 * leads nowhere, or that breaks a rule with it, is rejected after all. So nobody
 * sees a reference that leads nowhere, and a crash, a copy of the store or a
 * deleted task leaves no record half done.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick } from "node:timers/promises";
import { type Collection, ownerOf } from "../../api/declaration/declaration.ts";
import {
  checkRules,
  enforceRules,
  validate,
} from "../../api/declaration/validation.ts";
import { awaitedTable } from "../../api/own-tables.ts";
import { deletionOf } from "../../api/records/deleting.ts";
import type { Records } from "../../api/records/records.ts";
import { isUnfinished, senderOf, touch } from "../../api/tasks/tasks.ts";
import { type Document, formatTime, type Mutation } from "../../store/store.ts";
import {
  addErrors,
  type AwaitedItem,
  errorsOf,
  maxBatchMs,
  provisionalTime,
} from "./batch.ts";
import { findTask, type ImportContext, type Task } from "./task.ts";

/** What some records of an import await, as it is stored. */
interface Awaited extends Document {
  /** The id of the import's task, which may be gone. */
  readonly task: number;
  /** When the import began. */
  readonly begun: string;
  readonly user_id: number | null;
  /** The collection of the records. */
  readonly of: string;
  /** The items as JSON, which takes less memory. */
  readonly items: string;
  /** The highest ids that were used before the import, by the names of its collections. */
  readonly lastIds: Readonly<Record<string, number>>;
}

/** The most records that are changed or deleted because another one is rejected. */
const maxConsequences = 1000;

/** Returns the mutation that stores what records of a task await. */
export function awaitedMutation(
  { store }: ImportContext,
  { id: task, created_at, user_id, lastIds = {} }: Task,
  of: string,
  items: readonly AwaitedItem[],
): Mutation {
  const begun = String(created_at);
  return putItems(store.table(awaitedTable).lastId, items, {
    ...{ task, begun, user_id, of, lastIds },
  });
}

function putItems(
  lastId: number,
  items: readonly AwaitedItem[],
  others: Omit<Awaited, "id" | "items">,
): Mutation {
  const id = lastId + 1;
  return ["put", awaitedTable, { ...others, id, items: JSON.stringify(items) }];
}

/** Returns the mutations that forget what the records of a task awaited. */
export function forgetAwaited(context: ImportContext, task: number) {
  return awaitedOf(context, task)
    .map(({ id }): Mutation => ["del", awaitedTable, id]);
}

function awaitedOf({ store }: ImportContext, task?: number): Awaited[] {
  return store.table(awaitedTable).rows()
    .map(({ document }) => document as Awaited)
    .filter((each) => task === undefined || each.task === task);
}

/** Returns the id of an import whose task was deleted while its records await others. */
export function findAbandoned(context: ImportContext): number | undefined {
  return awaitedOf(context).find(({ task: id }) => {
    const task = findTask(context, id);
    return task === undefined || !isUnfinished(task);
  })?.task;
}

/** Sets what the records of an import await whose task was deleted. */
export async function settleAbandoned(
  context: ImportContext,
  task: number,
  signal: AbortSignal,
): Promise<void> {
  await settleAwaited(context, task, signal);
  if (signal.aborted) return;
  await context.store.commit(forgetAwaited(context, task), 0);
}

/**
 * Sets the references that the records of a task await. If one is rejected,
 * those that already refer to it are judged again, in the opposite order: so a
 * chain of them takes one more pass, whichever way it leads.
 */
export async function settleAwaited(
  context: ImportContext,
  task: number,
  signal: AbortSignal,
): Promise<void> {
  for (let pass = 0; !signal.aborted; pass++) {
    const rows = awaitedOf(context, task);
    const items = itemsOf(rows, pass);
    for (let isDone = rows.length === 0; !isDone && !signal.aborted;) {
      await nextTick();
      const settled = settleItems(
        context,
        task,
        items,
        rows[0]?.user_id ?? null,
      );
      await context.store.durable(settled.seq);
      isDone = settled.isDone;
    }
    if (pass > 0 && awaitedOf(context, task).length === rows.length) return;
  }
}

type Items = Generator<readonly [Awaited, AwaitedItem?], undefined>;

/** Yields what is judged in a pass: at first what lines await, then the references to rejected records; and each row that has none, so that a search for them can pause. */
function* itemsOf(rows: readonly Awaited[], pass: number): Items {
  const isForward = pass % 2 === 0;
  for (const row of isForward ? rows : rows.toReversed()) {
    const items = (JSON.parse(row.items) as AwaitedItem[])
      .filter(([, line]) => line < 0 === pass > 0);
    for (const item of isForward ? items : items.reverse()) yield [row, item];
    yield [row];
  }
}

/** Settles the next items in one transaction with the progress of their task. */
function settleItems(
  context: ImportContext,
  id: number,
  items: Items,
  user_id: number | null,
): { readonly seq: number; readonly isDone: boolean } {
  const { store, importable, records: tasks } = context;
  const caller = senderOf(context, { user_id });
  const deadline = performance.now() + maxBatchMs;
  let isDone = false;
  const seq = store.transact(user_id ?? 0, (apply) => {
    let task = findTask(context, id);
    do {
      const { value, done = false } = items.next();
      isDone = done;
      const [row, item] = value ?? [];
      const records = importable(row?.of ?? "");
      if (!row || !item || !records) continue;
      const line = Math.abs(item[1]);
      const { mutations = [], errors, rejected = 0, reopened = [] } =
        settleItem(records, item, { ...row, caller });
      mutations.forEach(apply);
      for (const [of, record, references] of reopened) {
        const again: AwaitedItem = [record, -line, references];
        const { lastId } = store.table(awaitedTable);
        apply(putItems(lastId, [again], { ...row, of }));
      }
      if (errors === undefined || task === undefined) continue;
      const place = task.more ? { collection: row.of } : {};
      task = {
        ...task,
        errors: addErrors(task.errors, { ...place, line, errors }),
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

/** What becomes of a record that awaits references. */
interface Settled {
  readonly mutations?: readonly Mutation[];
  readonly errors?: ReturnType<typeof errorsOf>;
  /** How many records are rejected after all. */
  readonly rejected?: number;
  /** The references that others had to them, by the collection and the id of each. */
  readonly reopened?: readonly (readonly [
    source: string,
    record: number,
    references: AwaitedItem[2],
  ])[];
}

/** Sets the references of a record that are still empty; one that somebody has changed meanwhile stays as it is. */
function settleItem(
  records: Records,
  [id, line, references]: AwaitedItem,
  { caller, lastIds, begun }: Pick<Awaited, "lastIds" | "begun"> & {
    readonly caller: ReturnType<typeof senderOf>;
  },
): Settled {
  const { collection, store, table } = records;
  const previous = table.get(id)?.document;
  if (previous === undefined) return {}; // rejected, or deleted by somebody
  const open = Object.entries(references)
    .filter(([name]) => previous[name] === null);
  if (open.length === 0) return {};
  const isExported = String(previous["updated_at"]) < begun;
  const isUntouched = line < 0 || isExported ||
    previous["updated_at"] === provisionalTime(previous["created_at"]);
  if (!isUntouched) {
    return {
      errors: open.map(([field]) => ({
        field,
        code: "reference",
        message: `"${field}" stays empty: the record was changed meanwhile.`,
      })),
    };
  }
  try {
    const owner = ownerOf(collection, previous);
    const values = validate(collection, Object.fromEntries(open), {
      ...{ store, table, caller, owner, previous },
      partial: true,
    });
    const set = open.map(([name]) => [name, values[name] ?? null]);
    const next: Document = {
      ...previous,
      ...Object.fromEntries(set),
      updated_at: isExported
        ? formatTime(Date.parse(String(previous["updated_at"])) - 1)
        : records.timestamp(previous["updated_at"]),
    };
    enforceRules(collection, next);
    return { mutations: [records.putMutation(next)] };
  } catch (error) {
    // The line of one that refers to a rejected one is that of the latter.
    const which = line < 0 ? `The ${collection.singular} ${id}: ` : "";
    const errors = errorsOf(error).map(({ message, ...each }) => ({
      ...each,
      message: which + message,
    }));
    return { errors, ...planRejection(records, previous, lastIds) };
  }
}

/**
 * Plans the deletion of a record that an import has created: others lose their
 * reference to it. If others require it, it stays without its own reference,
 * unless that breaks its rules: then those are rejected with it.
 *
 * @returns undefined if it stays: also if a record that the import did not create
 * would change, or very many would
 */
function planRejection(
  records: Records,
  document: Document,
  lastIds: Awaited["lastIds"],
): Settled | undefined {
  const { collection, store } = records;
  const mayStay = checkRules(collection, document).length === 0;
  const all = new Map<
    string,
    [Collection, Document, emptied?: Record<string, number>]
  >([[`${collection.name}/${document.id}`, [collection, document]]]);
  for (const [of, { id }, isEmptied] of all.values()) { // grows while it is iterated over
    for (
      const { source, property, isRequired } of isEmptied ? [] : of.children
    ) {
      const { [source.name]: lastId = Infinity } = lastIds;
      for (
        const { document } of store.table(source.name).rowsWith(property, id)
      ) {
        const name = `${source.name}/${document.id}`;
        const [, known = document, emptied = {}] = all.get(name) ?? [];
        if (all.has(name) && known === document) continue; // deleted
        if (document.id <= lastId || all.size > maxConsequences) {
          return undefined;
        }
        if (isRequired && mayStay) return undefined;
        all.delete(name); // moves it to the end, so that it is visited again
        all.set(
          name,
          isRequired ? [source, document] : [
            source,
            { ...known, [property]: null },
            { ...emptied, [property]: id },
          ],
        );
      }
    }
  }
  const changes = [...all.values()].reverse(); // those that require another one first
  const deleted = changes.filter(([, , emptied]) => !emptied);
  return {
    mutations: changes.map(([of, each, emptied]) =>
      emptied
        ? ["put", of.name, {
          ...each,
          updated_at: records.timestamp(each["updated_at"]),
        }]
        : deletionOf(of, each)
    ),
    rejected: deleted.length,
    reopened: changes.flatMap(([{ name }, { id }, emptied]) =>
      emptied ? [[name, id, emptied] as const] : []
    ),
  };
}
