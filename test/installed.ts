/**
 * The package, installed in an empty folder; the image's commands and the unit,
 * run without an engine and a manager. Not part of `npm test`, as it compiles and
 * installs: `.ci/run` runs it on each version of Node.js.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  symlinkSync,
  writeFileSync,
} from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { run as start, temporaryFolder } from "./server.ts";

const root = join(import.meta.dirname, "..");
const folder = temporaryFolder();
const at = (...names: string[]) => join(folder, ...names);
const node = dirname(process.execPath);
const PATH = `${at("bin")}:${node}:${process.env["PATH"]}`;
const run = (command: string, words: string[], cwd = folder) =>
  execFileSync(command, words, {
    cwd,
    encoding: "utf8",
    env: { ...process.env, PATH },
  });

/** Starts a server, waits until it listens, and stops it after some work with its origin. */
async function serving(
  command: string,
  words: string[],
  environment: NodeJS.ProcessEnv,
  work: (origin: string) => Promise<void>,
) {
  const server = start(command, words, {
    env: { PATH, PORT: "0", ...environment },
    cwd: environment["PWD"] ?? folder,
  });
  try {
    await work(await server.ready);
  } finally {
    server.child.kill();
    assert.equal(await server.exit, 0, server.output);
  }
}

const statusOf = async (url: string, sent: RequestInit = {}) =>
  (await fetch(url, sent)).status;

// A copy, as packing builds anew.
const files = run("git", ["ls-files"], root).trim().split("\n");
for (const name of files) cpSync(join(root, name), at("checkout", name));
symlinkSync(join(root, "node_modules"), at("checkout", "node_modules"));
run(
  "npm",
  ["pack", "--silent", "--offline", "--pack-destination", folder],
  at("checkout"),
);
const [packed = ""] = readdirSync(folder).filter((name) =>
  name.endsWith(".tgz")
);
const install = ["install", "--offline", "--no-audit", "--no-fund"];
run("npm", [...install, "--global", "--prefix", folder, at(packed)]);
const installed = at("lib", "node_modules", "zoo-api");
const { version, dependencies } = JSON.parse(
  readFileSync(join(installed, "package.json"), "utf8"),
);

test("The package is small, without tests and dependencies", () => {
  assert.ok(statSync(at(packed)).size < 300_000);
  assert.equal(dependencies, undefined);
  const names = readdirSync(installed, { recursive: true }).map(String);
  assert.ok(names.includes(join("build", "main.js")));
  assert.ok(names.includes(join("data", "seed.json")));
  assert.deepEqual(
    names.filter((name) => /test|node_modules|(?<!\.d)\.ts$|store$/.test(name)),
    [join("build", "store"), join("src", "store")],
  );
});

test("The command serves what it writes, and what it comes with", async () => {
  assert.equal(run("zoo-api", ["version"]), `${version}\n`);
  run("zoo-api", ["init", "plants.mjs"]);
  await serving("zoo-api", ["--collections", "plants.mjs"], {}, async (url) => {
    assert.equal(await statusOf(`${url}/v1/plants`), 200);
    assert.equal(await statusOf(`${url}/v1/plants`, { method: "POST" }), 401);
    assert.equal(await statusOf(`${url}/docs`), 200);
  });
  const words = ["serve", "--sample", "--data-dir", "sample"];
  await serving("zoo-api", words, {}, async (url) => {
    assert.equal(await statusOf(`${url}/v1/animals/250`), 200);
    run("zoo-api", ["backup", "copy", "--data-dir", "sample"]);
  });
  run("zoo-api", ["check", "--data-dir", "copy"]);
});

test("A declaration is checked by the package's types alone", () => {
  const project = at("project");
  mkdirSync(project);
  writeFileSync(join(project, "package.json"), '{"type":"module"}');
  run("npm", [...install, at(packed)], project);
  const check = (name: string) => {
    const words = ["--noEmit", "--strict", "--checkJs", "--allowJs"];
    const more = ["--module", "nodenext", "--types", "", name];
    return run(
      join(root, "node_modules/.bin/tsc"),
      [...words, ...more],
      project,
    );
  };
  const contract = `/** @type {import("zoo-api").DeclareApi} */
export default ({ collection, string, text, number, integer, boolean, date, timestamp, choice, email, url, optional, unique, reference }) => ({
  title: "Library API",
  roles: ["member", "librarian", "admin"],
  collections: [
    collection({
      name: "authors", singular: "author",
      access: { read: "anyone", write: "librarian", delete: "admin" },
      properties: { name: string({ maxLength: 100 }), born_on: optional(date()), stored: string({ maxLength: 9, stored: "old" }) },
    }),
    collection({
      name: "books", singular: "book", stored: "volumes",
      access: { read: "anyone", write: "librarian", delete: "librarian" },
      properties: {
        author_id: optional(reference("authors")),
        translator_id: optional(reference("authors", { as: "translations" })),
        title: string({ maxLength: 200 }), about: optional(text({ minLength: 0, maxLength: 9000 })),
        genre: choice("novel", "poetry", "science"),
        pages: optional(integer({ minimum: 1 })), price: number({ exclusiveMinimum: 0, maximum: 9 }),
        isbn: unique(string({ maxLength: 13, pattern: /^97[89]\\d{10}$/, description: "13 digits" })),
        published_on: optional(date()), reprinted_on: optional(date()),
        read_at: optional(timestamp()), lent: optional(boolean(), false), by: email(), site: optional(url()),
      },
      sort: ["title"], unique: [["title", "author_id"]], keep: { days: 90, by: "read_at" },
      check: (book) => book.reprinted_on !== null && book.published_on !== null && book.reprinted_on < book.published_on
        ? { reprinted_on: "must not be before published_on" } : undefined,
    }),
    collection({ name: "notes", singular: "note", private: "librarian",
      access: { read: "member", write: "member", delete: "member" }, properties: { text: string({ maxLength: 1000 }) } }),
  ],
});
`;
  writeFileSync(join(project, "library.js"), contract);
  check("library.js");
  const sample = readFileSync(join(root, "src/collections.ts"), "utf8");
  writeFileSync(
    join(project, "sample.ts"),
    `${
      sample.replace("./model/declaration.ts", "zoo-api")
        .replace("export default", "const api: import('zoo-api').DeclareApi =")
    }\nexport default api;\n`,
  );
  check("sample.ts");
  const wrong = [
    ["maxLength: 200", 'maxLength: "200"'],
    ["integer(", "whole("],
    ["book.published_on !== null && ", ""],
    ['genre: choice("novel"', "genre: choice(1"],
    ["keep: { days: 90", "keep: { weeks: 90"],
  ] as const;
  for (const [right, mistake] of wrong) {
    assert.ok(contract.includes(right), right);
    writeFileSync(
      join(project, "wrong.js"),
      contract.replace(right, () => mistake),
    );
    assert.throws(() => check("wrong.js"), mistake);
  }
});

test("The image's entry point serves, with its data folder alone to write to", {
  skip: !/^v2[2-4]/.test(process.version), // see the operator's guide
}, async () => {
  const lines = readFileSync(join(root, "Dockerfile"), "utf8")
    .replaceAll("\\\n", " ").split("\n");
  // What the first stage builds is what was packed.
  const image = at("image");
  const ignored = readFileSync(join(root, ".dockerignore"), "utf8");
  for (const line of lines) {
    const [word, ...names] = line.split(" ");
    if (word !== "COPY" || names[0]?.startsWith("--from")) continue;
    for (const name of names.slice(0, -1)) {
      assert.ok(
        ignored.includes(`!${name}`) ||
          ignored.includes(`!${name.split("/")[0]}\n`),
        `${name} is ignored`,
      );
      cpSync(at("checkout", name), join(image, "app", name), {
        recursive: true,
      });
    }
  }
  rmSync(join(image, "app", "src"), { recursive: true });
  cpSync(join(root, "src/zoo-api.d.ts"), join(image, "app/src/zoo-api.d.ts"));
  cpSync(join(installed, "build"), join(image, "app", "build"), {
    recursive: true,
  });
  mkdirSync(join(image, "data"), { mode: 0o700 });
  const inImage = (text: string) =>
    text.replace(/(?<=^|=)\/(app|data|run)\b/, join(image, "$1"));
  const jsonAfter = (word: string): string[] =>
    JSON.parse(
      lines.find((line) => line.startsWith(word))?.slice(word.length) ?? "",
    ).map(inImage);
  const environment = Object.fromEntries(
    (lines.find((line) => line.startsWith("ENV "))?.slice(4).split(" ") ?? [])
      .map((pair) => inImage(pair).split("=")),
  );
  const [, ...words] = [...jsonAfter("ENTRYPOINT "), ...jsonAfter("CMD ")];
  const PORT = "0";
  const PWD = join(image, "app");
  await serving(
    process.execPath,
    words,
    { ...environment, PORT, PWD },
    async (url) => {
      const { port } = new URL(url);
      const local = `http://127.0.0.1:${port}`;
      assert.equal(await statusOf(`${local}/v1/zoos`), 200);
      const line = lines.find((line) => line.startsWith("HEALTHCHECK")) ?? "";
      const [, ...health]: string[] = JSON.parse(line.slice(line.indexOf("[")));
      execFileSync(process.execPath, health, { env: { PORT: port } });
    },
  );
});

test("The unit is valid, and starts on this Node.js", async () => {
  const guide = readFileSync(join(root, "data/README.md"), "utf8");
  const [unit = "", dropIn = ""] = Array.from(
    guide.matchAll(/```ini\n([^]*?)```/g),
    ([, text = ""]) => text,
  ).filter((text) => text.includes("build/main.js"));
  writeFileSync(
    at("zoo-api.service"),
    unit.replace("/usr/bin/node", process.execPath)
      .replace(/^User=.*/m, "DynamicUser=yes"),
  );
  run("systemd-analyze", ["verify", at("zoo-api.service")]);
  const directory = at("credentials");
  mkdirSync(directory);
  writeFileSync(join(directory, "password"), "admin-password\n");
  const texts = [unit];
  if (/^v2[2-4]/.test(process.version)) texts.push(dropIn);
  for (const text of texts) {
    const [, start = ""] = /^ExecStart=\/usr\/bin\/node (.+)/m.exec(text) ?? [];
    const DATA_DIR = at("state");
    const words = start.replaceAll("%d", directory)
      .replaceAll("/var/lib/zoo-api", DATA_DIR)
      .replaceAll("/usr/lib/node_modules/zoo-api", installed);
    await serving(
      process.execPath,
      words.split(" "),
      { DATA_DIR },
      async (url) => assert.equal(await statusOf(`${url}/v1/zoos`), 200),
    );
  }
});
