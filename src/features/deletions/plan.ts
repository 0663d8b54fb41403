/** The plan of the deletion of one record, and why it must stay. */

import { planDeletion } from "../../api/records/deleting.ts";
import type { Records } from "../../api/records/records.ts";
import type { Actor } from "../../auth/access.ts";
import { ApiError } from "../../http/errors.ts";
import { errorCode, errorText } from "../../store/error.ts";
import type { Mutation, Row } from "../../store/store.ts";

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
