/** The plan of the deletion of one record, and why it must stay. */

import { planDeletion } from "../../api/records/deleting.ts";
import type { Records } from "../../api/records/records.ts";
import type { Actor } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import { errorCode, errorText } from "../../store/error.ts";
import type { Document, Mutation, Row, Table } from "../../store/store.ts";

/** Plans the deletion of a record, with its effects on other collections. */
export function planOne(
  records: Records,
  row: Row,
  caller: Actor | undefined,
  cascade: boolean,
): Mutation[] {
  const { collection, store } = records;
  const change = { previous: row.document, next: undefined };
  return [
    ...planDeletion(records, row, caller, cascade),
    ...collection.sideEffects?.(change, store) ?? [],
  ];
}

/** Returns why a record must stay: a refusal, or a check that throws and so cannot judge what would be left. Throws any other error. */
export function refusalOf(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (errorCode(error) !== "rule") throw error;
  const [text] = errorText(error).split(":", 1);
  return new ApiError(42200, `${text}.`);
}

/** The property of a record that must go although a reference of it is empty by now; no declaration can have one of this name. */
const mark = "_deletion";

/**
 * Marks the records of a collection that match, but perhaps not once mutations
 * have emptied references of theirs. For example, all replies to a comment match
 * `parent_id:ne=null` until that comment is deleted.
 *
 * @param by which deletion it is that empties them
 */
export function withMarks(
  mutations: readonly Mutation[],
  by: string,
  table: Table,
  isMatch: (row: Row) => boolean,
): Mutation[] {
  return mutations.map((each) => {
    const [kind, of, document] = each;
    const row = kind === "put" && of === table.name
      ? table.get(document.id)
      : undefined;
    return kind === "put" && row && isMatch(row)
      ? [kind, of, { ...document, [mark]: markOf(by, document) }]
      : each;
  });
}

/** Returns whether a deletion has marked a record, and nobody has changed it since. */
export function isMarked(by: string, document: Document): boolean {
  return document[mark] === markOf(by, document);
}

function markOf(by: string, { updated_at }: Document): string {
  return `${by} ${updated_at}`;
}
