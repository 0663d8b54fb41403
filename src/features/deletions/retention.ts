/**
 * Retention: what a declaration keeps for a number of days, and tasks that have
 * ended, are deleted in the background when they are older. The clock may be
 * wrong: after it has made a leap, nothing is deleted for a day, and the log
 * says so.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick } from "node:timers/promises";
import { readValue } from "../../api/declaration/declaration.ts";
import { retentionTable } from "../../api/declaration/reserved-names.ts";
import { localOperator } from "../../api/operator.ts";
import type { Records } from "../../api/records/records.ts";
import { isUnfinished, type Task } from "../../api/tasks/tasks.ts";
import { ApiError } from "../../http/errors.ts";
import type { Row } from "../../store/store.ts";
import { type DeletionContext, planOne } from "./task.ts";

/** Records that are kept for a while. */
export interface Kept {
  readonly records: Records;
  readonly days: number;
  /** The date or timestamp from which the days count. */
  readonly by: string;
  readonly isEnded?: (row: Row) => boolean;
}

/** Ended tasks are kept for so long. */
export const endedTasks = {
  days: 7,
  by: "updated_at",
  isEnded: ({ document }: Row) => !isUnfinished(document as Task),
};

const dayMs = 86_400_000;

/** From how far on the time since the last look is taken for a leap of the clock. */
const maxLeapMs = 30 * dayMs;

/** How long the planning of a batch may take. */
const maxBatchMs = 2;

/** Deletes what has expired, in small batches. */
export async function expire(
  context: DeletionContext,
  kept: readonly Kept[],
  signal: AbortSignal,
): Promise<void> {
  const some = kept.filter(({ records }) => records.table.size > 0);
  if (some.length === 0 || !await isClockTrusted(context)) return;
  for (const each of some) {
    const { name } = each.records.collection;
    const count = await expireOf(context, each, signal);
    if (count === 0) continue;
    const { days, by } = each;
    const fields = { collection: name, count, days, by };
    context.log("info", "deleted what had expired", fields);
  }
}

/** Compares the clock with the last look, and remembers this one. */
async function isClockTrusted(
  { store, now, log }: DeletionContext,
): Promise<boolean> {
  const { document } = store.table(retentionTable).get(1) ?? {};
  const at = now();
  const last = Number(document?.["at"] ?? at);
  /** Since when the clock is watched after a leap. */
  const since = document?.["since"] ?? null;
  const leap = at - last;
  const hasLeapt = leap < -dayMs || leap > maxLeapMs;
  const isWatched = since !== null && at - Number(since) < dayMs;
  if (hasLeapt) {
    const days = Math.round(leap / dayMs);
    log(
      "error",
      `the clock is ${Math.abs(days)} days ${
        days < 0 ? "earlier" : "later"
      } than at the last look for what has expired: nothing is deleted for a day`,
    );
  }
  const isOld = document === undefined || leap > dayMs / 2;
  if (hasLeapt || isOld || (since !== null && !isWatched)) {
    const next = hasLeapt ? at : isWatched ? since : null;
    const row = { id: 1, at, since: next };
    const options = { allowWhenFull: true };
    await store.commit([["put", retentionTable, row]], 0, options);
  }
  return !hasLeapt && !isWatched;
}

/** Deletes the records of a collection that have expired; returns their number. */
async function expireOf(
  { store, now }: DeletionContext,
  { records, days, by, isEnded }: Kept,
  signal: AbortSignal,
): Promise<number> {
  const { collection, table } = records;
  const property = collection.visibleProperties.get(by);
  const end = now() - days * dayMs;
  const isExpired = (row: Row | undefined): row is Row => {
    if (row === undefined || !property || isEnded?.(row) === false) {
      return false;
    }
    const value = readValue(row.document, property);
    return typeof value === "string" && Date.parse(value) < end;
  };
  let count = 0;
  const rows = table.frozen()[Symbol.iterator]();
  let next = rows.next();
  while (!next.done && !signal.aborted) {
    await nextTick();
    const deadline = performance.now() + maxBatchMs;
    const seq = store.transact(0, (apply) => {
      for (; !next.done && performance.now() < deadline; next = rows.next()) {
        const row = table.get(next.value.document.id);
        if (!isExpired(row)) continue;
        const mutations = planUnrequired(records, row);
        mutations.forEach(apply);
        count += Number(mutations.length > 0);
      }
    }, { allowWhenFull: true });
    await store.durable(seq);
  }
  return count;
}

/** Plans the deletion of a record unless others require it; empties the references of others. */
function planUnrequired(records: Records, row: Row) {
  try {
    const mutations = planOne(records, row, localOperator, true);
    const deleted = mutations.filter(([kind]) => kind === "del");
    return deleted.length === 1 ? mutations : [];
  } catch (error) {
    if (error instanceof ApiError) return [];
    throw error;
  }
}
