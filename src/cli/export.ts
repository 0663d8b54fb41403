/** The command `export`: prints a collection as JSON lines, which `import` accepts. */

import process from "node:process";
import { users } from "../api/accounts/users.ts";
import { deriveCollections } from "../api/declaration/declaration.ts";
import { Representation } from "../api/representation.ts";
import { collections } from "../collections.ts";
import { print, showProgress, unknownCollection } from "./output.ts";
import { readUndamagedTables } from "./read.ts";

/**
 * Prints the records of a collection as JSON lines, without the properties that
 * hold URLs or secrets.
 *
 * @throws {UsageError} on an unknown collection
 */
export async function exportCollection(
  folder: string,
  name: string | undefined,
): Promise<void> {
  const derived = deriveCollections(collections, [users]);
  const collection = derived.get(name ?? "");
  if (collection === undefined) {
    throw unknownCollection("export", name, [...derived.keys()]);
  }
  const tables = await readUndamagedTables(folder);
  const rows = tables.get(collection.name)?.rows() ?? [];
  const representation = new Representation(collection, "");
  let done = 0;
  // A terminal that shows the records has no room for a progress bar.
  const endProgress = process.stdout.isTTY
    ? () => {}
    : showProgress(() => done / rows.length);
  for await (const text of representation.toNdjson(rows)) {
    await print(text);
    done += text.split("\n").length - 1;
  }
  endProgress();
}
