/** Many processes that open one folder at once, some of which are killed meanwhile. */

import { type ChildProcess, spawn } from "node:child_process";
import { mkdirSync, readdirSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { openStore, type Store, StoreError } from "../../src/store/store.ts";
import { loaderFor } from "../harness.ts";
import { extension } from "../root.ts";
import type { Random } from "./random.ts";
import { tables } from "./scene.ts";

const program = join(import.meta.dirname, `../store/process${extension}`);

/** Twelve openers in one process; exactly one may win each time. */
export async function lockContests(
  options: { readonly folder: string; readonly rounds: number },
): Promise<void> {
  const folder = join(options.folder, "contest");
  const limits = { reserveBytes: 0 };
  for (let round = 0; round < options.rounds; round++) {
    const results = await Promise.all(
      Array.from(
        { length: 12 },
        () =>
          openStore({ folder, tables, limits }).catch((error) => {
            if (error instanceof StoreError && error.code === "in-use") return;
            throw error;
          }),
      ),
    );
    const owners = results.filter((store): store is Store => !!store);
    await Promise.all(owners.map((store) => store.close()));
    if (owners.length !== 1) {
      throw new Error(`Round ${round}: ${owners.length} own the folder`);
    }
  }
}

/**
 * Processes that start at once while others are killed; never two owners. All
 * rounds use one folder: each begins with what the killed processes of the
 * previous round left, including its owner.
 */
export async function lockRounds(
  options: {
    readonly folder: string;
    readonly rounds: number;
    readonly random: Random;
  },
): Promise<void> {
  const { random } = options;
  const folder = join(options.folder, "rounds");
  mkdirSync(folder, { mode: 0o700 });
  const locks = () =>
    readdirSync(folder).filter((name) => name.startsWith("lock-"));
  for (let round = 0; round < options.rounds; round++) {
    const starters = Array.from({ length: 12 }, () => startOpener(folder));
    const killed = starters.slice(0, 6);
    await Promise.all(killed.map(async ({ child, said }, place) => {
      // Some while they are starting, some when they own the folder or were
      // refused.
      if (place % 2 === 0) await said;
      await delay(random.below(place % 2 === 0 ? 50 : 900));
      child.kill("SIGKILL");
    }));
    const rest = starters.slice(6);
    const said = await Promise.all(rest.map(({ said }) => said));
    const owners = said.filter((each) => each === "open").length;
    const others = said.filter((each) => each === "in-use").length;
    if (owners > 1 || owners + others !== rest.length) {
      throw new Error(`Round ${round}: ${said}`);
    }
    for (const { child } of rest) child.kill("SIGKILL");
    await Promise.all(starters.map(({ ended }) => ended));
    if (locks().length === 0) {
      throw new Error(`Round ${round}: no lock of a killed owner is left`);
    }
  }
  // Nothing that they leave may block the next ones.
  const store = await openStore({ folder, tables });
  await store.close();
  if (locks().length > 0) throw new Error(`${locks()} are left`);
}

/** Starts a process that opens the store in a folder; `said` is the first line of its output. */
export function startOpener(
  folder: string,
  options: {
    readonly prefix?: readonly string[];
    readonly nodeArgs?: readonly string[];
  } = {},
): {
  child: ChildProcess;
  said: Promise<string>;
  ended: Promise<unknown>;
} {
  const [command = "", ...args] = [
    ...(options.prefix ?? []),
    process.execPath,
    ...(options.nodeArgs ?? []),
    ...loaderFor(program),
    program,
    folder,
  ];
  const child = spawn(command, args, { stdio: ["pipe", "pipe", "inherit"] });
  child.stdin.on("error", () => {});
  const ended = new Promise((resolve) => child.once("close", resolve));
  const said = new Promise<string>((resolve) => {
    child.stdout.setEncoding("utf8").once("data", (text) => {
      resolve(text.trim());
    });
    ended.then(() => resolve("nothing"));
  });
  return { child, said, ended };
}
