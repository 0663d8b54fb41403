/** The command `prune`: permanently deletes data that is no longer declared, or the stored idempotency keys. */

import type { Commands, CommandSettings } from "../api/feature.ts";
import { FullDisk } from "../store/full-disk.ts";
import * as marker from "../store/log/marker.ts";
import { PackedRow } from "../store/memory/packed-row.ts";
import { declarationTable } from "../api/declaration/remembered.ts";
import { awaitedTable, presentName } from "../api/own-tables.ts";
import { UsageError } from "../usage.ts";
import { openDataFolder } from "../data-folder.ts";
import { followInCommand } from "./declaration/followed.ts";
import type { Document, Mutation, Row, Store } from "../store/store.ts";
import { print, reportTasks } from "./output.ts";
import { describeHidden, findHidden, requireStore } from "./read.ts";

export const commands: Commands = {
  prune: [1, pruneCommand],
};

/** The table of the idempotency keys. */
const keysTable = "answers";

/** How many records one transaction changes at most, and their length as JSON. */
const maxBatchRecords = 1000;
const maxBatchLength = 1 << 18;

/**
 * Runs `prune COLLECTION`, `prune COLLECTION.PROPERTY` or `prune answers`.
 *
 * @throws {UsageError} if the name is declared, or nothing is stored under it
 */
async function pruneCommand(
  { dataDir, etcd, loadApi }: CommandSettings,
  [target = ""]: readonly string[],
): Promise<void> {
  const declaration = await loadApi();
  await requireStore({ dataDir, etcd });
  const store = await openDataFolder(dataDir, declaration, {
    adaptRecords: followInCommand,
    rowClass: PackedRow,
    fullDisk: FullDisk,
    marker,
    etcd,
  });
  try {
    const hidden = findHidden(declaration, store.tables);
    if (target === keysTable) hidden.set(target, countKeys(store));
    const count = hidden.get(target);
    if (count === undefined) {
      const all = describeHidden(hidden).join(", ") || "nothing";
      const problem = target === ""
        ? "name hidden data"
        : `"${target}" is not hidden data`;
      throw new UsageError(
        `prune: ${problem}, that is, stored but not declared. Hidden: ${all}`,
      );
    }
    reportTasks(store.tables);
    await forgetAwaited(store, target);
    await prune(store, target);
    await print(
      `deleted ${describeHidden(new Map([[target, count]]))} for good\n`,
    );
  } finally {
    await store.close();
  }
}

/** Returns the number of idempotency keys, of which a row holds several. */
function countKeys({ tables }: Store): number {
  const rows = tables.get(keysTable)?.rows() ?? [];
  return rows.reduce(
    (sum, { document }) =>
      sum + (String(document["keys"]).split(":").length - 1 || 1),
    0,
  );
}

/** Deletes in several transactions, while other servers may write. After an interruption it can be run again. */
async function prune(store: Store, target: string): Promise<void> {
  const [name = "", property = "id"] = target.split(".");
  const table = store.tables.get(name);
  if (table === undefined) return;
  const hasProperty = ({ document }: Row) => Object.hasOwn(document, property);
  const hidden = table.rows().filter(hasProperty);
  while (hidden.length > 0) {
    const batch = takeBatch(hidden);
    await store.settle(() => {
      const mutations = batch
        .flatMap(({ document }) => table.get(document.id) ?? [])
        .filter(hasProperty)
        .map(({ document }): Mutation => {
          const { id, [property]: _, ...others } = document;
          if (property === "id") return ["del", name, id];
          return ["put", name, { id, ...others }];
        });
      const { document } = store.table(declarationTable).get(1) ?? {};
      if (document && property !== "id") {
        // Clients that follow begin anew: they would be told of records created.
        mutations.push(["put", declarationTable, document]);
      }
      return { seq: store.apply(mutations, 0, { allowWhenFull: true }) };
    });
  }
}

/** Forgets the references that records of an interrupted import await: they would come back when the name is declared again. */
async function forgetAwaited(store: Store, target: string): Promise<void> {
  const [name, property] = target.split(".");
  const table = store.tables.get(awaitedTable);
  const isLeft = (each: string) =>
    presentName(store, `${name}.${each}`) !== target;
  for (const { document: { id } } of table?.rows() ?? []) {
    await store.settle(() => {
      const mutations: Mutation[] = [];
      const { document } = table?.get(id) ?? {};
      if (document && presentName(store, String(document["of"])) === name) {
        mutations.push(
          property === undefined
            ? ["del", awaitedTable, id]
            : ["put", awaitedTable, {
              ...document,
              ...withoutNames(document, isLeft),
            }],
        );
      }
      return { seq: store.apply(mutations, 0, { allowWhenFull: true }) };
    });
  }
}

/** Returns what a row says of its references without some of them. */
function withoutNames(
  { names, items }: Document,
  isLeft: (name: string) => boolean,
): Pick<Document, string> {
  const kept = JSON.parse(
    String(items),
    (_, value) =>
      value?.constructor === Object
        ? Object.fromEntries(
          Object.entries(value).filter(([each]) => isLeft(each)),
        )
        : value,
  );
  return {
    ...Array.isArray(names) && { names: names.map(String).filter(isLeft) },
    items: JSON.stringify(kept),
  };
}

/** Removes the last rows of a list, as many as one transaction can change, and returns them. */
function takeBatch(rows: Row[]): Row[] {
  let length = 0;
  const first = rows.findLastIndex(({ document }) =>
    (length += JSON.stringify(document).length) > maxBatchLength
  );
  const start = Math.max(first, rows.length - maxBatchRecords, 0);
  return rows.splice(start);
}
