/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 * Exports: GET of a collection returns NDJSON.
 */

import type { Operation } from "../../api/operation.ts";
import type { Feature } from "../../api/feature.ts";
import { ndjsonType } from "../../api/ndjson.ts";
import { collectionMethods, recordMethods } from "../../api/operations.ts";
import type { RequestContext } from "../../api/request-context.ts";
import type { Records } from "../../api/records/records.ts";
import {
  deriveCollection,
  readableNames,
} from "../../api/declaration/declaration.ts";
import { type Parameters, parseQuery } from "../../api/query/parameters.ts";
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
    const view = { records };
    const listed = deriveCollection(listedTasks(roles));
    const fields = readableNames(listed);
    const described = records.collection;
    const list = {
      ...collectionMethods(view).GET,
      parse(parameters: Parameters) {
        const query = parseQuery(listed, parameters);
        return { ...query, fields: query.fields ?? fields };
      },
      docs: {
        listed,
        summary: `Your tasks; all tasks with the role ${roles.highest}`,
      },
    };
    add("tasks", { methods: { GET: list }, described }, "tasks_url");
    const record = recordMethods(view);
    const GET = { ...record.GET, docs: { summary: "One of your tasks" } };
    const DELETE = {
      ...record.DELETE,
      docs: { summary: "Cancel a task; records already imported stay" },
      run: (call: RequestContext) => deleteTask(worker, call),
    };
    add("tasks/:id", { methods: { GET, DELETE }, described });
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
    /** Adds to the POST that creates records one that imports them. */
    function withImport(POST: Operation, target: Records): Operation {
      return {
        ...POST,
        consumes: [...POST.consumes ?? [], ndjsonType],
        docs: {
          ...POST.docs,
          responses: {
            202: { record: records.collection, headers: ["Location"] },
          },
        },
        receive(call, { type }) {
          if (type !== ndjsonType) return undefined;
          const body = streamBody(call.response, maxNdjsonBytes);
          return receiveImport(worker, { call, body, target });
        },
      };
    }
  },
};
