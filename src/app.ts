/**
 * The life of a request. {@linkcode Application} joins http, auth, api and the
 * store; its method `#judge` handles every request, one step per line.
 */

import type { Operation, Route } from "./api/operation.ts";
import { performance } from "node:perf_hooks";
import type { FeatureHooks, SingleHooks } from "./api/feature.ts";
import {
  parseParameters,
  rejectUnknownParameters,
} from "./api/query/parameters.ts";
import type { Outcome, Result } from "./api/request-context.ts";
import { buildRoutes } from "./api/routes.ts";
import { ClientDisconnected } from "./http/body.ts";
import { type ApplicationOptions, Exchange, type Shared } from "./exchange.ts";
import {
  ApiError,
  type ErrorCode,
  errorResponse,
  implementedMethods,
  notImplemented,
} from "./http/errors.ts";
import { parseJsonObject } from "./http/json.ts";
import { negotiate } from "./http/accept.ts";
import { checkContentType, isReadMethod } from "./http/content.ts";
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

/** A result that can be sent; undefined if the request must be judged again. */
type Settled = Result | undefined | Promise<Result | undefined>;

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
  async handle(response: OutgoingResponse): Promise<void> {
    const exchange = new Exchange(response, this.#shared);
    try {
      let result: Result | undefined;
      // A request is judged again if what it saw was rolled back.
      while (result === undefined) {
        try {
          result = await this.#judge(exchange);
        } catch (error) {
          result = await this.#fail(exchange, error);
        }
      }
      this.#send(exchange, result);
    } catch (error) {
      // A response that cannot be sent must not affect other clients.
      response.destroy();
      if (error instanceof ClientDisconnected) return;
      const { id } = exchange;
      this.#shared.log("error", `Cannot send a response: ${error}`, { id });
    }
  }

  /** Logs and counts an error that was sent without a request. */
  readonly onRawError = (error: RawError): void => {
    this.#shared.log("debug", "answered", error);
    const start = performance.now();
    const unknown = { route: undefined, method: "", target: "", headers: {} };
    const request = { ...unknown, start };
    for (const { onResponse } of this.#features) {
      onResponse?.(request, { status: error.status, fields: [] });
    }
  };

  /**
   * Returns the response to a request; undefined if the request must be judged
   * again. RFC 9110 leaves the order of the steps open; this is ours. The first
   * step that fails determines the response, and nothing is changed.
   */
  async #judge(exchange: Exchange): Promise<Result | undefined> {
    const { request, method } = exchange;
    const { base } = this.#shared;
    this.hooks.checkQuota?.(exchange, exchange.client); // 429
    checkMessage(request); // 400, 414, 417, 431, 501
    if (method === "OPTIONS" && request.url === "*") return serverDescription;
    const target = parseTarget(exchange.target); // 400
    const match = findRoute(this.#routes, target.path, base.path); // 400
    if (!match) return redirect(target, this.#routes, this.#shared); // 308, 404
    exchange.url = base.origin + target.path;
    exchange.ids = match.ids;
    exchange.route = match.route;
    const operation = operationOf(match.route, method); // 405, 501
    exchange.operation = operation;
    const waiting = this.hooks.beforeJudging?.(exchange); // 503
    if (waiting) await waiting;
    exchange.authenticate(); // 401, 403
    if (isReadMethod(method)) this.#checkAccept(exchange); // 406
    const sent = parseParameters(target.query); // 400
    const { consumes, parse = rejectUnknownParameters } = operation;
    const parameters = parse(sent); // 400
    if (consumes === undefined) {
      return this.#run(exchange, () => operation.run(exchange, parameters, {}));
    }
    const type = checkContentType(request, consumes); // 415
    const received = operation.receive?.(exchange, { type, sent });
    if (received) return this.#settle(exchange, received);
    const bytes = await exchange.readBody(); // 413, 408
    exchange.authenticate(); // 401, 403
    const body = parseJsonObject(bytes); // 400
    const execute = () => operation.run(exchange, parameters, body); // 404 to 503
    return this.#run(
      exchange,
      () => exchange.runOnce({ body: bytes, execute }),
    );
  }

  /** Runs an operation; a write only once there is room for its transaction. */
  #run(exchange: Exchange, run: () => Outcome): Settled {
    const room = isReadMethod(exchange.method)
      ? undefined
      : this.#shared.store.whenRoom();
    if (room === undefined) return this.#settle(exchange, run());
    return exchange.afterWaiting(room, () => { // 401, 403
      exchange.signal.throwIfAborted();
      return this.#run(exchange, run);
    });
  }

  /**
   * Chooses the media type of what the operation returns, unless a feature
   * responds in a format of its own.
   *
   * @throws {ApiError} 40600
   */
  #checkAccept(exchange: Exchange): void {
    const { headers, operation } = exchange;
    const { produces = ["application/json"] } = operation ?? {};
    const isAny = headers.accept === undefined || headers.accept === "*/*";
    if (!isAny && this.#format(exchange, { status: 200, headers: [] })) return;
    exchange.format = negotiate(headers.accept, produces);
    if (exchange.format !== undefined) return;
    throw new ApiError(
      40600,
      `None of the accepted formats is available: this URL has ${
        produces.join(" and ")
      }.`,
    );
  }

  /** Returns a response in the format that the client prefers, if a feature has that. */
  #format(exchange: Exchange, response: Response): Response | undefined {
    for (const { format } of this.#features) {
      const formatted = format?.(exchange, response);
      if (formatted) return formatted;
    }
    return undefined;
  }

  /** Returns a result as soon as everything in it is durable; undefined if the request must be judged again. */
  #settle(exchange: Exchange, outcome: Outcome): Settled {
    if (outcome instanceof Promise) {
      return outcome.then((result) => this.#settle(exchange, result));
    }
    // Between a decision and the wait for its sequence number nothing may happen.
    const durable = this.hooks.beforeSending?.(exchange, outcome) ??
      this.#shared.store.durable(outcome.seq);
    return durable ? whenDurable(exchange, outcome, durable) : outcome;
  }

  /** Responds with an error as soon as the state that it reveals is durable. */
  async #fail(
    exchange: Exchange,
    error: unknown,
  ): Promise<Result | undefined> {
    if (error instanceof ClientDisconnected) throw error;
    const { store } = this.#shared;
    const apiError = toApiError(error);
    logFailure(exchange, apiError, error);
    const seq = stateDependentStatuses.has(apiError.status) ? store.seq : 0;
    const response = errorResponse(apiError, this.hooks.documentationUrl);
    try {
      return await this.#settle(exchange, { ...response, seq });
    } catch (error) {
      return await this.#fail(exchange, error);
    }
  }

  #send(exchange: Exchange, result: Response): void {
    const { response, id } = exchange;
    const final = this.#format(exchange, result) ?? result;
    const fields = [...final.headers, ...cacheFields(exchange, final)];
    for (const { onResponse } of this.#features) {
      onResponse?.(exchange, { status: final.status, fields });
    }
    fields.push("X-Request-Id", id);
    logResponse(exchange, final.status);
    send(response, final, fields);
  }
}

/** Returns a result once it is durable; undefined if the request must be judged again. */
async function whenDurable(
  exchange: Exchange,
  result: Result,
  durable: Promise<boolean | void>,
): Promise<Result | undefined> {
  try {
    const isOutdated = await durable;
    return isOutdated ? undefined : result;
  } catch (error) {
    // The state that a read saw was rolled back.
    const isRolledBack = /^(?:disk-full|outcome-unknown)$/
      .test(errorCode(error));
    if (isRolledBack && isReadMethod(exchange.method)) return undefined;
    throw error;
  }
}

/** The header fields about caching, which depend on the method and the caller. */
function cacheFields(
  { method, caller }: Exchange,
  { headers }: Response,
): string[] {
  const fields = ["Vary", "Accept"];
  if (isReadMethod(method) && !headers.includes("Cache-Control")) {
    // A copy may be stored, but not used before the server has validated it.
    fields.push("Cache-Control", caller ? "private, no-cache" : "no-cache");
  }
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

/**
 * Returns the operation of a method.
 *
 * @throws {ApiError} 40500 with Allow (RFC 9110 section 15.5.6) if the URL does
 * not have it, 50100 if no URL has it
 */
function operationOf({ allow, operations }: Route, method: string): Operation {
  const operation = operations.get(method === "HEAD" ? "GET" : method);
  if (operation) return operation;
  if (!implementedMethods.includes(method)) throw notImplemented(method);
  throw new ApiError(
    40500,
    `The method ${method} is not allowed here; allowed: ${allow}.`,
    { headers: ["Allow", allow] },
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
