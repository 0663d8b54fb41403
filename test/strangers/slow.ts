/**
 * Attacks a server with slowhttptest: a thousand connections that send their
 * header section or body slowly, or read a response slowly. Meanwhile each
 * request of a well-behaved client must succeed within a second, a sign-in
 * within two; else the exit code is 1. On a busy machine, `--patience` multiplies
 * these limits.
 *
 *     node --import tsx test/strangers/slow.ts --seconds 3
 */

import { execFile } from "node:child_process";
import { readFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs, promisify } from "node:util";
import {
  adminPassword,
  removeFolder,
  root,
  start,
  temporaryFolder,
} from "../harness.ts";
import { Client, type Times } from "../siege/client.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "30" },
    connections: { type: "string", default: "1000" },
    patience: { type: "string", default: "1" },
  },
});

/** How much longer requests may take on a busy machine. */
const patience = Number(values.patience);
/** How long a request of the well-behaved client may take. */
const maxMs = 1000 * patience;
/** How long its sign-ins may take, of which hashing takes a quarter of a second. */
const maxSignInMs = 2000 * patience;

/** How long the client runs before an attack, so that its connections are open. */
const leadMs = 500;

/** The flags of each attack, and the path that it requests. */
const attacks: Readonly<
  Record<string, readonly [flags: string, path: string]>
> = {
  "slow headers": ["-H -i 1 -x 24", "/v1/animals"],
  "slow bodies": ["-B -i 1 -f application/json", "/v1/authorizations"],
  "slow readers": ["-X -n 1 -w 1 -y 64 -z 8 -k 3", "/v1/openapi.json"],
};

/** Runs an attack, and returns the most connections that were open at a time. */
async function attack(flags: string, url: string): Promise<number> {
  const { seconds, connections } = values;
  const size = ["-c", connections, "-r", "500", "-l", seconds];
  const args = [...flags.split(" "), ...size, "-g", "-o", report, "-u", url];
  await promisify(execFile)("slowhttptest", args);
  const rows = (await readFile(`${report}.csv`, "utf8")).trim().split("\n");
  const column = rows[0]?.split(",").indexOf("Connected") ?? -1;
  return Math.max(
    ...rows.slice(1).map((row) => Number(row.split(",")[column])),
  );
}

/** Describes the times of one kind of request; also returns whether all succeeded in time. */
function judge(
  name: string,
  times: Times,
  maxMs: number,
): [text: string, isGood: boolean] {
  const [p50, p99, max = NaN] = [0.5, 0.99, 1].map((part) =>
    times.quantile(part)
  );
  const text = `${name} ${p50}, ${p99}, ${max} ms, ${times.failed} failed`;
  return [text, max <= maxMs && times.failed === 0];
}

const folder = await temporaryFolder();
const report = join(folder, "report");
const server = await start({
  seed: JSON.parse(await readFile(join(root, "data/seed.json"), "utf8")),
  env: { LOG: "error" },
  hashesFully: true,
});
const token = await server.signIn();
const json = { username: "boss", role: "admin", password: adminPassword };
await server.request("POST", "/v1/users", { json, token });
for (const [name, [flags, path]] of Object.entries(attacks)) {
  const client = new Client(server.port);
  const running = client.run();
  await delay(leadMs);
  const open = await attack(flags, server.origin + path);
  client.stop();
  await running;
  const results = [
    judge("GET", client.get, maxMs),
    judge("page", client.page, maxMs),
    judge("sign-in", client.signIn, maxSignInMs),
  ];
  const texts = results.map(([text]) => text).join("; ");
  process.stdout.write(`${open} ${name}; p50, p99, max of ${texts}\n`);
  const isHeld = results.every(([, isGood]) => isGood) && open > 0;
  if (!isHeld) process.exitCode = 1;
}
await server.stop();
await removeFolder(folder);
