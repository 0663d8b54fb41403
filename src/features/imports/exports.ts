/** Exports: the records of a list as NDJSON, as fast as the client reads them. */

import { Turns } from "../../admission.ts";
import { ndjsonFormat, ndjsonType } from "../../api/ndjson.ts";
import { holdTurn } from "../../api/records/held-turn.ts";
import type { Operation } from "../../api/operations.ts";

/**
 * The exports in progress, at most half of them for one client: each keeps the
 * old versions of changed records in memory until its client has received them.
 */
const turns = new Turns(16, 8);

/** Adds NDJSON to what the GET of a list produces: all of it, unless the query asks for a page. */
export function withExport(GET: Operation): Operation {
  const { produces = ["application/json"], resource, list } = GET;
  if (resource === undefined || list === undefined) return GET;
  if (produces.includes(ndjsonType)) return GET;
  const format = ndjsonFormat(resource.records.representation);
  return {
    ...GET,
    produces: [...produces, ndjsonType],
    docs: {
      ...GET.docs,
      description: `As \`${ndjsonType}\`: all of them, one per line.`,
    },
    run(context, query, body) {
      if (context.format !== ndjsonType) return GET.run(context, query, body);
      const find = () => list(context, query, format);
      return context.method === "HEAD" // which has no records
        ? find()
        : context.afterWaiting(holdTurn(turns, context), find);
    },
  };
}
