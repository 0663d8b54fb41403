/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 * Exports: GET of a collection returns NDJSON. The same operations have URLs of
 * their own, because typed clients expect one type for each URL and method.
 */

import type { Feature } from "../../api/feature.ts";
import { ndjsonType } from "../../api/ndjson.ts";
import {
  collectionMethods,
  type Operation,
  recordMethods,
  route,
} from "../../api/operations.ts";
import type { Records } from "../../api/records/records.ts";
import { deriveCollection } from "../../api/declaration/declaration.ts";
import { streamBody } from "./body.ts";
import { withExport } from "./exports.ts";
import { deleteTask, receiveImport } from "./requests.ts";
import { listedTasks, tasks } from "./task.ts";
import { createWorker } from "./worker.ts";

/** The longest NDJSON body. */
const maxNdjsonBytes = 1 << 30;

/** Imports of NDJSON, the tasks that show their progress, and exports. */
export const feature: Feature = {
  collections: (roles) => [tasks(roles)],
  commands: {
    import: [
      Infinity,
      async (...of) =>
        await (await import("./command.ts")).importCommand(...of),
    ],
  },
  open(api) {
    const { add, declaration: { roles, collections } } = api;
    const declared = new Set(collections.map(({ name }) => name));
    const importable = (name: string) =>
      declared.has(name) ? api.records(name) : undefined;
    const records = api.records("tasks");
    const worker = createWorker({ ...api, records, importable });
    const view = {
      records,
      listed: deriveCollection(listedTasks(roles)),
      scope: records.scope(),
      summary: `Your tasks; all tasks with the role ${roles.highest}`,
    };
    const { GET } = collectionMethods(view);
    add("tasks", route({ GET }, records.collection), "tasks_url");
    const record = recordMethods(view);
    const task = route({
      GET: { ...record.GET, summary: "One of your tasks" },
      DELETE: {
        ...record.DELETE,
        summary: "Cancel a task; records already imported stay",
        run: (call) => deleteTask(worker, call),
      },
    }, records.collection);
    add("tasks/:id", task);
    for (const { name } of collections) addUrls(name);
    return {
      start: () => worker.start(),
      stop: () => worker.stop(),
      extend({ GET, POST, ...others }) {
        const target = POST?.resource?.records;
        const isImported = target && declared.has(target.collection.name);
        return {
          ...(GET && { GET: withExport(GET) }),
          ...(POST && { POST: isImported ? withImport(POST, target) : POST }),
          ...others,
        };
      },
    };
    /** Adds the URLs that only import to a collection, and only export it. */
    function addUrls(name: string): void {
      const target = api.records(name);
      const { collection } = target;
      const resource = { records: target, scope: target.scope() };
      const { GET, POST } = collectionMethods(resource);
      const lines = withImport({ ...POST, consumes: [] }, target);
      const queued = { record: records.collection, headers: ["Location"] };
      const imports = {
        ...lines,
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
    /** Adds to the POST that creates records one that imports them. */
    function withImport(POST: Operation, target: Records): Operation {
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
  },
};
