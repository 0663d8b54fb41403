/** The imports of the source files, read from their text. */

import { posix } from "node:path";
import { sourceFiles } from "./size.ts";

/** An import of a module of Node by its name, or of a file by its path below `src`. */
export interface Import {
  readonly module: string;
  /** `type`: never loaded; `late`: loaded by a call of `import()`. */
  readonly kind: "type" | "value" | "late";
}

const pattern =
  /^(?:import|export)\b( type\b)?[^;]*? from "([^"]+)";|^import "([^"]+)";|\bimport\("([^"]+)"\)/gm;

/** The imports of each file by its path below `src`. */
export const imports: ReadonlyMap<string, readonly Import[]> = new Map(
  sourceFiles().map(({ path, text }) => [
    path,
    Array.from(text.matchAll(pattern), ([, type, from, bare, called]) => {
      const module = from ?? bare ?? called ?? "";
      return {
        module: module.startsWith(".")
          ? posix.join(posix.dirname(path), module)
          : module,
        kind: called ? "late" : type ? "type" : "value",
      };
    }),
  ]),
);

/**
 * Returns the files that Node loads with these.
 *
 * @param late those of them that are loaded only by a call of `import()`
 */
export function loadedWith(
  files: Iterable<string>,
  late: readonly string[] = [],
): ReadonlySet<string> {
  const loaded = new Set(files);
  for (const file of loaded) { // also those that are added meanwhile
    for (const { module, kind } of imports.get(file) ?? []) {
      const isLoaded = kind === "value" ||
        kind === "late" && late.includes(module);
      if (isLoaded && imports.has(module)) loaded.add(module);
    }
  }
  return loaded;
}

/** What `serve` loads by calls of `import()`, without features, a seed and etcd. */
const lateOfServe = ["cli/commands.ts", "serve.ts"];

/** The files that a server without features loads: the kernel. */
export const kernel: ReadonlySet<string> = loadedWith(
  ["main.ts"],
  lateOfServe,
);
