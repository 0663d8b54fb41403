/**
 * The README is accurate: every command in it is run and has the outcome that it
 * states, its tables agree with the code, and it is short. documents.test.ts
 * follows its links.
 */

import { follow as followEvents } from "./follower.ts";
import { strict as assert } from "node:assert";
import { spawnSync } from "node:child_process";
import { cp, readFile, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test, type TestContext } from "node:test";
import { users } from "../src/api/accounts/users.ts";
import { vocabulary } from "../src/cli/declaration/checked-vocabulary.ts";
import { collections, sample } from "./collections.ts";
import { featureNames } from "../src/features.ts";
import {
  type Block,
  blocksIn,
  hasStatuses,
  responsesTo,
  shell,
  withoutNpm,
} from "./commands.ts";
import {
  adminPassword,
  removeFolder,
  root,
  run,
  type Server,
  start,
  stripsTypes,
  temporaryFolder,
} from "./harness.ts";

const maxWords = 3500;
const major = Number(process.versions.node.split(".")[0]);

const readme = await readFile(join(root, "README.md"), "utf8");
const { scripts } = JSON.parse(
  await readFile(join(root, "package.json"), "utf8"),
);

const blocks = blocksIn(readme);

/** The blocks of commands whose comments state a status: one script. */
const tour = blocks.filter(hasStatuses);

/** The blocks of commands that tests have run. */
const done = new Set<Block>(tour);

/** The declaration file of "Your own collections". */
const library = blocks.find(({ language }) => language === "js")?.text ?? "";

/** Returns the commands of a section that are not part of the tour, to be run. */
function commandsIn(section: string): string[] {
  const found = blocks.filter((block) =>
    block.section === section && block.language === "sh" &&
    !tour.includes(block)
  );
  assert.ok(found.length > 0, `no commands in "${section}"`);
  for (const block of found) done.add(block);
  return found.map(({ text }) => text);
}

/** Returns the only block of commands outside of the tour that has a text, to be run. */
function commandsWith(text: string): string {
  const [block, ...others] = blocks.filter((each) =>
    each.language === "sh" && !tour.includes(each) && each.text.includes(text)
  );
  assert.ok(block !== undefined && others.length === 0, text);
  done.add(block);
  return block.text;
}

async function folderOf(t: TestContext): Promise<string> {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  return folder;
}

/** Starts a server with the sample records. */
async function startSample(t: TestContext, folder?: string): Promise<Server> {
  const args = ["--seed", join(root, "data/seed.json")];
  const server = await start(
    folder === undefined ? { args } : { args, folder, isNew: true },
  );
  t.after(() => server.stop());
  return server;
}

/** Returns an expected JSON value with each "…" replaced by the actual value there. */
function fillIn(expected: unknown, actual: unknown): unknown {
  if (expected === "…") return actual;
  if (typeof expected !== "object" || expected === null) return expected;
  const at = new Map(Object.entries(actual ?? {}));
  const filled = Object.entries(expected).map(([key, value]) => [
    key,
    fillIn(value, at.get(key)),
  ]);
  return Array.isArray(expected)
    ? filled.map(([, value]) => value)
    : Object.fromEntries(filled);
}

test("is short", () => {
  const words = readme.trim().split(/\s+/).length;
  assert.ok(words < maxWords, `${words} words`);
});

const hasZsh = spawnSync("zsh", ["--version"]).status === 0;

test("each command of the tour has the status that its comment states", async (t) => {
  await takeTour(await startSample(t), false);
});

test("the tour can be pasted into zsh", {
  skip: hasZsh ? false : "zsh is not installed",
}, async (t) => {
  await takeTour(await startSample(t), true);
});

/** Runs the tour in bash, or in zsh as if it was typed, with its comments. */
async function takeTour(server: Server, inZsh: boolean): Promise<void> {
  let count = 0;
  const bodies = new Map<number, unknown>();
  const script = blocks.map((block) => {
    if (block.language === "json") bodies.set(count, JSON.parse(block.text));
    if (!tour.includes(block)) return "";
    count += block.text.match(/^# \d{3}: /gm)?.length ?? 0;
    return block.text;
  }).join("\n")
    .replaceAll("http://localhost:3000", server.origin)
    .replace(/^curl.*tasks\/2/gm, (command) => `${untilTaskEnds}\n${command}`);
  const env = { ADMIN_PASSWORD: adminPassword };
  const [, option = ""] = /In zsh run `setopt (\w+)`/.exec(readme) ?? [];
  const zsh = ["zsh", "-f", "-o", "nopromptsp", "-o", option, "-i", "-s"];
  const responses = await responsesTo(
    script,
    inZsh ? { program: zsh, env: { ...env, PS1: "", PS2: "" } } : { env },
  );
  for (const [index, response] of responses.entries()) {
    assert.doesNotMatch(response, /zsh: /);
    const shown = bodies.get(index + 1);
    if (shown === undefined) continue;
    const body = JSON.parse(response.slice(response.indexOf("\r\n\r\n")));
    assert.deepEqual(body, fillIn(shown, body));
  }
  assert.equal(bodies.size, 2);
}

const untilTaskEnds = `until curl -s $API/tasks/2 -H "$AUTH" |
  grep -q '"status":"succeeded"'; do sleep 0.05; done`;

describe("each command that starts a server starts one", () => {
  let project: string; // with a build
  before(async () => {
    project = await temporaryFolder();
    // The compiled files are modules because of the package.json beside them.
    for (const file of ["package.json", "data/seed.json"]) {
      await cp(join(root, file), join(project, file));
    }
    await writeFile(join(project, "library.js"), library);
    const build = join(project, "build");
    await shell(
      `npx tsc -p src --outDir '${build}' && npm run -s assets '${build}'`,
    );
  });
  after(() => removeFolder(project));
  // Starting from the source takes much longer, so only one command does.
  const [, flags = ""] = /src\/main\.ts (.*)$/.exec(scripts.start) ?? [];
  const commands = [
    ...commandsIn("Start").join("").matchAll(/^[^#\n].*$/gm),
    ...commandsIn("Your own collections").join("").matchAll(/^.+$/gm),
    ...commandsWith("start:locked").matchAll(/^.*$/gm),
    ...readme.matchAll(/(?<=`)[A-Z]+=[^`]* npm start(?=`)/g),
  ].map(([command]) => command)
    // package.test.ts installs the package, and runs its commands.
    .filter((command) =>
      !/^(?:$|npm ci$|npm install --global |zoo-api )/.test(command)
    );
  for (const command of commands) {
    const skip = command.startsWith("node src") && !stripsTypes
      ? "this Node.js does not strip types"
      : command.endsWith("locked") && major >= 26 &&
        "this Node.js forbids fsync there";
    test(command, { skip }, async (t) => {
      const folder = await folderOf(t);
      const output = await shell(
        command
          .replace(
            /npm start (?:-- )?(?=.)|(?<==.*)npm start/,
            `node build/main.js ${flags} `,
          )
          .replace("npm run build && ", "")
          .replace("node build", `node '${project}'/build`)
          .replace(
            "npm run start:locked",
            `npm run --prefix '${project}' start:locked`,
          )
          .replace("data/mine", `'${folder}/store'`)
          .replace("library.js", `'${project}/library.js'`)
          .replace("4000", "0"),
        {
          env: { PORT: "0", DATA_DIR: join(folder, "store") },
          until: /[^]*listening on .*\n/,
        },
      );
      const printed = output.match(/^\{.*\}$/gm)?.map((line) =>
        JSON.parse(line)
      ) ?? [];
      // It shows what people see on a terminal; the messages are the same.
      const shown = blocks.find(({ section, language }) =>
        section === "Start" && language === ""
      )?.text.match(/(?<=^[\d:]{8} ).*$/gm) ?? [];
      const listening =
        /^listening on http:\/\/127\.0\.0\.1:\d+ as process \d+ on Node.js v[\d.]+; \d+ records(?: take \d+ MiB of \d+ MiB)?$/;
      assert.match(printed.pop().message, listening);
      assert.equal(shown.at(-1), "listening on http://127.0.0.1:3000 …");
      if (command.startsWith("ADMIN_PASSWORD")) return;
      const [{ message, password_file }] = printed;
      assert.deepEqual([printed.length, message], [1, shown[0]]);
      assert.match(await readFile(password_file, "utf8"), /^[\w-]{20}\n$/);
    });
  }
  assert.equal(commands.length, 7);
});

test("changes can be followed as it shows", async (t) => {
  const server = await startSample(t);
  const token = await server.signIn();
  const feed = await followEvents(server.port, token);
  await feed.until(() => feed.lastEventId !== "");
  feed.cut();
  const { lastEventId: from } = feed;
  const later = (by: number) =>
    from.replace(/\d+/, (seq) => String(Number(seq) + by));
  for (const id of [1, 2]) {
    const json = { name: "Momo" };
    await server.request("PATCH", `/v1/animals/${id}`, { token, json });
  }
  // Ends after the last change, instead of with Ctrl-C.
  const follow = `follow() { sed '/^id: ${
    later(2)
  }$/,/^$/{/^$/q}' < <(curl -sN "$@" 2> /dev/null); }\n`;
  const script = follow +
    commandsIn("Follow changes").join("").replaceAll("curl -N", "follow")
      .replace("3-9f3a1c0d7e", from);
  const env = {
    API: `${server.origin}/v1`,
    AUTH: `Authorization: Bearer ${token}`,
  };
  const output = await shell(`${script}\ntrue`, { env });
  // The first stream begins after all changes; the second one has them again.
  assert.deepEqual(output.match(/^(?:retry|id|event): .*$/gm), [
    "retry: 1000",
    `id: ${later(2)}`,
    "retry: 1000",
    `id: ${from}`,
    `id: ${later(1)}`,
    "event: animals.updated",
    `id: ${later(2)}`,
    "event: animals.updated",
  ]);
});

test("the commands of a running server print what they say", async (t) => {
  const server = await startSample(t);
  const files = join(await folderOf(t), "files");
  const [commands = ""] = commandsIn("Commands");
  const script = withoutNpm(commands).replace("data/files", `'${files}'`);
  const env = { DATA_DIR: server.folder };
  const output = await shell(script, { env });
  assert.match(output, /^Usage: zoo-api/m);
  assert.match(output, /^zoos: 16 records, highest id 16$/m);
  assert.match(output, /^no fault$/m);
  assert.match(output, /^1\tadmin\tadmin\t/m);
  assert.match(output, /^\S+Z - created animals\/7 zoo_id=/m);
  const zoos = await readFile(join(files, "zoos.ndjson"), "utf8");
  assert.equal(zoos.split("\n").length, 17);
});

test("the commands of a stopped server change its data folder", async (t) => {
  const folder = await folderOf(t);
  const server = await startSample(t, join(folder, "store"));
  await server.end();
  const files = join(folder, "files");
  await run(["export", "--to", files, "--data-dir", server.folder]);
  await writeFile(join(folder, "password.txt"), "a long enough one\n");
  const [, commands = ""] = commandsIn("Commands");
  const output = await shell(
    withoutNpm(commands)
      .replace("data/files", `'${files}'`)
      .replace("password.txt", `'${folder}/password.txt'`)
      .replace("data/copy", `'${folder}/copy'`),
    { env: { DATA_DIR: server.folder }, input: "another long one\n" },
  );
  assert.match(output, /^imported 326 zoos, animals, employees, rejected 0$/m);
  assert.match(output, /kim[^]*kim/);
  const again = await start({ folder: server.folder, hashesFully: true });
  t.after(() => again.stop());
  assert.ok(await again.signIn("kim", "another long one"));
});

test("a backup is made of a running server", async (t) => {
  const server = await startSample(t);
  const to = join(await folderOf(t), "backup");
  const output = await shell(
    withoutNpm(commandsWith("-- backup")).replace(/backups\/\S+/, `'${to}'`),
    { env: { DATA_DIR: server.folder } },
  );
  assert.match(output, /^copied \d+ records .* and read them back$/m);
  const { stdout } = await run(["check", "--data-dir", to]);
  assert.match(stdout, /^animals: 250 records/m);
});

test("a new secret ends all sign-ins", async (t) => {
  const folder = join(await folderOf(t), "store");
  const env = { JWT_SECRET: "" };
  const server = await start({ folder, env });
  t.after(() => server.stop());
  const token = await server.signIn();
  await server.end();
  await rm(join(folder, "secret"));
  const again = await start({ folder, env });
  t.after(() => again.stop());
  const { status } = await again.request("GET", "/v1/user", { token });
  assert.equal(status, 401);
  assert.ok(await again.signIn());
});

test("a user who is added before the first start is the only one", async (t) => {
  const folder = join(await folderOf(t), "store");
  const add = ["user", "add", "kim", "--role", "admin", "--data-dir", folder];
  const input = "a long enough one\n";
  assert.equal((await run(add, { input })).code, 0);
  const server = await start({ folder });
  t.after(() => server.stop());
  const token = await server.signIn("kim", input.trim());
  const { body } = await server.request("GET", "/v1/users", { token });
  assert.deepEqual(
    body.map(({ username }: { username: string }) => username),
    ["kim"],
  );
});

test("the commands of the container are those of Docker; dockerfile.test.ts tests the image", () => {
  for (const command of commandsWith("docker").trim().split("\n")) {
    assert.match(command, /^docker (?:build|run|logs|exec) /);
  }
});

test("every block of commands is run", () => {
  const all = blocks.filter(({ language }) => language === "sh");
  assert.deepEqual(all.filter((block) => !done.has(block)), []);
});

test("its roles are those of the declarations", () => {
  for (
    const { name, access: { read, write, delete: last } } of [
      ...collections,
      users(sample.roles),
    ]
  ) {
    const row = new RegExp(
      `^\\| ${name} +\\| ${read} +\\| ${write} +\\| ${last} +\\|$`,
      "m",
    );
    assert.match(readme, row);
  }
});

test("its settings, defaults and features are those of the command help", async () => {
  const { stdout } = await run(["help"]);
  const settings = Array.from(
    stdout.matchAll(
      /^ {2}(--[a-z-]+) .*\n +variable ([A-Z_]+)(?: or ([A-Z_]+_FILE))?, default: (.*)$/gm,
    ),
    ([, flag = "", variable = "", inFile, value = ""]) => ({
      flag,
      variable,
      inFile,
      value,
    }),
  );
  const rows = new Map(
    Array.from(
      readme.matchAll(/^\| `([A-Z_]+)` +\| (.*?) +\|$/gm),
      ([, variable = "", meaning = ""]) => [variable, meaning],
    ),
  );
  assert.deepEqual(
    Array.from(rows.keys()),
    settings.map(({ variable }) => variable),
  );
  for (const { flag, variable, inFile = variable, value } of settings) {
    assert.equal(flag, `--${inFile.toLowerCase().replaceAll("_", "-")}`);
    if (inFile !== variable) assert.ok(readme.includes(inFile), inFile);
    const [word = ""] = value.split(",");
    assert.ok(rows.get(variable)?.includes(word), `${variable}: ${value}`);
  }
  const listed = /The features are ([^.]*)\./.exec(readme)?.[1] ?? "";
  const names = Array.from(
    listed.matchAll(/`([\w-]+)`/g),
    ([, name = ""]) => name,
  );
  assert.deepEqual(names, featureNames);
});

test("each function of the vocabulary is in the table of properties", () => {
  for (const word of Object.keys(vocabulary)) {
    const isShown = new RegExp(`^\\|.*\`${word}\\(`, "m").test(readme);
    assert.ok(isShown || word === "collection", word);
  }
});

test("the library is served, checked, sorted and linked as it says", async (t) => {
  assert.ok(library.split("\n").length < 24);
  const file = join(await folderOf(t), "library.mjs");
  await writeFile(file, library);
  const server = await start({ args: ["--collections", file] });
  t.after(() => server.stop());
  const token = await server.signIn();
  const send = (method: string, path: string, json?: unknown) =>
    server.request(method, path, { token, json });
  const { body: home } = await send("GET", "/");
  assert.equal(home.books_url, "/v1/books");
  for (
    const json of [
      { title: "Dune", isbn: "1" },
      { title: "Children of Dune", isbn: "2", sequel_of_id: 1 },
    ]
  ) assert.equal((await send("POST", "/v1/books", json)).status, 201);
  const titlesOf = async (path: string) => {
    const { body } = await send("GET", path);
    return body.map(({ title }: { title: string }) => title);
  };
  assert.deepEqual(await titlesOf("/v1/books"), ["Children of Dune", "Dune"]);
  const { body: dune } = await send("GET", "/v1/books/1");
  assert.equal(dune.sequel_of_id, null);
  assert.equal(dune.sequels_url, "/v1/books/1/sequels");
  assert.deepEqual(await titlesOf(dune.sequels_url), ["Children of Dune"]);
  const wrong = await send("PATCH", "/v1/books/1", {
    sequel_of_id: 1,
    isbn: "2",
  });
  assert.deepEqual(
    wrong.body.errors.map(({ field }: { field: string }) => field),
    ["isbn"],
  );
  const itself = await send("PATCH", "/v1/books/1", { sequel_of_id: 1 });
  assert.match(itself.text, /must be another book/);
  const { body: { schema } } = await send("OPTIONS", "/v1/users");
  const { role } = (schema.items ?? schema).properties ?? {};
  assert.deepEqual(role?.enum, ["member", "librarian", "admin"]);
});
