/** The direction of the imports: a reader can rely on there being no others. */

import { strict as assert } from "node:assert";
import { readdir, readFile } from "node:fs/promises";
import { dirname, join, posix } from "node:path";
import { test } from "node:test";
import { root } from "./harness.ts";

const files = (await readdir(join(root, "src"), { recursive: true }))
  .filter((file) => file.endsWith(".ts"));

/** The imports of each file: modules of Node by name, our own as paths below `src`. */
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

/** The part of the tree that a file or module belongs to. */
function partOf(path: string): string {
  if (path === "admission.ts") return path;
  const [part = "", rest] = path.split("/");
  return rest === undefined ? "root" : part;
}

/** The other parts that each part may import; `root` are the files in `src` itself. */
const allowed: Readonly<Record<string, readonly string[]>> = {
  "admission.ts": [],
  http: ["admission.ts"],
  auth: ["admission.ts"],
  store: ["admission.ts"],
  etcd: ["store"],
  api: ["http", "auth", "store", "admission.ts"],
  features: ["api", "http", "auth", "store", "root", "cli", "admission.ts"],
  cli: ["api", "http", "auth", "store", "etcd", "root"],
  root: [
    "api",
    "http",
    "auth",
    "store",
    "etcd",
    "features",
    "cli",
    "admission.ts",
  ],
};

test("each part imports only those below it", () => {
  for (const [file, modules] of imports) {
    const part = partOf(file);
    for (const module of modules.filter((each) => imports.has(each))) {
      const other = partOf(module);
      assert.ok(
        other === part || allowed[part]?.includes(other),
        `${file} imports ${module}`,
      );
    }
  }
});

test("only features.ts names features, only cli/commands.ts commands, and no feature another", () => {
  for (const [file, modules] of imports) {
    for (const module of modules) {
      if (module.startsWith("features/") && file !== "features.ts") {
        const folder = posix.dirname(module);
        assert.equal(posix.dirname(file), folder, `${file} imports ${module}`);
      }
      const isCommand = module.startsWith("cli/") &&
        module !== "cli/seed.ts" &&
        module !== "cli/commands.ts" &&
        module !== "cli/output.ts" &&
        module !== "cli/operator.ts" &&
        module !== "cli/first-start.ts" &&
        module !== "cli/settings/etcd.ts" &&
        !(/^cli\/(?:(?:read|backup|salvage)\.ts$|(?:declaration|settings)\/)/
          .test(module) &&
          file.startsWith("cli/"));
      if (isCommand && file !== "cli/commands.ts") {
        assert.fail(`${file} imports ${module}`);
      }
    }
  }
});

test("features know only these files that join the parts", () => {
  const joining = new Set(
    [...imports].flatMap(([file, modules]) =>
      file.startsWith("features/")
        ? modules.filter((each) =>
          imports.has(each) && /^(?:root|cli)$/.test(partOf(each))
        )
        : []
    ),
  );
  for (const file of joining) {
    assert.match(
      file,
      /^(?:collections|config|data-folder|cli\/(?:operator|output))\.ts$/,
    );
  }
});

test("the store in etcd is loaded only where it is used", async () => {
  const importing = [...imports].filter(([file, modules]) =>
    partOf(file) !== "etcd" &&
    modules.some((module) => partOf(module) === "etcd")
  ).map(([file]) => file);
  assert.deepEqual(importing.sort(), [
    "cli/backup.ts",
    "cli/read.ts",
    "data-folder.ts",
  ]);
  for (const file of importing) {
    const text = await readFile(join(root, "src", file), "utf8");
    assert.doesNotMatch(text, /^import [^;]*\/etcd\//m, file);
  }
});

test("the declarations know nothing but how to declare", () => {
  for (const module of imports.get("collections.ts") ?? []) {
    assert.match(module, /^api\/declaration\//);
  }
});

test("nothing but Node's own modules is imported", () => {
  for (const [file, modules] of imports) {
    for (const module of modules) {
      assert.ok(module.startsWith("node:") || imports.has(module), file);
    }
  }
});

test("no imports form a cycle, except those of features, which are imported later", () => {
  const done = new Set<string>();
  const visit = (file: string, path: readonly string[]) => {
    assert.ok(!path.includes(file), [...path, file].join(" → "));
    if (done.has(file)) return;
    for (const module of imports.get(file) ?? []) {
      const isLate = file === "features.ts" && module.startsWith("features/");
      if (imports.has(module) && !isLate) visit(module, [...path, file]);
    }
    done.add(file);
  };
  for (const file of imports.keys()) visit(file, []);
});

test("nothing sends a request to another server, or starts a process", async () => {
  for (const module of ["child_process", "dgram", "dns", "http2", "tls"]) {
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
  // and responses, the last one listens.
  assert.deepEqual(importing("node:http"), [
    "etcd/client.ts",
    "http/connection.ts",
    "http/server.ts",
  ]);
  assert.deepEqual(importing("node:https"), [
    "etcd/client.ts",
    "features/tls/feature.ts",
  ]);
  const withFiles = [...importing("node:fs"), ...importing("node:fs/promises")];
  assert.deepEqual([...new Set(withFiles)].sort(), [
    "cli/commands.ts",
    "config.ts",
    "features/imports/command.ts",
    "features/page/feature.ts",
    "store/log/files.ts",
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
