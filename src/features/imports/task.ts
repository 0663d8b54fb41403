/** The task of an import: what it stores, and the files that it reads. */

import { errorText, StoreError } from "../../store/error.ts";
import type { Values } from "../../api/declaration/properties.ts";
import type { Records } from "../../api/records/records.ts";
import {
  type Task as AnyTask,
  type TaskContext,
  unfinishedTasks as unfinished,
} from "../../api/tasks/tasks.ts";
import type { Progress } from "./batch.ts";
import { pathOf } from "./spool.ts";

/** A file of NDJSON, and where its records go. */
export type Part = {
  readonly collection: string;
  /** The name of the spool file. */
  readonly spool: string;
  /** The values that the URL provides for each record: `{"zoo_id":7}`. */
  readonly given: Values;
  /** The names that its lines may have when it is stored; undefined if an earlier version stored it. */
  readonly accepted?: readonly string[];
};

/** The task of an import as it is stored. */
export interface Task extends AnyTask, Progress, Part {
  readonly rejected: number;
  readonly collection: string;
  /** Further files of the same command. */
  readonly more?: readonly Part[];
  /** The highest ids that were used when it began, by the names of its collections: what earlier imports have created is there. */
  readonly lastIds?: Readonly<Record<string, number>>;
  /** The references of its collections when it began, as text: they decide which lines wait for others. */
  readonly references?: string;
}

/** The work on a task since it began, or since it was resumed. */
export interface Run {
  /** The last sequence number before that. */
  readonly since: number;
  /** The sequence numbers of its transactions. */
  readonly seqs: Set<number>;
  /** The sequence numbers of the transactions that deleted new records of its collections, by `zoos/7`. */
  readonly deleted: ReadonlyMap<string, number>;
  /** Stops noting those. */
  readonly end: () => void;
}

/** The parts of the server that imports use. */
export interface ImportContext extends TaskContext {
  /** Returns the records of a collection, if it accepts imports. */
  readonly importable: (collection: string) => Records | undefined;
  /** True in a command, which ends rather than waits until others free memory. */
  readonly isAlone?: boolean;
  /** While it works on a task. */
  readonly run?: Run;
}

/** Returns the files of a task. */
export function partsOf(task: Task): readonly Part[] {
  const { more = [] } = task;
  return [task, ...more];
}

/** Returns the references of the collections of a task as text. */
export function referencesOf(
  { importable }: ImportContext,
  task: Task,
): string {
  return JSON.stringify(
    partsOf(task).map(({ collection: of }) =>
      importable(of)?.collection.parents.map(
        (
          { property, isRequired, target },
        ) => [property, isRequired, target.name],
      )
    ),
  );
}

/** The most bodies that are received at a time, each into a file. */
export const maxUploads = 16;

/** Returns a task, unless it was deleted. */
export function findTask(
  { records }: ImportContext,
  id: number,
): Task | undefined {
  return records.table.get(id)?.document as Task | undefined;
}

/** Returns the imports that are queued or running, the oldest first. */
export function unfinishedTasks(context: ImportContext): Task[] {
  return unfinished(context, "import") as Task[];
}

/** Removes files that a task no longer needs. If that fails, the next start does it. */
export async function removeBodies(
  context: ImportContext,
  parts: readonly Pick<Part, "spool">[],
): Promise<void> {
  const { store } = context;
  for (const { spool } of parts) {
    await store.folder.files.remove(pathOf(store, spool))
      .catch((error) => logFailure(context, error));
  }
}

/** Logs why an import cannot continue. */
export function logFailure({ log }: ImportContext, error: unknown): void {
  if (error instanceof StoreError && error.code === "closed") return;
  log("error", `An import cannot continue: ${errorText(error)}`);
}
