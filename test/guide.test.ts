/** The operator's guide is true: its units, scripts and commands run in order, in a folder in the place of the machine. */

import assert from "node:assert/strict";
import { mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { createServer } from "node:net";
import { dirname, join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import {
  type Block,
  blocksIn,
  checkLinks,
  read,
  shell,
  zooApi,
} from "./documents.ts";
import { main, temporaryFolder } from "./server.ts";

const blocks = blocksIn("data/README.md");
const machine = temporaryFolder();
const done = new Set<Block>();

/** Returns the block that begins with a text, with the paths of this machine. */
function blockOf(beginning: string) {
  const [block, ...others] = blocks.filter(({ text }) =>
    text.startsWith(beginning)
  );
  assert.ok(block && others.length === 0, beginning);
  done.add(block);
  return block.text.replaceAll(/\/(?:etc|var\/lib)\//g, `${machine}$&`)
    .replaceAll("/usr/lib/node_modules/zoo-api/build/main.js", main)
    .replaceAll(
      "/usr/lib/node_modules/zoo-api",
      dirname(import.meta.dirname),
    )
    .replaceAll("/usr/bin/node", process.execPath)
    .replaceAll(/(?<=[= ])%d/g, join(machine, "credentials"));
}

function write(path: string, text: string, mode = 0o600) {
  mkdirSync(dirname(join(machine, path)), { recursive: true });
  writeFileSync(join(machine, path), text, { mode });
}

/** Starts what a unit starts, and waits until it listens. */
function start(unit: string, log: string) {
  const command = /^ExecStart=(\/.*)$/m.exec(unit)?.[1];
  assert.ok(command);
  return `(exec env PORT=0 ${command} > ${log}) & server=$!
until grep -q listening ${log}; do kill -0 $server; sleep 0.1; done
`;
}
const stop = "kill $server; wait $server\n";

function freePort(): Promise<number> {
  const server = createServer();
  return new Promise((resolve) =>
    server.listen(0, "127.0.0.1", () => {
      const { port } = Object(server.address());
      server.close(() => resolve(port));
    })
  );
}

/** Node's permission model has another flag before 23.5, and forbids fsync in 26. */
const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
const hasPermission = major < 25;
const flag = major > 23 || major === 23 && minor >= 5
  ? "--permission"
  : "--experimental-permission";

test("the guide's service, backup and commands do what it says", async () => {
  write("bin/zoo-api", `#!/bin/sh\nexec ${zooApi} "$@"\n`, 0o700);
  for (
    const name of ["npm", "useradd", "systemctl", "sudo", "docker", "chown"]
  ) {
    write(`bin/${name}`, "#!/bin/sh\n", 0o700);
  }
  write("credentials/password", "admin-password\n");
  write("etc/zoo-api.env", blockOf("DATA_DIR="));
  write("etc/zoo-api.backup", blockOf("#!/bin/sh"));
  write("password.txt", "a long enough one\n");
  const unit = blockOf("[Unit]\nDescription=zoo-api\n");
  const permission = blockOf("[Service]\nExecStart=\n").replace(
    "--permission",
    flag,
  );
  const backup = /^ExecStart=(.*)$/m.exec(
    blockOf("[Unit]\nDescription=Backup"),
  );
  const script = [
    "trap 'kill $server 2> /dev/null || true' EXIT\n",
    blockOf("npm install"),
    blockOf("systemctl enable"),
    blockOf("sudo"),
    blockOf("docker"),
    blockOf("set -a"),
    start(unit, "log"),
    blockOf("# reads what a start").replace(
      "http://localhost:3000",
      "$(grep -o 'http://[0-9.:]*' log)",
    ),
    `${backup?.[1]}\n`,
    `(${
      blockOf(
        "NEWEST=$(ls -d /var/lib/zoo-api-backups/????-??-??-?????? | tail -n 1)\nDRILL",
      )
    })\n`
      .replaceAll("3999", String(await freePort())),
    blockOf("# all collections"),
    stop,
    `(${blockOf("cd").replace("zoo", "exec zoo")}) > log3 & server=$!\n`,
    `until grep -q listening log3; do kill -0 $server; sleep 0.1; done\n${stop}`,
    blockOf("zoo-api user password"),
    blockOf("zoo-api repair"),
    blockOf("zoo-api import"),
    blockOf("zoo-api prune"),
    hasPermission ? start(permission, "log2") + stop : "",
    blockOf(
      "NEWEST=$(ls -d /var/lib/zoo-api-backups/????-??-??-?????? | tail -n 1)\nsystemctl stop",
    ),
    "zoo-api user list\n",
  ].join("");
  const output = await shell(`cd '${machine}'\n${script}`, {
    PATH: `${machine}/bin:${process.env["PATH"]}`,
    FEATURES: "all",
    HOME: machine,
    PORT: "0",
  });
  const outcomes = [
    "^log: generation 1, sequence \\d+$",
    "^1\tadmin\tadmin\t",
    '^{"status":"ok".*: a copy up to sequence \\d+$',
    '^{"status":"ok"',
    "^changed the password of admin$",
    "^created user robin, keeper$",
    "nothing to repair$",
    "^imported 0, rejected 0$",
    "^deleted 0 values of animals\\.nickname$",
    "^1\tadmin\tadmin\t",
  ];
  assert.match(output, new RegExp(outcomes.join("[^]*"), "m"));
  assert.equal(readdirSync(join(machine, "var/lib/zoo-api-backups")).length, 1);
});

test("the guide's units and proxies are valid, where there is what reads them", async () => {
  const units = blocks.filter(({ text }) => text.startsWith("[Unit]"));
  for (const { text } of units) {
    const isTimer = text.includes("[Timer]");
    const name = text.includes("ackup") ? "zoo-api-backup" : "zoo-api";
    write(
      `units/${name}.${isTimer ? "timer" : "service"}`,
      text.replace("User=zoo-api", "DynamicUser=yes")
        .replaceAll("/usr/bin/node", process.execPath),
    );
  }
  const server = blockOf("server {").replace(/^ *ssl_.*$/gm, "")
    .replace("443 ssl", `127.0.0.1:${await freePort()}`);
  write(
    "nginx.conf",
    `pid ${machine}/pid; events {}\nhttp {\n${server}}\n`,
  );
  write("Caddyfile", blockOf("api.example.com {"));
  assert.match(blockOf("scrape_configs:"), /"localhost:3000"/);
  blockOf("[Unit]\nDescription=Nightly");
  await shell(
    `cd '${machine}'
has() { command -v "$1" > /dev/null; }
! has systemd-analyze || systemd-analyze verify units/*
! has nginx || nginx -t -e stderr -p "$PWD" -c nginx.conf
! has caddy || caddy adapt --config Caddyfile --adapter caddyfile`,
    { HOME: machine },
  );
});

test("each block of the guide has been run", () => {
  const others = blocks.filter((block) =>
    !done.has(block) && block.section !== "Programs"
  );
  assert.deepEqual(others, []);
});

test("the guide names this version, and is in the package", () => {
  const { version, files } = JSON.parse(read("package.json"));
  const guide = read("data/README.md");
  assert.ok(guide.includes(`./zoo-api-${version}.tgz`));
  assert.match(read("data/CHANGELOG.md"), new RegExp(`^## ${version}$`, "m"));
  for (const path of ["data/README.md", "data/CHANGELOG.md"]) {
    assert.ok(files.includes(path), path);
    checkLinks(path);
  }
});
