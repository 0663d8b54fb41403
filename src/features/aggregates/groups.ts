/**
 * Computes aggregates in one pass over the records. Sums are compensated
 * (Neumaier's algorithm), so that they are exact but for the rounding of the
 * result: those of integers are exact up to 2^53.
 */

import { compareValues, type Document, type Row } from "../../store/store.ts";
import type { Json } from "../../api/declaration/properties.ts";
import type { Steps } from "../../api/query/slices.ts";
import { ApiError } from "../../http/errors.ts";
import type { Aggregate, Plan } from "./plan.ts";

/** The most groups of a response. */
const maxGroups = 10_000;

/** The rows that are read in one step. */
const rowsPerStep = 64;

/** A value in progress. */
class Accumulator {
  readonly #how: Aggregate["how"];
  #count = 0;
  #sum = 0;
  #compensation = 0;
  #extreme: Json = null;

  constructor(how: Aggregate["how"]) {
    this.#how = how;
  }

  add(value: Json): void {
    if (this.#how === "count") this.#count++;
    else if (value === null) return;
    else if (this.#how === "min" || this.#how === "max") {
      const order = compareValues(value, this.#extreme);
      const isFirst = this.#extreme === null;
      const isBeyond = this.#how === "min" ? order < 0 : order > 0;
      if (isFirst || isBeyond) this.#extreme = value;
    } else this.#addNumber(Number(value));
  }

  #addNumber(value: number): void {
    this.#count++;
    const sum = this.#sum + value;
    this.#compensation += Math.abs(this.#sum) >= Math.abs(value)
      ? this.#sum - sum + value
      : value - sum + this.#sum;
    this.#sum = sum;
  }

  get result(): Json {
    const sum = this.#sum + this.#compensation;
    switch (this.#how) {
      case "count":
        return this.#count;
      case "sum":
        return sum;
      case "avg":
        return this.#count === 0 ? null : sum / this.#count;
      default:
        return this.#extreme;
    }
  }
}

/** A group: its key, and its values in progress. */
interface Group {
  readonly key: readonly Json[];
  readonly values: readonly Accumulator[];
}

/**
 * Returns the groups of rows as objects, each with an id by which ties are broken.
 *
 * @throws {ApiError} 40004 if there are too many
 */
export function* aggregate(
  rows: Iterable<Row>,
  { aggregates, keys }: Plan,
  signal: AbortSignal,
): Steps<Document[]> {
  const groups = new Map<Json, Group>();
  const groupOf = (key: readonly Json[], name: Json): Group => {
    const values = aggregates.map(({ how }) => new Accumulator(how));
    const group = { key, values };
    groups.set(name, group);
    if (groups.size <= maxGroups) return group;
    throw new ApiError(
      40004,
      `The parameter "by" makes more than ${maxGroups} groups: use fewer properties, longer times or a filter.`,
    );
  };
  if (keys.length === 0) groupOf([], null); // also of no records
  let count = 0;
  for (const { document } of rows) {
    const key = keys.map(({ read }) => read(document));
    const [first = null] = key;
    const name = key.length > 1 ? JSON.stringify(key) : first;
    const { values } = groups.get(name) ?? groupOf(key, name);
    for (let at = 0; at < values.length; at++) {
      values[at]?.add(aggregates[at]?.read(document) ?? null);
    }
    if (++count % rowsPerStep > 0) continue;
    yield;
    signal.throwIfAborted();
  }
  return Array.from(groups.values(), ({ key, values }, index): Document => ({
    id: index,
    ...Object.fromEntries(keys.map(({ name }, at) => [name, key[at] ?? null])),
    ...Object.fromEntries(
      aggregates.map(({ name }, at) => [name, values[at]?.result ?? null]),
    ),
  }));
}
