/**
 * The transactions of an import, by which it knows whether somebody else has
 * changed a record that it has created.
 */

import type { Row, Store } from "../../store/store.ts";
import { provisionalTime } from "./batch.ts";
import type { ImportContext, Run, Task } from "./task.ts";

export function newRun({ store }: ImportContext): Run {
  return { since: store.seq, seqs: new Set() };
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
