/**
 * The life of a request. {@linkcode Application} joins http, auth, api and the
 * store; its method `#process` handles every request, one step per line.
 */

import { performance } from "node:perf_hooks";
import type { FeatureHooks, SingleHooks } from "./api/feature.ts";
import {
  defaultMaxBodyBytes,
  type Operation,
  type Route,
} from "./api/operations.ts";
import {
  type Parameters,
  parseForm,
  parseParameters,
  rejectUnknownParameters,
} from "./api/query/parameters.ts";
import type { Outcome, Result, RunOnce } from "./api/request-context.ts";
import { ndjsonType } from "./api/representation.ts";
import { buildRoutes } from "./api/routes.ts";
import { ClientDisconnected, readBody } from "./http/body.ts";
import { type ApplicationOptions, Exchange, type Shared } from "./exchange.ts";
import { isReadMethod } from "./http/conditional.ts";
import {
  ApiError,
  type ErrorCode,
  errorResponse,
  implementedMethods,
  notImplemented,
} from "./http/errors.ts";
import { decodeUtf8, parseJsonObject } from "./http/json.ts";
import {
  applyPreference,
  checkContentType,
  chooseFormat,
} from "./http/negotiation.ts";
import { prefersProblemJson, toProblem } from "./http/problem.ts";
import { findRoute, parseTarget } from "./http/router.ts";
import {
  type OutgoingResponse,
  type RawError,
  type Response,
  send,
} from "./http/connection.ts";
import { checkMessage } from "./http/message.ts";
import { logFailure, logResponse } from "./log.ts";
import { errorCode, errorText } from "./store/error.ts";

/** Responds to requests. */
export class Application {
  readonly #routes: ReadonlyMap<string, Route>;
  readonly #features: readonly FeatureHooks[];
  readonly #shared: Shared;
  /** The hooks for the whole server. */
  readonly hooks: SingleHooks;

  constructor(options: ApplicationOptions) {
    const { routes, hooks } = buildRoutes(options, options.features);
    this.#routes = routes;
    this.#features = hooks;
    this.hooks = Object.assign({}, ...hooks);
    this.#shared = { ...options, hooks: this.hooks, verified: new Map() };
  }

  /** Resumes unfinished work; to be called before the first request. */
  async start(): Promise<void> {
    for (const { start } of this.#features) await start?.();
  }

  /** Stops work in the background at a point from which it can be resumed. */
  async stop(): Promise<void> {
    for (const { stop } of this.#features) await stop?.();
  }

  /** Responds to one request; never throws. */
  handle(response: OutgoingResponse): void {
    this.#run(new Exchange(response, this.#shared));
  }

  /** Logs and counts an error that was sent without a request. */
  readonly onRawError = (error: RawError): void => {
    this.#shared.log("debug", "answered", error);
    const start = performance.now();
    const request = { route: undefined, method: "", headers: {}, start };
    for (const { onResponse } of this.#features) {
      onResponse?.(request, { status: error.status, fields: [] });
    }
  };

  #run(exchange: Exchange): void {
    try {
      const result = this.#process(exchange);
      if (result instanceof Promise) {
        result.then(
          (result) => this.#respond(exchange, result),
          (error) => this.#fail(exchange, error),
        );
      } else {
        this.#respond(exchange, result);
      }
    } catch (error) {
      this.#fail(exchange, error);
    }
  }

  /**
   * Processes a request. RFC 9110 leaves the order of the steps open; this is
   * ours. The first step that fails determines the response, and nothing is
   * changed.
   */
  #process(exchange: Exchange): Outcome {
    const { request, method, headers } = exchange;
    const { origin, path } = this.#shared.base;
    let target, match;
    let operation: Operation | undefined;
    try {
      checkMessage(request); // 400
      if (method === "OPTIONS" && request.url === "*") return serverDescription;
      target = parseTarget(request.url ?? ""); // 400
      match = findRoute(this.#routes, target.path, path); // 400
      operation = match?.route.operations
        .get(method === "HEAD" ? "GET" : method);
    } finally {
      if (!operation?.isUnlimited) this.hooks.checkQuota?.(exchange); // 429
    }
    if (!match) {
      return redirect(target, this.#routes, this.#shared); // 308, 404
    }
    exchange.url = origin + target.path;
    exchange.ids = match.ids;
    exchange.route = match.route;
    if (!operation) throw unsupported(match.route, method); // 405, 501
    exchange.operation = operation;
    const confirmed = exchange.confirmFirst();
    if (confirmed) return confirmed.then(() => this.#process(exchange)); // 503
    exchange.authenticate(); // 401, 403
    if (isReadMethod(method) && this.#selectPage(exchange) === unchanged) {
      const format = chooseFormat(headers.accept, operation.produces); // 406
      exchange.asNdjson = format === ndjsonType;
    }
    const sent = parseParameters(target.query); // 400
    const { consumes, parse = rejectUnknownParameters } = operation;
    const parameters = parse(sent); // 400
    if (consumes === undefined) {
      const run = () => operation.run(exchange, parameters, {});
      return this.#whenRoom(exchange, run);
    }
    const runOnce = this.#runOnce(exchange, operation); // 400
    const type = checkContentType(request, consumes); // 415
    if (type === ndjsonType && operation.importNdjson) {
      return operation.importNdjson(exchange, exchange.response, runOnce);
    }
    const maxBytes = operation.maxBodyBytes ?? defaultMaxBodyBytes;
    const body = Promise.resolve(
      exchange.body ?? readBody(exchange.response, maxBytes), // 413, 408
    );
    return exchange.afterWaiting(body, (bytes) => { // 401, 403
      exchange.body = bytes;
      if (method === "QUERY") {
        const parameters = parse(parseFormParameters(bytes, sent));
        return operation.run(exchange, parameters, {});
      }
      const json = parseJsonObject(bytes); // 400
      return runOnce(bytes, (storeKey) =>
        this.#whenRoom(exchange, () => {
          exchange.storeKey = storeKey;
          return operation.run(exchange, parameters, json); // 404 to 503
        }));
    });
  }

  /** Runs an operation; a write only once there is room for its transaction. */
  #whenRoom(exchange: Exchange, run: () => Outcome): Outcome {
    const room = isReadMethod(exchange.method)
      ? undefined
      : this.#shared.store.whenRoom();
    if (room === undefined) return run();
    return exchange.afterWaiting(room, () => {
      exchange.signal.throwIfAborted();
      return this.#whenRoom(exchange, run);
    });
  }

  /** Returns what turns the response into a page, once the route is known; the response stays as it is for clients that do not prefer HTML. */
  #selectPage(exchange: Exchange): (response: Response) => Response {
    return exchange.toPage ??= this.hooks.selectPage?.(exchange) ?? unchanged;
  }

  /** Returns the function that runs a POST once per Idempotency-Key, if a feature has one. */
  #runOnce(exchange: Exchange, operation: Operation): RunOnce {
    return exchange.method === "POST" &&
        this.hooks.runOnce?.(exchange, operation) ||
      ((_body, run) => run());
  }

  /** Sends a response as soon as everything in it is durable. */
  #respond(exchange: Exchange, result: Result): void {
    exchange.whenSettled(result, (error) => {
      if (error === undefined) this.#send(exchange, result);
      // It is processed again if what it saw was rolled back.
      else if (exchange.canRepeat(error)) this.#run(exchange);
      else this.#fail(exchange, error);
    });
  }

  /** Responds with an error as soon as the state that it reveals is durable. */
  #fail(exchange: Exchange, error: unknown): void {
    if (error instanceof ClientDisconnected) return;
    const { store } = this.#shared;
    const apiError = toApiError(error);
    logFailure(exchange, apiError, error);
    const seq = stateDependentStatuses.has(apiError.status) ? store.seq : 0;
    const response = errorResponse(apiError, this.hooks.documentationUrl);
    const isProblem = prefersProblemJson(exchange.headers.accept);
    const final = isProblem ? toProblem(response) : response;
    this.#respond(exchange, { ...final, seq });
  }

  /** Sends a response; one that cannot be written must not affect other clients. */
  #send(exchange: Exchange, result: Response): void {
    const { response, method, headers: { prefer }, id } = exchange;
    try {
      const final = typeof prefer === "string" && !isReadMethod(method)
        ? applyPreference(prefer, method, result)
        : this.#selectPage(exchange)(result);
      const fields = [...final.headers, ...cacheFields(exchange, final)];
      for (const { onResponse } of this.#features) {
        onResponse?.(exchange, { status: final.status, fields });
      }
      fields.push("X-Request-Id", id);
      logResponse(exchange, final.status);
      send(response, final, fields);
    } catch (error) {
      response.destroy();
      this.#shared.log("error", `Cannot send a response: ${error}`, { id });
    }
  }
}

/** Returns the response as it is. */
function unchanged(response: Response): Response {
  return response;
}

/** The header fields about caching, which depend on the method and the caller. */
function cacheFields(
  { method, route, caller }: Exchange,
  { headers }: Response,
): string[] {
  if (!isReadMethod(method)) return ["Vary", "Accept, Prefer"];
  const fields = ["Vary", "Accept"];
  if (!headers.includes("Cache-Control")) {
    // A copy may be stored, but not used before the server has validated it.
    fields.push("Cache-Control", caller ? "private, no-cache" : "no-cache");
  }
  if (route) fields.push(...route.fields);
  return fields;
}

/** The response to `OPTIONS *` (RFC 9110 section 9.3.7). */
const serverDescription: Result = {
  status: 204,
  headers: ["Allow", implementedMethods.join(", ")],
  seq: 0,
};

/**
 * Redirects an unknown URL if it is known without the slash at its end; throws
 * 404 otherwise. Percent-encodes characters that some clients send in a query
 * although no URL may contain them (RFC 3986 section 3.4).
 */
function redirect(
  { path, query }: ReturnType<typeof parseTarget>,
  routes: ReadonlyMap<string, Route>,
  { base }: Shared,
): Result {
  const shorter = path.replace(/\/$/, "");
  if (!findRoute(routes, shorter, base.path)) throw unknownUrl(path, base.path);
  const escaped = query.replace(/["<>\\^`{|}]/g, encodeURIComponent);
  const location = base.origin + shorter + (query && `?${escaped}`);
  return {
    status: 308,
    headers: ["Location", location],
    body: JSON.stringify({ location }),
    seq: 0,
  };
}

function unknownUrl(path: string, base: string): ApiError {
  const version = /^v\d+(?=\/|$)/.exec(path.slice(base.length))?.[0];
  return new ApiError(
    40400,
    path.startsWith(base) && version && version !== "v1"
      ? `There is no version ${version} of this API: use ${base}v1.`
      : `There is no such URL: GET ${base} lists them.`,
  );
}

/** Returns the error for a method that a URL does not have: 405 with Allow (RFC 9110 section 15.5.6), or 501 if no URL has it. */
function unsupported({ allow }: Route, method: string): ApiError {
  if (!implementedMethods.includes(method)) return notImplemented(method);
  return new ApiError(
    40500,
    `The method ${method} is not allowed here; allowed: ${allow}.`,
    { headers: ["Allow", allow] },
  );
}

/** Returns the parameters of a QUERY: those of its body, or else of its URL. */
function parseFormParameters(bytes: Uint8Array, sent: Parameters): Parameters {
  const form = parseForm(decodeUtf8(bytes));
  if (form.size === 0) return sent;
  if (sent.size === 0) return form;
  throw new ApiError(
    40003,
    "There are parameters both in the URL and in the body: send them in one place.",
  );
}

/** The statuses of errors that reveal something about the records, users or authorizations. */
const stateDependentStatuses: ReadonlySet<number> = new Set([
  401,
  403,
  404,
  409,
  410,
  412,
  422,
  428,
]);

/**
 * The codes of errors of the store, of admission and of the operating system
 * (too many open files) that a client may be told about.
 */
const unavailable: ReadonlyMap<string, ErrorCode> = new Map([
  ["read-only", 50300],
  ["disk-full", 50301],
  ["memory-full", 50303],
  ["overloaded", 50302],
  ["overtaken", 50302],
  ["unreachable", 50302],
  ["EMFILE", 50302],
  ["ENFILE", 50302],
]);

/** Maps an error to the one that the client gets; an unexpected one reveals nothing. */
function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const name = errorCode(error);
  const code = unavailable.get(name) ?? 50000;
  if (code !== 50302) return new ApiError(code);
  return new ApiError(
    code,
    /^E[MN]FILE$/.test(name)
      ? "Too many files are open: try again later."
      : errorText(error),
    { headers: ["Retry-After", "1"] },
  );
}
