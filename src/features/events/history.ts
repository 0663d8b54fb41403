/**
 * The ids of events: a sequence number, and the name of the history that it
 * belongs to, since a restored backup assigns numbers again. An id of a history
 * that was lost, or was copied elsewhere, is unknown.
 */

import { historyTable, maxHistories } from "../../api/own-tables.ts";
import type { Store } from "../../store/store.ts";

/** Returns the id of an event: a sequence number, and the name of its history. */
export function toEventId(store: Store, seq: number): string {
  return `${seq}-${historyOf(store, seq) ?? ""}`;
}

/** Returns the sequence number of an event's id; -1 if it is not of this history. */
export function parseEventId(store: Store, id: string): number {
  const [, seq, name] = /^(0|[1-9]\d{0,15})-([0-9a-f]+)$/.exec(id) ?? [];
  const isKnown = name !== undefined &&
    name === historyOf(store, Number(seq));
  return isKnown ? Number(seq) : -1;
}

function historyOf(store: Store, seq: number): unknown {
  const table = store.table(historyTable);
  for (let id = table.lastId; id > table.lastId - maxHistories; id--) {
    const row = table.get(id);
    if (row && Number(row.document["from"]) <= seq) return row.document["name"];
  }
  return undefined;
}
