/** README and the reader's guide are true: each command is run, each table and each line is compared with the code. */

import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import {
  blocksIn,
  checkLinks,
  read,
  responsesTo,
  shell,
  zooApi,
} from "./documents.ts";
import {
  authorize,
  fileOf,
  launch,
  outputOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "./server.ts";
import { filesOf, tokensOf } from "./source.ts";

const readme = read("README.md");
const blocks = blocksIn("README.md");
const folder = temporaryFolder();
const { version } = JSON.parse(read("package.json"));
const commands = blocks.filter(({ language }) => language === "sh").map((
  { text },
) => text);
const tour = commands.filter((text) => text.includes("curl"));
const library = fileOf(
  "library.mjs",
  blocks.find(({ language }) => language === "js")?.text ?? "",
);

/** Reads the stream of events until one is complete, while somebody changes a record. */
const follow = (curl: string) =>
  `exec 3< <(${curl.replace("-N", "-sN")}); read -r _ <&3
curl -s -o /dev/null -X PATCH $API/animals/1 -H "$AUTH" -H "$JSON" -d '{"name":"Momo"}'
while read -r line <&3; do echo "$line"; [[ $line != id:*-* || -z \${seen-} ]] || break
[[ $line != data:* ]] || seen=1; done; kill $!`;

test("README's tour has the statuses that it states", async () => {
  const DATA_DIR = join(folder, "store");
  const server = await serve({
    DATA_DIR,
    FEATURES: "all",
    SEED: "data/seed.json",
  });
  const script = tour.join("\n").replace(/^curl -N.*$/m, follow)
    .replaceAll("http://localhost:3000", server.origin)
    .replace(
      /^curl.*tasks\/1/m,
      `until curl -s $API/tasks/1 -H "$AUTH" | grep -q succeeded; do sleep 0.1; done\n$&`,
    );
  const responses = await responsesTo(script, {
    ADMIN_PASSWORD: "admin-password",
  });
  const invalid = responses.find((text) => text.startsWith("422")) ?? "";
  const shown = blocks.find(({ language }) => language === "json")?.text ?? "";
  const withoutTexts = (json: string) =>
    JSON.stringify(JSON.parse(json)).replace(
      /("(?:error|errorMsg|message)":)"(?:[^"\\]|\\.)*"/g,
      "$1",
    );
  assert.equal(
    withoutTexts(invalid.slice(invalid.indexOf("{"))),
    withoutTexts(shown),
  );
  assert.match(
    responses.join(""),
    /^event: animals\.updated\ndata: \{"id":1,"zoo_id":\d+,.*"name":"Momo",.*\}\nid: \d+-\w{10}$/m,
  );

  const output = await shell(
    commands.filter((text) => text.includes("run -s zoo-api --")).join("")
      .replaceAll("npm run -s zoo-api --", zooApi)
      .replace("backups/today", join(folder, "backup")),
    { DATA_DIR, FEATURES: "all" },
  );
  assert.match(output, /^animals: 25\d records/m);
  assert.match(output, /^\S+Z - created animals\/7$/m);
  assert.match(output, /a copy up to sequence \d+$/m);
  await stop(server);
});

test("README's library is served, and its rules hold", async () => {
  const server = await serve({ COLLECTIONS: library, FEATURES: "all" });
  const { origin } = server;
  const headers = await authorize(origin);
  const post = (path: string, body: object) =>
    send(origin, path, { headers, body });
  const isbn = "9780441013593";
  const rows: [path: string, body: object, status: number][] = [
    ["books", { title: "Dune", isbn }, 201],
    ["books", { title: "Dune", isbn }, 422],
    ["books", { title: "Dune", isbn: "1" }, 422],
    ["books/1/sequels", { title: "A", isbn: "9780441104024" }, 201],
    ["notes", { about_id: 1, note: "good" }, 201],
    ["notes", { about_id: 1, note: "good" }, 422],
  ];
  for (const [path, body, status] of rows) {
    assert.equal((await post(`/v1/${path}`, body)).status, status, path);
  }
  const { json } = await send(origin, "/v1/books");
  assert.deepEqual(json.map(({ title }: { title: string }) => title), [
    "A",
    "Dune",
  ]);
  const wrong = await send(origin, "/v1/books/1", {
    method: "PATCH",
    headers,
    body: { sequel_of_id: 1 },
  });
  assert.match(wrong.text, /must be another book/);
  await stop(server);
});

test("README's package commands name this version, and serve what init writes", async () => {
  const [install, ...rest] =
    commands.find((text) => text.startsWith("npm install"))?.trim().split(
      "\n",
    ) ?? [];
  assert.equal(install, `npm install --global ./zoo-api-${version}.tgz`);
  const path = join(folder, "own.mjs");
  const [init = "", start = ""] = rest.map((command) =>
    command.replace("library.mjs", path)
  );
  await shell(init.replace("zoo-api", zooApi));
  const run = launch(start.split(" ").slice(1), {
    PORT: "0",
    DATA_DIR: join(folder, "own"),
    LOG: "error",
  });
  assert.match(await run.ready, /^http/);
  await stop(run);
  const { scripts } = JSON.parse(read("package.json"));
  assert.match(scripts["zoo-api"], /src\/main\.ts$/);
  assert.match(scripts.start, /src\/main\.ts serve --sample$/);
});

test("README's tables have each setting, feature, word and status", async () => {
  const cells = (form: RegExp) =>
    Array.from(readme.matchAll(form), ([, cell = ""]) => cell);
  const output = await outputOf(["help"]);
  assert.deepEqual(
    cells(/^- `([A-Z_]+)`: /gm).toSorted(),
    Array.from(
      output.matchAll(/^ {2}--[\w-]+ +([A-Z_]+) /gm),
      ([, name]) => name,
    ).toSorted(),
  );
  const [, features = ""] = readme.split("Its data stays.\n\n");
  const unknown = await outputOf(["--features", "x"], {}, 2);
  const [, known = ""] = /all, none, (.*)/.exec(unknown) ?? [];
  assert.deepEqual(
    Array.from(
      features.split("\n\n")[0]?.matchAll(/^- ([^:]*)/gm) ?? [],
      ([, cell = ""]) => cell.match(/[\w-]+(?=`)/g) ?? [],
    ).flat().toSorted(),
    known.split(", ").toSorted(),
  );
  const types = read("src/zoo-api.d.ts");
  const [, vocabulary = ""] = types.split("interface Vocabulary");
  for (const [, word] of vocabulary.matchAll(/^ {4}(\w+)[(<]/gm)) {
    assert.match(readme, new RegExp(`\\b${word}\\(`), word);
  }
  const statuses = cells(/^- ([\d, ]+): /gm).join().match(/\d+/g);
  for (
    const [, status = ""] of read("src/http/errors.ts").matchAll(
      /^ {2}(\d{3})\d\d: /gm,
    )
  ) {
    assert.ok(statuses?.includes(status), status);
  }
});

test("The reader's guide names lines and sizes as they are", () => {
  const guide = read("src/README.md");
  const source = filesOf("src");
  const right = guide.replace(
    /`([\w/-]+\.ts):\d+\s([^`]+)`/g,
    (_, file: string, words: string) => {
      const lines = source.get(file)?.split("\n") ?? [];
      const at = lines.findIndex((line) => line.includes(words));
      assert.ok(at >= 0, `${file} has no line with: ${words}`);
      return `\`${file}:${at + 1} ${words}\``;
    },
  );
  // After an edit of the source, REFRESH=1 in the environment sets the numbers.
  if (process.env["REFRESH"]) writeFileSync("src/README.md", right);
  else assert.equal(guide, right);
  assert.ok(guide.length <= 12_288, `${guide.length} bytes`);
  const sizes = guide.matchAll(
    /^\| `([\w/-]+(?:\.ts|\/))` +\|.* ([\d,]+) +\| [\d.]+ +\|$/gm,
  );
  for (const [, room = "", size = ""] of sizes) {
    const tokens = Array.from(
      source,
      ([path, text]) => path.startsWith(room) ? tokensOf(text).length : 0,
    ).reduce((sum, each) => sum + each);
    const named = Number(size.replace(",", ""));
    assert.ok(Math.abs(tokens / named - 1) < 0.15, `${room}: ${tokens}`);
  }
});

test("README is short, and every link of the documents leads somewhere", () => {
  const words = readme.trim().split(/\s+/);
  assert.ok(words.length <= 3000, `${words.length} words`);
  for (const path of ["README.md", "src/README.md"]) {
    checkLinks(path);
  }
  const others = commands.filter((text) =>
    !tour.includes(text) && !/zoo-api/.test(text)
  );
  assert.deepEqual(others, [
    "npm ci && npm start\n", // .ci/run does
    "npm start -- --collections library.mjs\n",
  ]);
  assert.match(
    read(".ci/run"),
    /^\(npm ci && npm test\)[^]*^npm ci$[^]*npm start/m,
  );
});
