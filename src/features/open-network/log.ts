/**
 * The log of requests: each response at the level `debug`; at `info` who changed
 * users, and who was refused. It holds no secrets, even if a client sends them in
 * the wrong place.
 */

import { performance } from "node:perf_hooks";
import type { RequestContext } from "../../api/request-context.ts";
import type { ApiError } from "../../http/errors.ts";
import type { LogFields } from "../../store/store.ts";

/** The errors that are reported at the level `info`. */
const auditedCodes: readonly number[] = [40101, 40300, 42900];

/** Logs a response. */
export function logResponse(
  context: RequestContext,
  { status, error }: {
    readonly status: number;
    readonly error?: ApiError | undefined;
  },
): void {
  const { auditEvent, start, shared: { log } } = context;
  const isSignIn = error?.code === 40101 && auditEvent;
  const event = error === undefined || isSignIn
    ? auditEvent
    : auditedCodes.includes(error.code)
    ? { message: error.message, fields: {} }
    : undefined;
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
