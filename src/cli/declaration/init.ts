/** The command `init`: writes a declaration to start from, and the types for editors beside it. */

import { readFile, rm, writeFile } from "node:fs/promises";
import { basename, dirname, join, parse } from "node:path";
import type { Commands, CommandSettings } from "../../api/feature.ts";
import { errorCode, errorText } from "../../store/error.ts";
import { isNoSpaceError } from "../../store/log/files.ts";
import { CommandError, UsageError } from "../../usage.ts";
import { print } from "../output.ts";
import { inShell } from "./load-file.ts";

export const commands: Commands = { init: [1, init] };

const typesFile = "zoo-api.d.ts";

/** The declaration, up to where its function begins and from its end on. */
const [before, body] = [
  (file: string) =>
    `/// <reference path="./${typesFile}" />

// The API that "zoo-api --collections ${file}" serves. Change it as you like:
// what is stored is validated at the next start, and never lost.

`,
  `({ collection, string, number, date, choice, optional, reference, unique }) => ({
  title: "Plants",
  // roles: ["viewer", "keeper", "admin"], // ascending; the last one manages users
  collections: [
    collection({
      name: "plants", // in URLs: /v1/plants
      singular: "plant",
      // anyone, or a role, which includes those above it
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: {
        name: unique(string({ maxLength: 50 })), // no two plants share it
        light: choice("sun", "half shade", "shade"),
        bought_on: optional(date()), // null if unknown
      },
      sort: ["name"], // unless a request says otherwise
    }),
    collection({
      name: "waterings",
      singular: "watering",
      access: { read: "anyone", write: "viewer", delete: "keeper" },
      properties: {
        plant_id: reference("plants"), // also gives /v1/plants/7/waterings
        watered_on: date(),
        liters: number({ exclusiveMinimum: 0, maximum: 100 }),
        note: optional(string({ maxLength: 200 })),
      },
      // A rule for a whole record: a message for each property that is wrong.
      check: (watering) =>
        watering.liters > 10 && watering.note === null
          ? { note: "must say why it was more than 10 liters" }
          : undefined,
    }),
  ],
});
`,
];

/**
 * Writes a declaration, and the types beside it unless they are there.
 *
 * @throws {UsageError} without a name that ends in .js, .mjs or .ts;
 * {Error} of the file system, such as EEXIST
 */
async function init(
  _settings: CommandSettings,
  [path]: readonly string[],
): Promise<void> {
  const { ext: extension, name } = parse(path ?? "");
  const isDeclaration = [".js", ".mjs", ".ts"].includes(extension) &&
    !name.endsWith(".d"); // only types
  if (path === undefined || !isDeclaration) {
    throw new UsageError(
      "init: name the file to write, such as plants.js: it must end in .js, .mjs or .ts",
    );
  }
  const type = 'import("zoo-api").DeclareApi';
  const start = before(basename(path));
  const text = extension === ".ts"
    ? `${start}const declare: ${type} = ${body}\nexport default declare;\n`
    : `${start}/** @type {${type}} */\nexport default ${body}`;
  const source = new URL(`../../../src/${typesFile}`, import.meta.url);
  const declarations = await readFile(source, "utf8");
  await writeFile(path, text, { flag: "wx" }).catch(async (error) => {
    // A file without its text would keep the next attempt from writing it.
    if (errorCode(error) !== "EEXIST") await rm(path, { force: true });
    if (!isNoSpaceError(error)) throw error;
    throw new CommandError(`cannot write ${path}: ${errorText(error)}`);
  });
  const types = join(dirname(path), typesFile);
  const found = await writeFile(types, declarations, { flag: "wx" })
    .then(() => "wrote", (error) => {
      if (errorCode(error) !== "EEXIST") throw error;
      return "kept";
    });
  await print(
    `wrote ${path}, and ${found} ${types} for editors; to serve it:\n` +
      `  zoo-api --collections ${inShell(path)}\n`,
  );
}
