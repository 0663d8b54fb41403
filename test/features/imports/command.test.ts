/** The `import` command: imports into a data folder without a server. */

import { strict as assert } from "node:assert";
import { execFile, spawnSync } from "node:child_process";
import { readdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { promisify } from "node:util";
import {
  command as mainCommand,
  removeFolder,
  root,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere } from "../../in-process.ts";
import { signalBeforeWrite } from "./interrupted.ts";
import { fromLines, sendLines, toLines } from "../../lines.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };

let own: string;
let folder: string;
before(async () => {
  own = await temporaryFolder();
  folder = join(own, "store");
});
after(() => removeFolder(own));

function command(args: readonly string[], input?: string) {
  return runHere(
    [...args, "--data-dir", folder],
    input === undefined ? {} : {
      input,
    },
  );
}

test("import creates records from a file or standard input, and export prints them", async () => {
  const file = join(own, "zoos.jsonl");
  const raw = toLines([{ ...zoo, id: 4 }, { ...zoo, name: "Burgers" }]);
  await writeFile(file, raw);
  const first = await command(["import", "zoos", file]);
  assert.deepEqual(first, {
    code: 0,
    stdout: "imported 2 zoos, rejected 0\n",
    stderr: "",
  });
  const animal = { zoo_id: 4, animal_type_id: 1, name: "Momo" };
  const input = toLines([animal, { ...animal, zoo_id: 9 }]) + "\n{\n";
  const second = await command(["import", "animals", "-"], input);
  assert.equal(second.code, 1);
  assert.equal(second.stdout, "imported 1 animals, rejected 2\n");
  assert.equal(
    second.stderr,
    'line 2: "zoo_id" is 9, which does not exist: it must be the id of one of the zoos.\n' +
      "line 4: The line is not valid JSON (RFC 8259): send one JSON object.\n",
  );
  const exported = await command(["export", "zoos"]);
  assert.deepEqual(
    fromLines(exported.stdout).map(({ id, name }) => [id, name]),
    [[4, "Artis"], [5, "Burgers"]],
  );
  assert.deepEqual(await readdir(join(folder, "spool")), []);
  const check = await command(["check"]);
  assert.match(check.stdout, /^animals: 1 records, highest id 1$/m);
});

test("import reports unusable arguments in one line", async () => {
  const wrong: [string[], number, RegExp][] = [
    [["import"], 2, /name a collection: one of zoos, animals, employees/],
    [
      ["import", "authorizations", "-"],
      2,
      /unknown collection "authorizations"/,
    ],
    [["import", "zoos"], 2, /name a file/],
    [["import", "zoos", "a", "b"], 2, /unknown collection "b"/],
    [["import", "zoos", "a", "zoos", "b"], 2, /name zoos once/],
    [["import", "zoos", "a", "--from", "b"], 2, /files or --from, not both/],
    [["import", "--from", "/nowhere"], 1, /\/nowhere: there is no such/],
    [
      ["import", "zoos", join(own, "none")],
      1,
      /none: there is no such file or folder/,
    ],
    [["import", "zoos", own], 1, /: it is a folder/],
  ];
  for (const [args, code, message] of wrong) {
    const result = await command(args);
    assert.equal(result.code, code, args.join(" "));
    assert.match(result.stderr, message);
    assert.equal(result.stderr.trim().split("\n").length, 1);
  }
});

test("import refuses a folder that a server is using", async () => {
  const server = await start({ folder });
  try {
    const result = await command(["import", "zoos", "-"], toLines([zoo]));
    assert.equal(result.code, 1);
    assert.match(
      result.stderr,
      /another process.* is using it: stop it first$/m,
    );
  } finally {
    await server.stop();
  }
});

test("import also resumes the imports of a killed server", async () => {
  const nodeArgs = signalBeforeWrite("SIGKILL", '"id":1000,"zoo_id"');
  const server = await start({ folder, nodeArgs });
  const token = await server.signIn();
  const animal = { zoo_id: 4, animal_type_id: 1, name: "Left" };
  const { status } = await sendLines(server, "/v1/animals", {
    token,
    raw: toLines(Array(2000).fill(animal)),
  });
  assert.equal(status, 202);
  assert.equal(await server.ended, null);
  const result = await command(["import", "zoos", "-"], toLines([zoo]));
  assert.equal(result.code, 0, result.stderr);
  assert.equal(result.stdout, "imported 1 zoos, rejected 0\n");
  const { stdout } = await command(["export", "animals"]);
  const left = fromLines(stdout).filter(({ name }) => name === "Left");
  assert.equal(left.length, 2000);
});

test("an import draws a progress bar on a terminal", {
  skip: spawnSync("script", ["--version"]).status !== 0,
}, async () => {
  const file = join(own, "more.jsonl");
  await writeFile(file, toLines([zoo]));
  const bar = `[${"#".repeat(40)}] 100 %`;
  const main = [process.execPath, ...mainCommand].join(" ");
  const onTerminal = (line: string) =>
    promisify(execFile)(
      "script",
      ["-qec", `${main} ${line} --data-dir ${folder}`, "/dev/null"],
      { cwd: root },
    );
  const imported = await onTerminal(`import zoos ${file}`);
  assert.ok(imported.stdout.includes(bar), imported.stdout);
  assert.match(imported.stdout, /imported 1 zoos, rejected 0/);
});
