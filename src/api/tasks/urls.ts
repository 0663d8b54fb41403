/** The URLs of tasks, which each feature that has some adds. */

import { deriveCollection, readableNames } from "../declaration/declaration.ts";
import type { Api } from "../feature.ts";
import { collectionMethods, recordMethods } from "../operations.ts";
import { type Parameters, parseQuery } from "../query/parameters.ts";
import type { Records } from "../records/records.ts";
import { listedTasks } from "./tasks.ts";

/** Adds `/tasks` and `/tasks/:id`; returns the records of the tasks. */
export function addTasks(
  { add, records: recordsOf, declaration: { roles } }: Api,
): Records {
  const records = recordsOf("tasks");
  const resource = { records };
  const listed = deriveCollection(listedTasks(roles));
  const fields = readableNames(listed);
  const described = records.collection;
  const list = {
    ...collectionMethods(resource).GET,
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
  const methods = recordMethods(resource);
  const GET = { ...methods.GET, docs: { summary: "One of your tasks" } };
  const DELETE = {
    ...methods.DELETE,
    docs: { summary: "Cancel a task; what it has done stays" },
  };
  add("tasks/:id", { methods: { GET, DELETE }, described });
  return records;
}
