/**
 * Decides whether a history of operations on one register is linearizable:
 * whether each operation can have happened at one moment between its start and
 * its end, so that every outcome fits the value at that moment.
 *
 * The search is that of Wing and Gong, and remembers where it was already. An
 * operation whose outcome nobody knows can have happened at any moment after
 * its start, or never.
 */

/** The value of a register; null if there is no record. */
export type Value = string | null;

/** The state that is necessary for an operation to end as it did. */
export type Condition =
  | { readonly is: Value }
  | { readonly isNot: Value }
  | undefined;

/** An operation on a register, as a client saw it. */
export interface Operation {
  /** Its description in a report. */
  readonly text: string;
  readonly start: number;
  /** Infinity if the outcome is unknown. */
  readonly end: number;
  readonly requires: Condition;
  /** The value after it; undefined if it changes nothing. */
  readonly next?: Value;
}

/** Returns what a read that found a value claims. */
export function readOf(value: Value): Pick<Operation, "requires"> {
  return { requires: { is: value } };
}

/** A search, which goes back when it cannot continue. */
interface Search {
  readonly known: readonly Operation[];
  readonly unknown: readonly Operation[];
  readonly isDone: Uint8Array;
  readonly isUsed: Uint8Array;
  /** The places that led nowhere. */
  readonly visited: Set<string>;
  done: number;
  /** The most operations that could be put in a row, and what prevented the next one. */
  best: { readonly done: number; readonly report: string };
}

/** Beyond so many places a history is not decided. */
const maxPlaces = 300_000;

/**
 * Returns undefined if a history is linearizable, otherwise a report.
 *
 * @throws if it is too long to be decided
 */
export function findViolation(
  history: readonly Operation[],
  initial: Value,
): string | undefined {
  const sorted = history.toSorted((a, b) => a.start - b.start);
  const known = sorted.filter(({ end }) => end < Infinity);
  // An operation that changes nothing and has no known outcome tells nothing.
  const unknown = sorted.filter(({ end, next }) =>
    end === Infinity && next !== undefined
  );
  const search: Search = {
    known,
    unknown,
    isDone: new Uint8Array(known.length),
    isUsed: new Uint8Array(unknown.length),
    visited: new Set(),
    done: 0,
    best: { done: -1, report: "" },
  };
  return extend(search, initial, 0) ? undefined : search.best.report;
}

/** Tries to put all operations that are left in a row; `first` is the first one that is not done. */
function extend(search: Search, value: Value, first: number): boolean {
  const { known, isDone } = search;
  const greedy = takeReads(search, value, first);
  while (isDone[first]) first++;
  if (first === known.length) return true;
  const place = placeOf(search, value, first);
  if (!search.visited.has(place)) {
    if (search.visited.size > maxPlaces) {
      throw new Error(`A history of ${known.length} operations is too long`);
    }
    search.visited.add(place);
    note(search, value, first);
    if (tryEach(search, value, first)) return true;
  }
  for (const index of greedy) isDone[index] = 0;
  search.done -= greedy.length;
  return false;
}

/** Puts in a row what can be now and changes nothing: no other choice can be better. */
function takeReads(search: Search, value: Value, first: number): number[] {
  const { known, isDone } = search;
  const taken: number[] = [];
  for (const index of candidates(search, first)) {
    const operation = known[index];
    if (operation?.next !== undefined || !fits(operation, value)) continue;
    isDone[index] = 1;
    taken.push(index);
  }
  search.done += taken.length;
  // Operations that these held back may be possible now.
  if (taken.length > 0) taken.push(...takeReads(search, value, first));
  return taken;
}

/** Returns the operations that are not done and began before any other of them ended. */
function candidates({ known, isDone }: Search, first: number): number[] {
  let end = Infinity;
  const found: number[] = [];
  for (let index = first; index < known.length; index++) {
    const operation = known[index];
    if (operation === undefined || operation.start > end) break;
    if (isDone[index]) continue;
    end = Math.min(end, operation.end);
    found.push(index);
  }
  return found.filter((index) => (known[index]?.start ?? 0) <= end);
}

function tryEach(search: Search, value: Value, first: number): boolean {
  const { known, unknown, isDone, isUsed } = search;
  const indexes = candidates(search, first);
  for (const index of indexes) {
    const operation = known[index];
    if (operation?.next === undefined || !fits(operation, value)) continue;
    isDone[index] = 1;
    search.done++;
    if (extend(search, operation.next, first)) return true;
    isDone[index] = 0;
    search.done--;
  }
  const end = Math.min(...indexes.map((index) => known[index]?.end ?? 0));
  for (const [index, operation] of unknown.entries()) {
    if (operation.start > end) break;
    if (isUsed[index] || operation.next === undefined) continue;
    if (!fits(operation, value)) continue;
    isUsed[index] = 1;
    if (extend(search, operation.next, first)) return true;
    isUsed[index] = 0;
  }
  return false;
}

function fits(operation: Operation | undefined, value: Value): boolean {
  const requires = operation?.requires;
  if (requires === undefined) return true;
  return "is" in requires ? requires.is === value : requires.isNot !== value;
}

/** Returns a text that is the same wherever the search would continue in the same way. */
function placeOf(
  { known, unknown, isDone, isUsed }: Search,
  value: Value,
  first: number,
): string {
  const later: number[] = [];
  for (let index = first; index < known.length; index++) {
    if (isDone[index]) later.push(index);
  }
  const used = unknown.flatMap((_, index) => isUsed[index] ? [index] : []);
  return `${first} ${later} ${used} ${value}`;
}

/** Keeps a report of the farthest place. */
function note(search: Search, value: Value, first: number): void {
  const { known, done, best } = search;
  if (done <= best.done) return;
  const stuck = candidates(search, first).map((index) => known[index]);
  const before = known.slice(Math.max(0, first - 5), first);
  search.best = {
    done,
    report: [
      `After ${done} of ${known.length} operations the value is ${value}, and none of these can be next:`,
      ...stuck.map(describe),
      "Before them:",
      ...before.map(describe),
      "Of unknown outcome:",
      ...search.unknown.filter((_, index) => !search.isUsed[index])
        .map(describe),
    ].join("\n"),
  };
}

function describe(operation: Operation | undefined): string {
  if (operation === undefined) return "";
  const { text, start, end, requires, next } = operation;
  const times = `${start.toFixed(1)}-${end.toFixed(1)}`;
  return `  ${times} ${text}: ${JSON.stringify({ requires, next })}`;
}
