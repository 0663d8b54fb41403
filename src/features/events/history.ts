/**
 * The ids of events: a sequence number, and the name of the history that it
 * belongs to, since a restored backup assigns numbers again. An id of a history
 * that was lost, or was copied elsewhere, is unknown. A number that precedes its
 * history, such as 0, stands for the beginning of that history.
 */

import { historyTable, maxHistories } from "../../api/own-tables.ts";
import type { Document, Store } from "../../store/store.ts";

/** Returns the id of an event: a sequence number, and the name of its history; of the latest one if it precedes all. */
export function toEventId(store: Store, seq: number): string {
  const history = historyOf(store, seq) ?? historyOf(store, Infinity);
  return `${seq}-${history?.["name"] ?? ""}`;
}

/** Returns the sequence number of an event's id; -1 if it is not of this history. */
export function parseEventId(store: Store, id: string): number {
  const [, digits, name] = /^(0|[1-9]\d{0,15})-([0-9a-f]+)$/.exec(id) ?? [];
  const seq = Number(digits);
  const history = historyOf(store, seq, name);
  const isKnown = history !== undefined && history["name"] === name;
  return isKnown ? Math.max(seq, Number(history["from"])) : -1;
}

/** Returns the latest history that has a name, or that a sequence number does not precede. */
function historyOf(
  store: Store,
  seq: number,
  name?: string,
): Document | undefined {
  const table = store.table(historyTable);
  for (let id = table.lastId; id > table.lastId - maxHistories; id--) {
    const history = table.get(id)?.document;
    if (!history) continue;
    if (history["name"] === name || Number(history["from"]) <= seq) {
      return history;
    }
  }
  return undefined;
}
