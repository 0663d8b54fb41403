/**
 * The server's log: one JSON object per line, or plain text for people. What each
 * request did is logged by the feature `open-network`.
 */

import type { Writable } from "node:stream";
import type { RequestContext } from "./api/request-context.ts";
import type { ApiError } from "./http/errors.ts";
import type { Logger } from "./store/store.ts";

/** The levels of the log; each includes those before it. */
export const logLevels = ["silent", "error", "info", "debug"] as const;

/** How much of the log may wait for a slow reader before lines are dropped. */
const maxWaitingBytes = 1 << 20;

/**
 * Creates `log`, which writes messages up to a level, and `print`, which writes
 * any message, for those that somebody is waiting for.
 *
 * @param maxLevel if undefined, it is `info`, and on a terminal the lines are
 * plain text
 */
export function createLogger(
  maxLevel: (typeof logLevels)[number] | undefined,
  output: Writable & { readonly isTTY?: boolean },
) {
  const isForPeople = maxLevel === undefined && output.isTTY === true;
  const levels = logLevels.slice(0, logLevels.indexOf(maxLevel ?? "info") + 1);
  let dropped = 0;
  const print: Logger = (level, message, fields) => {
    if (output.writableLength > maxWaitingBytes) {
      dropped++;
      return;
    }
    const time = new Date();
    const more = typeof fields === "function" ? fields() : fields;
    const line = isForPeople
      ? `${time.toTimeString().slice(0, 8)} ${message}` +
        (more ? ` ${JSON.stringify(more)}` : "")
      : JSON.stringify({ time, level, message, ...more });
    output.write(`${escapeControls(line)}\n`);
  };
  output.on("drain", () => {
    if (dropped > 0) {
      print("error", `dropped ${dropped} lines that nobody read`);
    }
    dropped = 0;
  });
  const log: Logger = (level, message, fields) => {
    if (levels.includes(level)) print(level, message, fields);
  };
  return { log, print, isForPeople };
}

/** Escapes control characters as JSON does, which leaves some: a terminal may act on them. */
export function escapeControls(line: string): string {
  return line.replace(/\p{Cc}/gu, (control) => {
    const code = control.charCodeAt(0).toString(16);
    return `\\u${code.padStart(4, "0")}`;
  });
}

/** Logs an unexpected error, and the request that it ended. */
export function logUnexpected(
  { id, client, caller, method, url, shared: { log } }: RequestContext,
  { message }: ApiError,
  error: unknown,
): void {
  const text = error instanceof Error ? error.stack : String(error);
  log("error", message, {
    id,
    client,
    by: caller?.id,
    method,
    url,
    error: text,
  });
}
