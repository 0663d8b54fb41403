/** The declaration file: how it is found and loaded, and how its mistakes are reported. */

import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { cp, mkdir, readFile, writeFile } from "node:fs/promises";
import { join, relative } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { loadApi } from "../src/cli/declaration/load-api.ts";
import { openDataFolder } from "../src/data-folder.ts";
import {
  command,
  notInNode,
  removeFolder,
  root,
  run,
  stripsTypes,
  temporaryFolder,
} from "./harness.ts";
import { runHere, startHere } from "./in-process.ts";

let folder: string;
before(async () => {
  folder = await temporaryFolder();
});
after(() => removeFolder(folder));

/** Writes a file and returns its path. */
async function write(name: string, text: string): Promise<string> {
  const file = join(folder, name);
  await writeFile(file, text);
  return file;
}

const books = `{
    name: "books",
    singular: "book",
    access: { read: "anyone", write: "keeper", delete: "admin" },
    properties: { title: string({ maxLength: 100 }) },
  }`;
const valid = `export default ({ collection, string }) => ({
  collections: [collection(${books})],
});
`;

test("a file is loaded wherever it is, and what it omits has a default", async () => {
  const file = await write("books.mjs", valid);
  for (const name of [file, relative(process.cwd(), file)]) {
    const { title, roles, collections } = await loadApi(name);
    assert.equal(title, "API");
    assert.deepEqual(roles.names, ["viewer", "keeper", "admin"]);
    assert.deepEqual(collections.map(({ name }) => name), ["books"]);
  }
  const common = await write(
    "books.cjs",
    valid.replace(/^.*?\(/, "module.exports = ("),
  );
  assert.equal((await loadApi(common)).collections.length, 1);
  assert.equal((await loadApi(undefined)).title, "zoo-api");
});

const unloadable: Readonly<Record<string, readonly [string, RegExp]>> = {
  "throws.mjs": [
    "export default () => {\n  throw new Error('two\\nlines');\n};",
    /^:2: two lines$/,
  ],
  "top.mjs": ["\n\nundeclared();", /^:3: undeclared is not defined$/],
  "string.mjs": ["throw 'text';", /^: text$/],
  "syntax.mjs": [
    "export default (;",
    /^: Unexpected token ';'; "node --check .*syntax\.mjs" shows where$/,
  ],
  "object-thrown.mjs": ["throw Object.create(null);", /^: it throws a value/],
  "stack.mjs": [
    "const error = new Error(); error.stack = 5; throw error;",
    /^: it throws a value that cannot be described$/,
  ],
  "nothing.mjs": ["export const api = 1;", /^: its default export must be a f/],
  "object.mjs": ["export default {};", /^: its default export must be a func/],
  "class.mjs": [
    "export default class A {}",
    /^: its default export must be a f/,
  ],
  "async.mjs": [
    "export default async () => { throw new Error('unseen'); };",
    /^: its function must not be async$/,
  ],
  "empty.mjs": [
    "export default () => {};",
    /^: the options of the returned API are undefined: .* title, /,
  ],
  "import.mjs": [
    'import "./missing.mjs"; export default () => ({});',
    /^: Cannot find module '.*missing\.mjs'$/,
  ],
  "text.json": ["{}", /^: it must be a \.js, \.mjs or \.ts file$/],
};

for (const [name, [text, message]] of Object.entries(unloadable)) {
  test(`${name} is reported in one line`, async () => {
    const file = await write(name, text);
    await assert.rejects(loadApi(file), (error: Error) => {
      assert.equal(error.name, "UsageError");
      assert.ok(error.message.startsWith(file), error.message);
      assert.match(error.message.slice(file.length), message);
      return true;
    });
  });
}

test("a declaration that leaves a timer does not keep a command from ending", async () => {
  const file = await write(
    "timer.mjs",
    `setInterval(() => {}, 1000);\n${valid}`,
  );
  const own = join(folder, "timer-store");
  const api = await loadApi(await write("no-timer.mjs", valid));
  await (await openDataFolder(own, api)).close();
  const env = { DATA_DIR: own, COLLECTIONS: file };
  for (const command of [["user", "list"], ["check"]]) {
    const { code, stderr } = await run(command, { env });
    assert.deepEqual([code, stderr], [0, ""], command.join(" "));
  }
});

test("a file that Node.js reads as a script is reported with what to do", async () => {
  const own = join(folder, "script");
  await mkdir(own);
  await writeFile(join(own, "package.json"), '{ "type": "commonjs" }');
  for (const text of [valid, 'import "node:fs";\n' + valid]) {
    const file = await write("script/books.js", text);
    await assert.rejects(loadApi(file), {
      message: /books\.js(?::\d+)?: .*name it \.mjs, or set "type": "module"/,
    });
  }
});

test("the line of a mistake is known also below a folder with a space, and a command can be copied", async () => {
  await mkdir(join(folder, "my own"));
  const unfinished = await write("my own/it's.mjs", "export default (");
  await assert.rejects(loadApi(unfinished), {
    message: RegExp(`"node --check '${folder}/my own/it'\\\\''s.mjs'" shows`),
  });
  const file = await write("my own/api.mjs", "\n\nundeclared();");
  const message = `${file}:3: undeclared is not defined`;
  await assert.rejects(loadApi(file), { message });
});

test("a folder is reported in one line, also if it has the name of a file", async () => {
  const file = join(folder, "folder.mjs");
  await mkdir(file);
  await assert.rejects(loadApi(file), {
    name: "UsageError",
    message: `${file}: it is a folder: name a file in it`,
  });
});

test("a file that is not UTF-8 is refused, as its texts would be others", async () => {
  const file = join(folder, "latin.mjs");
  const text = 'export default () => { return { title: "Zoos für alle" }; };';
  await writeFile(file, text, "latin1");
  await assert.rejects(loadApi(file), {
    name: "UsageError",
    message: RegExp(
      `^${file}: COLLECTIONS: cannot read .*: it must be a readable file of UTF-8 text$`,
    ),
  });
});

test("a file that is missing is reported in one line", async () => {
  const file = join(folder, "missing.mjs");
  const message = `${file}: Cannot find module '${file}'`;
  await assert.rejects(loadApi(file), { name: "UsageError", message });
});

test("every command that needs the file ends with 2 and a line for each mistake", async () => {
  const wrong = valid.replace("100", "0").replace('"keeper"', '"clerk"');
  const file = await write("wrong.mjs", wrong);
  const dataDir = join(folder, "none");
  await mkdir(dataDir, { mode: 0o700 });
  for (
    const words of [
      ["serve"],
      ["check"],
      ["export", "books"],
      [
        "import",
        "books",
        "-",
      ],
      ["user", "add", "kim"],
      ["log"],
    ]
  ) {
    const { code, stdout, stderr } = await runHere(
      [...words, "--collections", file, "--data-dir", dataDir],
      { input: "a long enough one\n" },
    );
    assert.equal(stdout, "");
    assert.equal(
      stderr,
      `zoo-api: ${file}: books.access: write is "clerk": it must be one of "anyone", "viewer", "keeper", "admin"
zoo-api: ${file}: books.title: maxLength is 0: it must be an integer from 1 up to 10000000
`,
      words.join(" "),
    );
    assert.equal(code, 2);
  }
});

const late = "await new Promise((resolve) => setTimeout(resolve, 1000));";
const neverLoaded: Readonly<Record<string, readonly [string, RegExp]>> = {
  "timer.mjs": [
    `setTimeout(() => { throw new Error("late"); });\n${late}`,
    /^:1: late$/,
  ],
  "rejects.mjs": [
    `\nsetTimeout(() => Promise.reject(new Error("late")));\n${late}`,
    /^:2: late$/,
  ],
  "unhandled.mjs": [
    `Promise.reject(new Error("late"));\n${valid}`,
    /^:1: late$/,
  ],
  "never.mjs": [
    `await new Promise(() => {});\n${valid}`,
    /^: it waits for something that never happens$/,
  ],
  "exit.mjs": [
    `\nprocess.exit(0);\n${valid}`,
    /^:2: it must not call process\.exit$/,
  ],
  "interval.mjs": [
    "setInterval(() => {}, 1000); export default 5;",
    /^: its default export must be a function$/,
  ],
};

for (const [name, [text, message]] of Object.entries(neverLoaded)) {
  test(`${name} ends a command with one line and exit code 2`, {
    skip: notInNode,
  }, async () => {
    const file = await write(name, text);
    const { code, stdout, stderr } = await run(["check"], {
      env: { COLLECTIONS: file, DATA_DIR: join(folder, "none") },
    });
    assert.ok(stderr.startsWith(`zoo-api: ${file}:`), stderr);
    const [line = "", ...others] = stderr.trimEnd().split("\n");
    assert.deepEqual(others, []);
    assert.match(line.slice(`zoo-api: ${file}`.length), message);
    assert.equal(stdout, "");
    assert.equal(code, 2);
  });
}

const isBuilt = command.at(-1)?.endsWith(".js");

test("a Node.js that does not run TypeScript says so", {
  skip: stripsTypes || !isBuilt || notInNode,
}, async () => {
  const file = await write("books.ts", valid);
  const { code, stderr } = await run(["check", "--collections", file]);
  assert.equal(
    stderr,
    `zoo-api: ${file}: is TypeScript, which Node.js ${process.version} cannot run without tsx: use .js or .mjs, or Node.js 22.18 or later\n`,
  );
  assert.equal(code, 2);
});

/** Starts a server with the flag --sample, and returns how many records a collection has. */
async function countSample(
  name: string,
  env: Readonly<Record<string, string>>,
  args: readonly string[] = [],
): Promise<string | null> {
  const server = await startHere({ env, args: ["--sample", ...args] });
  const response = await server.request("GET", `/v1/${name}`);
  assert.equal(response.status, 200, response.text);
  await server.stop();
  return response.headers.get("x-total-count");
}

test("sample records are loaded for the sample API only", async () => {
  const own = await write("own.mjs", valid);
  const seed = await write("seed.json", '{"books":[{"title":"Emma"}]}');
  const env = { COLLECTIONS: "" };
  assert.equal(await countSample("zoos", env), "16");
  const args = ["--collections", own];
  assert.equal(await countSample("books", env, args), "0");
  const other = { COLLECTIONS: own, SEED: seed };
  assert.equal(await countSample("books", other), "1");
  const zoos = { zoos: [{ name: "Artis", city: "Amsterdam", country: "NL" }] };
  const SEED = await write("zoos.json", JSON.stringify(zoos));
  assert.equal(await countSample("zoos", { ...env, SEED }), "1");
});

test("a folder is served with no declaration that has none of its collections, and gets no sample records", async (t) => {
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  const both = valid.replace(
    "collections: [",
    `collections: [
    collection({ name: "zoos", singular: "zoo", access: { read: "anyone", write: "keeper", delete: "keeper" }, properties: {
      name: string({ maxLength: 100 }), city: string({ maxLength: 100 }), country: string({ maxLength: 2 }) } }),`,
  );
  const [books, more] = [join(own, "books.mjs"), join(own, "more.mjs")];
  await writeFile(books, valid);
  await writeFile(more, both);
  const store = join(own, "store");
  const env = { COLLECTIONS: books };
  const server = await startHere({ folder: store, env });
  assert.equal(await server.end(), 0);
  const { code, stderr } = await runHere(["serve", "--port", "0", "--sample"], {
    env: { ...env, DATA_DIR: store, COLLECTIONS: "" },
  });
  assert.equal(code, 1, stderr);
  assert.match(
    stderr,
    /^zoo-api: the data folder has books, but the declaration has zoos, animals, employees: .* --collections, or .* --data-dir\n$/,
  );
  // One that shares a collection is another version, and its samples would be
  // in a used folder.
  const other = await startHere({
    folder: store,
    env: { ...env, COLLECTIONS: more },
  });
  const token = await other.signIn();
  const json = { title: "Emma" };
  const created = await other.request("POST", "/v1/books", { token, json });
  assert.equal(created.status, 201, created.text);
  assert.equal(await other.end(), 0);
  const seed = join(own, "seed.json");
  await writeFile(seed, '{"zoos":[{"name":"A","city":"B","country":"CH"}]}');
  const last = await startHere({
    folder: store,
    env: { ...env, COLLECTIONS: more, SEED: seed },
  });
  t.after(() => last.end());
  const zoos = await last.request("GET", "/v1/zoos");
  assert.equal(zoos.headers.get("x-total-count"), "0");
});

test("a seed for other collections is refused, by a message that names those that are declared", async () => {
  const file = await write("own.mjs", valid);
  const { code, stderr } = await run([
    "--collections",
    file,
    "--seed",
    join(root, "data/seed.json"),
    "--data-dir",
    join(folder, "refused"),
  ]);
  assert.equal(code, 1);
  assert.equal(
    stderr,
    `zoo-api: ${
      join(root, "data/seed.json")
    }: the seed has "zoos", which is not a collection; allowed: books\n`,
  );
});

test("an editor finds what is wrong in a declaration, with the types alone", async () => {
  const own = join(folder, "types");
  await mkdir(own);
  // Without it, what the files are depends on the folders above.
  await writeFile(join(own, "package.json"), '{ "type": "module" }');
  await cp(join(root, "src/zoo-api.d.ts"), join(own, "zoo-api.d.ts"));
  const { compilerOptions } = JSON.parse(
    await readFile(join(root, "tsconfig.json"), "utf8"),
  );
  await writeFile(
    join(own, "tsconfig.json"),
    JSON.stringify({
      compilerOptions: {
        ...compilerOptions,
        allowJs: true,
        checkJs: true,
        skipLibCheck: false,
        types: [],
      },
      include: ["."],
    }),
  );
  const typeScript = `export default (
  { collection, string, choice, date, optional, integer, unique, reference }:
    import("zoo-api").Vocabulary,
) => ({
  title: "Library",
  collections: [collection({
    name: "books",
    singular: "book",
    access: { read: "anyone", write: "keeper", delete: "admin" },
    properties: {
      author_id: optional(reference("authors", { as: "works" })),
      isbn: unique(string({ maxLength: 13 })),
      genre: optional(choice("novel", "poetry"), "novel"),
      pages: integer({ minimum: 1 }),
      published_on: date(),
      reprinted_on: optional(date()),
    },
    unique: [["isbn", "genre"]],
    sort: ["genre", "created_at"],
    check: (book) => {
      const id: number = book.id + book.pages;
      const genre: "novel" | "poetry" = book.genre;
      const author: number | null = book.author_id;
      const at: string = book.created_at + genre + author + id;
      return book.reprinted_on !== null && book.reprinted_on < book.published_on
        ? { reprinted_on: "must not be before published_on" + at }
        : undefined;
    },
  })],
}) satisfies import("zoo-api").Api;
`;
  const javaScript = `/** @type {import("zoo-api").DeclareApi} */
export default ({ collection, date, optional }) => ({
  collections: [collection({
    name: "loans",
    singular: "loan",
    access: { read: "viewer", write: "keeper", delete: "admin" },
    properties: { due_on: optional(date()) },
    check: ({ due_on }) => due_on?.startsWith("2026") ? { due_on: "x" } : null,
  })],
});
`;
  await writeFile(join(own, "right.ts"), typeScript);
  await writeFile(join(own, "right.js"), javaScript);
  const mistakes: readonly (readonly [string, string])[] = [
    ["maxLength: 13", "maxlength: 13"],
    ["maxLength: 13", 'maxLength: "13"'],
    ['as: "works"', "is: 1"],
    ['), "novel"', '), "drama"'],
    ["minimum: 1", "min: 1"],
    ['"isbn", "genre"', '"isbn", "shelf"'],
    ['"genre", "created_at"', '"shelf"'],
    ['singular: "book"', 'plural: "books"'],
    ["book.pages", "book.shelf"],
    ["book.reprinted_on !== null && ", ""],
    ['"novel" | "poetry" = ', '"novel" = '],
    ["number | null", "number"],
    ['? { reprinted_on: "', '? { shelf: "'],
    ["pages: integer({ minimum: 1 })", "pages: integer"],
    ["unique(string({ maxLength: 13 }))", "text()"],
  ];
  for (const [index, [right, wrong]] of mistakes.entries()) {
    assert.ok(typeScript.includes(right), right);
    const text = typeScript.replace(right, wrong);
    await writeFile(join(own, `wrong-${index}.ts`), text);
  }
  await writeFile(
    join(own, "wrong.js"),
    javaScript.replace("due_on?.", "due_on."),
  );
  let output = "";
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  try {
    execFileSync(process.execPath, [compiler, "-p", own], { encoding: "utf8" });
  } catch (error) {
    output = String(Object(error).stdout);
  }
  const files = [...output.matchAll(/^(?:.*\/)?([\w-]+\.[jt]s)\(/gm)]
    .map(([, file]) => file);
  assert.deepEqual(
    [...new Set(files)].toSorted(),
    [...mistakes.map((_, index) => `wrong-${index}.ts`), "wrong.js"].toSorted(),
    output,
  );
});
