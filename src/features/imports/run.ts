/**
 * The transactions of an import, by which it knows which records are its own,
 * and whether somebody else has changed or deleted one since.
 */

import type { Row, Store } from "../../store/store.ts";
import { presentName } from "../../api/own-tables.ts";
import { type AwaitedItem, includesId, provisionalTime } from "./batch.ts";
import { type ImportContext, partsOf, type Run, type Task } from "./task.ts";

/** Begins a run, which learns until its end which new records are deleted from the collections of its files. */
export function newRun({ store }: ImportContext, task?: Task): Run {
  const deleted = new Map<string, number>();
  const stops = (task ? partsOf(task) : []).map(({ collection }) => {
    const table = store.tables.get(collection);
    const lastId = task?.lastIds?.[collection] ?? table?.lastId ?? 0;
    const onChange = (before?: Row, after?: Row) => {
      const { id } = before?.document ?? { id: 0 };
      if (id <= lastId || after !== undefined) return;
      deleted.set(`${collection}/${id}`, table?.lastSeq ?? 0);
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

/** Returns the present name of a property of a collection. */
export function presentProperty(
  store: Store,
  of: string,
  name: string,
): string {
  return presentName(store, `${of}.${name}`).slice(of.length + 1);
}

/** Returns which records a task has created; if it is gone, or does not know all of them, those that await others. */
export function createdBy(
  context: ImportContext & { readonly run: Run },
  task: Task | undefined,
  rows: readonly AwaitedRow[],
): IsOwn {
  const { store } = context;
  let all: ReturnType<typeof awaitedReferences> | undefined; // large, and seldom needed
  const awaited = (of: string, id: number) =>
    (all ??= awaitedReferences(store, rows)).get(`${of}/${id}`);
  const created = task?.created &&
    Object.entries(task.created)
      .map(([name, ids]) => [presentName(store, name), ids] as const);
  return (of, id, row) => {
    const isCreated = created === undefined
      ? awaited(of, id) !== undefined
      : created.some(([name, ids]) => name === of && includesId(ids, id));
    if (!isCreated || !row) return isCreated;
    return isUnchanged(context, task, row) ??
      isSettled(store, of, row, awaited(of, id) ?? {});
  };
}

/** A row of the table of awaited references: the collection of some records, and these as JSON. */
interface AwaitedRow {
  readonly of: string;
  readonly items: string;
}

/** Returns the references that records await, by `zoos/7`. */
function awaitedReferences(store: Store, rows: readonly AwaitedRow[]) {
  const known = new Map<string, AwaitedItem[2]>();
  for (const { of, items } of rows) {
    for (const [id, , references] of JSON.parse(items) as AwaitedItem[]) {
      known.set(`${presentName(store, of)}/${id}`, references);
    }
  }
  return known;
}

/** Returns whether a record has all the references that it awaited, which are set only if nobody has changed it before. */
function isSettled(
  store: Store,
  of: string,
  { document }: Row,
  references: AwaitedItem[2],
): boolean {
  const all = Object.entries(references);
  return all.length > 0 &&
    all.every(([name, id]) =>
      document[presentProperty(store, of, name)] === id
    );
}

/**
 * Returns whether nobody has changed a record that a task has created: its last
 * change is a transaction of this run. Of an earlier run only the times are
 * known: one that is later than the creation is that of a change, or of the
 * references that were set; undefined then.
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
  const isDone = seq <= store.seq; // a later one is being built
  const isGone = store.table(of).get(id) === undefined; // nothing was rolled back
  return isDone && isGone && !run?.seqs.has(seq);
}
