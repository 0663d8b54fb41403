/**
 * Lives of a store in real processes on real disks: killed at random moments,
 * with failing system calls, and with power cuts.
 */

import { execFileSync, spawn } from "node:child_process";
import {
  existsSync,
  mkdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { readStore } from "../../src/cli/read.ts";
import { openStore, type Table } from "../../src/store/store.ts";
import { CommandError } from "../../src/usage.ts";
import { loaderFor } from "../harness.ts";
import { extension } from "../root.ts";
import { describe, type History, historyOf, rebase, verify } from "./oracle.ts";
import type { Random } from "./random.ts";
import { tables } from "./scene.ts";

const program = join(import.meta.dirname, `worker${extension}`);

/** The results of many rounds. */
export interface RoundsReport {
  rounds: number;
  /** Rounds with too few acknowledged writes to prove anything. */
  void: number;
  acknowledged: number;
}

/** The ways to end a process. */
export interface Ending {
  readonly kill: () => void;
  /** Stops it, so that it reports nothing more, and returns once it has stopped. */
  readonly freeze: () => Promise<void>;
}

/** The options of a round. */
export interface Round {
  readonly folder: string;
  /** The file to which the process writes its history: not on a disk that fails with it. */
  readonly books: string;
  readonly history: History;
  /** The words before the command: strace, unshare. */
  readonly prefix?: readonly string[];
  readonly env?: Readonly<Record<string, string>>;
  /** The name of the defect in the process. */
  readonly defect?: string | undefined;
  /** How long the process works if nothing ends it, in seconds. */
  readonly seconds?: number;
  /** Ends the process after it has begun to open the store. */
  readonly end: (opened: Promise<void>, process: Ending) => Promise<void>;
}

/** Runs one process and updates the history; returns how many writes it acknowledged. */
export async function round(options: Round): Promise<number> {
  const { folder, history, prefix = [], seconds = 1000 } = options;
  const bookFile = join(options.books, "book");
  rmSync(bookFile, { force: true });
  const command = [
    ...prefix,
    process.execPath,
    ...loaderFor(program),
    program,
    folder,
    bookFile,
    String(seconds),
    options.defect ?? "",
  ];
  const child = spawn(command[0] ?? "", command.slice(1), {
    stdio: ["pipe", "pipe", "pipe"],
    env: { ...process.env, ...options.env },
    detached: true,
  });
  let output = "";
  let errors = "";
  let opened = () => {};
  let opening = () => {};
  const isOpening = new Promise<void>((resolve) => opening = resolve);
  const isOpen = new Promise<void>((resolve) => opened = resolve);
  child.stderr.setEncoding("utf8").on("data", (text) => errors += text);
  child.stdout.setEncoding("utf8").on("data", (text: string) => {
    output += text;
    if (output.includes("opening\n")) opening();
    if (output.includes("open\n")) opened();
  });
  const ended = new Promise<number | null>((resolve) => {
    child.once("close", resolve);
  });
  child.stdin.on("error", () => {});
  child.stdin.end(
    [...history].map(([key, { sent }]) => `${key} ${sent}`).join("\n"),
  );
  const kill = () => {
    // The whole process group, because strace would not end its child.
    if (child.pid !== undefined && child.exitCode === null) {
      process.kill(-child.pid, "SIGKILL");
    }
  };
  const freeze = async () => {
    if (child.pid === undefined || child.exitCode !== null) return;
    process.kill(-child.pid, "SIGSTOP");
    // The output comes from the main thread of the process.
    const state = () => readFileSync(`/proc/${child.pid}/stat`, "utf8");
    while (!/\) [TZX] /.test(state())) await delay(1);
  };
  await Promise.race([isOpening, ended]);
  const open = Promise.race([isOpen, ended.then(() => {})]);
  await Promise.race([options.end(open, { kill, freeze }), ended]);
  const code = await ended;
  const refused = /is damaged|does not know/.test(errors);
  if (
    refused ||
    (code !== null && code !== 0 && !/StoreError|EIO|ENOSPC|EROFS/.test(errors))
  ) {
    throw new Error(`The process ended with ${code}: ${errors}`);
  }
  return readBook(bookFile, history);
}

/** Adds what a process reported to the history; returns how many writes it acknowledged. */
function readBook(path: string, history: History): number {
  let acknowledged = 0;
  const text = existsSync(path) ? readFileSync(path, "utf8") : "";
  for (const line of text.split("\n")) {
    const [kind, ...numbers] = line.split(" ");
    const [key = 0, version = 0] = numbers.map(Number);
    if (key === 0) continue;
    const book = historyOf(history, key);
    if (kind === "s") book.sent = version;
    if (kind === "r") book.refused.add(version);
    if (kind === "v") book.seen = Math.max(book.seen, version);
    if (kind === "a") book.acknowledged = version;
    if (kind === "a") acknowledged++;
  }
  return acknowledged;
}

/** Reads what a round left, as a restart would, and verifies it. */
export async function verifyFolder(
  folder: string,
  history: History,
): Promise<void> {
  const reading = await readStore(folder, { tables }).catch((error) => {
    if (!(error instanceof CommandError) || history.size > 0) throw error;
  });
  // A kill during creation may leave no store yet.
  if (reading === undefined) return;
  if (reading.refusal !== undefined) throw reading.refusal;
  if (reading.faults.length > 0) {
    const faults = reading.faults.map(({ file, byte, line, message }) =>
      `${file} is damaged (byte ${byte}` +
      `${line === 0 ? "" : `, line ${line}`}: ${message})`
    );
    throw new Error(faults.join("; "));
  }
  verify(named([...reading.tables.values()]), history);
}

/** Verifies the store, and sets the history to what a restart serves. */
export async function settleFolder(
  folder: string,
  history: History,
): Promise<void> {
  await verifyFolder(folder, history);
  const store = await openStore({ folder, tables });
  const all = { zoos: store.table("zoos"), animals: store.table("animals") };
  verify(all, history);
  rebase(all, history);
  await store.close();
}

function named(all: readonly Table[]): { zoos: Table; animals: Table } {
  const find = (name: string) => {
    const found = all.find((table) => table.name === name);
    if (found === undefined) throw new Error(`There is no table ${name}`);
    return found;
  };
  return { zoos: find("zoos"), animals: find("animals") };
}

/** Kills processes at random moments, while they open the store and later. */
export async function killRounds(
  options: {
    readonly folder: string;
    readonly rounds: number;
    readonly random: Random;
  },
): Promise<RoundsReport> {
  const { random } = options;
  const folder = join(options.folder, "store");
  const history: History = new Map();
  const report = { rounds: 0, void: 0, acknowledged: 0 };
  while (report.rounds < options.rounds) {
    const early = random.chance(0.25);
    const acknowledged = await keep(options.folder, history, () =>
      round({
        folder,
        books: options.folder,
        history,
        end: async (opened, { kill }) => {
          if (!early) await opened;
          await delay(random.below(early ? 40 : 200));
          kill();
        },
      }));
    report.acknowledged += acknowledged;
    if (!early && acknowledged < 20) report.void++;
    else report.rounds++;
    const use = random.chance(0.5) ? verifyFolder : settleFolder;
    await keep(options.folder, history, () => use(folder, history));
  }
  return report;
}

const calls = [
  "fdatasync:error=EIO",
  "fdatasync:error=ENOSPC",
  "pwrite64:error=ENOSPC",
  "pwrite64:error=EDQUOT",
  "pwrite64:error=EIO",
  "pwrite64:error=EROFS",
  "pwrite64:retval=17",
  "fsync:error=EIO",
  "rename:error=EIO",
  "rename:error=ENOSPC",
  "ftruncate:error=EIO",
];

/** Makes system calls of a process fail, one kind at one place in each round. */
export async function straceRounds(
  options: {
    readonly folder: string;
    readonly rounds: number;
    readonly random: Random;
  },
): Promise<RoundsReport | string> {
  const { random } = options;
  try {
    execFileSync("strace", ["-o", "/dev/null", "true"], { stdio: "ignore" });
  } catch {
    return "strace cannot run here";
  }
  const report = { rounds: 0, void: 0, acknowledged: 0 };
  for (let each = 0; report.rounds < options.rounds; each++) {
    const base = join(options.folder, `strace-${each}`);
    mkdirSync(base);
    const folder = join(base, "store");
    const history: History = new Map();
    const call = calls[each % calls.length] ?? "";
    // After some calls, either one fails, or all further ones.
    const when = `${5 + random.below(150)}${random.pick(["", "+"])}`;
    const acknowledged = await keep(base, history, () =>
      round({
        folder,
        books: base,
        history,
        seconds: 0.7,
        prefix: [
          "strace",
          "-f",
          "-qq",
          "-o",
          "/dev/null",
          "-e",
          `trace=${call.split(":")[0]}`,
          "-e",
          `inject=${call}:when=${when}`,
        ],
        env: { UV_THREADPOOL_SIZE: "1" },
        end: () => new Promise(() => {}),
      }));
    report.acknowledged += acknowledged;
    if (acknowledged < 20) report.void++;
    if (acknowledged >= 20 || report.void > options.rounds) report.rounds++;
    await keep(base, history, async () => {
      try {
        await settleFolder(folder, history);
      } catch (error) {
        throw new Error(`${call} from ${when}: ${String(error)}`);
      }
    });
    rmSync(base, { recursive: true });
  }
  return report;
}

/** Cuts the power of a file system on a loop device while a process uses it. */
export async function powerRounds(
  options: {
    readonly folder: string;
    readonly rounds: number;
    readonly random: Random;
    readonly type: "ext4" | "xfs";
    readonly defect?: string;
  },
): Promise<RoundsReport | string> {
  const { random, type } = options;
  const image = join(options.folder, `${type}.img`);
  const mount = join(options.folder, type);
  mkdirSync(mount);
  const run = (command: string, ...args: string[]) =>
    execFileSync(command, args, { stdio: ["ignore", "pipe", "pipe"] });
  // FS_IOC_SHUTDOWN without a flush of the journal leaves the same as a power
  // cut.
  const cut = () =>
    run(
      "python3",
      "-c",
      "import fcntl,os,struct,sys;" +
        "fcntl.ioctl(os.open(sys.argv[1],os.O_RDONLY),0x8004587d," +
        'struct.pack("I",2))',
      mount,
    );
  const attach = () => run("mount", "-o", "loop", image, mount);
  const detach = async () => {
    for (let attempt = 0;; attempt++) {
      try {
        return run("umount", mount);
      } catch (error) {
        if (attempt === 50) throw error;
        await delay(20);
      }
    }
  };
  try {
    run("truncate", "-s", type === "xfs" ? "320M" : "64M", image);
    run(`mkfs.${type}`, "-q", image);
    attach();
    cut();
    await detach();
    attach();
  } catch (error) {
    return `no power cuts on ${type}: ${String(error).split("\n")[0]}`;
  }
  const folder = join(mount, "store");
  const history: History = new Map();
  const report = { rounds: 0, void: 0, acknowledged: 0 };
  try {
    while (report.rounds < options.rounds) {
      const early = random.chance(0.15) && history.size > 0;
      const acknowledged = await keep(options.folder, history, () =>
        round({
          folder,
          books: options.folder,
          history,
          defect: options.defect,
          end: async (opened, { freeze, kill }) => {
            if (!early) await opened;
            await delay(random.below(early ? 30 : 400));
            // The process is stopped first, because a kernel that continues may
            // report success to an fsync in progress.
            await freeze();
            cut();
            kill();
          },
        }));
      report.acknowledged += acknowledged;
      if (!early && acknowledged < 20) report.void++;
      else report.rounds++;
      await detach();
      attach();
      await keep(
        options.folder,
        history,
        () =>
          random.chance(0.5)
            ? verifyFolder(folder, history)
            : settleFolder(folder, history),
      );
    }
  } finally {
    await detach();
  }
  return report;
}

/** Writes the history beside the store if something fails. */
async function keep<Result>(
  folder: string,
  history: History,
  work: () => Promise<Result>,
): Promise<Result> {
  try {
    return await work();
  } catch (error) {
    writeFileSync(join(folder, "history.json"), describe(history));
    throw error;
  }
}
