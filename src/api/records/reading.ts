/** GET and HEAD: a page of a collection, or one record. */

import { ApiError } from "../../http/errors.ts";
import type { Row } from "../../store/store.ts";
import { seesAll } from "../declaration/declaration.ts";
import { pageHeaders, type Query } from "../query/parameters.ts";
import { select } from "../query/select.ts";
import type {
  Outcome,
  Page,
  RequestContext,
  Result,
} from "../request-context.ts";
import type { Records } from "./records.ts";

/** The records of a page, and how they are shown. */
export interface ListedRows {
  readonly rows: Iterable<Row>;
  readonly fields: readonly string[] | undefined;
  /** Throws an ApiError if the caller may no longer see the rows; to be called after each wait. */
  readonly recheckAccess: () => void;
}

/** Adds the rows of a list to a response. */
export type ShowList = (response: Result, listed: ListedRows) => Result;

/**
 * Returns a page of a collection; a promise if the records must be scanned or
 * sorted first.
 *
 * @param show how they are shown, if not as JSON
 * @throws {ApiError} 40401 or 41000 if the record in the path does not exist
 */
export function listRecords(
  records: Records,
  context: RequestContext,
  query: Query,
  show?: ShowList,
): Outcome {
  const { collection, table, representation } = records;
  const { caller, url } = context;
  const { fields } = query;
  const scope = context.scope();
  const isOverseer = seesAll(collection, caller);
  /** Throws if the caller no longer has access, or could see the private records of all users and no longer can. */
  const recheckAccess = () => {
    const current = context.authenticate();
    if (isOverseer && !seesAll(collection, current)) throw new ApiError(40300);
  };
  const isInScope = (row: Row) => records.isInScope(row, scope);
  /** Yields rows, none of them outside the scope, however they were found. */
  const checkScope = function* (rows: Iterable<Row>) {
    for (const row of rows) {
      if (!isInScope(row)) throw new Error("outside the scope");
      yield row;
    }
  };
  const use = ({ rows: found, total }: Page): Result => {
    const rows = scope ? checkScope(found) : found;
    const headers = pageHeaders(query, total, url);
    const seq = Math.max(table.lastSeq, context.scope()?.seq ?? 0);
    const response = { status: 200, headers, seq };
    return show
      ? show(response, { rows, fields, recheckAccess })
      : { ...response, body: representation.serializeList(rows, fields) };
  };
  const selection = { table, scope, isInScope, use, requester: context };
  const result = (context.shared.hooks.select ?? select)(query, selection);
  return result instanceof Promise
    ? context.afterWaiting(result, (result) => {
      recheckAccess();
      return result;
    })
    : result;
}

/**
 * Returns one record, or the given properties of it.
 *
 * @throws {ApiError} 40401, 41000
 */
export function readRecord(
  records: Records,
  context: RequestContext,
  fields: readonly string[] | undefined,
): Result {
  const { representation } = records;
  const scope = context.scope();
  const row = records.find(context, scope);
  const body = fields
    ? representation.serializeFields(row, fields)
    : representation.asStandalone(
      representation.asListItem(row),
      scope?.url,
    );
  return { status: 200, headers: [], body, seq: row.seq };
}
