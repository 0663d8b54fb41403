/**
 * A server with real proxies in front of it: nginx and Caddy, each with the
 * configuration that the README shows. Needs both, openssl and curl.
 *
 *     node --import tsx test/proxy/run.ts [nginx] [Caddy]
 */

import { strict as assert } from "node:assert";
import { type ChildProcess, execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, readdirSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { request } from "node:https";
import { createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as sleep } from "node:timers/promises";
import {
  jwtSecret,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";

/**
 * After this time something counts as hanging. It is below the 15 s of a
 * heartbeat, which could flush what a proxy holds back.
 */
const patienceMs = 10_000;

/** The address from which a client connects: not the one that the server trusts. */
const client = "127.0.0.2";
/** An address that the client forges. */
const invented = "203.0.113.9";

/** A proxy that runs. */
interface Proxy {
  readonly name: string;
  readonly port: number;
  readonly server: Server;
  readonly token: string;
}

/** A proxy that can be started. */
interface Program {
  readonly name: string;
  /** The language of its block in the README. */
  readonly language: string;
  /** Completes the block to a configuration file, for a port and the server's port. */
  readonly configure: (
    block: string,
    ports: { readonly own: number; readonly server: number },
    folder: string,
  ) => string;
  readonly check: (file: string) => readonly string[];
  readonly run: (file: string) => readonly string[];
}

const programs: readonly Program[] = [
  {
    name: "nginx",
    language: "nginx",
    configure: (block, { own, server }, folder) => {
      const files = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
        .map((kind) => `${kind}_temp_path ${folder}/${kind};`).join("\n");
      const user = process.getuid?.() === 0 ? "user root;" : "";
      return `${user} daemon off; pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events {}
http {
access_log off;
${files}
${
        block
          .replace("listen 443", `listen ${own}`)
          .replaceAll("/etc/ssl/api", `${folder}/api`)
          .replace("127.0.0.1:3000", `127.0.0.1:${server}`)
      }}
`;
    },
    check: (file) => ["nginx", "-t", "-q", "-c", file],
    run: (file) => ["nginx", "-c", file],
  },
  {
    name: "Caddy",
    language: "caddyfile",
    configure: (block, { own, server }, folder) =>
      `{
  admin off
  auto_https disable_redirects
  skip_install_trust
  storage file_system ${folder}/caddy
}
${
        block
          .replace(
            "api.example.com {",
            `https://localhost:${own} {\n  tls internal`,
          )
          .replace("127.0.0.1:3000", `127.0.0.1:${server}`)
      }`,
    check: (file) => [
      "caddy",
      "validate",
      "--adapter=caddyfile",
      `--config=${file}`,
    ],
    run: (file) => ["caddy", "run", "--adapter=caddyfile", `--config=${file}`],
  },
];

function say(what: string): void {
  process.stdout.write(`${process.uptime().toFixed(0)} s: ${what}\n`);
}

/** Waits until a condition holds. */
async function until(what: string, holds: () => unknown): Promise<void> {
  const signal = AbortSignal.timeout(patienceMs);
  while (!await holds()) {
    assert.ok(!signal.aborted, `waited in vain for ${what}`);
    await sleep(20);
  }
}

async function findFreePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await once(server, "listening");
  const address = server.address();
  server.close();
  await once(server, "close");
  assert.ok(typeof address === "object" && address !== null);
  return address.port;
}

/** Begins a request through the proxy, as a remote client would. */
function send(
  { port, token }: Pick<Proxy, "port" | "token">,
  [method, path]: readonly [method: string, path: string],
  headers: Readonly<Record<string, string>> = {},
) {
  const sent = request({
    host: "localhost",
    port,
    method,
    path,
    headers: { authorization: `Bearer ${token}`, ...headers },
    localAddress: client,
    family: 4,
    rejectUnauthorized: false, // it would reject the certificate, which is self-signed
    signal: AbortSignal.timeout(3 * patienceMs),
  });
  let text = "";
  const response = new Promise<{ status: number; text: string }>(
    (resolve, reject) => {
      sent.on("error", reject);
      sent.once("response", (message) => {
        message.setEncoding("utf8").on("data", (part) => text += part);
        message.once("error", reject);
        message.once("end", () => {
          resolve({ status: message.statusCode ?? 0, text });
        });
      });
    },
  );
  response.catch(() => {}); // a check may have failed before it waits
  return { sent, response, received: () => text };
}

async function ask(
  proxy: Pick<Proxy, "port" | "token">,
  what: readonly [method: string, path: string],
  json?: unknown,
) {
  const headers: Record<string, string> = json === undefined
    ? {}
    : { "content-type": "application/json" };
  const { sent, response } = send(proxy, what, headers);
  sent.end(json === undefined ? undefined : JSON.stringify(json));
  return await response;
}

/** Records are served, with URLs that lead through the proxy. */
async function checkRecords(proxy: Proxy): Promise<void> {
  const { status, text } = await ask(proxy, ["GET", "/v1/zoos/1"]);
  assert.equal(status, 200, text);
  const { url } = JSON.parse(text);
  assert.equal(url, `https://localhost:${proxy.port}/v1/zoos/1`);
}

/** An event arrives even if nothing follows it. */
async function checkEvents(proxy: Proxy): Promise<void> {
  const { sent, received } = send(proxy, ["GET", "/v1/events"]);
  sent.end();
  await until("the head of the stream", () => received().includes("\n\n"));
  for (const name of ["Momo", "Ada"]) {
    const json = { name };
    const { status } = await ask(proxy, ["PATCH", "/v1/animals/1"], json);
    assert.equal(status, 201);
    await until(`the event of ${name}`, () => received().includes(name));
  }
  sent.destroy();
}

/** An import of some megabytes reaches the server while it is being sent, and succeeds. */
async function checkImport(proxy: Proxy): Promise<void> {
  const line = JSON.stringify({ zoo_id: 1, animal_type_id: 7, name: "Nima" });
  const count = 100_000;
  const half = Buffer.from(`${line}\n`.repeat(count / 2));
  const { sent, response } = send(proxy, ["POST", "/v1/animals"], {
    "content-type": "application/x-ndjson",
    "content-length": `${2 * half.length}`,
  });
  sent.write(half);
  const spool = join(proxy.server.folder, "spool");
  await until(
    "the first half",
    () => existsSync(spool) && readdirSync(spool).length > 0,
  );
  sent.end(half);
  const { status, text } = await response;
  assert.equal(status, 202, text);
  const { pathname } = new URL(JSON.parse(text).url);
  const isDone = async () => {
    const task = JSON.parse((await ask(proxy, ["GET", pathname])).text);
    assert.notEqual(task.status, "failed");
    return task.status === "succeeded" && task.imported === count;
  };
  while (!await isDone()) await sleep(100);
}

/** No spelling of the path shows the metrics. */
async function checkMetrics(proxy: Proxy): Promise<void> {
  const paths = [
    "/metrics",
    "/metrics?",
    "/metrics/",
    "//metrics",
    "/./metrics",
    "/v1/../metrics",
    "/%6detrics",
    "/metrics%20",
    "/METRICS",
  ];
  for (const path of paths) {
    const { status, text } = await ask({ ...proxy, token: "" }, ["GET", path]);
    assert.notEqual(status, 200, path);
    assert.doesNotMatch(text, /# HELP/, path);
  }
  const { status } = await ask(proxy, ["GET", "/metrics"]);
  assert.equal(status, 404, "an admin is outside too");
}

/** The log names the client, not the proxy, nor the forged address. */
async function checkClient(proxy: Proxy): Promise<void> {
  const { server, port } = proxy;
  const before = server.output().length;
  const printed = () => server.output().slice(before);
  for (const field of ["x-forwarded-for", "forwarded"]) {
    const value = field === "forwarded" ? `for=${invented}` : invented;
    const attempt = send({ port, token: "" }, ["POST", "/v1/authorizations"], {
      "content-type": "application/json",
      [field]: value,
    });
    attempt.sent.end('{"username":"nobody","password":"wrong password"}');
    assert.equal((await attempt.response).status, 401);
  }
  assert.ok(!printed().includes(invented), printed());
  assert.equal(printed().split(`"${client}"`).length - 1, 2, printed());
}

/** Starts a proxy in front of a new server, and checks it. */
async function checkProgram(program: Program, block: string): Promise<void> {
  const { name, configure, check, run } = program;
  const folder = await temporaryFolder();
  const own = await findFreePort();
  let child: ChildProcess | undefined;
  const kill = () => void child?.kill();
  const server = await start({
    seed: JSON.parse(await readFile(join(root, "data/seed.json"), "utf8")),
    args: ["--trust-proxy", "127.0.0.1"],
    env: { BASE_URL: `https://localhost:${own}`, JWT_SECRET: jwtSecret },
  });
  try {
    makeCertificate(folder);
    const file = join(folder, "configuration");
    const ports = { own, server: server.port };
    await writeFile(file, configure(block, ports, folder));
    const [checker = "", ...checkArgs] = check(file);
    execFileSync(checker, checkArgs, { stdio: "pipe" });
    const [runner = "", ...args] = run(file);
    const env = { ...process.env, HOME: folder };
    child = spawn(runner, args, { env, stdio: "ignore" });
    process.once("exit", kill);
    const token = await server.signIn();
    const proxy = { name, port: own, server, token };
    await until(
      `${name} to listen`,
      () => ask(proxy, ["GET", "/health"]).catch(() => undefined),
    );
    await checkRecords(proxy);
    say(`${name}: records are served, with its URLs`);
    await checkEvents(proxy);
    say(`${name}: events arrive at once`);
    await checkImport(proxy);
    say(`${name}: an import is passed on as it arrives`);
    await checkMetrics(proxy);
    say(`${name}: /metrics is refused`);
    await checkClient(proxy);
    say(`${name}: the log names the client`);
  } catch (error) {
    say(`${name} failed: ${server.output()}`);
    const log = await readFile(join(folder, "error.log"), "utf8")
      .catch(() => "");
    say(log);
    throw error;
  } finally {
    process.off("exit", kill);
    const ended = child && child.exitCode === null && once(child, "exit");
    kill();
    await ended;
    await server.stop();
    await removeFolder(folder);
  }
}

/** Creates a certificate as named in the server block of nginx. */
function makeCertificate(folder: string): void {
  const files = ["-keyout", `${folder}/api.key`, "-out", `${folder}/api.crt`];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  const args = ["req", "-x509", "-nodes", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...args, ...kind, ...files], { stdio: "pipe" });
}

const readme = await readFile(join(root, "README.md"), "utf8");
const chosen = process.argv.slice(2);
for (const program of programs) {
  if (chosen.length > 0 && !chosen.includes(program.name)) continue;
  const fence = new RegExp("^```" + program.language + "\\n([^]*?)^```$", "m");
  const [, block = ""] = fence.exec(readme) ?? [];
  assert.notEqual(block, "", program.name);
  await checkProgram(program, block);
}
