/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 * Exports: GET of a collection returns NDJSON. The same operations have URLs of
 * their own, because typed clients expect one type for each URL and method.
 */

import type { Feature } from "../../api/feature.ts";
import { collectionMethods, recordMethods } from "../../api/operations.ts";
import type { RequestContext } from "../../api/request-context.ts";
import {
  deriveCollection,
  readableNames,
} from "../../api/declaration/declaration.ts";
import { type Parameters, parseQuery } from "../../api/query/parameters.ts";
import { withExport } from "./exports.ts";
import { deleteTask } from "./requests.ts";
import { listedTasks, tasks } from "./task.ts";
import { addUrls, withImport } from "./urls.ts";
import { createWorker } from "./worker.ts";

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
    for (const { name } of collections) addUrls(api, api.records(name), worker);
    return {
      start: () => worker.start(),
      stop: () => worker.stop(),
      extend({ GET, POST, ...others }) {
        const target = POST?.resource?.records;
        const isImported = target && declared.has(target.collection.name);
        return {
          ...(GET && { GET: withExport(GET) }),
          ...(POST && {
            POST: isImported ? withImport(POST, target, worker) : POST,
          }),
          ...others,
        };
      },
    };
  },
};
