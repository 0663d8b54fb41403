/**
 * The Dockerfile without a container engine: its commands, word for word, in
 * folders that stand for those of the image.
 */

import { strict as assert } from "node:assert";
import { execFileSync, spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { cp, mkdir, readFile, rm, symlink, writeFile } from "node:fs/promises";
import { createServer as createSecureServer } from "node:https";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { after, before, test } from "node:test";
import {
  adminPassword,
  removeFolder,
  request,
  root,
  temporaryFolder,
} from "./harness.ts";

const dockerfile = await readFile(join(root, "Dockerfile"), "utf8");
const major = Number(process.versions.node.split(".")[0]);
// The image's own Node.js knows the flags; an older one does not.
const skip = major < 22 ? `Node.js ${process.version} is too old` : false;

/** The words of an instruction in its JSON form. */
function words(instruction: string, indent = " *"): string[] {
  const line = new RegExp(`^${indent}${instruction} (\\[.*\\])$`, "m");
  const found = line.exec(dockerfile);
  assert.ok(found?.[1], `no ${instruction}`);
  return JSON.parse(found[1]);
}

let folder: string;
before(async () => {
  folder = await temporaryFolder();
  await mkdir(join(folder, "app/data"), { recursive: true });
  await mkdir(join(folder, "data"), { mode: 0o700 });
  const stages = dockerfile.split(/^(?=FROM )/m).slice(1);
  assert.equal(stages.length, 2);
  for (const [at, stage] of stages.entries()) {
    const app = join(folder, at === 0 ? "build" : "app");
    for (const [, words = ""] of stage.matchAll(/^COPY ([^-].*)$/gm)) {
      const [to = "", ...from] = words.split(" ").reverse();
      assert.match(to, /^\.\//);
      for (const each of from) {
        const target = to === "./" ? join(app, each) : join(app, to);
        await cp(join(root, each), target, { recursive: true });
      }
    }
  }
  // The packages that `npm ci` would install are already here.
  assert.match(stages[0] ?? "", /^RUN npm ci --ignore-scripts$/m);
  await symlink(
    join(root, "node_modules"),
    join(folder, "build/node_modules"),
  );
  assert.match(stages[0] ?? "", /^RUN npm run build$/m);
  const cwd = join(folder, "build");
  execFileSync("npm", ["run", "build"], { cwd, stdio: "pipe" });
  const built = /^COPY --from=build \/app\/(\S+) \.\/(\S+)$/m.exec(dockerfile);
  const [, from = "", to = ""] = built ?? assert.fail("nothing is built");
  await cp(join(cwd, from), join(folder, "app", to), { recursive: true });
});
after(() => removeFolder(folder));

test(
  "the entry point serves with one writable place, is healthy, and stops on a signal",
  { skip },
  async () => {
    const [, ...flags] = words("ENTRYPOINT");
    const secrets = join(folder, "run/secrets");
    await mkdir(secrets, { recursive: true });
    const passwordFile = join(secrets, "password");
    await writeFile(passwordFile, `${adminPassword}\n`);
    const args = [...flags, ...words("CMD", ""), "--seed", "data/seed.json"]
      .map((word) =>
        word.replace(/=\/(app|data|run\/secrets)$/, `=${folder}/$1`)
      );
    args.push("--admin-password-file", passwordFile);
    // From Node.js 25 on, the permission model also guards the network.
    if (major >= 25) args.unshift("--allow-net");
    const child = spawn(process.execPath, args, {
      cwd: join(folder, "app"),
      env: {
        HOST: "0.0.0.0",
        PORT: "0",
        DATA_DIR: join(folder, "data"),
        BASE_URL: "https://zoo.example.org/api",
      },
      stdio: ["ignore", "pipe", "pipe"],
    });
    const closed = once(child, "close");
    let output = "";
    child.stderr.setEncoding("utf8").on("data", (text) => output += text);
    child.stdout.setEncoding("utf8").on("data", (text) => output += text);
    try {
      if (major >= 26) {
        // Without fsync nothing can be promised: it refuses to start, and says
        // why.
        assert.deepEqual(await closed, [1, null]);
        assert.match(
          output,
          /^zoo-api: cannot open .*f(?:data)?sync API is disabled/mi,
        );
        return;
      }
      while (!/listening on \S+:(\d+)/.test(output)) {
        await Promise.race([
          once(child.stdout, "data"),
          closed.then(() => assert.fail(output)),
        ]);
      }
      const port = /listening on \S+:(\d+)/.exec(output)?.[1] ?? "";
      const zoo = await request(
        "GET",
        `http://127.0.0.1:${port}/api/v1/zoos/1`,
      );
      assert.equal(zoo.status, 200);
      assert.equal(await health(port), 0);
      await rm(join(folder, "data/wal-1.jsonl")); // the next write fails
      await request("POST", `http://127.0.0.1:${port}/api/v1/authorizations`, {
        json: { username: "admin", password: adminPassword },
      });
      assert.equal(await health(port), 1);
      child.kill("SIGTERM");
      assert.deepEqual(await closed, [0, null], output);
    } finally {
      child.kill("SIGKILL");
    }
  },
);

test("a declaration that is mounted beside the build is served", {
  skip: skip || major >= 26 && "this Node.js forbids fsync there",
}, async () => {
  const [, ...flags] = words("ENTRYPOINT");
  const data = join(folder, "library");
  await mkdir(data, { mode: 0o700 });
  await writeFile(
    join(folder, "app/library.ts"),
    `export default ({ collection }: { collection: Function }) => ({
      collections: [collection({
        name: "books",
        singular: "book",
        access: { read: "anyone", write: "keeper", delete: "admin" },
        properties: {},
      })],
    });`,
  );
  const args = [...flags, ...words("CMD", "")].map((word) =>
    word.replace(/=\/(app|run\/secrets)$/, `=${folder}/$1`)
      .replace(/=\/data$/, `=${data}`)
  );
  if (major >= 25) args.unshift("--allow-net");
  const child = spawn(process.execPath, args, {
    cwd: join(folder, "app"),
    env: { PORT: "0", DATA_DIR: data, COLLECTIONS: "library.ts" },
    stdio: ["ignore", "pipe", "inherit"],
  });
  const closed = once(child, "close");
  let output = "";
  child.stdout.setEncoding("utf8").on("data", (text) => output += text);
  try {
    while (!/listening on \S+:(\d+)/.test(output)) {
      await Promise.race([
        once(child.stdout, "data"),
        closed.then(() => assert.fail(output)),
      ]);
    }
    const [, port = ""] = /listening on \S+:(\d+)/.exec(output) ?? [];
    const books = `http://127.0.0.1:${port}/v1/books`;
    assert.equal((await request("GET", books)).text, "[]");
  } finally {
    child.kill("SIGKILL");
    await closed;
  }
});

const hasOpenssl = spawnSync("openssl", ["version"]).status === 0;

test("the health check asks a server over TLS too", {
  skip: !hasOpenssl && "there is no openssl",
}, async (t) => {
  const key = join(folder, "key.pem");
  const cert = join(folder, "cert.pem");
  const args = ["req", "-x509", "-nodes", "-newkey", "rsa:2048"];
  const files = ["-subj", "/CN=zoo.example.org", "-keyout", key, "-out", cert];
  execFileSync("openssl", [...args, ...files], { stdio: "pipe" });
  const options = { key: await readFile(key), cert: await readFile(cert) };
  let status = 200;
  const server = createSecureServer(options, ({ url }, response) => {
    response.writeHead(url === "/api/health" ? status : 404).end();
  }).listen(0, "127.0.0.1");
  t.after(() => server.close());
  await once(server, "listening");
  const address = server.address();
  const port = String(typeof address === "object" ? address?.port : 0);
  assert.equal(await health(port, { TLS_CERT: cert }), 0);
  status = 503;
  assert.equal(await health(port, { TLS_CERT: cert }), 1);
});

test("the health check fails if there is no response", async () => {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  server.close();
  await once(server, "close");
  assert.equal(await health(String(port)), 1);
});

/** The exit code of the health check. */
async function health(
  port: string,
  env: Readonly<Record<string, string>> = {},
): Promise<number | null> {
  const [node, ...args] = words("CMD", " +");
  assert.equal(node, "node");
  const child = spawn(process.execPath, args, {
    env: { PORT: port, BASE_URL: "https://zoo.example.org/api", ...env },
    stdio: "ignore",
  });
  const [code] = await once(child, "close");
  return code;
}

test("the image has a supported Node.js, does not run as root, and holds no packages", () => {
  // Node.js 26 forbids fsync with --permission.
  assert.match(dockerfile, /^FROM node:24-slim$/m);
  assert.match(dockerfile, /^USER node$/m);
  assert.match(dockerfile, /^VOLUME \/data$/m);
  const [, image = ""] = dockerfile.split(/^FROM .* AS build$/m)[1]
    ?.split(/^(?=FROM )/m) ?? [];
  assert.match(image, /^ENTRYPOINT/m);
  assert.doesNotMatch(image, /npm|curl|apt|node_modules/);
});
