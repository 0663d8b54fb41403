/**
 * The operations that import to a collection and export it: by their media type
 * at the URL of the collection, and at URLs of their own.
 */

import type { Api } from "../../api/feature.ts";
import { ndjsonType } from "../../api/ndjson.ts";
import {
  collectionMethods,
  type Operation,
  route,
} from "../../api/operations.ts";
import type { Records } from "../../api/records/records.ts";
import { streamBody } from "./body.ts";
import { withExport } from "./exports.ts";
import { receiveImport } from "./requests.ts";
import type { ImportWorker } from "./worker.ts";

/** The longest NDJSON body. */
const maxNdjsonBytes = 1 << 30;

/** Adds the URLs that only import to a collection, and only export it. */
export function addUrls(
  { add }: Api,
  target: Records,
  worker: ImportWorker,
): void {
  const { collection } = target;
  const { name } = collection;
  const resource = { records: target, scope: target.scope() };
  const { GET, POST } = collectionMethods(resource);
  const queued = {
    record: worker.context.records.collection,
    headers: ["Location"],
  };
  const imports = {
    ...withImport({ ...POST, consumes: [] }, target, worker),
    summary: `Import ${name}`,
    docs: {
      verb: "import",
      description: "One record per line, as JSON.",
      responses: { 202: queued },
    },
  };
  const exports = {
    ...withExport({ ...GET, produces: [] }),
    summary: `Export ${name}`,
    docs: {
      verb: "export",
      description:
        "One record per line, as JSON; all, without a limit. Filters have operators as in the list.",
    },
  };
  add(`${name}/import`, route({ POST: imports }, collection));
  add(`${name}/export`, route({ GET: exports }, collection));
}

/** Adds to the POST that creates records one that imports them, unless it is that already. */
export function withImport(
  POST: Operation,
  target: Records,
  worker: ImportWorker,
): Operation {
  const { consumes = [] } = POST;
  if (consumes.includes(ndjsonType)) return POST;
  const description =
    `A body of \`${ndjsonType}\` is imported: the response is 202 with a task.`;
  return {
    ...POST,
    consumes: [...consumes, ndjsonType],
    docs: { ...POST.docs, description },
    receive(call, { type, response }) {
      if (type !== ndjsonType) return undefined;
      const body = streamBody(response, maxNdjsonBytes);
      return receiveImport(worker, { call, body, target });
    },
  };
}
