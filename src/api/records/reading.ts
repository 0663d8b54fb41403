/** GET, HEAD and QUERY: a page of a collection, an export, or one record. */

import { Turns } from "../../admission.ts";
import { ApiError } from "../../http/errors.ts";
import type { Row } from "../../store/store.ts";
import { seesAll } from "../declaration/declaration.ts";
import { pageHeaders, type Query, withoutLimit } from "../query/parameters.ts";
import { type Page, select } from "../query/select.ts";
import { ndjsonType } from "../representation.ts";
import type { Outcome, RequestContext, Result } from "../request-context.ts";
import { holdTurn } from "./held-turn.ts";
import {
  collectionValidators,
  isNotModified,
  type Records,
} from "./records.ts";

/**
 * The exports in progress, at most half of them for one client: each keeps the
 * old versions of changed records in memory until its client has received them.
 */
const exports = new Turns(16, 8);

/**
 * Returns a page of a collection, or all of it as NDJSON; a promise if the
 * records must be scanned or sorted first.
 *
 * @throws {ApiError} 40401 or 41000 if the record in the path does not exist,
 * 41200
 */
export function listRecords(
  records: Records,
  context: RequestContext,
  query: Query,
): Outcome {
  const { collection, table, representation } = records;
  const { caller, url, asNdjson } = context;
  const { fields } = query;
  const scope = context.scope();
  const validators = () => collectionValidators(records, context, scope);
  const currentSeq = () => Math.max(table.lastSeq, context.scope()?.seq ?? 0);
  if (isNotModified(context, validators)) {
    return { status: 304, headers: validators(), seq: currentSeq() };
  }
  const paged = asNdjson ? withoutLimit(query) : query;
  const isOverseer = seesAll(collection, caller);
  /** Throws if the caller no longer has access, or could see the private records of all users and no longer can. */
  const recheckAccess = () => {
    const current = context.authenticate();
    if (isOverseer && !seesAll(collection, current)) throw new ApiError(40300);
  };
  /** Yields rows, none of them outside the scope, however they were found. */
  const checkScope = function* (rows: Iterable<Row>) {
    for (const row of rows) {
      if (!records.isInScope(row, scope)) throw new Error("outside the scope");
      yield row;
    }
  };
  const use = ({ rows: found, total }: Page): Result => {
    const rows = scope ? checkScope(found) : found;
    const headers = [...validators(), ...pageHeaders(paged, total, url)];
    const result = { status: 200, headers, seq: currentSeq() };
    if (!asNdjson) {
      return representation.addJsonArray(result, [...rows], fields);
    }
    const stream = async function* () {
      for await (const part of representation.toNdjson(rows, fields)) {
        recheckAccess();
        yield part;
      }
    };
    return { ...result, type: ndjsonType, stream };
  };
  const selection = { table, scope, use, requester: context };
  const find = () => (context.select ?? select)(paged, selection);
  const result = asNdjson && context.method !== "HEAD" // which has no records
    ? holdTurn(exports, context).then(find)
    : find();
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
 * @throws {ApiError} 40401, 41000, 41200
 */
export function readRecord(
  records: Records,
  context: RequestContext,
  fields: readonly string[] | undefined,
): Result {
  const { representation } = records;
  const scope = context.scope();
  const row = records.find(context, scope);
  const headers = representation.validators(row);
  const { seq } = row;
  if (isNotModified(context, () => headers)) {
    return { status: 304, headers, seq };
  }
  const body = fields
    ? representation.serializeFields(row, fields)
    : representation.asStandalone(
      representation.asListItem(row),
      scope?.url,
    );
  return { status: 200, headers, body, seq };
}
