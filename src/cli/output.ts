/** The output of the commands: text, messages that several of them share, and a progress bar. */

import { once } from "node:events";
import process from "node:process";
import { type Task, tasks, unfinishedTasks } from "../api/tasks/tasks.ts";
import { escapeControls } from "../log.ts";
import { errorCode, errorText } from "../store/error.ts";
import { isNoSpaceError } from "../store/log/files.ts";
import type { Fault, Store } from "../store/store.ts";
import { CommandError, UsageError } from "../usage.ts";

/** Prints data to standard output, and waits while its buffer is full. */
export async function printData(text: string): Promise<void> {
  if (!process.stdout.write(text)) await once(process.stdout, "drain");
}

/** Prints text for people to standard output, which may be a terminal. */
export async function print(text: string): Promise<void> {
  await printData(escapeForTerminal(text));
}

/** Prints a line to standard error, whatever is in the values that it names. */
export function printError(line: string): void {
  process.stderr.write(`${escapeControls(line)}\n`);
}

/** Escapes control characters other than line ends and tabs: a stored text may hold those that a terminal acts on. */
function escapeForTerminal(text: string): string {
  return text.replace(/[^\n\t]+/g, escapeControls);
}

/** Formats a fault as one line. */
export function describeFault({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}

export function describeFaults(faults: readonly Fault[]): string {
  return faults.map((each) => `fault: ${describeFault(each)}\n`).join("");
}

/** The meaning of damage that does not keep the store from being opened. */
export const unusedFiles =
  "all records are in the other files, and the next snapshots replace the damaged ones";

/** The most entries that a list shows. */
const maxListed = 20;

/** Formats a list: the number of its entries, then the first ones, one per line; "" if there are none. */
export function describeList(
  title: string,
  entries: readonly string[],
): string {
  if (entries.length === 0) return "";
  const listed = entries.slice(0, maxListed);
  return [`${title}: ${entries.length}`, ...listed].join("\n  ") + "\n";
}

/** Creates the error of a command that names no collection, or an unknown one. */
export function unknownCollection(
  command: string,
  name: string | undefined,
  known: readonly string[],
): UsageError {
  const problem = name === undefined
    ? "name a collection"
    : `unknown collection ${JSON.stringify(name)}`;
  return new UsageError(`${command}: ${problem}: one of ${known.join(", ")}`);
}

/** Says on standard error which tasks are not finished: what a command shows, copies or changes meanwhile is incomplete. */
export function reportTasks(tables: Store["tables"]): void {
  const table = tables.get(tasks.name);
  if (table === undefined) return;
  for (const each of unfinishedTasks({ records: { table } })) {
    const what = each.type === "import" ? "an import of" : "a deletion in";
    printError(
      `zoo-api: ${what} ${each.collection} (task ${each.id}) is not finished: ${
        describeState(each)
      }`,
    );
  }
}

/** Describes what an unfinished task has done, and who does the rest: another process if several share the store. */
function describeState(
  { id, type, imported, deleted, server }: Task,
): string {
  const [other, own] = type === "import"
    ? ["deletions", "imports"]
    : ["imports", "deletions"];
  const cancel =
    `with FEATURES that have ${other} but not ${own}, it waits, and DELETE /v1/tasks/${id} cancels it`;
  if (type === "import") {
    const next = server === undefined
      ? `the next import into this store first finishes it, or a start of its server, unless it has users; ${cancel}`
      : "its server finishes it, or if it was a command, the next import from the same data folder within a minute; after that, a running server ends it as it is";
    return `${imported} records are in, perhaps without some of their references; ${next}; it fails in a copy, which lacks its lines, and after a renaming`;
  }
  const next = server === undefined
    ? `the next start of the server resumes it, unless that declares its collections or properties otherwise; ${cancel}`
    : "a running server finishes it, within a minute after its own one has ended, or in a copy the next start";
  return `${deleted} records are deleted; ${next}`;
}

const otherHost =
  "HOST or --host must name an address of this machine, such as 127.0.0.1";

const denied =
  `user ${process.getuid?.() ?? process.env["USERNAME"]} may not access it: ` +
  'run this as the user who owns it, or change that with chown; if it is yours, run "chmod u+rwX" on it';

/** Explanations of the errors of the operating system, by their codes. */
const fileErrors: Readonly<Record<string, string>> = {
  EACCES: denied,
  EEXIST: "it exists already: name another one",
  EISDIR: "it is a folder",
  ELOOP: "its links lead in a circle",
  ENAMETOOLONG: "its name is too long",
  ENOENT: "there is no such file or folder",
  ENOTDIR: "it is not a folder",
  EPERM: denied,
  EROFS: "it is on a file system that cannot be written to",
};

/** Why a server cannot listen, and what to do, by the same codes. */
const listenErrors: Readonly<Record<string, string>> = {
  EACCES: "only root may open it: choose a --port from 1024 on",
  EADDRINUSE: "the port is in use: choose another one with --port",
  EADDRNOTAVAIL: otherHost,
  EAI_AGAIN: otherHost,
  ENOTFOUND: otherHost,
};

/** Prints why a command has failed; of an unexpected error also where, and which command finds stored rows that cause one. */
export function printFailure(error: unknown, dataDir: string): void {
  // A StoreError and the errors of the operating system have a code.
  const isExpected = error instanceof UsageError ||
    error instanceof CommandError || errorCode(error) !== "";
  const [place = ""] = / at .*\/.*/.exec(Object(error).stack) ?? [];
  const text = isExpected
    ? explain(error, dataDir)
    : `unexpected ${error}${place}: "zoo-api check" lists stored rows that no server writes`;
  for (const line of text.split("\n")) printError(`zoo-api: ${line}`);
}

/** Returns the message of an error, and its reason: what is wrong with which file, or why a server cannot listen. */
function explain(error: unknown, dataDir: string): string {
  const text = errorText(error);
  const { cause = error } = Object(error);
  if (error instanceof CommandError && cause !== error) {
    return `${text}: ${listenErrors[errorCode(cause)] ?? errorText(cause)}`;
  }
  const { address, path = address, dest = path } = Object(cause); // or of a socket that locks a folder
  const code = errorCode(cause);
  if (isNoSpaceError(cause)) {
    return text.replace(
      errorText(cause),
      `the disk of ${path ?? dataDir} is full: ` +
        "delete something else from it, or use a larger one",
    );
  }
  const reason = fileErrors[code];
  const place = code === "EISDIR" ? dest : path; // whose name a file should get
  return reason && place
    ? text.replace(errorText(cause), `${place}: ${reason}`)
    : text;
}

const intervalMs = 200;
const width = 40;

/**
 * Draws a progress bar on standard error if that is a terminal.
 *
 * @param fraction returns how much is done, from 0 to 1
 * @returns a function that draws the bar a last time and ends its line
 */
export function showProgress(fraction: () => number): () => void {
  const { stderr } = process;
  if (!stderr.isTTY) return () => {};
  const draw = () => {
    const done = Math.min(fraction() || 0, 1);
    const bar = "#".repeat(done * width).padEnd(width);
    stderr.write(`\r[${bar}] ${Math.floor(done * 100)} %`);
  };
  const timer = setInterval(draw, intervalMs);
  return () => {
    clearInterval(timer);
    draw();
    stderr.write("\n");
  };
}
