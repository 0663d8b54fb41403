/**
 * The documents for readers of the code are accurate: what they name exists,
 * their reading times are those of the code, their examples are real files, and
 * their commands work. readme.test.ts does the same for the README of users.
 */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { execFile } from "node:child_process";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { dirname, join } from "node:path";
import process from "node:process";
import { describe, test } from "node:test";
import { promisify } from "node:util";
import { readMarker } from "../src/store/log/marker.ts";
import { readStore } from "../src/cli/read.ts";
import { realFiles } from "../src/store/store.ts";
import {
  loaderFor,
  removeFolder,
  root,
  runNode,
  start,
  temporaryFolder,
} from "./harness.ts";
import { runHere } from "./in-process.ts";
import { extension } from "./root.ts";
import { kernel } from "./imports.ts";
import { listLimits } from "./limits-list.ts";
import { sourceFiles } from "./size.ts";

const guide = "src/README.md";
const storeGuide = "src/store/README.md";
const testGuide = "test/README.md";
const guides = [guide, storeGuide, testGuide];

/** The text of each document by its path. */
const texts = new Map(
  await Promise.all(
    ["README.md", "data/README.md", ...guides].map(async (
      path,
    ): Promise<[string, string]> => [
      path,
      await readFile(join(root, path), "utf8"),
    ]),
  ),
);

const files = sourceFiles();

/** The text of each source file by its path below `src`. */
const sources = new Map(files.map(({ path, text }) => [path, text]));

function textOf(path: string): string {
  return texts.get(path) ?? "";
}

/** Returns the fenced blocks of a language; the line before each is its `title`. */
function blocksOf(path: string, language: string) {
  const fence = new RegExp(
    "^(.*)\\n+^```" + language + "\\n([^]*?)^```$",
    "gm",
  );
  return Array.from(
    textOf(path).matchAll(fence),
    ([, title = "", content = ""]) => ({ title, content }),
  );
}

/** Returns the code spans of a document outside of its fenced blocks. */
function spansOf(path: string): string[] {
  const prose = textOf(path).replace(/^```[^]*?^```$/gm, "");
  return Array.from(prose.matchAll(/`([^`\n]+)`/g), ([, span = ""]) => span);
}

/** Finds a file that a document names, relative to its own folder or to one of the project's. */
function find(document: string, name: string): string | undefined {
  return [dirname(document), ".", "src", "test"]
    .map((folder) => join(root, folder, name))
    .find((path) => existsSync(path));
}

/** Returns the fragments by which links refer to the headings of a document. */
function fragmentsOf(markdown: string): string[] {
  return Array.from(
    markdown.matchAll(/^#+ (.*)$/gm),
    ([, heading = ""]) =>
      heading.toLowerCase().replace(/[^\w -]/g, "").replaceAll(" ", "-"),
  );
}

for (const path of texts.keys()) {
  describe(path, () => {
    test("links to files and headings that exist", async () => {
      const prose = textOf(path).replace(/^```[^]*?^```$/gm, "");
      const headings = fragmentsOf(prose);
      assert.deepEqual(headings, [...new Set(headings)]);
      for (const [, target = ""] of prose.matchAll(/\]\(([^)\s]+)\)/g)) {
        if (/^https?:/.test(target)) continue;
        const [file = "", fragment] = target.split("#");
        const linked = file === ""
          ? join(root, path)
          : join(root, dirname(path), file);
        assert.ok(existsSync(linked), target);
        if (fragment === undefined) continue;
        const fragments = fragmentsOf(await readFile(linked, "utf8"));
        assert.ok(fragments.includes(fragment), target);
      }
    });

    test(
      "names source files that exist",
      () => {
        const named = spansOf(path).filter((span) =>
          /^[\w./-]+\.ts$/.test(span)
        );
        for (const name of named) assert.ok(find(path, name), name);
      },
    );
  });
}

for (const path of guides) {
  test(`${path} names functions, classes and properties that exist`, () => {
    const code = [...sources.values()].join("\n");
    const isName =
      /^(?:[A-Z]\w*\.)?#?[A-Za-z]*[a-z][A-Z]\w*$|^#\w+$|^[A-Z]\w*\.\w+$/;
    for (const span of spansOf(path)) {
      if (!isName.test(span)) continue;
      for (const part of span.replace("#", "").split(".")) {
        assert.match(code, new RegExp(`\\b${part}\\b`), span);
      }
    }
  });
}

describe("the reader's guide", () => {
  test("shows the folders and files at the top of the source", () => {
    const [{ content = "" } = {}] = blocksOf(guide, "");
    const shown = Array.from(
      content.matchAll(/([\w-]+\.ts|[\w-]+\/)(?=\s)/g),
      ([name]) => name,
    );
    assert.ok(shown.length > 15, shown.join(" "));
    for (const name of shown) {
      const isKnown = [...sources.keys()].some((file) =>
        name.endsWith("/") ? `/${file}`.includes(`/${name}`) : file === name
      );
      assert.ok(isKnown, name);
    }
  });

  test("says in which file a name is", () => {
    const places = /`(?:[\w.]*[.#])?(\w+)`(?: of `\w+`)? in\s+`([\w/-]+\.ts)`/g;
    let count = 0;
    for (const [, name = "", file = ""] of textOf(guide).matchAll(places)) {
      assert.match(sources.get(file) ?? "", new RegExp(`\\b${name}\\b`), file);
      count++;
    }
    assert.ok(count >= 15, `${count}`);
  });

  test("says how long each part takes", () => {
    const [, ...parts] = textOf(guide).split(/^### /m).map((part) =>
      part.replace(/\n {3}/g, " ")
    );
    for (const [index, linesPerHour] of [200, 400, 400].entries()) {
      const part = parts[index] ?? "";
      let sum = 0;
      let count = 0;
      for (const [, list = "", minutes] of part.matchAll(readingItem)) {
        const expected = countLines(list) / linesPerHour * 60;
        const difference = Math.abs(Number(minutes) - expected);
        const about = `${list}: ${Math.round(expected)} minutes`;
        assert.ok(difference <= Math.max(10, expected / 5), about);
        sum += expected;
        count++;
      }
      assert.ok(count >= 5, `${count}`);
      const hours = Number(/^(\d+) hours\.$/m.exec(part)?.[1]);
      assert.ok(Math.abs(sum / 60 - hours) < 1, `${Math.round(sum)} minutes`);
    }
  });

  test("names every file that a server without features runs", () => {
    const listed = Array.from(
      sectionOf("Reading order").matchAll(/`([\w/-]+(?:\/|\.ts))`/g),
      ([, name = ""]) => name,
    );
    const isListed = (path: string) =>
      listed.some((name) => path === name || path.startsWith(name));
    const missing = files.map(({ path }) => path).filter((path) =>
      !isListed(path) && !/^(?:features|etcd|cli|api\/tasks)\//.test(path)
    );
    assert.deepEqual(missing, []);
  });

  test("lists as the kernel only what it loads", () => {
    const [, part = ""] = textOf(guide).split("### The rest of the kernel");
    const [list = ""] = part.split("\n###", 1);
    const names = Array.from(
      list.matchAll(/`([\w/-]+\.ts)`/g),
      ([, name = ""]) => name,
    );
    assert.ok(names.length > 20, names.join());
    assert.deepEqual(names.filter((name) => !kernel.has(name)), []);
  });

  test("has at most 16 KB", () => {
    assert.ok(Buffer.byteLength(textOf(guide)) <= 16_384);
  });
});

test("the list of limits is that of the source", async () => {
  const list = await readFile(join(root, "src/LIMITS.md"), "utf8");
  const words = (text: string) => text.split(/\s+/);
  assert.deepEqual(
    words(list),
    words(listLimits()),
    "write it with: node --import tsx test/limits-list.ts > src/LIMITS.md",
  );
});

/** Returns the section of the guide whose heading, of the second level, begins with a text. */
function sectionOf(heading: string): string {
  const [section = ""] = textOf(guide).split(/^## /m)
    .filter((section) => section.startsWith(heading));
  assert.notEqual(section, "", heading);
  return section;
}

const readingItem = /^\d+\. ((?:`[^`]+`(?:, )?)+) \((\d+) min\): /gm;

/** Counts the lines of code in some files and folders. */
function countLines(list: string): number {
  let count = 0;
  for (const [, name = ""] of list.matchAll(/`([^`]+)`/g)) {
    const named = files.filter(({ path }) =>
      name.endsWith("/") ? path.startsWith(name) : path === name
    );
    assert.ok(named.length > 0, name);
    for (const { codeLines } of named) count += codeLines;
  }
  return count;
}

test("the files in the store's documentation are a store", async () => {
  const folder = await temporaryFolder();
  try {
    const names = [
      "meta.json",
      "wal-1.jsonl",
      "wal-2.jsonl",
      "snapshot-2.jsonl",
    ];
    let written = 0;
    for (const { title, content } of blocksOf(storeGuide, "jsonl")) {
      const name = names.find((name) => title.includes(`\`${name}\``));
      // The one without a name is the marker: the second slot, padded.
      const file = name ?? "mark";
      const bytes = name === undefined
        ? `${"".padEnd(512)}${content.trimEnd().padEnd(511)}\n`
        : content;
      await writeFile(join(folder, file), bytes);
      written++;
    }
    assert.equal(written, 5);
    const { exists, refusal, faults, seq, generation, tables } =
      await readStore(folder);
    assert.deepEqual({ exists, refusal, faults, seq, generation }, {
      exists: true,
      refusal: undefined,
      faults: [],
      seq: 3,
      generation: 2,
    });
    const records = Array.from(tables.values(), (table) => [
      table.name,
      ...table.rows().map(({ document }) => document),
    ]);
    assert.deepEqual(records, [
      ["zoos", { id: 1, name: "Nordhafen" }],
      ["animals", { id: 2, zoo_id: 1, name: "Bo" }],
    ]);
    const marker = await readMarker(realFiles, folder);
    const log = Buffer.from(await readFile(join(folder, "wal-2.jsonl")));
    assert.equal(marker?.offset, log.length);
    assert.equal(marker.clean, true);
  } finally {
    await removeFolder(folder);
  }
});

/** Runs a command line in the project's folder; throws unless it exits with 0. */
async function shell(command: string): Promise<string> {
  const { NODE_TEST_CONTEXT: _, ...rest } = process.env;
  const env = { ...rest, NODE_V8_COVERAGE: "" };
  const options = { env, cwd: root };
  const { stdout } = await promisify(execFile)(
    "bash",
    ["-c", command],
    options,
  );
  return stdout;
}

function commandsOf(path: string): string[] {
  return blocksOf(path, "sh")
    .flatMap(({ content }) => content.trim().split("\n"));
}

test("the commands in the store's documentation work", async () => {
  const seed = join(root, "data/seed.json");
  const server = await start({ args: ["--seed", seed] });
  const env = { DATA_DIR: server.folder };
  const copy = join(server.folder, "../copy");
  try {
    for (const command of commandsOf(storeGuide)) {
      const typed = command.replaceAll("data/store", server.folder)
        .replaceAll("/tmp/zoo-copy", copy);
      const [, words] = /^npm run zoo-api -- (.*)$/.exec(typed) ?? [];
      if (words === undefined) {
        assert.match(await shell(typed), /^\S/, command);
        continue;
      }
      if (words === "repair") await server.end();
      const { code, stderr } = await runHere(words.split(" "), { env });
      assert.equal(code, 0, `${command}\n${stderr}`);
    }
  } finally {
    await server.stop();
  }
});

/** Runs no part of the torture, but it would refuse an unknown flag. */
async function runNoTorture(flags: string): Promise<void> {
  const file = join(import.meta.dirname, `torture/run${extension}`);
  const none = flags.replace(/\d+/g, "0").split(" ");
  const { code, stderr } = await runNode([...loaderFor(file), file, ...none]);
  assert.equal(code, 0, stderr);
}

const { scripts } = JSON.parse(
  await readFile(join(root, "package.json"), "utf8"),
);
const check = await readFile(join(root, ".ci/run"), "utf8");

describe(
  "the commands in the other documents",
  { concurrency: 2 },
  () => {
    for (const command of [...commandsOf(guide), ...commandsOf(testGuide)]) {
      test(command, async () => {
        const [, script = "", flags = ""] =
          /^npm (?:run )?([\w:-]+)(?: -- (.*))?$/.exec(command) ?? [];
        if (script === "torture") {
          const isEndless = flags.includes("--duration");
          if (!isEndless) await runNoTorture(flags);
        } else if (script !== "") {
          const [, file = ""] = / tsx (\S+\.ts)$/.exec(scripts[script]) ?? [];
          const text = file && await readFile(join(root, file), "utf8");
          for (const [, flag = ""] of flags.matchAll(/--(\w+)/g)) {
            assert.match(text, new RegExp(`\\b${flag}: \\{ type:`));
          }
        } else if (!check.includes(command)) {
          await shell(command);
        }
        if (script !== "") assert.ok(scripts[script], script);
      });
    }
  },
);
