/**
 * Retention: what a declaration keeps for a number of days, and tasks that have
 * ended, are deleted in the background when they are older. The clock may be
 * wrong: after it has made a leap, nothing is deleted for a week, and the log
 * says so every hour.
 */

import { performance } from "node:perf_hooks";
import { setImmediate as nextTick, setTimeout } from "node:timers/promises";
import { readValue } from "../../api/declaration/declaration.ts";
import { retentionTable } from "../../api/own-tables.ts";
import { localOperator } from "../../api/operator.ts";
import type { Records } from "../../api/records/records.ts";
import { isUnfinished, type Task } from "../../api/tasks/tasks.ts";
import {
  type Changes,
  checkChanges,
  mutationsOf,
  TooManyChanges,
} from "../../api/records/deleting.ts";
import { errorText, StoreError } from "../../store/error.ts";
import { asShared } from "../../store/shared.ts";
import {
  formatTime,
  type Mutation,
  type Row,
  type Table,
} from "../../store/store.ts";
import { isMarked, planOne, refusalOf, withMarks } from "./plan.ts";
import type { DeletionContext } from "./task.ts";

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

/** From how far on the time since the last look is taken for a leap of the clock: a server may be off for a weekend. */
const maxLeapMs = 7 * dayMs;

/** For how long nothing is deleted after a leap, so that somebody can set the clock. */
const watchMs = 7 * dayMs;

/** How long the planning of a batch may take. */
const maxBatchMs = 2;

/** The pause after each batch: so nine in ten requests, and over an hour 99 in 100, take as long as ever. */
const pauseMs = 100;

/** Deletes what has expired, in small batches. */
export async function expire(
  context: DeletionContext,
  kept: readonly Kept[],
  signal: AbortSignal,
): Promise<void> {
  const { isTrusted } = await context.store
    .settle(() => compareClock(context, kept));
  if (!isTrusted) return;
  for (const each of kept) {
    const { records, days, by } = each;
    const collection = records.collection.name;
    const count = await expireOf(context, each, signal).catch((error) => {
      if (error instanceof StoreError) throw error;
      const text = errorText(error);
      context.log("error", `what has expired stays: ${text}`, { collection });
      return 0;
    });
    if (count === 0) continue;
    const fields = { collection, count, days, by };
    context.log("info", "deleted what had expired", fields);
  }
}

/**
 * Compares the clock with the last look, and remembers this one. Of several
 * servers that share a store one looks, until it is gone.
 */
async function compareClock(
  { store, now, log }: DeletionContext,
  kept: readonly Kept[],
) {
  const { document } = store.table(retentionTable).get(1) ?? {};
  const tables = kept.map(({ records }) => records.table);
  if (!document && tables.every(({ size }) => size === 0)) {
    return { seq: 0, isTrusted: false }; // nothing is there
  }
  const shared = asShared(store);
  const server = shared?.serverId ?? "";
  const looking = String(document?.["server"] ?? server);
  if (looking !== server && await shared?.isServed(looking)) {
    return { seq: 0, isTrusted: false };
  }
  const at = now();
  // A seed may be old, but the user of its first start is not.
  const all = [...tables, store.table("users")];
  const leap = at - Number(document?.["at"] ?? newestTime(all));
  const hasLeapt = Math.abs(leap) > maxLeapMs;
  /** Since when the clock is watched after a leap. */
  const before = Number(document?.["since"] ?? -Infinity);
  const since = hasLeapt ? at : at - before < watchMs ? before : null;
  if (since !== null) log("error", describeLeap(hasLeapt ? leap : 0, since));
  const isSame = document !== undefined && !hasLeapt &&
    since === (document["since"] ?? null) && looking === server;
  let seq = 0;
  if (!isSame || leap > dayMs / 2) {
    const row = { id: 1, at, since, server };
    const options = { allowWhenFull: true };
    seq = store.apply([["put", retentionTable, row]], 0, options);
  }
  return { seq, isTrusted: since === null };
}

/** Describes a leap of the clock, in ms; 0 for one of before. */
function describeLeap(leap: number, since: number): string {
  const days = Math.round(Math.abs(leap) / dayMs);
  const found = leap === 0
    ? "was set not long ago"
    : `is ${days} days ${leap < 0 ? "earlier" : "later"} than before`;
  return `the clock ${found}: if it is right, what has expired is deleted from ${
    formatTime(since + watchMs)
  } on`;
}

/** Returns the time of the last change of the newest records, in milliseconds since 1970. */
function newestTime(tables: readonly Table[]): number {
  return Math.max(
    ...tables.flatMap((table) =>
      table.rows(Math.max(table.size - 1, 0)).map(({ document }) =>
        Date.parse(String(document["updated_at"] ?? document["created_at"]))
      )
    ),
  );
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
  const mark = `${days} ${by}`;
  const isExpired = (row: Row | undefined): row is Row => {
    if (row === undefined || !property || isEnded?.(row) === false) {
      return false;
    }
    if (isMarked(mark, row.document)) return true;
    const value = readValue(row.document, property);
    return typeof value === "string" && Date.parse(value) < end;
  };
  let count = 0;
  /** The id of a record to which very many refer, once all these references may be emptied. */
  let large: number | undefined;
  const rows: Iterator<Row, undefined> = table.frozen()[Symbol.iterator]();
  /** The rows of a batch, with which it begins again if another server was first. */
  const batch: (Row | undefined)[] = [];
  const rowAt = (at: number) => batch[at] ??= rows.next().value;
  while (rowAt(0) && !signal.aborted) {
    const { handled, deleted, found } = await store.settle(() => {
      const deadline = performance.now() + maxBatchMs;
      let handled = 0;
      let deleted = 0;
      let found: Row | undefined;
      const seq = store.transact(0, (apply) => {
        for (; performance.now() < deadline; handled++) {
          const next = rowAt(handled);
          if (!next) return;
          const row = table.get(next.document.id);
          if (!isExpired(row)) continue;
          const planned = planUnrequired(records, row);
          if (!planned && large !== row.document.id) {
            found = row;
            return;
          }
          const mutations = planned ?? emptySome(records, row);
          withMarks(mutations, mark, table, isExpired).forEach(apply);
          if (planned) deleted += Number(planned.length > 0);
          else if (mutations.length > 0) return; // the rest follows
        }
      }, { allowWhenFull: true });
      return { seq, handled, deleted, found };
    });
    count += deleted;
    batch.splice(0, handled);
    const isKept = found && !await mayEmptyAll(records, found, signal);
    if (isKept) batch.shift();
    else large = found?.document.id ?? large;
    await setTimeout(pauseMs, undefined, { signal }).catch(() => {});
  }
  return count;
}

/** Plans the deletion of a record unless others require it; undefined if very many refer to it. */
function planUnrequired(
  records: Records,
  row: Row,
): readonly Mutation[] | undefined {
  try {
    const mutations = planOne(records, row, localOperator, true);
    const deleted = mutations.filter(([kind]) => kind === "del");
    return deleted.length === 1 ? mutations : [];
  } catch (error) {
    if (error instanceof TooManyChanges) return undefined;
    refusalOf(error);
    return [];
  }
}

/** Returns whether all references to a record, of very many, may be emptied; keeps none of them in memory. */
async function mayEmptyAll(
  records: Records,
  { document: { id } }: Row,
  signal: AbortSignal,
): Promise<boolean> {
  const { collection: { children }, store } = records;
  let deadline = 0;
  for (const { source: of, property } of children) {
    const own = children.filter(({ source }) => source === of);
    for (const row of store.table(of.name).rowsWith(property, id)) {
      const nulls = own.filter((each) => row.document[each.property] === id)
        .map((each) => [each.property, null]);
      const next = { ...row.document, ...Object.fromEntries(nulls) };
      if (isRequired(records, id)) return false;
      if (!mayChange(records, new Map([[row, { of, next }]]))) return false;
      if (performance.now() < deadline) continue;
      await nextTick();
      if (signal.aborted) return false;
      deadline = performance.now() + maxBatchMs;
    }
  }
  return true;
}

/** Returns whether a record of a required reference to one is there. */
function isRequired({ collection, store }: Records, id: number): boolean {
  return collection.children.some((each) =>
    each.isRequired &&
    store.table(each.source.name).count(each.property, id) > 0
  );
}

/** Returns whether no rule refuses changes. */
function mayChange(records: Records, changes: Changes): boolean {
  try {
    checkChanges(records, localOperator, changes);
    return true;
  } catch (error) {
    refusalOf(error);
    return false;
  }
}

/** Empties some of very many references to a record; none if one of them is required, or a rule requires it, by now. */
function emptySome(records: Records, { document: { id } }: Row): Mutation[] {
  const { collection: { children }, store } = records;
  const changes: Changes = new Map();
  if (isRequired(records, id)) return [];
  for (const { source: of, property } of children) {
    for (const row of store.table(of.name).rowsWith(property, id, 500)) {
      const updated_at = records.timestamp(row.document["updated_at"]);
      changes.set(row, {
        of,
        next: { ...row.document, [property]: null, updated_at },
      });
    }
    if (changes.size > 0) break; // one reference of a record at a time
  }
  return mayChange(records, changes) ? mutationsOf(changes) : [];
}
