/**
 * Writes the list of the limits, from the constants of the source and their
 * comments:
 *
 *     node --import tsx test/limits-list.ts > src/LIMITS.md
 */

import process from "node:process";
import { sourceFiles } from "./size.ts";

/** A constant or property whose name says that it is a limit, with its comment. */
const limit =
  /(?:\/\*\*\s+(?:\* )?((?:(?!\*\/)[^])*?)\s*\*\/\n|\/\/ ((?:.*\n *\/\/)*.*)\n)? *(?:export )?(?:const )?\b((?:max|min)[A-Z]\w*|\w+Ms)(?: =|:) ([\d_]+(?: (?:<<|\*) [\d_]+)*|2 \*\* \d+)[;,]/g;

/** Returns the list as Markdown. */
export function listLimits(): string {
  const lines = sourceFiles().flatMap(({ path, text }) =>
    Array.from(text.matchAll(limit), ([, block = "", line, name, value]) => {
      const comment = (line ?? block).replace(/\n *(?:\*|\/\/) ?/g, " ");
      return `- \`${name}\` in \`${path}\`: ${value}${
        comment && `. ${comment.trim()}`
      }`;
    })
  );
  return [
    "# The limits",
    "How much a client, or the disk, can make the server hold or do. This list is",
    "generated from the source by `test/limits-list.ts`; the tests of each file",
    "reach its limits.",
    ...lines.sort(),
  ].join("\n").replace("# The limits\n", "# The limits\n\n")
    .replace("limits.\n-", "limits.\n\n-") + "\n";
}

if (process.argv[1] === import.meta.filename) {
  process.stdout.write(listLimits());
}
