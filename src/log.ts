/**
 * The server's log: one JSON object per line, or plain text for people. It says
 * who did what, and holds no secrets: neither passwords nor tokens, even if a
 * client sends them in the wrong place.
 */

import { performance } from "node:perf_hooks";
import type { Writable } from "node:stream";
import type { RequestContext } from "./api/request-context.ts";
import type { ApiError } from "./http/errors.ts";
import type { LogFields, Logger } from "./store/store.ts";

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
    const lines = dropped;
    dropped = 0;
    if (lines > 0) print("error", `dropped ${lines} lines that nobody read`);
  });
  const log: Logger = (level, message, fields) => {
    if (levels.includes(level)) print(level, message, fields);
  };
  return { log, print, isForPeople };
}

/** Escapes control characters as JSON does, which leaves some: a terminal may act on them. */
function escapeControls(line: string): string {
  return line.replace(/\p{Cc}/gu, (control) => {
    const code = control.charCodeAt(0).toString(16);
    return `\\u${code.padStart(4, "0")}`;
  });
}

/** The errors that the log reports at the level `info`. */
const auditedCodes: readonly number[] = [40101, 40300, 42900];

/** Logs an unexpected error, and decides whether the response to another is logged. */
export function logFailure(
  context: RequestContext,
  { code, message }: ApiError,
  error: unknown,
): void {
  const { auditEvent = { message }, shared: { log } } = context;
  context.auditEvent = auditedCodes.includes(code) ? auditEvent : undefined;
  if (code !== 50000) return;
  const text = error instanceof Error ? error.stack : String(error);
  log("error", message, { ...describe(context), error: text });
}

/** Logs a response. */
export function logResponse(context: RequestContext, status: number): void {
  const { auditEvent: event, start, shared: { log } } = context;
  if (event) {
    log("info", event.message, {
      ...describe(context),
      status,
      ...event.fields,
    });
  }
  log("debug", "answered", () => {
    const ms = Math.round(performance.now() - start);
    return { ...describe(context), status, ms };
  });
}

/** Returns what was requested, and by whom. */
function describe(
  { id, client, method, target, caller, shared: { store } }: RequestContext,
): LogFields {
  const by = caller && store.table("users").get(caller.id)?.document;
  const path = withoutValues(target);
  const who = { by: caller?.id, byName: by?.["username"] };
  return { id, client, ...who, method, path };
}

/** Returns a URL with only the names of its parameters: a value, or text in place of a name, may be a secret. */
function withoutValues(url: string): string {
  // Anything but a path could contain a password: http://name:password@host.
  const [path = "", query] = url.startsWith("/") ? url.split(/[?#]/, 2) : ["…"];
  if (query === undefined) return path;
  const names = query.split("&").map((parameter) =>
    /^[\w:]{1,40}(?==|$)/.exec(parameter)?.[0] ?? "…"
  );
  return `${path}?${names.join("&")}`;
}
