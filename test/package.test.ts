/** The package that `npm pack` makes, installed and used as README says, in a folder without anything else. */

import { strict as assert } from "node:assert";
import { execFile, spawn } from "node:child_process";
import { once } from "node:events";
import {
  appendFile,
  cp,
  mkdir,
  readdir,
  readFile,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { basename, join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import { blocksIn } from "./commands.ts";
import { removeFolder, root, temporaryFolder } from "./harness.ts";

const runFile = promisify(execFile);

/** Outcome of a program that may fail. */
interface Ended {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

describe("the package", () => {
  let folder: string;
  let file: string;
  let program: string;
  /** Runs the installed program in a folder. */
  const run = (cwd: string, ...args: string[]): Promise<Ended> =>
    runFile(process.execPath, [program, ...args], { cwd })
      .then(({ stdout, stderr }) => ({ code: 0, stdout, stderr }))
      .catch(({ code, stdout, stderr }) => ({ code, stdout, stderr }));
  const emptyFolder = async (name: string) => {
    const path = join(folder, name);
    await mkdir(path);
    return path;
  };

  before(async () => {
    folder = await temporaryFolder();
    const copy = join(folder, "checkout");
    await mkdir(copy);
    const names = await readdir(root);
    for (const name of names) {
      if (/^(?:node_modules|build|coverage|\.git)$/.test(name)) continue;
      const source = join(root, name);
      // Its own store is none of the package's business.
      const filter = (path: string) => !path.includes("/data/store");
      await cp(source, join(copy, name), { recursive: true, filter });
    }
    await symlink(join(root, "node_modules"), join(copy, "node_modules"));
    const args = ["pack", "--json", "--offline", "--pack-destination", folder];
    const { stdout } = await runFile("npm", args, { cwd: copy });
    const [{ filename }] = JSON.parse(stdout.slice(stdout.indexOf("[\n")));
    file = join(folder, filename);
    const prefix = ["install", "--global", "--prefix", folder, "--offline"];
    await runFile("npm", [...prefix, file], { cwd: folder });
    program = join(folder, "lib/node_modules/zoo-api/build/main.js");
  });
  after(() => removeFolder(folder));

  test("is small, and has neither tests nor dependencies", async () => {
    const { size } = await stat(file);
    assert.ok(size <= 400_000, `${size} bytes`);
    const installed = join(folder, "lib/node_modules/zoo-api");
    const files = await readdir(installed, { recursive: true });
    for (const each of ["build/test", "test", "src/app.ts", "data/store"]) {
      assert.ok(!files.includes(each), each);
    }
    assert.ok(files.includes("data/seed.json"));
    const manifest = await readFile(join(installed, "package.json"), "utf8");
    assert.equal(JSON.parse(manifest).dependencies, undefined);
    const { stdout } = await run(folder, "version");
    assert.equal(stdout, `${JSON.parse(manifest).version}\n`);
  });

  test("serves an API of one's own after the commands of README", async () => {
    const readme = await readFile(join(root, "README.md"), "utf8");
    const [block] = blocksIn(readme)
      .filter(({ text }) =>
        text.startsWith(`npm install --global ./${basename(file)}\n`)
      );
    const commands = block?.text.trim().split("\n").slice(1) ?? [];
    assert.equal(commands.length, 2);
    const cwd = await emptyFolder("own");
    const env = {
      ...process.env,
      PATH: `${folder}/bin:${join(process.execPath, "..")}:${
        process.env["PATH"]
      }`,
      PORT: "0",
    };
    const script = commands.map((command, at) =>
      at === 1 ? `exec ${command}` : command
    );
    const child = spawn("sh", ["-c", script.join(" && ")], { cwd, env });
    try {
      let output = "";
      for await (const part of child.stdout) {
        output += part;
        if (/listening on [^"]*"/.test(output)) break;
      }
      assert.match(
        output,
        /^wrote library\.js, and wrote zoo-api\.d\.ts for editors/,
      );
      const [origin] = /http:\/\/[\d.:]+/.exec(output) ?? [];
      const response = await fetch(`${origin}/v1/plants`);
      assert.deepEqual([response.status, await response.json()], [200, []]);
      const sent = await fetch(`${origin}/v1/plants`, { method: "POST" });
      assert.equal(sent.status, 401);
    } finally {
      child.kill("SIGTERM");
    }
    const [code] = await once(child, "exit");
    assert.equal(code, 0);
    // The records of one API are not hidden behind the samples.
    const { code: refused, stderr } = await run(cwd, "serve", "--sample");
    assert.equal(refused, 1);
    assert.match(stderr, /has plants, waterings, but the declaration has zoos/);
  });

  test("writes declarations that start and have types, and overwrites nothing", async () => {
    const cwd = await emptyFolder("declarations");
    const compiler = join(root, "node_modules/typescript/bin/tsc");
    const check = () =>
      runFile(process.execPath, [compiler, "-p", cwd])
        .then(() => "", ({ stdout }) => String(stdout));
    const compilerOptions = {
      allowJs: true,
      checkJs: true,
      module: "nodenext",
      noEmit: true,
      strict: true,
      types: [],
    };
    await writeFile(
      join(cwd, "tsconfig.json"),
      JSON.stringify({ compilerOptions }),
    );
    for (const name of ["one.js", "two.mjs", "three.ts"]) {
      const { code, stderr } = await run(cwd, "init", name);
      assert.equal(code, 0, stderr);
      const before = await readFile(join(cwd, name), "utf8");
      const again = await run(cwd, "init", name);
      assert.deepEqual(again, {
        code: 1,
        stdout: "",
        stderr: `zoo-api: ${name}: it exists already: name another one\n`,
      });
      assert.equal(await readFile(join(cwd, name), "utf8"), before);
      if (name.endsWith("ts")) continue; // Node.js may be too old for it
      const checked = await run(cwd, "check", "--collections", name);
      assert.doesNotMatch(checked.stderr, new RegExp(name));
    }
    assert.equal(await check(), "");
    const wrong = join(cwd, "one.js");
    const text = await readFile(wrong, "utf8");
    await writeFile(wrong, text.replace("maxLength: 50", "maxlength: 50"));
    assert.match(
      await check(),
      /one\.js\(\d+,\d+\): .*'maxlength' does not exist/,
    );
    await appendFile(join(cwd, "zoo-api.d.ts"), "// mine\n");
    const four = await run(cwd, "init", "four.js");
    assert.match(four.stdout, /^wrote four\.js, and kept zoo-api\.d\.ts/);
    assert.match(
      await readFile(join(cwd, "zoo-api.d.ts"), "utf8"),
      /\/\/ mine\n$/,
    );
    for (
      const name of [
        "",
        "library",
        "library.py",
        "library.d.ts",
        ".js",
        "no/such/library.js",
      ]
    ) {
      const { code, stderr } = await run(cwd, "init", ...name ? [name] : []);
      assert.notEqual(code, 0, name);
      assert.match(
        stderr,
        /^zoo-api: (?:init: name the file|no\/.*: there is no)/,
      );
    }
    if (process.platform === "win32") return;
    // The largest file may have no bytes at all.
    const script = 'ulimit -f 0; exec "$0" "$@"';
    const words = ["-c", script, process.execPath, program, "init", "five.js"];
    await assert.rejects(runFile("sh", words, { cwd }), {
      code: 1,
      stderr: "zoo-api: cannot write five.js: EFBIG: file too large, write\n",
    });
    assert.ok(!(await readdir(cwd)).includes("five.js"));
  });
});
