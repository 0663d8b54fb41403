/**
 * Aggregates: a list with the parameter `aggregate` returns counts, sums, means
 * and extremes of its records, in groups if it has `by`, instead of the records.
 */

import type { Feature } from "../../api/feature.ts";
import type { Operation } from "../../api/operation.ts";
import { ndjsonType } from "../../api/formats/ndjson.ts";
import { asExport } from "../../api/query/export.ts";
import { pageHeaders, type Parameters } from "../../api/query/parameters.ts";
import { runSearch } from "../../api/query/search.ts";
import type { ListedRows } from "../../api/records/reading.ts";
import type {
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import { ApiError } from "../../http/errors.ts";
import { negotiate } from "../../http/negotiate.ts";
import { Row } from "../../store/memory/row.ts";
import { compareBy, type Document } from "../../store/store.ts";
import { aggregate } from "./groups.ts";
import { namesOf, parsePlan, type Plan } from "./plan.ts";

/** The parsed parameters of a list: a plan, or what the list itself parsed. */
type Parsed = { readonly plan: Plan } | { readonly plan?: never };

/** Returns the groups of a page, or all as NDJSON, as a response. */
function showGroups(
  response: Result,
  { url, headers: { accept } }: RequestContext,
  all: readonly Document[],
  { page, keys, aggregates }: Plan,
  produces: readonly string[],
): Result {
  const isLines = negotiate(accept, produces) === ndjsonType;
  const query = isLines ? { ...page, limit: asExport(page).limit } : page;
  const { sort, offset, limit } = query;
  const names = [...keys, ...aggregates].map(({ name }) => name);
  const items = all.map((each) => new Row(each, 0)).sort(compareBy(sort))
    .slice(offset, offset + limit)
    .map(({ document }) => JSON.stringify(document, names));
  const total = response.headers.indexOf("X-Total-Count");
  return {
    ...response,
    headers: [
      ...response.headers.slice(0, total),
      ...pageHeaders(query, all.length, url),
    ],
    ...(isLines
      ? { type: ndjsonType, body: items.map((each) => `${each}\n`).join("") }
      : { body: `[${items.join(",")}]` }),
  };
}

/** Describes the parameters with their values. */
function describe(names: ReturnType<typeof namesOf>) {
  return Object.entries(names).map(([name, values]) => ({
    name,
    in: "query",
    description: name === "by"
      ? "What makes groups, times in UTC"
      : "These values of each group instead of records",
    schema: {
      type: "array",
      items: { type: "string", enum: values },
      minItems: 1,
    },
  }));
}

/** Adds aggregates to the GET of a list, unless a filter of the collection has the name of their parameters. */
function withAggregates(
  GET: Operation,
  declared: ReadonlySet<string>,
): Operation {
  const { resource, list, parse, produces = ["application/json"] } = GET;
  if (!resource || !list || !parse) return GET;
  const { collection } = resource.records;
  const names = namesOf(collection);
  const { visibleProperties: filters } = collection;
  if (filters.has("aggregate") || filters.has("by")) return GET;
  const run = (
    context: RequestContext,
    plan: Plan,
  ): Outcome => {
    let listed: ListedRows | undefined;
    const found = list(context, plan.selected, (response, rows) => {
      listed = rows;
      return response;
    });
    const show = (response: Result): Outcome => {
      if (listed === undefined) return response; // 304
      const { rows, recheckAccess } = listed;
      const steps = aggregate(rows, plan, context.signal);
      return context.afterWaiting(runSearch(context, steps), (groups) => {
        recheckAccess();
        return showGroups(response, context, groups, plan, produces);
      });
    };
    return found instanceof Promise ? found.then(show) : show(found);
  };
  return {
    ...GET,
    // Of a part of the collection they are the same.
    ...(declared.has(collection.name) && !GET.docs?.verb && !resource.parent &&
      {
        docs: {
          ...GET.docs,
          parameters: [...GET.docs?.parameters ?? [], ...describe(names)],
        },
      }),
    parse(sent: Parameters) {
      if (sent.has("aggregate")) return { plan: parsePlan(collection, sent) };
      if (!sent.has("by")) return parse(sent);
      throw new ApiError(40003, 'The parameter "by" needs "aggregate".');
    },
    run(context, parsed, body) {
      const { plan } = Object(parsed) as Parsed;
      return plan ? run(context, plan) : GET.run(context, parsed, body);
    },
  };
}

/** Counts, sums, means and extremes of lists. */
export const feature: Feature = {
  open({ declaration: { collections } }) {
    const declared = new Set(collections.map(({ name }) => name));
    return {
      extend: ({ GET, ...others }) =>
        GET && { GET: withAggregates(GET, declared), ...others },
    };
  },
};
