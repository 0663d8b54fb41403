/**
 * The server with as few rights as possible: under Node's permission model,
 * with the data folder as its only writable place.
 */

import { strict as assert } from "node:assert";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import {
  chmod,
  cp,
  mkdir,
  readdir,
  readFile,
  stat,
  symlink,
  truncate,
  writeFile,
} from "node:fs/promises";
import { join, resolve } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { fileURLToPath } from "node:url";
import {
  boundUser,
  copyAssets,
  lacks,
  notInNode,
  removeFolder,
  root,
  run,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";
import { runHere } from "./in-process.ts";
import { permissionFlags } from "../src/cli/locked.ts";
import { openStore } from "../src/store/store.ts";

const major = Number(process.versions.node.split(".")[0]);
const readme = await readFile(join(root, "README.md"), "utf8");
const permissionFlag = process.allowedNodeEnvironmentFlags.has("--permission")
  ? "--permission"
  : "--experimental-permission";
const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;
let folder: string;
let app: string;
before(async () => {
  folder = await temporaryFolder();
  app = join(folder, "app");
  await mkdir(join(app, "data"), { recursive: true });
  for (const file of ["package.json", "data/seed.json"]) {
    await cp(join(root, file), join(app, file));
  }
  const compiler = join(root, "node_modules/typescript/bin/tsc");
  const args = [compiler, "-p", "src", "--outDir", join(app, "build")];
  execFileSync(process.execPath, args, { cwd: root, stdio: "pipe" });
  await copyAssets(join(root, "src"), join(app, "build"));
});
after(() => removeFolder(folder));

/** Returns the flags of the command `locked` for the program in the temporary folder. */
function flagsFor(
  dataDir: string,
  env: Readonly<Record<string, string>> = {},
): string[] {
  const own = fileURLToPath(new URL("../src", import.meta.url));
  return permissionFlags({ dataDir, flags: new Map() }, env)
    .map((flag) =>
      flag.replace(own, `${app}/build`).replace(join(own, ".."), app)
    );
}

/** Starts the server as the command `locked` does. */
async function startLocked(
  dataDir: string,
  nodeArgs: readonly string[] = [],
  env: Readonly<Record<string, string>> = {},
): Promise<Server> {
  await mkdir(dataDir, { recursive: true, mode: 0o700 });
  return await start({
    main: join(app, "build/main.js"),
    nodeArgs: [...flagsFor(dataDir, env), ...nodeArgs],
    folder: dataDir,
    isNew: true,
    // A secret of its own, in the data folder; no coverage, which would be
    // written elsewhere. The compiled sample API, as the collections of the
    // tests cannot be read.
    env: { JWT_SECRET: "", NODE_V8_COVERAGE: "", COLLECTIONS: "", ...env },
  });
}

/** Tries forbidden operations in the server's process, and prints the outcomes as one line. */
function probe(dataDir: string): string[] {
  const forbidden = join(folder, "forbidden");
  const code = `
    import { spawnSync } from "node:child_process";
    import { readFileSync, writeFileSync } from "node:fs";
    import { Worker } from "node:worker_threads";
    const attempt = (action) => {
      try { action(); return "allowed"; } catch ({ code }) { return code; }
    };
    console.log("probe " + JSON.stringify({
      read: attempt(() => readFileSync(${
    JSON.stringify(join(root, "README.md"))
  })),
      write: attempt(() => writeFileSync(${JSON.stringify(forbidden)}, "")),
      change: attempt(() => writeFileSync(${
    JSON.stringify(join(app, "build/main.js"))
  }, "")),
      spawn: attempt(() => spawnSync("true")),
      thread: attempt(() => new Worker("", { eval: true })),
      own: attempt(() => writeFileSync(${
    JSON.stringify(join(dataDir, "probe"))
  }, "")),
    }));`;
  return ["--import", `data:text/javascript,${encodeURIComponent(code)}`];
}

describe("the command locked", { skip: notInNode }, () => {
  test("lets the server read itself, the data, and the files that its settings name", () => {
    const env = {
      TLS_CERT: "a.crt",
      TLS_KEY: "",
      COLLECTIONS: "an api.mjs",
      PUBLIC: "a front end",
      ADMIN_PASSWORD_FILE: "admin's",
      ETCD_PASSWORD_FILE: "password",
      JWT_SECRET_FILE: "overridden",
    };
    const flags = new Map([
      ["tls-key", `${process.cwd()}//./a.crt`],
      ["jwt-secret-file", "secrets"],
      ["collections", "another.mjs"],
    ]);
    const found = permissionFlags({ dataDir: "its store", flags }, env);
    const own = fileURLToPath(new URL("../src", import.meta.url));
    const rights = found.filter((flag) => flag.includes("-fs-"));
    assert.equal(found.length - rights.length, major >= 25 ? 2 : 1);
    const allowed = (name: string, kind = "read") =>
      `--allow-fs-${kind}=${resolve(name)}`;
    assert.deepEqual(
      rights,
      [
        ...[own, join(own, "../package.json"), join(own, "../data")],
        // Each once, as Node.js 20 fails if one is named twice.
        ...["a.crt", "another.mjs", "a front end"],
        ...["admin's", "secrets", "password"],
        "its store",
      ].map((name) => allowed(name)).concat(allowed("its store", "write")),
    );
  });

  test(
    "creates the data folder for its user only, serves, and ends on a signal",
    {
      skip: major >= 26,
    },
    async () => {
      const dataDir = join(folder, "new/store");
      const words = ["locked", "--port", "0", "--data-dir", dataDir];
      const child = spawn(process.execPath, ["build/main.js", ...words], {
        cwd: app,
        env: { PATH: process.env["PATH"] },
        stdio: ["ignore", "pipe", "inherit"],
      });
      let output = "";
      for await (const chunk of child.stdout) {
        output += chunk;
        const isListening = /listening on (\S+) as process (\d+)/.exec(output);
        if (!isListening || child.killed) continue;
        const [, origin = "", pid] = isListening;
        assert.notEqual(Number(pid), child.pid);
        assert.equal((await fetch(`${origin}/v1/zoos`)).status, 200);
        assert.equal((await stat(dataDir)).mode & 0o777, 0o700);
        child.kill("SIGTERM");
      }
      if (child.exitCode === null) await once(child, "exit");
      assert.equal(child.exitCode, 0);
      assert.match(output, /"stopped"/);
    },
  );

  test("refuses a path with a wildcard, and creates nothing", async () => {
    const wild = join(folder, "s*");
    const store = ["--data-dir", join(folder, "store")];
    for (const flags of [["--data-dir", wild], [...store, "--public", wild]]) {
      const words = ["locked", "--port", "none", ...flags];
      const { code, stderr } = await runHere(words);
      assert.equal(code, 2, stderr);
      assert.ok(stderr.includes(` more than ${wild}, as it takes * for any`));
    }
    const names = await readdir(folder);
    assert.ok(!names.includes("s*") && !names.includes("store"));
  });

  test("says what to do about a declaration in several files", async () => {
    await writeFile(join(folder, "rules.mjs"), "export const max = 9;");
    const file = join(folder, "several.mjs");
    await writeFile(
      file,
      'import { max } from "./rules.mjs"; export default max;',
    );
    const words = ["build/main.js", "locked", "--collections", file];
    const { status, stderr } = spawnSync(process.execPath, words, { cwd: app });
    assert.equal(status, 2);
    assert.match(
      String(stderr),
      /several\.mjs: .* it can read no other file: put all into one, or start /,
    );
  });

  test("says what to do about a declaration that Node.js reads as a script", async () => {
    const own = join(folder, "script");
    await mkdir(own);
    await writeFile(join(own, "package.json"), '{ "type": "commonjs" }');
    const file = join(own, "books.js");
    await writeFile(file, "export default () => ({});");
    const words = ["build/main.js", "locked", "--collections", file];
    const { status, stderr } = spawnSync(process.execPath, words, { cwd: app });
    assert.equal(status, 2);
    assert.match(String(stderr), /books\.js.*: name it \.mjs, or set "type"/);
  });

  test("ends with the exit code of a server that cannot start", () => {
    const words = ["build/main.js", "locked", "--port", "none"];
    const { status, stderr } = spawnSync(process.execPath, words, { cwd: app });
    assert.equal(status, 2, String(stderr));
  });
});

describe("under Node's permission model", { skip: notInNode }, () => {
  // Without fsync nothing can be promised.
  const isWithoutFsync = major >= 26;

  test("a Node.js that forbids fsync there is refused", {
    skip: !isWithoutFsync,
  }, async () => {
    const starting = startLocked(join(folder, "refused"));
    await assert.rejects(
      starting,
      /Cannot open .*f(?:data)?sync API is disabled/,
    );
  });

  test("only the data folder can be written to, and no process started", {
    skip: isWithoutFsync,
  }, async (t) => {
    const dataDir = join(folder, "probed");
    const server = await startLocked(dataDir, probe(dataDir));
    t.after(() => server.stop());
    const [, outcomes = ""] = /^probe (.*)$/m.exec(server.output()) ?? [];
    assert.deepEqual(JSON.parse(outcomes), {
      read: "ERR_ACCESS_DENIED",
      write: "ERR_ACCESS_DENIED",
      change: "ERR_ACCESS_DENIED",
      spawn: "ERR_ACCESS_DENIED",
      thread: "ERR_ACCESS_DENIED",
      own: "allowed",
    });
  });

  test(
    "a declaration elsewhere is served, also through a link or with another spelling",
    {
      skip: isWithoutFsync,
    },
    async (t) => {
      const file = join(folder, "books.mjs");
      await writeFile(
        file,
        `export default ({ collection }) => ({
        collections: [collection({
          name: "books",
          singular: "book",
          access: { read: "anyone", write: "keeper", delete: "admin" },
          properties: {},
        })],
      });`,
      );
      const link = join(folder, "linked.mjs");
      await symlink(file, link);
      for (const COLLECTIONS of [link, `${folder}//./books.mjs`]) {
        const env = { COLLECTIONS };
        const server = await startLocked(join(folder, "library"), [], env);
        t.after(() => server.stop());
        assert.equal((await server.request("GET", "/v1/books")).text, "[]");
        await server.stop();
      }
    },
  );

  test(
    "a front end's files are served through a link to their folder, and no others",
    {
      skip: isWithoutFsync,
    },
    async (t) => {
      const files = join(folder, "front end");
      await mkdir(join(folder, "release", "assets"), { recursive: true });
      await symlink("release", files);
      await writeFile(join(files, "index.html"), "<h1>Front end</h1>");
      await writeFile(join(files, "assets", "a.js"), "let a;");
      await writeFile(join(folder, "secret.html"), "secret");
      await symlink(join(folder, "secret.html"), join(files, "link.html"));
      const env = { PUBLIC: files, BASE_URL: "/api/" };
      const server = await startLocked(join(folder, "with files"), [], env);
      t.after(() => server.stop());
      const get = async (url: string) => {
        const response = await fetch(server.origin + url);
        return [response.status, await response.text()];
      };
      assert.deepEqual(await get("/"), [200, "<h1>Front end</h1>"]);
      assert.deepEqual(await get("/assets/a.js"), [200, "let a;"]);
      assert.deepEqual(await get("/api/v1/zoos"), [200, "[]"]);
      for (const url of ["/link.html", "/..%2fsecret.html", "/none.js"]) {
        assert.equal((await get(url))[0], 404, url);
      }
    },
  );

  test("records, imports, the secret and the lock survive a kill", {
    skip: isWithoutFsync,
  }, async (t) => {
    const dataDir = join(folder, "killed");
    const server = await startLocked(dataDir);
    t.after(() => server.stop());
    const token = await server.signIn();
    const json = { name: "Zoo Basel", city: "Basel", country: "CH" };
    const zoo = await server.request("POST", "/v1/zoos", { token, json });
    assert.equal(zoo.status, 201, zoo.text);
    if (lacks("imports") === false) {
      const line = { ...json, name: "Zoo Zürich", city: "Zürich" };
      const { headers } = await server.request("POST", "/v1/zoos", {
        token,
        raw: JSON.stringify(line),
        headers: { "content-type": "application/x-ndjson" },
      });
      const task = headers.get("location") ?? "";
      let status = "";
      while (status !== "succeeded") {
        ({ body: { status } } = await server.request("GET", task, { token }));
        assert.notEqual(status, "failed");
      }
    }
    await assert.rejects(startLocked(dataDir), /another process/);
    await server.end("SIGKILL");

    const again = await startLocked(dataDir);
    t.after(() => again.stop());
    const { body } = await again.request("GET", "/v1/zoos?fields=name", {
      token,
    });
    const names = body.map(({ name }: { name: string }) => name);
    assert.deepEqual(
      names,
      lacks("imports") ? ["Zoo Basel"] : ["Zoo Basel", "Zoo Zürich"],
    );
    assert.equal(await again.end(), 0);
    const locks = (await readdir(dataDir)).filter((name) =>
      /^lock-/.test(name)
    );
    assert.deepEqual(locks, []);
  });

  test("a certificate elsewhere is read again on SIGHUP", {
    skip: isWithoutFsync || !hasOpenssl && "there is no openssl",
  }, async (t) => {
    const env = {
      TLS_CERT: join(folder, "elsewhere.pem"),
      TLS_KEY: join(folder, "elsewhere.key"),
    };
    const kind = ["req", "-x509", "-nodes", "-newkey", "rsa:2048"];
    const files = ["-keyout", env.TLS_KEY, "-out", env.TLS_CERT];
    const args = [...kind, "-subj", "/CN=localhost", ...files];
    execFileSync("openssl", args, { stdio: "pipe" });
    const server = await startLocked(join(folder, "over TLS"), [], env);
    t.after(() => server.stop());
    assert.match(server.output(), /listening on https:/);
    server.child.kill("SIGHUP");
    while (!server.output().includes("reloaded the certificate")) {
      assert.ok(server.child.stdout);
      await once(server.child.stdout, "data");
    }
  });

  test("a snapshot and a new log are written", {
    skip: isWithoutFsync,
  }, async (t) => {
    const dataDir = join(folder, "with a damaged snapshot");
    const first = await startLocked(dataDir);
    t.after(() => first.stop());
    assert.equal(await first.end(), 0);
    const store = await openStore({ folder: dataDir, tables: [] });
    await store.checkpoint();
    await store.close();
    // It is replaced from the log before it.
    await truncate(join(dataDir, "snapshot-2.jsonl"), 300);
    const server = await startLocked(dataDir);
    t.after(() => server.stop());
    while (!server.output().includes("Wrote a snapshot")) {
      assert.ok(server.child.stdout);
      await once(server.child.stdout, "data");
    }
    assert.equal(await server.end(), 0);
    const names = await readdir(dataDir);
    assert.ok(names.includes("wal-3.jsonl"), names.join(" "));
    assert.ok(names.includes("snapshot-3.jsonl"), names.join(" "));
  });
});

describe("a data folder that other users may access", {
  skip: process.platform === "win32"
    ? "there are no permission bits"
    : notInNode,
}, () => {
  for (const mode of [0o750, 0o720, 0o701]) {
    test(`is refused with mode ${mode.toString(8)}`, async () => {
      const shared = join(folder, `shared with ${mode}`);
      await mkdir(shared);
      await chmod(shared, mode);
      const { code, stderr } = await run(["serve", "--data-dir", shared]);
      assert.equal(code, 1);
      assert.equal(
        stderr,
        `zoo-api: other users may access the folder ${shared} (mode ${
          mode.toString(8)
        }): run "chmod 700 '${shared}'", or choose a folder for the data alone\n`,
      );
      assert.deepEqual(await readdir(shared), []);
    });
  }

  test("is accepted after the command that the message names", async (t) => {
    const shared = join(folder, "shared");
    await mkdir(shared);
    await chmod(shared, 0o755);
    const add = ["user", "add", "kim", "--data-dir", shared];
    const refused = await run(add, { input: "a long enough one\n" });
    assert.equal(refused.code, 1);
    const [, command = ""] = /run "(.*)",/.exec(refused.stderr) ?? [];
    execFileSync("sh", ["-c", command]);
    const server = await start({ folder: shared });
    t.after(() => server.stop());
  });

  test("can still be read by the commands that change nothing", async (t) => {
    const server = await start({ folder: join(folder, "read") });
    t.after(() => server.stop());
    await server.end();
    await chmod(server.folder, 0o755);
    const { code, stdout } = await run(["check", "--data-dir", server.folder]);
    assert.equal(code, 0, stdout);
  });
});

const prefix = boundUser();

test(
  "a data folder of another user is refused with who runs the server, and what to do",
  {
    skip: prefix === undefined,
  },
  async () => {
    const closed = join(folder, "of another user");
    await mkdir(closed, { mode: 0 });
    await assert.rejects(
      start({ folder: closed, ...prefix && { prefix } }),
      new RegExp(
        `: user ${process.getuid?.()} may not access it: run this as the user who owns it, or change that with chown; if it is yours, `,
      ),
    );
  },
);

describe("the unit for systemd in the README", { skip: notInNode }, () => {
  const [, unit = ""] = /^```ini\n([^]*?)^```$/m.exec(readme) ?? [];
  const hasSystemd = spawnSync("systemd-analyze", ["--version"]).status === 0;

  test("is accepted by systemd", {
    skip: hasSystemd ? false : "systemd-analyze is not installed",
  }, async () => {
    const file = join(folder, "zoo-api.service");
    await writeFile(file, unit.replace("/usr/bin/node", process.execPath));
    const { status, stdout, stderr } = spawnSync(
      "systemd-analyze",
      ["verify", "--man=no", file],
      { encoding: "utf8" },
    );
    assert.equal(stdout + stderr, "");
    assert.equal(status, 0);
  });

  test("starts the server with the password of its credential", {
    skip: major >= 26 && "this Node.js forbids fsync there",
  }, async (t) => {
    const dataDir = join(folder, "service");
    await mkdir(dataDir, { mode: 0o700 });
    const credentials = join(folder, "credentials");
    await mkdir(credentials);
    await writeFile(
      join(credentials, "password"),
      "correct horse of systemd\n",
    );
    const [, line = ""] = /^ExecStart=((?:.*\\\n)*.*)$/m.exec(unit) ?? [];
    const [node, ...words] = line.replaceAll("\\\n", " ").split(/ +/)
      .map((word) =>
        word.replace("%d", credentials)
          .replace("/opt/zoo-api", app)
          .replace("/var/lib/zoo-api", dataDir)
          .replace("--permission", permissionFlag)
      );
    const program = words.indexOf("build/main.js");
    assert.equal(node, "/usr/bin/node");
    assert.match(unit, /^Environment=DATA_DIR=\/var\/lib\/zoo-api /m);
    assert.match(unit, /^StateDirectory=zoo-api$/m);
    const server = await start({
      main: join(app, "build/main.js"),
      nodeArgs: [...words.slice(0, program), ...probe(dataDir)],
      args: words.slice(program + 1),
      folder: dataDir,
      isNew: true,
      env: {
        ADMIN_PASSWORD: "",
        JWT_SECRET: "",
        NODE_V8_COVERAGE: "",
        COLLECTIONS: "",
      },
    });
    t.after(() => server.stop());
    assert.ok(await server.signIn("admin", "correct horse of systemd"));
    assert.match(server.output(), /^probe .*"write":"ERR_ACCESS_DENIED"/m);
  });
});
