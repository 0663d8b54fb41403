/**
 * Settings and commands: what starts the server, what prevents the start, and
 * what the other commands print and change.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { spawn, spawnSync } from "node:child_process";
import { createHash, createHmac } from "node:crypto";
import { once } from "node:events";
import { existsSync } from "node:fs";
import {
  cp,
  mkdir,
  readdir,
  readFile,
  stat,
  symlink,
  writeFile,
} from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { after, describe, test, type TestContext } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import {
  command,
  commandEnvironment,
  freePort,
  lacks,
  notInNode,
  removeFolder,
  root,
  run,
  type RunResult,
  type Server,
  start,
  type StartOptions,
  temporaryFolder,
} from "../harness.ts";
import {
  type HereOptions,
  runHere,
  type ServerHere,
  startHere,
} from "../in-process.ts";

const seed = {
  zoos: [{ id: 5, name: "Basel", city: "Basel", country: "CH" }],
  animals: [
    { id: 2, zoo_id: 5, animal_type_id: 1, name: "Leo" },
    { id: 7, zoo_id: 5, animal_type_id: 2, name: "Bruno Markerbear" },
  ],
  employees: [],
};
const password = "a password of sixteen";

const cleaning = new WeakMap<TestContext, (() => Promise<void>)[]>();

/** Runs the cleanup when the test ends, the last one first. */
function afterwards(t: TestContext, work: () => Promise<void>): void {
  const before = cleaning.get(t);
  if (before) {
    before.push(work);
    return;
  }
  const works = [work];
  cleaning.set(t, works);
  t.after(async () => {
    for (const work of works.reverse()) await work();
  });
}

/** Creates a temporary folder that is removed with the test. */
async function folderFor(t: TestContext): Promise<string> {
  const folder = await temporaryFolder();
  afterwards(t, () => removeFolder(folder));
  return folder;
}

/** Starts a server that stops with the test. */
async function serverFor(
  t: TestContext,
  options: StartOptions = {},
): Promise<Server> {
  const server = await start(options);
  afterwards(t, () => server.stop());
  return server;
}

/** Starts a server in this process, that stops with the test. */
async function serverHereFor(
  t: TestContext,
  options: HereOptions = {},
): Promise<ServerHere> {
  const server = await startHere(options);
  afterwards(t, () => server.stop());
  return server;
}

/** Returns the lines that a process printed, without Node's own warnings. */
function linesOf(output: string): string[] {
  return output.split("\n").filter((line) =>
    line.trim() !== "" && !/^\(node:\d+\)|--trace-warnings/.test(line)
  );
}

/** The exit code of a command, its standard output, and all its lines. */
interface Printed {
  readonly code: number | null;
  readonly stdout: string;
  readonly lines: readonly string[];
}

/** Runs a command in a process of its own. */
async function started(...command: Parameters<typeof run>): Promise<Printed> {
  return printedBy(await run(...command));
}

/** Runs a command in this process. */
async function lines(...command: Parameters<typeof runHere>): Promise<Printed> {
  return printedBy(await runHere(...command));
}

function printedBy({ code, stdout, stderr }: RunResult): Printed {
  return { code, stdout, lines: [...linesOf(stdout), ...linesOf(stderr)] };
}

/** Returns every file of a folder, with its mode and the digest of its bytes. */
async function filesOf(folder: string): Promise<Map<string, string>> {
  const files = new Map<string, string>();
  for (const name of await readdir(folder, { recursive: true })) {
    const path = join(folder, name);
    const { mode } = await stat(path);
    const digest = (await stat(path)).isFile()
      ? createHash("sha256").update(await readFile(path)).digest("hex")
      : "no file";
    files.set(name, `${(mode & 0o777).toString(8)} ${digest}`);
  }
  return files;
}

let used: Promise<string> | undefined;
after(async () => {
  if (used) await removeFolder(join(await used, ".."));
});

/** Returns a copy of a folder in which a server ran and was stopped. */
async function usedFolder(t: TestContext): Promise<string> {
  used ??= createUsedFolder();
  const folder = join(await folderFor(t), "store");
  await cp(await used, folder, { recursive: true });
  return folder;
}

async function createUsedFolder(): Promise<string> {
  const folder = join(await temporaryFolder(), "store");
  const server = await startHere({ folder, seed });
  const token = await server.signIn();
  for (const name of ["Nala", "Simba", "Rafiki", "Zazu"]) {
    const answer = await server.request("POST", "/v1/animals", {
      token,
      json: { zoo_id: 5, animal_type_id: 1, name },
    });
    assert.equal(answer.status, 201, answer.text);
  }
  const gone = await server.request("DELETE", "/v1/animals/2", { token });
  assert.equal(gone.status, 204);
  await server.stop();
  return folder;
}

async function countOf(
  server: Pick<Server, "request">,
  collection: string,
): Promise<number> {
  const answer = await server.request("GET", `/v1/${collection}`);
  return Number(answer.headers.get("x-total-count"));
}

describe("the command line", { concurrency: 3 }, () => {
  // One of each kind; config.test.ts has the rest.
  const bad: [
    setting: RegExp,
    args: string[],
    env: Record<string, string>,
    secret?: string,
  ][] = [
    [/--port/, ["--port", "65536"], {}],
    [/JWT_SECRET/, [], { JWT_SECRET: "too-short-a-secret" }, "too-short"],
    [/--frobnicate/, ["--frobnicate"], {}],
  ];
  for (const [setting, args, env, secret] of bad) {
    const title = [
      ...args,
      ...Object.entries(env).map((pair) => pair.join("=")),
    ]
      .join(" ");
    test(`an invalid value is exit code 2 and one line: ${title}`, async (t) => {
      const folder = join(await folderFor(t), "store");
      const port = args.includes("--port") || env["PORT"]
        ? []
        : ["--port", "0"];
      const result = await lines(
        ["serve", ...port, ...args],
        { env: { DATA_DIR: folder, ...env } },
      );
      assert.equal(result.code, 2, result.lines.join("\n"));
      assert.equal(result.lines.length, 1, result.lines.join("\n"));
      assert.match(result.lines.join(), setting);
      assert.doesNotMatch(result.lines.join(), /listening on|\bat .*:\d+:\d+/);
      if (secret) assert.equal(result.lines.join().includes(secret), false);
    });
  }

  test("secrets in files are validated and used like other settings", async (t) => {
    const folder = await folderFor(t);
    const short = join(folder, "short");
    const secret = join(folder, "secret");
    const word = join(folder, "word");
    await writeFile(short, "tiny\n");
    await writeFile(secret, `${"n".repeat(32)}\n${"o".repeat(32)}\n`);
    await writeFile(word, `${password}\n`);
    const flags = [
      ["--jwt-secret-file", /jwt.secret/i],
      ["--admin-password-file", /admin.password/i],
    ] as const;
    const missing = join(folder, "missing");
    for (const [index, [flag, setting]] of flags.entries()) {
      for (const file of index === 0 ? [short, missing] : [short]) {
        const result = await lines(["serve", "--port", "0", flag, file], {
          env: { DATA_DIR: join(folder, "never") },
        });
        assert.equal(result.code, 2, result.lines.join("\n"));
        assert.equal(result.lines.length, 1, result.lines.join("\n"));
        assert.match(result.lines.join(), setting);
        assert.equal(result.lines.join().includes("tiny"), false);
      }
    }
    const server = await serverHereFor(t, {
      isNew: true,
      args: ["--jwt-secret-file", secret, "--admin-password-file", word],
      // Overridden, so not validated.
      env: { JWT_SECRET: "tiny", ADMIN_PASSWORD: "tiny" },
    });
    const token = await server.signIn("admin", password);
    const [header, claims, signature] = token.split(".");
    const expected = createHmac("sha256", "n".repeat(32))
      .update(`${header}.${claims}`).digest("base64url");
    assert.equal(signature, expected, "the first line signs");
  });

  test("an unknown command is exit code 2", async (t) => {
    const env = { DATA_DIR: join(await folderFor(t), "store"), PORT: "0" };
    for (const args of [["frobnicate"], ["user", "frobnicate"]]) {
      const result = await (args.length > 1 ? lines : started)(args, { env });
      assert.equal(result.code, 2, result.lines.join("\n"));
      assert.equal(result.lines.length, 1, result.lines.join("\n"));
      assert.match(result.lines.join(), /frobnicate/);
    }
    assert.equal(existsSync(env.DATA_DIR), false);
  });

  test("a flag overrides the environment, whose value is not validated", async (t) => {
    const other = join(await folderFor(t), "other");
    const server = await serverFor(t, {
      args: ["--log", "error", "--host", "127.0.0.1", "--base-url", "/zoo"],
      env: {
        PORT: "abc",
        LOG: "loud",
        HOST: "no host",
        BASE_URL: "ftp://x/",
        DATA_DIR: other,
      },
    });
    const root = await server.request("GET", "/zoo/");
    assert.equal(root.body.zoos_url, "/zoo/v1/zoos");
    assert.equal((await server.request("GET", "/zoo/v1/zoos")).status, 200);
    assert.equal(existsSync(other), false);
  });

  test("one line says where the server listens, and it responds there", async (t) => {
    const server = await serverFor(t, { env: { LOG: "debug" } });
    const answers = await Promise.all([
      server.request("GET", "/"),
      server.request("GET", "/v1/users", { token: "nonsense" }),
      server.request("GET", "/nowhere"),
    ]);
    assert.deepEqual(answers.map(({ status }) => status), [200, 401, 404]);
    await server.end();
    const printed = linesOf(server.output());
    const listening = printed.filter((line) =>
      line.includes(`listening on http://127.0.0.1:${server.port}`)
    );
    assert.equal(listening.length, 1, server.output());
    for (const line of printed) {
      if (listening.includes(line)) continue;
      const entry = JSON.parse(line);
      assert.ok(typeof entry === "object" && !Array.isArray(entry), line);
    }
  });

  test("that line names the URL to open, and the one that others use", async (t) => {
    for (
      const [url, expected] of [
        ["/zoo/", "/zoo as process"],
        ["https://a.example/zoo", "/zoo, served as https://a.example/zoo/ as"],
      ] as const
    ) {
      const server = await serverHereFor(t, { env: { BASE_URL: url } });
      const line = `listening on http://127.0.0.1:${server.port}${expected}`;
      assert.ok(server.output().includes(line), server.output());
      const { status } = await server.request("GET", "/zoo");
      assert.equal(status, 200);
    }
  });

  test("on a terminal it prints for people, unless LOG is set", {
    skip: spawnSync("script", ["--version"]).status !== 0,
  }, async (t) => {
    const folder = join(await folderFor(t), "store");
    const words = [process.execPath, ...command, "--port", "0"]
      .map((word) => `'${word}'`).join(" ");
    const startOnTerminal = async (flags: string) => {
      const child = spawn("script", [
        "-qec",
        `timeout --foreground 60 ${words} --data-dir '${folder}' ${flags}`,
        "/dev/null",
      ], { cwd: root, env: commandEnvironment() });
      let output = "";
      child.stdout.setEncoding("utf8").on("data", (text) => {
        output += text;
        // Ctrl-C, as the terminal sends it.
        if (/listening on .*\r\n/.test(output)) child.stdin.end("\x03");
      });
      const [code] = await once(child, "close");
      // A shell that remains the parent of the server gets the signal too.
      assert.ok(code === 0 || code === 130, `${code}: ${output}`);
      return linesOf(output.replaceAll("\r", ""));
    };
    const shown = (await startOnTerminal("")).map((line) =>
      line.replace(/^\^?C?\d\d:\d\d:\d\d /, "")
    );
    assert.equal(shown[0], "created user admin");
    assert.match(shown[1] ?? "", /^The password of admin is [\w-]{20}$/);
    assert.equal(
      shown[2],
      `the data is in ${folder}; Ctrl-C stops the server`,
    );
    assert.match(shown[3] ?? "", /^listening on http:\/\/127\.0\.0\.1:\d+ /);
    assert.match(shown.at(-1) ?? "", /stopped$/);
    const [logged = ""] = await startOnTerminal("--log info");
    assert.match(JSON.parse(logged).message, /^listening on http:/);
  });

  test("a new server responds to nothing before there is an admin", async (t) => {
    const port = await freePort();
    const folder = join(await folderFor(t), "store");
    let hasFailed = false;
    const starting = serverFor(t, { folder, isNew: true, port });
    starting.catch(() => hasFailed = true);
    const origin = `http://127.0.0.1:${port}`;
    const health = async (): Promise<Response> => {
      try {
        return await fetch(`${origin}/health`);
      } catch (error) {
        if (hasFailed) throw error;
        await delay(10);
        return await health();
      }
    };
    assert.equal((await health()).status, 200);
    const log = await readFile(join(folder, "wal-1.jsonl"), "utf8");
    assert.ok(log.includes('"username":"admin"'), "no admin yet");
    await starting;
  });

  /** The file with the random password of admin. */
  const passwordFile = (folder: string) => join(folder, "admin-password");

  test("the random password of admin is in a file, not in the log, until it is changed", async (t) => {
    const folder = join(await folderFor(t), "store");
    const options = { folder, isNew: true, env: { ADMIN_PASSWORD: "" } };
    const server = await serverFor(t, options);
    const file = passwordFile(folder);
    assert.match(server.output(), /"password_file":".*admin-password"/);
    assert.equal((await stat(file)).mode & 0o777, 0o600);
    const word = (await readFile(file, "utf8")).trim();
    assert.match(word, /^[\w-]{20}$/);
    assert.ok(!server.output().includes(word));
    await server.signIn("admin", word);

    const copy = join(folder, "../copy");
    await lines(["backup", copy, "--data-dir", folder]);
    assert.equal(existsSync(passwordFile(copy)), false);
    const check = await lines(["check", "--data-dir", folder]);
    assert.equal(check.code, 0, check.stdout);
    await server.end();

    const again = await serverHereFor(t, options);
    const token = await again.signIn("admin", word);
    const json = { username: "kim", password };
    await again.request("POST", "/v1/users", { token, json });
    await again.request("PATCH", "/v1/users/2", { token, json: { password } });
    assert.ok(existsSync(file), "for the password of another user");
    const renamed = { token, json: { username: "boss" } };
    await again.request("PATCH", "/v1/users/1", renamed);
    assert.ok(existsSync(file), "for another name");
    await again.end();
    const third = await serverHereFor(t, options);
    const boss = await third.signIn("boss", word);
    const changed = { token: boss, json: { password } };
    await third.request("PATCH", "/v1/user", changed);
    while (existsSync(file)) await third.request("GET", "/health");
    await third.signIn("boss", password);
  });

  test("the command that changes the password of admin removes the file too", async (t) => {
    const folder = await usedFolder(t);
    await writeFile(passwordFile(folder), "the random one\n");
    const change = async (name: string) => {
      const args = ["user", "password", name, "--data-dir", folder];
      const changed = await lines(args, { input: `${password}\n` });
      assert.equal(changed.code, 0, changed.lines.join());
    };
    await change("admin");
    assert.equal(existsSync(passwordFile(folder)), false);
    const server = await serverHereFor(t, { folder });
    const token = await server.signIn("admin", password);
    const json = { username: "boss" };
    await server.request("PATCH", "/v1/users/1", { token, json });
    await server.end();
    await writeFile(passwordFile(folder), "the random one\n");
    await change("boss");
    assert.equal(existsSync(passwordFile(folder)), false);
  });

  test("a random secret survives restarts, in a file of mode 0600", async (t) => {
    const folder = join(await folderFor(t), "made", "when", "missing");
    const options = { folder, seed, env: { JWT_SECRET: "" } };
    const server = await serverFor(t, options);
    const token = await server.signIn();
    const secret = await readFile(join(folder, "secret"), "utf8");
    assert.ok(secret.trim().length >= 32);
    assert.equal(server.output().includes(secret.trim()), false);
    assert.equal((await stat(folder)).mode & 0o777, 0o700);
    for (const [name, file] of await filesOf(folder)) {
      const mode = file.endsWith("no file") ? /^[67]00 / : /^600 /;
      assert.match(file, mode, name);
    }
    await server.end();
    const again = await serverHereFor(t, options);
    const answer = await again.request("GET", "/v1/user", { token });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(await readFile(join(folder, "secret"), "utf8"), secret);
    await again.end();
    // As a power cut may leave it: anybody could compute such a secret.
    await writeFile(join(folder, "secret"), Buffer.alloc(secret.length));
    const place = ["--data-dir", folder];
    const env = { JWT_SECRET: "" };
    const refused = await lines(["serve", "--port", "0", ...place], { env });
    assert.equal(refused.code, 1);
    assert.match(refused.lines.join(), /"secret" in .* delete it, and the/);
    const checked = await lines(["check", ...place]);
    assert.equal(checked.code, 2);
    assert.match(checked.lines.join(), /fault: secret: it must hold text/);
  });

  test("a port or folder in use is exit code 1 and named", async (t) => {
    const server = await serverFor(t);
    const free = join(await folderFor(t), "store");
    const cases: [args: string[], ...named: string[]][] = [
      [
        ["--port", `${server.port}`, "--data-dir", free],
        `${server.port}`,
        "with --port",
      ],
      [["--port", "0", "--data-dir", server.folder], server.folder],
    ];
    for (const [args, ...named] of cases) {
      const result = await started(["serve", "--log", "silent", ...args], {
        env: { ADMIN_PASSWORD: "" },
      });
      assert.equal(result.code, 1, result.lines.join("\n"));
      const text = result.lines.at(-1) ?? "";
      for (const name of named) assert.ok(text.includes(name), text);
    }
    // The password of a new admin is not lost.
    const word = (await readFile(passwordFile(free), "utf8")).trim();
    const again = await serverFor(t, {
      folder: free,
      env: { ADMIN_PASSWORD: "" },
    });
    await again.signIn("admin", word);
    assert.equal((await server.request("GET", "/v1/zoos")).status, 200);
  });

  test("a host that is no address of this machine is named with its source", {
    skip: notInNode, // Bun says that the port is in use
  }, async (t) => {
    const folder = join(await folderFor(t), "store");
    // Addresses for documentation (RFC 5737), and a name that never exists (RFC 2606).
    const cases: [string[], string][] = [
      [
        ["--host", "192.0.2.1"],
        "HOST or --host must name an address of this machine",
      ],
      [[], "HOST or --host must name an address of this machine"],
    ];
    for (const [flags, message] of cases) {
      const args = ["serve", "--port", "0", "--data-dir", folder, ...flags];
      const result = await started(args, { env: { HOST: "zoo.invalid" } });
      assert.equal(result.code, 1, result.lines.join("\n"));
      assert.ok(result.lines.at(-1)?.includes(message), result.lines.join());
    }
  });

  for (const signal of ["SIGTERM", "SIGINT"] as const) {
    test(`${signal}, unlike SIGHUP, responds to requests in flight, then exits with 0`, async (t) => {
      const folder = await folderFor(t);
      const server = await serverFor(t, { folder, seed });
      server.child.kill("SIGHUP");
      const token = await server.signIn();
      const body = JSON.stringify({
        zoo_id: 5,
        animal_type_id: 1,
        name: "Late",
      });
      const idle = connect(server.port, "127.0.0.1");
      idle.on("error", () => {}); // the server may reset it
      await once(idle, "connect");
      const socket = connect(server.port, "127.0.0.1");
      let received = "";
      socket.setEncoding("utf8").on("data", (text) => received += text);
      const closed = once(socket, "close");
      socket.write(
        "POST /v1/animals HTTP/1.1\r\nHost: localhost\r\n" +
          `Authorization: Bearer ${token}\r\nExpect: 100-continue\r\n` +
          "Content-Type: application/json\r\n" +
          `Content-Length: ${body.length}\r\n\r\n`,
      );
      while (!received.includes("100 Continue")) await once(socket, "data");
      socket.write(body.slice(0, 10));
      const ended = server.end(signal);
      while (await accepts(server.port)) await delay(20);
      socket.write(body.slice(10));
      await closed;
      idle.destroy();
      assert.match(received, /HTTP\/1\.1 201 [^]*"name":\s*"Late"/);
      assert.equal(await ended, 0);
      const after = await lines(["export", "animals", "--data-dir", folder]);
      assert.equal(after.lines.length, 3, after.stdout);
    });
  }

  test("a request that never ends delays the exit by 10 s at most", async (t) => {
    const server = await serverFor(t, { seed });
    const socket = connect(server.port, "127.0.0.1");
    socket.on("error", () => {}); // cut off by the server
    const head = "POST /v1/authorizations HTTP/1.1\r\nHost: localhost\r\n" +
      "Expect: 100-continue\r\nContent-Type: application/json\r\n" +
      "Content-Length: 100\r\n\r\n";
    socket.write(head);
    await once(socket, "data");
    socket.write("{");
    assert.equal(await server.end(), 0);
    socket.destroy();
  });

  test("a Node.js that is too old is named in one line", async () => {
    for (const version of ["v18.20.8", "v20.18.3"]) {
      const code =
        `Object.defineProperty(process, "version", { value: "${version}" });`;
      const old = [
        "--import",
        `data:text/javascript,${encodeURIComponent(code)}`,
      ];
      const child = spawn(process.execPath, [...old, ...command, "version"]);
      let output = "";
      child.stdout.setEncoding("utf8").on("data", (text) => output += text);
      child.stderr.setEncoding("utf8").on("data", (text) => output += text);
      const [exitCode] = await once(child, "close");
      assert.equal(exitCode, 1, output);
      assert.deepEqual(linesOf(output), [
        `zoo-api: Node.js 20.19 or later is required, but this is ${version}`,
      ]);
    }
  });

  test("an argument that npm has left of a flag is explained", async () => {
    const npm = { npm_lifecycle_event: "start" };
    for (const [env, hint] of [[npm, true], [{}, false]] as const) {
      const result = await lines(["serve", "4000"], { env });
      assert.equal(result.code, 2, result.lines.join("\n"));
      assert.equal(result.lines.length, 1, result.lines.join("\n"));
      assert.match(result.lines.join(), /unexpected argument "4000"/);
      assert.equal(result.lines.join().includes("npm start -- --port"), hint);
    }
  });

  test("what is not a command, or an argument of one, is refused with what to do", async (t) => {
    const folder = join(await folderFor(t), "store");
    const named = /"; values are given by flags, such as --data-dir or --port$/;
    const cases: [string, RegExp][] = [
      [`check ${folder}`, named],
      [`repair ${folder}`, named],
      [`backup ${folder} ${folder}-copy`, named],
      [`serve ${folder}`, named],
      ["user remove bob", /over HTTP, with DELETE \/v1\/users\/ID$/],
      ["restore copy", /see "zoo-api help", or data\/README\.md$/],
    ];
    for (const [command, message] of cases) {
      const result = await lines(command.split(" "), {
        env: { DATA_DIR: folder },
      });
      assert.equal(result.code, 2, command);
      assert.equal(result.lines.length, 1, command);
      assert.match(result.lines.join(), message);
    }
    assert.equal(existsSync(folder), false);
  });

  test("help lists the commands, and version prints the version", async () => {
    const help = await lines(["help"]);
    assert.equal(help.code, 0);
    for (
      const word of [
        "serve",
        "check",
        "user",
        "export",
        "version",
        "--port",
        "--data-dir",
        "--base-url",
        "JWT_SECRET",
      ]
    ) assert.ok(help.stdout.includes(word), word);
    const version = await lines(["version"]);
    assert.equal(version.code, 0);
    const text = await readFile(join(root, "package.json"), "utf8");
    assert.ok(version.stdout.includes(JSON.parse(text).version));
    assert.equal(version.lines.length, 1);
  });

  test("check reports counts and highest ids and changes nothing", async (t) => {
    const folder = await usedFolder(t);
    const before = await filesOf(folder);
    const result = await started(["check", "--data-dir", folder]);
    assert.equal(result.code, 0, result.lines.join("\n"));
    const numbers = (collection: string) =>
      result.lines.find((line) => line.includes(collection))
        ?.match(/\d+/g)?.map(Number);
    assert.deepEqual(numbers("zoos"), [1, 5]);
    assert.deepEqual(numbers("animals"), [5, 11]);
    assert.deepEqual(numbers("employees"), [0, 0]);
    assert.ok(result.lines.length > 3, "generation and sequence too");
    assert.deepEqual(await filesOf(folder), before);
  });

  test("a flipped byte in the log is found, reported and left alone", async (t) => {
    const folder = await usedFolder(t);
    let damaged = "";
    let places: number[] = [];
    for (const name of await readdir(folder, { recursive: true })) {
      const path = join(folder, name);
      if (!(await stat(path)).isFile()) continue;
      const bytes = await readFile(path);
      const at = bytes.indexOf("Markerbear");
      if (at < 0) continue;
      bytes[at] = (bytes[at] ?? 0) ^ 1;
      await writeFile(path, bytes);
      const line = bytes.subarray(0, at).toString("latin1").split("\n").length;
      places = [line, bytes.lastIndexOf("\n", at) + 1, at];
      damaged = name;
    }
    assert.notEqual(damaged, "");
    const before = await filesOf(folder);
    const result = await lines(["check", "--data-dir", folder]);
    assert.equal(result.code, 2, result.lines.join("\n"));
    const text = result.lines.join("\n");
    assert.ok(text.includes(damaged), text);
    const named = text.match(/\d+/g)?.map(Number) ?? [];
    assert.ok(places.some((place) => named.includes(place)), text);
    assert.deepEqual(await filesOf(folder), before);

    const served = await lines(["serve", "--port", "0", "--log", "silent"], {
      env: { DATA_DIR: folder },
    });
    assert.equal(served.code, 1, served.lines.join("\n"));
    assert.equal(served.lines.length, 1, served.lines.join("\n"));
    assert.ok(served.lines.join().includes(folder), served.lines.join());
    const now = await filesOf(folder);
    for (const [name, file] of before) assert.equal(now.get(name), file, name);
  });

  test("check of a missing folder does not create it", async (t) => {
    const folder = join(await folderFor(t), "store");
    await lines(["check"], { env: { DATA_DIR: folder } });
    assert.equal(existsSync(folder), false);
  });

  test("a file or folder that a command cannot use is named, with the reason", async (t) => {
    const folder = await folderFor(t);
    const path = (name: string) => join(folder, name);
    await writeFile(path("file"), "");
    const env = { DATA_DIR: path("store") };
    const user = ["user", "add", "ada"];
    await runHere(user, { env, input: `${password}\n` });
    await runHere(["export", "--to", path("files")], { env });
    await mkdir(path("some"));
    await writeFile(path("some/animals.ndjson"), "");
    await symlink(path("nowhere"), path("link"));
    await symlink(path("loop"), path("loop"));
    const long = "long".repeat(75);
    const before = await readdir(folder, { recursive: true });
    const none = ["--data-dir", path("none")];
    const cases: [string[], string][] = [
      [["check", "--data-dir", path("none")], "none: there is no such"],
      [["check", "--data-dir", path("file")], "file: it is not a folder"],
      [["export", "--to", path("file")], "file: it is not a folder"],
      [
        ["export", "--to", path("files")],
        "files/zoos.ndjson exists already",
      ],
      // Of several files, none is written.
      [["export", "--to", path("some")], "some/animals.ndjson exists already"],
      [["export", "--to", path("store/x")], "store/x is within the data"],
      [["export", "--to", path("store/x/1")], "store/x/1 is within the"],
      [["backup", path("store/x")], "store/x is within the data folder"],
      [["backup", path("store/x/1")], "store/x/1 is within the data folder"],
      [["backup", path("x/1"), "--data-dir", path("some")], "some: there is"],
      [["serve", "--data-dir", path("file")], "file: "],
      [["serve", "--data-dir", path("file/x")], "file/x: it is not a folder"],
      [["serve", "--data-dir", path("link")], "link: "],
      [["check", "--data-dir", path(long)], `${long}: its name is too long`],
      [["check", "--data-dir", path("loop")], "loop: its links lead in a"],
      // A mistyped name creates no store.
      [["prune", "answers", ...none], "none: there is no such file or folder"],
      [["prune", "answers", "--data-dir", path("some")], "some: there is no"],
      [["user", "password", "ada", ...none], "none: there is no such file"],
    ];
    if (!lacks("imports")) {
      cases.push(
        [["import", "zoos", path("x"), ...none], "x: there is no such file"],
        [["import", "zoos", path("some"), ...none], "some: it is a folder"],
      );
    }
    for (const [words, problem] of cases) {
      const { code, stderr } = await runHere(words, { env });
      assert.equal(code, words[0] === "check" ? 2 : 1, stderr);
      const line = `zoo-api: ${path(problem)}`;
      const text = stderr.replace("Cannot open ", "");
      assert.equal(text.slice(0, line.length), line);
      assert.equal(stderr.trimEnd().split("\n").length, 1, stderr);
      assert.doesNotMatch(stderr, /E[A-Z]{4,}/); // no code of the system
    }
    const unnamed = await runHere(["backup", ""], { env });
    assert.match(unnamed.stderr, /^zoo-api: backup: name a folder to copy to/);
    const after = await readdir(folder, { recursive: true });
    assert.deepEqual(after.sort(), before.sort());
  });

  test("a byte-order mark and line ends are no part of a password", async (t) => {
    const folder = await folderFor(t);
    const env = { DATA_DIR: join(folder, "store") };
    const input = "\ufeffa long enough one\r\nmore";
    const added = await runHere(["user", "add", "ada"], { env, input });
    assert.equal(added.code, 0, added.stderr);
    const server = await serverHereFor(t, { folder: env.DATA_DIR });
    assert.notEqual(await server.signIn("ada", "a long enough one"), "");
  });

  test("user add says when nobody has the highest role, and no start creates such a user", async (t) => {
    const folder = await folderFor(t);
    const env = { DATA_DIR: join(folder, "store") };
    const input = "a long enough one";
    const add = async (...words: string[]) => {
      const added = await runHere(["user", "add", ...words], { env, input });
      assert.equal(added.code, 0, added.stderr);
      return added.stderr;
    };
    assert.equal(await add("kim"), "");
    const advice =
      "zoo-api: nobody has the role admin yet: add a user with --role admin\n";
    assert.equal(await add("admin"), advice);
    assert.equal(await add("lee", "--role", "admin"), "");
  });

  test("a password or a file that is no UTF-8 is refused", async (t) => {
    const folder = await folderFor(t);
    const env = { DATA_DIR: join(folder, "store") };
    // Latin-1, as some terminals send it; the letter is lost in decoding.
    const latin = Buffer.from("p\xe4ssword long\n", "latin1");
    const file = join(folder, "password");
    await writeFile(file, latin);
    const user = ["user", "add", "ada"];
    const added = await runHere(user, { env, input: latin });
    assert.deepEqual([added.code, added.stderr], [
      1,
      "zoo-api: the password must be UTF-8 text\n",
    ]);
    const serve = ["serve", "--admin-password-file", file, "--port", "0"];
    const started = await runHere(serve, { env });
    assert.equal(started.code, 2);
    assert.match(started.stderr, /must be a readable file of UTF-8 text\n$/);
  });

  test("users are added, listed and given passwords", async (t) => {
    const folder = join(await folderFor(t), "store");
    const env = { DATA_DIR: folder };
    const user = (args: string[], input = `${password}\nsecond line\n`) =>
      lines(["user", ...args], { env, input });
    const shown = (result: Printed) => result.lines.join("\n");

    for (
      const args of [
        ["add", "boss", "--role", "admin"],
        ["add", "mia", "--role", "keeper"],
        ["add", "vic"],
      ]
    ) {
      const result = await user(args);
      assert.equal(result.code, 0, shown(result));
      assert.equal(shown(result).includes(password), false);
    }
    for (
      const [args, input] of [
        [["add", "mia"]],
        [["add", "short"], "nine-sign\n"],
        [["add", "root", "--role", "root"]],
        [["add"]],
        [["password", "nobody"]],
        [["password", "mia"], "nine-sign\n"],
      ] as [string[], string?][]
    ) {
      const result = await user(args, input);
      assert.notEqual(result.code, 0, args.join(" "));
      assert.equal(result.lines.length, 1, shown(result));
      assert.equal(shown(result).includes("nine-sign"), false);
    }
    const list = await user(["list"]);
    assert.equal(list.code, 0, shown(list));
    for (
      const [name, role] of [["boss", "admin"], ["mia", "keeper"], [
        "vic",
        "viewer",
      ]] as const
    ) {
      const line = list.lines.find((line) => line.includes(name));
      assert.match(String(line), new RegExp(role));
    }
    assert.doesNotMatch(shown(list), /short|empty|root|scrypt/);

    // ADMIN_PASSWORD counts only while there is no user, with or without a
    // seed.
    const server = await serverHereFor(t, { folder, seed });
    assert.equal(await countOf(server, "animals"), 2);
    await assert.rejects(server.signIn());
    const token = await server.signIn("mia", password);
    const own = await server.request("GET", "/v1/user", { token });
    assert.equal(own.body.role, "keeper");
    for (const args of [["add", "late"], ["password", "mia"]]) {
      const refused = await user(args, "a new password\n");
      assert.notEqual(refused.code, 0);
      assert.match(shown(refused), /server|running|in use|held|holds|lock/i);
    }
    await server.end();

    const changed = await user(["password", "mia"], "a new password");
    assert.equal(changed.code, 0, shown(changed));
    const again = await serverHereFor(t, { folder });
    await assert.rejects(again.signIn("mia", password));
    await again.signIn("mia", "a new password");
    const old = await again.request("GET", "/v1/user", { token });
    assert.equal(old.status, 401, "its authorizations have ended");
  });

  test("the data folder is data/store by default", async (t) => {
    const cwd = await folderFor(t);
    const result = await started(["user", "add", "mia"], {
      cwd,
      input: `${password}\n`,
    });
    assert.equal(result.code, 0, result.lines.join("\n"));
    assert.deepEqual(await readdir(cwd), ["data"]);
    assert.equal((await stat(join(cwd, "data/store"))).mode & 0o777, 0o700);
  });

  test("export prints a collection's records as NDJSON", async (t) => {
    const folder = await usedFolder(t);
    const result = await lines(["export", "animals", "--data-dir", folder]);
    assert.equal(result.code, 0, result.lines.join("\n"));
    const records = linesOf(result.stdout).map((line) => JSON.parse(line));
    assert.deepEqual(
      records.map(({ id, name, zoo_id }) => [id, name, zoo_id]),
      [
        [7, "Bruno Markerbear", 5],
        [8, "Nala", 5],
        [9, "Simba", 5],
        [10, "Rafiki", 5],
        [11, "Zazu", 5],
      ],
    );
    const none = await lines(["export", "employees"], {
      env: { DATA_DIR: folder },
    });
    assert.equal(none.code, 0);
    assert.equal(none.stdout, "");
    const unknown = await lines(["export", "planets", "--data-dir", folder]);
    assert.notEqual(unknown.code, 0);
    assert.match(unknown.lines.join("\n"), /planets/);
  });

  test("a mistake in the seed is named with its file, and with its line if it is not JSON", async (t) => {
    const folder = join(await folderFor(t), "store");
    const file = `${folder}.json`;
    const cases: [string, RegExp][] = [
      ["", / is empty: a seed is one JSON object$/],
      [" \n", / is empty: a seed is one JSON object$/],
      [
        '{"zoos": [\n],\n}\n',
        // Bun names no position.
        process.env["RUNTIME"]
          ? /(?:, line 3)?: The seed is not valid JSON \(RFC 8259\)\.$/
          : /, line 3: The seed is not valid JSON \(RFC 8259\)\.$/,
      ],
      // V8 names no position, but quotes the text.
      ['{"zoos":\nhush}', /[^3]: The seed is not valid JSON \(RFC 8259\)\.$/],
      ['{"zoos":[],"zoos":[]}', /: The seed names "zoos" twice\.$/],
      ["[]", /: The seed must be a JSON object, not an array\.$/],
      ['{"zoos":[7]}', /: zoos\[0\] in the seed: It is not an object\.$/],
    ];
    for (const [at, [content, message]] of cases.entries()) {
      await writeFile(file, content);
      const isFlag = at % 2 === 0;
      const result = await lines(
        ["serve", "--port", "0", ...isFlag ? ["--seed", file] : []],
        {
          env: {
            ...{ DATA_DIR: folder, ADMIN_PASSWORD: password, LOG: "silent" },
            ...!isFlag && { SEED: file },
          },
        },
      );
      const text = result.lines.at(-1) ?? "";
      assert.equal(result.code, 1, text);
      assert.match(text, message);
      assert.ok(text.startsWith(`zoo-api: ${file}`), text);
      assert.doesNotMatch(text, /hush|send/);
    }
  });

  test("an invalid record in the seed prevents the start, and nothing is written", async (t) => {
    const folder = join(await folderFor(t), "store");
    const [leo, bruno] = seed.animals;
    const person = { zoo_id: 5, name: "Ann", job_title: "Vet" };
    // api/seed.test.ts has more.
    const cases: [unknown, string, string][] = [
      [
        { ...seed, animals: [leo, { ...bruno, zoo_id: 6 }] },
        "animals",
        "zoo_id",
      ],
      [
        {
          ...seed,
          employees: [
            { ...person, email: "ann@example.com" },
            { ...person, email: "ANN@example.com" },
          ],
        },
        "employees",
        "email",
      ],
    ];
    const file = `${folder}.json`;
    for (const [content, record, property] of cases) {
      await writeFile(file, JSON.stringify(content));
      const result = await lines(
        ["serve", "--port", "0", "--log", "silent", "--seed", file],
        { env: { DATA_DIR: folder, ADMIN_PASSWORD: password } },
      );
      const text = result.lines.join("\n");
      assert.equal(result.code, 1, text);
      assert.ok(text.includes(record), text);
      assert.match(text, new RegExp(`\\b${property}\\b`));
    }
    const server = await serverHereFor(t, { folder });
    assert.equal(await countOf(server, "zoos"), 0);
    assert.equal(await countOf(server, "animals"), 0);
    const gone = await server.request("GET", "/v1/zoos/5");
    assert.equal(gone.status, 404, "no id was ever given");
    await server.end();
    const seeded = await serverHereFor(t, { folder, seed });
    assert.equal(await countOf(seeded, "animals"), 2);
  });

  test("a seed that is missing, not JSON or not valid prevents the start, and writes nothing", async (t) => {
    const folder = await folderFor(t);
    const file = join(folder, "seed.json");
    const env = { DATA_DIR: join(folder, "store"), ADMIN_PASSWORD: password };
    for (const text of [undefined, '{"zoos": [', '{"zoos": [null]}']) {
      if (text !== undefined) await writeFile(file, text);
      const words = ["serve", "--port", "0", "--seed", file];
      const result = await lines(words, { env });
      assert.ok(result.code === 1 || result.code === 2, `${result.code}`);
      assert.match(result.lines.join("\n"), /seed/i);
    }
    // So the password of the next start is the first admin's.
    const listed = await lines(["user", "list"], { env });
    assert.deepEqual([listed.code, listed.lines], [0, []]);
  });

  test("a seed names the records of the first admin, also beside other users", async (t) => {
    const folder = await folderFor(t);
    const file = join(folder, "notes.mjs");
    const seeds = join(folder, "seed.json");
    const access = '{ read: "viewer", write: "viewer", delete: "viewer" }';
    await writeFile(
      file,
      `export default ({ collection, string }) => ({ collections: [collection({
        name: "notes", singular: "note", private: true, access: ${access},
        properties: { text: string({ maxLength: 9 }) } })] });`,
    );
    const notes = [1, 2, 3].map((owner_id) => ({ text: "a", owner_id }));
    await writeFile(seeds, JSON.stringify({ notes }));
    const env = { COLLECTIONS: file, DATA_DIR: join(folder, "store") };
    const input = password;
    const added = await runHere(["user", "add", "kim"], { env, input });
    assert.equal(added.code, 0, added.stderr);
    const server = await serverHereFor(t, {
      folder: env.DATA_DIR,
      args: ["--seed", seeds],
      env,
    });
    const token = await server.signIn();
    const { body } = await server.request("GET", "/v1/notes", { token });
    assert.deepEqual(body.map(({ owner_id }) => owner_id), [1, 2, null]);
  });

  test("SEED names the sample records as --seed does, and LOG=silent prints only where the server listens", async (t) => {
    const file = join(await folderFor(t), "seed.json");
    await writeFile(file, JSON.stringify(seed));
    const env = { SEED: file, LOG: "silent" };
    const server = await serverFor(t, { env });
    assert.equal(await countOf(server, "animals"), 2);
    const { body } = await server.request("GET", "/v1/animals/7");
    assert.equal(body.name, "Bruno Markerbear");
    assert.equal(body.sex, "unknown", "defaults are filled in");
    await server.request("GET", "/nowhere");
    assert.equal(await server.end(), 0);
    assert.equal(linesOf(server.output()).length, 1, server.output());
  });

  test("a data folder that is a file prevents the start", async (t) => {
    const file = join(await folderFor(t), "file");
    await writeFile(file, "mine");
    const result = await lines(["serve", "--port", "0", "--log", "silent"], {
      env: { DATA_DIR: file, ADMIN_PASSWORD: password },
    });
    assert.ok(result.code === 1 || result.code === 2, `${result.code}`);
    assert.equal(result.lines.length, 1, result.lines.join("\n"));
    assert.ok(result.lines.join().includes(file), result.lines.join());
    assert.equal(await readFile(file, "utf8"), "mine");
  });

  test("a seed is loaded only if no id was ever assigned", async (t) => {
    const folder = await folderFor(t);
    const first = await serverHereFor(t, { folder });
    const token = await first.signIn();
    const made = await first.request("POST", "/v1/zoos", {
      token,
      json: { name: "Short-lived", city: "Bern", country: "CH" },
    });
    assert.equal(made.status, 201, made.text);
    const { url } = made.body;
    const gone = await first.request("DELETE", url, { token });
    assert.equal(gone.status, 204);
    await first.end();
    const second = await serverHereFor(t, { folder, seed });
    assert.equal(await countOf(second, "zoos"), 0);
    assert.equal((await second.request("GET", url)).status, 410);
  });

  test("seeded records keep their ids, and those without one get a new one", async (t) => {
    const { id: _id, ...zoo } = { ...seed.zoos[0], name: "Without id" };
    const server = await serverHereFor(t, {
      seed: { ...seed, zoos: [...seed.zoos, zoo] },
    });
    const zoos = (await server.request("GET", "/v1/zoos")).body;
    assert.equal(zoos.length, 2);
    assert.equal(new Set(zoos.map((one: { id: number }) => one.id)).size, 2);
    assert.ok(zoos.some((one: { id: number }) => one.id === 5));
    const answer = await server.request("POST", "/v1/animals", {
      token: await server.signIn(),
      json: { zoo_id: 5, animal_type_id: 1, name: "Next" },
    });
    assert.equal(answer.body.id, 8);
    for (const [id, status] of [[2, 200], [3, 410], [7, 200], [9, 404]]) {
      const shown = await server.request("GET", `/v1/animals/${id}`);
      assert.equal(shown.status, status, `${id}`);
    }
  });

  test("serve is the default command", async (t) => {
    const folder = join(await folderFor(t), "store");
    await mkdir(folder, { mode: 0o700 });
    const child = spawn(process.execPath, [...command], {
      env: {
        PATH: process.env["PATH"],
        PORT: "0",
        HOST: "127.0.0.1",
        DATA_DIR: folder,
        ADMIN_PASSWORD: password,
      },
      stdio: ["ignore", "pipe", "inherit"],
    });
    const ended = once(child, "close");
    let output = "";
    child.stdout.setEncoding("utf8");
    for await (const text of child.stdout) {
      output += text;
      const ready = /listening on http:\/\/127\.0\.0\.1:\d+/.test(output);
      if (ready && !child.killed) child.kill("SIGTERM");
    }
    assert.deepEqual(await ended, [0, null], output);
  });
});

/** Returns whether the port still accepts connections. */
function accepts(port: number): Promise<boolean> {
  return new Promise((resolve) => {
    const socket = connect(port, "127.0.0.1", () => {
      socket.destroy();
      resolve(true);
    });
    socket.on("error", () => resolve(false));
  });
}
