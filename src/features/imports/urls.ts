/**
 * The operations that import to a collection and export it: by their media type
 * at the URL of the collection, and at URLs of their own.
 */

import type { Api } from "../../api/feature.ts";
import { ndjsonType } from "../../api/formats/ndjson.ts";
import type { Operation } from "../../api/operation.ts";
import { collectionMethods } from "../../api/operations.ts";
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
  const { GET, POST } = collectionMethods({ records: target });
  const queued = {
    record: worker.context.records.collection,
    headers: ["Location"],
  };
  const imports = {
    ...withImport({ ...POST, consumes: [] }, target, worker),
    docs: {
      summary: `Import ${name}`,
      verb: "import",
      description: "One record per line, as JSON.",
      responses: { 202: queued },
    },
  };
  const exports = {
    ...withExport({ ...GET, produces: [] }),
    docs: {
      summary: `Export ${name}`,
      verb: "export",
      description:
        "One record per line, as JSON; all, without a limit. Filters have operators as in the list.",
    },
  };
  const described = collection;
  add(`${name}/import`, { methods: { POST: imports }, described });
  add(`${name}/export`, { methods: { GET: exports }, described });
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
    receive(call, { type }) {
      if (type !== ndjsonType) return undefined;
      const body = streamBody(call.response, maxNdjsonBytes);
      return receiveImport(worker, { call, body, target });
    },
  };
}
