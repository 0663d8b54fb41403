/** The `import` command: imports into a data folder without a server. */

import { strict as assert } from "node:assert";
import { execFile, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { mkdir, readdir, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { promisify } from "node:util";
import {
  command as mainCommand,
  lacks,
  removeFolder,
  root,
  runNode,
  start,
  storedAdmin,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, startHere } from "../../in-process.ts";
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

test("the failure of an import of several files names the collection whose check failed", async () => {
  const declared = ["ones", "twos"].map((name) =>
    `collection({ name: "${name}", singular: "${name} record", access,
      properties: { name: string({ maxLength: 20 }) },
      check: ({ name }) => { if (name === "boom") throw new Error("boom"); } }),`
  );
  const file = join(own, "failing.mjs");
  await writeFile(
    file,
    `const access = { read: "anyone", write: "keeper", delete: "keeper" };
export default ({ collection, string }) => ({ collections: [${
      declared.join("")
    }] });`,
  );
  const [ones, twos] = ["a", "boom"].map((name) => join(own, `${name}.ndjson`));
  await writeFile(String(ones), '{"name":"a"}\n');
  await writeFile(String(twos), '{"name":"boom"}\n');
  const { code, stderr } = await runHere([
    ...["import", "ones", String(ones), "twos", String(twos)],
    ...["--data-dir", join(own, "failing"), "--collections", file],
  ]);
  assert.equal(code, 1);
  assert.match(stderr, /did not finish: The check of twos failed\.$/m);
});

test("an import keeps times of any clock and of any spelling of RFC 3339", async () => {
  const place = ["--data-dir", join(own, "times")];
  const late = "9999-12-31T10:00:00.000Z";
  const times: readonly (readonly [string, string])[] = [
    ["2026-01-31T12:00:00Z", "2026-01-31t14:00:00.5+01:00"],
    [late, late],
    ["1969-01-01T00:00:00.000Z", late],
    [late, "2026-01-31T12:00:00.000Z"],
    ["2026-01-31T12:00:00Z", "9999-12-31T23:59:59.999Z"],
  ];
  const lines = times.map(([created_at, updated_at], at) => ({
    ...{ ...zoo, id: at + 1, created_at, updated_at },
  }));
  const input = toLines(lines);
  const { stdout } = await runHere(["import", "zoos", "-", ...place], {
    input,
  });
  assert.equal(stdout, "imported 5 zoos, rejected 0\n");
  const exported = await runHere(["export", "zoos", ...place]);
  const [first, second, ...others] = fromLines(exported.stdout);
  // A change has a later time, and that must have a year of four digits too.
  assert.equal(others.pop()?.updated_at, "9999-12-31T23:00:00.000Z");
  assert.deepEqual([first?.created_at, first?.updated_at], [
    "2026-01-31T12:00:00.000Z",
    "2026-01-31T13:00:00.500Z",
  ]);
  assert.deepEqual([second?.created_at, second?.updated_at], [late, late]);
  for (const { created_at, updated_at } of others) {
    assert.equal(created_at, updated_at); // of this import
    assert.ok(created_at < late && created_at > "2026");
  }
});

test("an import that is interrupted while it copies its input says that nothing is in", async () => {
  const place = ["--data-dir", join(own, "copying")];
  const program = spawn(process.execPath, [
    ...[...mainCommand, "import", "zoos", "-", ...place],
  ], { cwd: root, stdio: ["pipe", "ignore", "pipe"] });
  let stderr = "";
  program.stderr.setEncoding("utf8").on("data", (text) => stderr += text);
  program.stdin.write(toLines([zoo]));
  const spool = join(own, "copying", "spool");
  const isCopying = () =>
    readdir(spool).then((files) => files.length > 0, () => false);
  while (!await isCopying()) await wait(20);
  program.kill("SIGTERM");
  const [code] = await once(program, "exit");
  assert.equal(code, 1, stderr);
  assert.equal(
    stderr,
    "zoo-api: interrupted while the files were read: nothing was imported\n",
  );
  assert.deepEqual(await readdir(spool), []);
  await writeFile(join(spool, "0.spool.tmp"), "of a killed import");
  const next = await runHere(["import", "zoos", "-", ...place], {
    input: toLines([zoo]),
  });
  assert.equal(next.stderr, "");
  assert.equal(next.stdout, "imported 1 zoos, rejected 0\n");
  assert.deepEqual(await readdir(spool), []);
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
    [["import", "zoos", ""], 2, /name a file for zoos/],
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
  assert.match(
    result.stdout,
    /^task \d, resumed: imported 2000 animals, rejected 0\nimported 1 zoos, rejected 0\n$/,
  );
  const { stdout } = await command(["export", "animals"]);
  const left = fromLines(stdout).filter(({ name }) => name === "Left");
  assert.equal(left.length, 2000);
});

/** So many that the signal comes before the last one, however late it is noticed. */
const lineCount = 10_000;

/** Runs an import in a folder of its own, with a signal before a text is written. */
async function interrupted(
  signal: NodeJS.Signals,
  name: string,
  text: string,
  lines: unknown[],
  title = `interrupted-${name}-${signal}`,
) {
  const place = ["--data-dir", join(own, title)];
  const file = join(own, `${title}.jsonl`);
  await writeFile(file, toLines(lines));
  const result = await runNode([
    ...signalBeforeWrite(signal, text),
    ...mainCommand,
    ...["import", name, file, ...place],
  ]);
  assert.equal(result.code, 1, result.stderr);
  const imported = Number(/^imported (\d+) /.exec(result.stdout)?.[1]);
  assert.ok(imported > 0 && imported < lines.length, result.stdout);
  return { ...result, place, imported };
}

function warningOf(name: string, imported: number): string {
  return `zoo-api: an import of ${name} (task 1) is not finished: ${imported} records are in, ` +
    "perhaps without some of their references; the next import into this store " +
    "first finishes it, or a start of its server, unless it has users; with FEATURES that have deletions but not imports, it waits, and DELETE /v1/tasks/1 cancels it; it fails in a copy, which lacks its lines, and after a renaming\n";
}

/** Imports a zoo with the command, which first finishes an earlier import. */
async function finish(
  { place, imported }: Awaited<ReturnType<typeof interrupted>>,
  name: string,
): Promise<unknown[]> {
  const next = await runHere(["import", "zoos", "-", ...place], {
    input: toLines([zoo]),
  });
  assert.equal(next.code, 0, next.stderr);
  assert.equal(next.stderr, warningOf(name, imported));
  const { stdout } = await runHere(["export", name, ...place]);
  return fromLines(stdout);
}

test("an import that is interrupted says what is in, and the next one finishes it", async () => {
  const lines = Array(lineCount).fill(zoo);
  const stopped = await interrupted(
    "SIGINT",
    "zoos",
    '"id":1000,"name"',
    lines,
  );
  assert.equal(
    stopped.stderr,
    "zoo-api: the import did not finish: the next start of the server, or the " +
      "next import, finishes it; to repeat it would import it twice, and DELETE " +
      "/v1/tasks/1 cancels the rest, after a start with FEATURES that have " +
      "deletions but not imports, which lets it wait\n",
  );
  const commands = [
    ["check"],
    ["export", "zoos"],
    ["export", "--to", join(own, "interrupted-files")],
    ["backup", join(own, "interrupted-backup")],
    ["user", "add", "kim"],
    ["prune", "answers"],
  ];
  /** Runs commands; returns what each prints to standard error. */
  const warnings = async (commands: readonly string[][]) => {
    const printed: string[] = [];
    for (const words of commands) {
      const input = "a long enough one\n";
      const result = await runHere([...words, ...stopped.place], { input });
      assert.equal(result.code, 0, result.stderr);
      printed.push(result.stderr);
    }
    return printed;
  };
  const warning = warningOf("zoos", stopped.imported);
  assert.deepEqual(await warnings(commands), commands.map(() => warning));
  assert.equal((await finish(stopped, "zoos")).length, lineCount + 1);
  assert.deepEqual(await warnings([["check"], ["export", "zoos"]]), ["", ""]);
});

test(
  "the rest of an import that is interrupted is cancelled as its message says, and nothing more is imported",
  {
    skip: lacks("deletions"),
  },
  async () => {
    const lines = Array(lineCount).fill(zoo);
    const { place, imported } = await interrupted(
      "SIGTERM",
      "zoos",
      '"id":1000,"name"',
      lines,
    );
    const [, folder = ""] = place;
    const env = { FEATURES: "deletions" };
    const server = await startHere({ folder, env });
    const token = await server.signIn();
    const { status } = await server.request("DELETE", "/v1/tasks/1", { token });
    assert.equal(status, 204);
    await server.end();
    const next = await startHere({ folder });
    const { headers } = await next.request("GET", "/v1/zoos");
    assert.equal(headers.get("x-total-count"), String(imported));
    await next.stop();
  },
);

test("an import that finishes an earlier one tells of its lines too, and so does the log of a server", async () => {
  const lines = Array.from(
    { length: lineCount },
    (_, at) => at === lineCount - 1 ? { ...zoo, name: 5 } : zoo,
  );
  for (const signal of ["SIGINT", "SIGHUP"] as const) {
    const { place } = await interrupted(
      signal,
      "zoos",
      '"id":1000,"name"',
      lines,
      `earlier-${signal}`,
    );
    if (signal === "SIGINT") {
      const next = await runHere(["import", "animals", "-", ...place], {
        input: "",
      });
      assert.equal(next.code, 1, next.stderr);
      assert.equal(
        next.stdout,
        `task 1, resumed: imported ${lineCount - 1} zoos, rejected 1\n` +
          "imported 0 animals, rejected 0\n",
      );
      assert.match(
        next.stderr,
        RegExp(`^task 1, resumed: line ${lineCount}: "name" is a number`, "m"),
      );
      continue;
    }
    const [, folder = ""] = place;
    const server = await startHere({ folder });
    while (!/"finished an import"/.test(server.output())) await wait(5);
    assert.match(
      server.output(),
      RegExp(`"imported":${lineCount - 1},"rejected":1`),
    );
    await server.stop();
  }
});

test("an import of a FIFO that nobody writes ends with the second signal", {
  skip: process.platform === "win32",
}, async () => {
  const fifo = join(own, "fifo");
  spawnSync("mkfifo", [fifo]);
  const place = ["--data-dir", join(own, "of-fifo")];
  const [program = "", ...words] = mainCommand;
  const child = spawn(process.execPath, [
    ...[program, ...words],
    ...["import", "zoos", fifo, ...place],
  ], { stdio: "ignore" });
  const end = once(child, "exit");
  while (!existsSync(join(own, "of-fifo", "spool"))) await wait(5);
  while (child.exitCode === null && child.signalCode === null) {
    child.kill("SIGINT");
    await wait(20);
  }
  await end;
  assert.notEqual(child.exitCode, 0);
});

test("a folder that lacks a file of an export, or has a part of one, is not taken for a whole export", async () => {
  const files = join(own, "files");
  await mkdir(files);
  await writeFile(join(files, "zoos.ndjson"), toLines([zoo]));
  const place = ["--data-dir", join(own, "of-files")];
  const words = ["import", "--from", files, ...place];
  const part = join(files, "animals.ndjson.part");
  await writeFile(part, '{"half a li');
  const refused = await runHere(words);
  assert.equal(refused.code, 1);
  assert.equal(
    refused.stderr,
    `zoo-api: ${part} is what is left of an export that was interrupted, so the folder is not whole: export again, into another folder\n`,
  );
  await rm(part);
  const { code, stdout, stderr } = await runHere(words);
  assert.equal(code, 0);
  assert.equal(stdout, "imported 1 zoos, rejected 0\n");
  assert.equal(
    stderr,
    `zoo-api: ${files} has no file of animals, employees: nothing of that is imported\n`,
  );
});

test("an import of users that is interrupted waits for the next command, whatever server starts meanwhile", async () => {
  const { password } = storedAdmin;
  const lines = Array.from(
    { length: lineCount },
    (_, at) => ({ username: `user${at}`, role: "admin", password }),
  );
  const stopped = await interrupted(
    "SIGHUP",
    "users",
    '"id":1000,"username"',
    lines,
  );
  assert.match(
    stopped.stderr,
    /: the next import finishes it, but no start of the server, which accepts no hashes; to repeat/,
  );
  const [, folder = ""] = stopped.place;
  const server = await startHere({ folder });
  await server.end();
  assert.match(
    server.output(),
    /"an import of users waits for the next command that imports"/,
  );
  await server.stop();
  assert.equal((await finish(stopped, "users")).length, lineCount);
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
