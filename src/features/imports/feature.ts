/**
 * Imports: POST to a collection accepts NDJSON and responds with a task, which
 * creates the records in the background. The command `import` does the same.
 * Exports: GET of a collection returns NDJSON. The same operations have URLs of
 * their own, because typed clients expect one type for each URL and method.
 */

import type { Feature } from "../../api/feature.ts";
import { awaitedTable } from "../../api/own-tables.ts";
import { tasks } from "../../api/tasks/tasks.ts";
import { addTasks } from "../../api/tasks/urls.ts";
import { withExport } from "./exports.ts";
import { deleteTask } from "./requests.ts";
import { addUrls, withImport } from "./urls.ts";
import { createWorker } from "./worker.ts";

/** Imports of NDJSON, the tasks that show their progress, and exports. */
export const feature: Feature = {
  collections: (roles) => [tasks(roles)],
  tables: [{ name: awaitedTable }],
  commands: {
    import: [
      Infinity,
      async (...of) =>
        await (await import("./command.ts")).importCommand(...of),
    ],
  },
  open(api) {
    const { declaration: { collections } } = api;
    const declared = new Set(collections.map(({ name }) => name));
    const importable = (name: string) =>
      declared.has(name) ? api.records(name) : undefined;
    const records = addTasks(api);
    const worker = createWorker({ ...api, records, importable });
    for (const { name } of collections) addUrls(api, api.records(name), worker);
    return {
      start: () => worker.start(),
      stop: () => worker.stop(),
      extend({ GET, POST, DELETE, ...others }) {
        const ofTasks =
          DELETE?.resource?.records.collection === records.collection;
        const target = POST?.resource?.records;
        const isImported = target && declared.has(target.collection.name);
        return {
          ...(GET && { GET: withExport(GET) }),
          ...(POST && {
            POST: isImported ? withImport(POST, target, worker) : POST,
          }),
          ...(DELETE && {
            DELETE: ofTasks
              ? { ...DELETE, run: (call) => deleteTask(worker, call) }
              : DELETE,
          }),
          ...others,
        };
      },
    };
  },
};
