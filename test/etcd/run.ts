/**
 * The torture of servers that share a store in etcd: random requests through
 * all of them, while servers and nodes of etcd are killed, frozen and
 * restarted. Then all servers must agree, and what the clients were told must
 * be linearizable.
 *
 *     npm run torture:etcd -- --rounds 5 --seconds 15
 *     npm run torture:etcd -- --defects
 *
 * `--defects` proves that it can fail: each of the seeded defects must be
 * caught. `--calm` causes no faults. With `--local` the servers have
 * `READS=local`, and a GET may show a state of a second before. On a failure it keeps the history, prints
 * where, and ends with 1.
 */

import { writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { Random } from "../torture/random.ts";
import { buildInto, patchBuild, startServers } from "./cluster.ts";
import { defects } from "./defects.ts";
import { allFaults, directFaults, type Fault } from "./faults.ts";
import { type EtcdCluster, requireEtcd, startEtcd } from "./etcd.ts";
import { type RoundReport, runRound } from "./round.ts";
import { collections } from "./workload.ts";

const { values } = parseArgs({
  options: {
    rounds: { type: "string", default: "3" },
    seconds: { type: "string", default: "12" },
    clients: { type: "string", default: "12" },
    seed: { type: "string" },
    defects: { type: "boolean", default: false },
    defect: { type: "string" },
    calm: { type: "boolean", default: false },
    local: { type: "boolean", default: false },
  },
});

/** Within so many a defect is caught. */
const roundsPerDefect = 20;

const seed = Number(values.seed ?? Date.now() % 1_000_000);

function say(text: string): void {
  process.stdout.write(`${text}\n`);
}

/** Prints what happened in a round; keeps everything if it failed. */
function report(number: number, round: RoundReport): void {
  const { history, failures, nemesis, agreedMs } = round;
  const counts = [...history.counts].sort().map(([name, count]) =>
    `${name} ${count}`
  );
  const sum = [...history.counts.values()].reduce((a, b) => a + b, 0);
  say(
    `Round ${number}: ${sum} requests, ${nemesis.length} faults and repairs, ` +
      `agreed after ${agreedMs.toFixed(0)} ms, longest response ${
        history.longestMs.toFixed(0)
      } ms: ${counts.join(", ")}`,
  );
  if (failures.length === 0) return;
  const file = join(tmpdir(), `zoo-api-etcd-${seed}-${number}.json`);
  const operations = Object.fromEntries(history.operations);
  const kept = { failures, nemesis, operations };
  writeFileSync(file, JSON.stringify(kept, null, 1));
  for (const failure of failures.slice(0, 5)) say(`!!! ${failure}`);
  say(`!!! ${failures.length} failures, kept in ${file}; seed ${seed}`);
}

/** Starts servers on a new prefix, and runs rounds until one fails; returns its failures. */
async function rounds(
  etcd: EtcdCluster,
  main: string,
  { prefix, begun = 0, count, ms, faults }: {
    readonly prefix: string;
    /** How many rounds were begun before: no two have the same random numbers. */
    readonly begun?: number;
    readonly count: number;
    readonly ms: number;
    readonly faults: readonly Fault[];
  },
): Promise<{ readonly failures: readonly string[]; readonly number: number }> {
  const store = etcd.store(prefix, faults.includes("lose answers"));
  const env = {
    FEATURES: "idempotency,imports",
    ...values.local && { READS: "local" },
  };
  const servers = await startServers({ store, main, collections, env });
  try {
    for (let number = 1; number <= count; number++) {
      const round = await runRound({
        ...{ number, etcd, servers, ms, faults },
        random: new Random(seed + begun + number),
        staleMs: values.local ? 1000 : 0,
        clients: Number(values.clients),
      });
      if (prefix.startsWith("torture")) report(begun + number, round);
      const { failures } = round;
      if (failures.length > 0) return { failures, number };
    }
    return { failures: [], number: count };
  } finally {
    await servers.stop();
  }
}

/**
 * Runs servers with each defect until it is caught. A round may fail in another
 * way first, as when an import never ends: then others begin with new servers.
 */
async function catchDefects(etcd: EtcdCluster): Promise<void> {
  const chosen = Object.entries(defects)
    .filter(([name]) => name.includes(values.defect ?? ""));
  if (chosen.length === 0) throw new Error(`No defect ${values.defect}`);
  for (const [index, [name, defect]] of chosen.entries()) {
    const main = await patchBuild(folder, `defect-${index}`, [defect]);
    const { faults = [], caught } = defect;
    const ms = faults.length > 0 ? 10_000 : 4000;
    for (let begun = 0, isCaught = false; !isCaught;) {
      if (begun >= roundsPerDefect) {
        throw new Error(`Not caught: a server that ${name}`);
      }
      const { failures, number } = await rounds(etcd, main, {
        ...{ prefix: `defect-${index}-${begun}`, begun, faults, ms },
        count: roundsPerDefect - begun,
      }).catch((error) => ({ failures: [String(error)], number: 1 }));
      begun += number;
      isCaught = failures.some((failure) => caught.test(failure));
      const what = isCaught ? "Caught" : `Not caught, but ${failures}`;
      say(`${what.slice(0, 1000)} in round ${begun}: a server that ${name}`);
    }
  }
}

requireEtcd();
const folder = await temporaryFolder();
const etcd = await startEtcd();
try {
  const main = await buildInto(folder);
  if (values.defects || values.defect) await catchDefects(etcd);
  else {
    // A relay accepts connections also while its node is gone, so half of the
    // rounds are without.
    const half = Math.ceil(Number(values.rounds) / 2);
    for (
      const [prefix, begun, count, faults] of [
        ["torture-direct", 0, half, directFaults],
        ["torture-relayed", half, Number(values.rounds) - half, allFaults],
      ] as const
    ) {
      const { failures } = await rounds(etcd, main, {
        ...{ prefix, begun, count },
        ms: 1000 * Number(values.seconds),
        faults: values.calm ? [] : faults,
      });
      if (failures.length > 0) process.exitCode = 1;
    }
  }
} finally {
  await etcd.stop();
  await removeFolder(folder);
}
