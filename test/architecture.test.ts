/** The direction of the imports: what a reader may rely on not to find. */

import { strict as assert } from "node:assert";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { test } from "node:test";
import { root } from "./harness.ts";

const files = (await readdir(join(root, "src"), { recursive: true }))
  .filter((file) => file.endsWith(".ts"));

/** What each file imports: modules of Node by name, our own as paths below `src`. */
const imports = new Map(
  await Promise.all(files.map(async (file): Promise<[string, string[]]> => {
    const text = await readFile(join(root, "src", file), "utf8");
    const found = text.matchAll(/^(?:import|export)\b[^;]*? from "([^"]+)";/gm);
    const bare = text.matchAll(/^import "([^"]+)";|\bimport\("([^"]+)"\)/gm);
    const modules = [...found, ...bare].map(([, one, other]) => one ?? other);
    return [
      file,
      modules.map((module = "") =>
        module.startsWith(".") ? posix.join(dirname(file), module) : module
      ),
    ];
  })),
);

function importing(module: string): string[] {
  return [...imports].filter(([, modules]) => modules.includes(module))
    .map(([file]) => file).sort();
}

test("http, auth and store import nothing of ours but their own", () => {
  for (const [file, modules] of imports) {
    const folder = dirname(file);
    if (!["http", "auth", "store"].includes(folder)) continue;
    for (const module of modules) {
      const own = module.startsWith("node:") || dirname(module) === folder;
      assert.ok(own, `${file} imports ${module}`);
    }
  }
});

test("api imports nothing of what joins it", () => {
  for (const [file, modules] of imports) {
    if (dirname(file) !== "api") continue;
    for (const module of modules) {
      assert.match(module, /^(?:node:|(?:api|http|auth|store)\/)/, file);
    }
  }
});

test("the declarations know nothing but how to declare", () => {
  assert.deepEqual(imports.get("collections.ts"), [
    "api/declaration.ts",
    "api/properties.ts",
  ]);
});

test("nothing but Node's own modules is imported", () => {
  for (const [file, modules] of imports) {
    for (const module of modules) {
      assert.ok(module.startsWith("node:") || imports.has(module), file);
    }
  }
});

test("no imports go round in a circle", () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]) => {
    assert.ok(!path.includes(file), [...path, file].join(" → "));
    if (done.has(file)) return;
    for (const module of imports.get(file) ?? []) {
      if (imports.has(module)) visit(module, [...path, file]);
    }
    done.add(file);
  };
  for (const file of imports.keys()) visit(file, []);
});

test("one file knows node:http, and few know node:fs", () => {
  assert.deepEqual(importing("node:http"), ["http/server.ts"]);
  const withFiles = [...importing("node:fs"), ...importing("node:fs/promises")];
  assert.deepEqual([...new Set(withFiles)].sort(), [
    "config.ts",
    "main.ts",
    "store/files.ts",
  ]);
});
