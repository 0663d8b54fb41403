/**
 * Histories: after a backup is restored, sequence numbers are assigned again.
 * So each start of a server begins a history with a random name, and the id of
 * an event has the name of the history that its sequence number belongs to. An
 * id of a history that was lost, or was copied elsewhere, is unknown.
 */

import { randomBytes } from "node:crypto";
import { historyTable } from "../../api/own-tables.ts";
import type { Mutation, Store } from "../../store/store.ts";

/** How many histories are remembered; an id of an older one is unknown. */
const maxHistories = 100;

/** Begins a history with the next sequence number. */
export async function beginHistory(store: Store): Promise<void> {
  const table = store.table(historyTable);
  await store.settle(() => {
    const id = table.lastId + 1;
    const name = randomBytes(5).toString("hex");
    const mutations: Mutation[] = [
      ["put", historyTable, { id, from: store.seq + 1, name }],
    ];
    const old = id - maxHistories;
    if (table.get(old)) mutations.push(["del", historyTable, old]);
    return { seq: store.apply(mutations, 0) };
  });
}

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
