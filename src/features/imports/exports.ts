/** Exports: the records of a list as NDJSON, as fast as the client reads them. */

import type { Operation } from "../../api/operation.ts";
import { Turns } from "../../admission.ts";
import { asExport } from "../../api/query/export.ts";
import type { Query } from "../../api/query/parameters.ts";
import { ndjsonType, showNdjson } from "../../api/formats/ndjson.ts";
import { holdTurn } from "../../api/records/held-turn.ts";
import { negotiate } from "../../http/negotiate.ts";

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
  const offers = [...produces, ndjsonType];
  const show = showNdjson(resource.records.representation);
  return {
    ...GET,
    produces: offers,
    docs: {
      ...GET.docs,
      description: `As \`${ndjsonType}\`: all of them, one per line.`,
    },
    run(context, query, body) {
      const { headers: { accept }, method } = context;
      if (negotiate(accept, offers) !== ndjsonType) {
        return GET.run(context, query, body);
      }
      const find = () => list(context, asExport(query as Query), show);
      return method === "HEAD" // which has no records
        ? find()
        : context.afterWaiting(holdTurn(turns, context), find);
    },
  };
}
