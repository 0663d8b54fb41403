/**
 * The transactions of an import, by which it knows whether somebody else has
 * changed or deleted a record that it has created.
 */

import type { Row, Store } from "../../store/store.ts";
import { provisionalTime } from "./batch.ts";
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

/**
 * Returns how to tell whether nobody has changed a record that a task has
 * created: its last change is a transaction of this run. Of an earlier run only
 * the times are known: a change has a later one.
 */
export function unchangedSince(
  { store, run: { since, seqs } }: ImportContext & { readonly run: Run },
  task: Task | undefined,
): (row: Row) => boolean {
  const began = String(task?.["created_at"] ?? "");
  return ({ seq, document: { created_at, updated_at } }) => {
    if (seq > store.seq) return true; // by the transaction that is being built
    if (seq > since) return seqs.has(seq);
    const time = String(updated_at);
    return time < began ||
      time <= provisionalTime(Date.parse(String(created_at)));
  };
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
