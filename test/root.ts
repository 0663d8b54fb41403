/** The project's folder, and whether its tests run compiled, as with `npm test`. */

import { existsSync } from "node:fs";
import { extname, join } from "node:path";

/** The extension of the running tests: `.ts`, or `.js` once they are compiled. */
export const extension = extname(import.meta.filename);

/** The project's root folder; compiled tests are in a folder of it. */
export const root = findRoot(import.meta.dirname);

function findRoot(folder: string): string {
  return existsSync(join(folder, "node_modules"))
    ? folder
    : findRoot(join(folder, ".."));
}
