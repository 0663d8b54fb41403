/** The command `export`: records as NDJSON, of one collection to the output or of all to files. */

import { createWriteStream } from "node:fs";
import { readdir, rename, rm } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { pipeline } from "node:stream/promises";
import {
  type Collection,
  deriveCollection,
} from "../../api/declaration/declaration.ts";
import type { Commands, CommandSettings } from "../../api/feature.ts";
import { toNdjson } from "../../api/formats/ndjson.ts";
import { usersWithHashes } from "../../api/records/imported.ts";
import { Representation } from "../../api/representation.ts";
import { collectionsOf } from "../../api/routes.ts";
import { errorCode, errorText } from "../../store/error.ts";
import type { Row } from "../../store/store.ts";
import { CommandError, UsageError } from "../../usage.ts";
import { createOutputFolder } from "../backup.ts";
import {
  print,
  printData,
  printError,
  showProgress,
  unknownCollection,
} from "../output.ts";
import { describeHidden, findHidden, readAdapted } from "../read.ts";

export const commands: Commands = {
  export: [1, exportCommand],
};

/**
 * Prints the records of a collection as NDJSON, without the properties that
 * hold URLs or secrets. With `--with-hashes` the collection is users, and the
 * hashes of their passwords are printed.
 *
 * @throws {UsageError} on an unknown collection
 */
async function exportCommand(
  settings: CommandSettings,
  [name]: readonly string[],
): Promise<void> {
  const { flags, loadApi } = settings;
  const declaration = await loadApi();
  const folder = flags.get("to");
  if (folder !== undefined) {
    if (name === undefined) return await exportAll(settings, folder);
    throw new UsageError("export: name a collection or --to, not both");
  }
  const derived = collectionsOf(declaration);
  derived.delete("authorizations");
  const collection = flags.has("with-hashes")
    ? deriveCollection(usersWithHashes(declaration.roles))
    : derived.get(name ?? "");
  if (collection === undefined) {
    throw unknownCollection("export", name, [...derived.keys()]);
  }
  const tables = await readAdapted(settings, declaration);
  const rows = tables.get(collection.name)?.rows() ?? [];
  const representation = new Representation(collection);
  let done = 0;
  // A terminal that shows the records has no room for a progress bar.
  const endProgress = process.stdout.isTTY
    ? () => {}
    : showProgress(() => done / rows.length);
  for await (const text of toNdjson(representation, rows)) {
    await printData(text);
    done += text.split("\n").length - 1;
  }
  endProgress();
}

/**
 * Writes the records of each declared collection to a file in a folder, all as
 * of the same moment, for `import --from`. Replaces no file.
 */
async function exportAll(settings: CommandSettings, to: string): Promise<void> {
  const declaration = await settings.loadApi();
  const derived = collectionsOf(declaration);
  const tables = await readAdapted(settings, declaration);
  const removeFolders = await createOutputFolder(to, settings);
  const names = declaration.collections.map(({ name }) => name);
  await refuseExisting(to, names);
  const written: string[] = [];
  let lines = "";
  try {
    for (const name of names) {
      const path = join(to, `${name}.ndjson`);
      const collection = derived.get(name);
      const rows = tables.get(name)?.rows() ?? [];
      const onCreate = () => void written.push(`${path}.part`);
      if (collection) {
        await writeLines(`${path}.part`, collection, rows, onCreate);
      }
      lines += `${path}: ${rows.length} ${name}\n`;
    }
    await refuseExisting(to, names); // another export may have ended since
    // At the end, as a part of the files would look complete.
    for (const [at, part] of written.entries()) {
      const path = part.slice(0, -".part".length);
      await rename(part, path);
      written[at] = path;
    }
  } catch (error) {
    for (const each of written) {
      await rm(each, { force: true }).catch(() => {}); // the first error is told
    }
    await removeFolders();
    throw error;
  }
  for (const each of describeHidden(findHidden(declaration, tables))) {
    printError(`not exported, as it is not declared: ${each}`);
  }
  await print(lines); // at the end: a reader who leaves early ends the process
}

/** @throws {CommandError} if a folder has the file of a collection */
async function refuseExisting(
  folder: string,
  names: readonly string[],
): Promise<void> {
  const found = await readdir(folder);
  const existing = names.map((name) => `${name}.ndjson`)
    .find((file) => found.includes(file));
  if (existing === undefined) return;
  throw new CommandError(
    `${
      join(folder, existing)
    } exists already: nothing was exported; name another folder`,
  );
}

/** Creates a file of rows, which is durable then. */
async function writeLines(
  path: string,
  collection: Collection,
  rows: readonly Row[],
  onCreate: () => void,
): Promise<void> {
  const lines = toNdjson(new Representation(collection), rows);
  const file = createWriteStream(path, { flags: "wx", flush: true });
  await pipeline(lines, file.once("open", onCreate)).catch((error) => {
    throw new CommandError(
      errorCode(error) === "EEXIST"
        ? `${path} exists: another export to this folder is running, or one was interrupted; in that case remove its files *.ndjson.part first`
        : `cannot write ${path}: ${errorText(error)}`,
    );
  });
}
