/**
 * Imports: POST of a collection accepts NDJSON and answers with a task, which
 * creates the records in the background. The command `import` does the same.
 */

import type { Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { ndjsonType } from "../../api/representation.ts";
import {
  deleteOperation,
  listOperations,
  ownedByCaller,
  readOperation,
  resourceRoute,
} from "../../api/operations.ts";
import { importCommand } from "./command.ts";
import { Spools } from "./spool.ts";
import { Tasks, tasks } from "./tasks.ts";

/** Lines that are taken in by POST, and what becomes of them. */
export const feature: Feature = {
  collections: [tasks],
  commands: { import: importCommand },
  open(api) {
    const { add, declarations, served } = api;
    const own = new Set<string>(declarations.map(({ name }) => name));
    const importable = new Map(
      served.filter(({ collection: { name } }) => own.has(name))
        .map((records) => [records.collection.name, records]),
    );
    const records = api.records(tasks.name);
    const spools = new Spools(api.store);
    const working = new Tasks({ ...api, spools, records, importable });
    const mine = ownedByCaller("user_id");
    const view = {
      records,
      scope: (call: RequestContext) =>
        call.caller?.role === "admin" ? undefined : mine(call),
    };
    const list = listOperations(view, {
      summary: "Your tasks, of an admin all",
    });
    add("tasks", resourceRoute(view, list), "tasks_url");
    const GET = readOperation(view, { summary: "One of your tasks" });
    const DELETE = deleteOperation(view, {
      summary: "End a task: what is in stays in",
      run: (call) => working.remove(call),
    });
    add("tasks/:id", resourceRoute(view, { GET, DELETE }));
    return {
      start: () => working.start(),
      stop: () => working.stop(),
      extendCreate(post, into) {
        if (!own.has(into.collection.name)) return undefined;
        return {
          ...post,
          consumes: [...post.consumes ?? [], ndjsonType],
          docs: {
            responses: {
              202: { record: records.collection, headers: ["Location"] },
            },
          },
          importNdjson: (call, body, once) =>
            working.receive(call, body, { records: into, once }),
        };
      },
    };
  },
};
