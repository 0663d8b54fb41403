/**
 * The transactions of an import, by which it knows which records are its own,
 * and whether somebody else has changed or deleted one since.
 */

import type { Row, Store } from "../../store/store.ts";
import { presentName } from "../../api/own-tables.ts";
import { type AwaitedItem, includesId, provisionalTime } from "./batch.ts";
import type { ImportContext, Part, Run, Task } from "./task.ts";

/** Begins a run, which learns until its end what is deleted from the collections of its files. */
export function newRun(
  { store }: ImportContext,
  parts: readonly Part[] = [],
): Run {
  const deleted = new Map<string, number>();
  const stops = parts.map(({ collection }) => {
    const table = store.tables.get(collection);
    const onChange = (before?: Row, after?: Row) => {
      if (before === undefined || after !== undefined) return;
      deleted.set(`${collection}/${before.document.id}`, table?.lastSeq ?? 0);
    };
    table?.listeners.add(onChange);
    return () => table?.listeners.delete(onChange);
  });
  const end = () => stops.forEach((stop) => stop());
  return { since: store.seq, seqs: new Set(), deleted, end };
}

/** Runs a transaction for the user of a task, and remembers it as one of its run. */
export function transactAs(
  { store, run }: ImportContext,
  user: Task["user_id"],
  change: Parameters<Store["transact"]>[1],
): number {
  const { seq: before } = store;
  const seq = store.transact(user ?? 0, change);
  if (seq > before) run?.seqs.add(seq);
  return seq;
}

/** Returns whether an import has created a record and, if its row is given, whether nobody has changed it since. */
export type IsOwn = (of: string, id: number, row?: Row) => boolean;

/** Returns which records a task has created; if it is gone, or does not know all of them, those that await others. */
export function createdBy(
  context: ImportContext & { readonly run: Run },
  task: Task | undefined,
  rows: readonly AwaitedRow[],
): IsOwn {
  const { store } = context;
  let awaiting: ReadonlySet<string> | undefined; // large, and seldom needed
  const isAwaiting = (of: string, id: number) =>
    (awaiting ??= awaitingIds(store, rows)).has(`${of}/${id}`);
  const created = task?.created &&
    Object.entries(task.created)
      .map(([name, ids]) => [presentName(store, name), ids] as const);
  return (of, id, row) => {
    const isCreated = created === undefined
      ? isAwaiting(of, id)
      : created.some(([name, ids]) => name === of && includesId(ids, id));
    if (!isCreated || !row) return isCreated;
    return isUnchanged(context, task, row) ?? isAwaiting(of, id);
  };
}

/** A row of what is awaited. */
interface AwaitedRow {
  readonly of: string;
  readonly items: string;
}

/** Returns which records await others, such as `zoos/7`. */
function awaitingIds(
  store: Store,
  rows: readonly AwaitedRow[],
): ReadonlySet<string> {
  const known = new Set<string>();
  for (const { of, items } of rows) {
    for (const [id] of JSON.parse(items) as AwaitedItem[]) {
      known.add(`${presentName(store, of)}/${id}`);
    }
  }
  return known;
}

/**
 * Returns whether nobody has changed a record that a task has created: its last
 * change is a transaction of this run. Of an earlier run only the times are
 * known: one that is later than the creation is that of a change, or that run has
 * set references of the record; undefined then.
 */
function isUnchanged(
  { store, run: { since, seqs } }: ImportContext & { readonly run: Run },
  task: Task | undefined,
  { seq, document: { created_at, updated_at } }: Row,
): boolean | undefined {
  if (seq > store.seq) return true; // by the transaction that is being built
  if (seq > since) return seqs.has(seq);
  const time = String(updated_at);
  const isEarly = time < String(task?.["created_at"] ?? "") ||
    time <= provisionalTime(Date.parse(String(created_at)));
  return isEarly || undefined;
}

/** Returns whether somebody else has deleted a record during this run. */
export function wasDeleted(
  { store, run }: ImportContext,
  of: string,
  id: number,
): boolean {
  const seq = run?.deleted.get(`${of}/${id}`) ?? Infinity;
  return seq <= store.seq && !run?.seqs.has(seq); // a later one is being built
}
