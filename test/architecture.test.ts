/** The direction of the imports: a reader can rely on there being no others. */

import { strict as assert } from "node:assert";
import { readdir, readFile } from "node:fs/promises";
import { join, posix } from "node:path";
import { test } from "node:test";
import { imports, kernel } from "./imports.ts";
import { root } from "./root.ts";

const files = [...imports.keys()];

function importing(module: string): string[] {
  return files.filter((file) =>
    imports.get(file)?.some((each) => each.module === module)
  ).sort();
}

/** Every import of a file in `src` by another. */
const edges = files.flatMap((file) =>
  (imports.get(file) ?? []).filter(({ module }) => imports.has(module))
    .map((each) => ({ file, ...each }))
);

/** The part of the tree that a file or module belongs to. */
function partOf(path: string): string {
  if (path === "admission.ts" || path === "main.ts") return path;
  const [part = "", rest] = path.split("/");
  return rest === undefined ? "root" : part;
}

/** The other parts that each part may import; `root` are the files in `src` itself. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  "main.ts": ["cli"],
  "admission.ts": [],
  http: ["admission.ts"],
  auth: ["admission.ts"],
  store: ["admission.ts"],
  etcd: ["store", "api", "http"],
  api: ["http", "auth", "store", "admission.ts"],
  features: ["api", "http", "auth", "store", "root", "cli", "admission.ts"],
  cli: ["api", "http", "auth", "store", "etcd", "root"],
  root: ["api", "http", "auth", "store", "etcd", "features", "admission.ts"],
};

test("each part imports only those below it", () => {
  for (const { file, module } of edges) {
    const [part, other] = [partOf(file), partOf(module)];
    assert.ok(
      other === part || allowed[part]?.includes(other),
      `${file} imports ${module}`,
    );
  }
});

test("only features.ts names features, and no feature another", () => {
  for (const { file, module } of edges) {
    if (!module.startsWith("features/") || file === "features.ts") continue;
    const folder = posix.dirname(module);
    assert.equal(posix.dirname(file), folder, `${file} imports ${module}`);
  }
});

test("a server loads no command but serve, and features only by import()", () => {
  const commands = [...kernel].filter((file) => file.startsWith("cli/"));
  assert.deepEqual(
    commands.filter((file) => !file.startsWith("cli/declaration/")).sort(),
    ["cli/command-line.ts", "cli/commands.ts"],
  );
  assert.ok(kernel.has("serve.ts") && kernel.has("store/store.ts"));
  for (const file of [...kernel, "features/imports/feature.ts"]) {
    for (const { module, kind } of imports.get(file) ?? []) {
      const isLate = module.startsWith("features/") &&
          file === "features.ts" ||
        module === "api/seed.ts" ||
        module.endsWith("command.ts");
      assert.equal(isLate && kind !== "late", false, `${file}: ${module}`);
    }
  }
});

test("features know only these files that join the parts", () => {
  for (const { file, module } of edges) {
    if (!file.startsWith("features/")) continue;
    if (!/^(?:root|cli)$/.test(partOf(module))) continue;
    assert.match(
      module,
      /^(?:collections|data-folder|usage|cli\/(?:output|declaration\/followed))\.ts$/,
    );
  }
});

test("the store in etcd is loaded only where it is used", () => {
  // The command help describes the settings of all parts.
  const outside = edges.filter(({ file, module }) =>
    partOf(file) !== "etcd" && partOf(module) === "etcd" &&
    file !== "cli/help.ts"
  );
  for (const { file, kind } of outside) assert.equal(kind, "late", file);
  assert.deepEqual([...new Set(outside.map(({ file }) => file))].sort(), [
    "cli/backup.ts",
    "cli/command-line.ts",
    "cli/read.ts",
    "data-folder.ts",
    "serve.ts",
  ]);
});

test("the declarations know nothing but how to declare", () => {
  for (const { module } of imports.get("collections.ts") ?? []) {
    assert.match(module, /^api\/declaration\//);
  }
});

test("nothing but Node's own modules is imported", () => {
  for (const [file, all] of imports) {
    for (const { module } of all) {
      const isOwn = module === "zoo-api" || imports.has(module); // its types
      assert.ok(module.startsWith("node:") || isOwn, file);
    }
  }
});

test("no imports form a cycle, not even those that are made later", () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]) => {
    assert.ok(!path.includes(file), [...path, file].join(" → "));
    if (done.has(file)) return;
    for (const { module } of imports.get(file) ?? []) {
      if (imports.has(module)) visit(module, [...path, file]);
    }
    done.add(file);
  };
  for (const file of files) visit(file, []);
});

test("nothing sends a request to another server, or starts a process but a locked server", async () => {
  assert.deepEqual(importing("node:child_process"), ["cli/locked.ts"]);
  for (const module of ["dgram", "dns", "http2", "tls"]) {
    assert.deepEqual(importing(`node:${module}`), []);
  }
  for (const file of files) {
    const text = await readFile(join(root, "src", file), "utf8");
    // The lock connects to a socket of its own machine.
    if (file === "etcd/client.ts") continue; // its requests are those to etcd
    const client = file === "store/log/lock.ts"
      ? /\bfetch\(/
      : /\bfetch\(|\bnew (?:WebSocket|EventSource|Socket)\b|\bconnect\(|\b(?:http|https)\.(?:get|request)\(/;
    assert.doesNotMatch(text, client, file);
    const named =
      /^import (?:\* as|\{[^}]*\b(?:get|request|Agent)\b[^}]*\}) [^;]*from "node:https?"/m;
    assert.doesNotMatch(text, named, file);
  }
});

test("few files import node:http and node:fs", () => {
  // One calls etcd, with half the time that fetch takes; one has the requests
  // and responses, the last one listens; one reads only the names of statuses.
  assert.deepEqual(importing("node:http"), [
    "etcd/client.ts",
    "features/negotiation/problem.ts",
    "http/connection.ts",
    "http/server.ts",
  ]);
  assert.deepEqual(importing("node:https"), [
    "etcd/client.ts",
    "features/tls/feature.ts",
  ]);
  const withFiles = [...importing("node:fs"), ...importing("node:fs/promises")];
  assert.deepEqual([...new Set(withFiles)].sort(), [
    "cli/backup.ts",
    "cli/declaration/init.ts",
    "cli/export/command.ts",
    "cli/help.ts",
    "cli/locked.ts",
    "cli/read.ts",
    "features/imports/command.ts",
    "features/imports/spool.ts",
    "features/page/feature.ts",
    "features/static/feature.ts",
    "features/static/files.ts",
    "store/log/fast-writes.ts",
    "store/log/files.ts",
    "usage.ts",
  ]);
});

test("no line is exempt from the linter or the compiler: there is no any", async () => {
  const exempt = /\b(?:deno-lint-ignore|ts-(?:ignore|expect-error|nocheck))\b/;
  for (const folder of ["src", "test"]) {
    const names = await readdir(join(root, folder), { recursive: true });
    for (const name of names.filter((name) => name.endsWith(".ts"))) {
      const text = await readFile(join(root, folder, name), "utf8");
      const lines = text.split("\n").filter((line) =>
        line.trimStart().startsWith("//") && exempt.test(line)
      );
      assert.deepEqual(lines, [], name);
    }
  }
});
