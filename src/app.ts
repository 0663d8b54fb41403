/**
 * The life of a request. {@linkcode Application} joins http, auth, api and the
 * store; its method `#judge` handles every request, one step per line.
 */

import type { Operation, Route } from "./api/operation.ts";
import type { Feature, FeatureHooks, SingleHooks } from "./api/feature.ts";
import type { ApiOptions } from "./api/options.ts";
import {
  parseParameters,
  rejectUnknownParameters,
} from "./api/query/parameters.ts";
import {
  type Outcome,
  RequestContext,
  type Result,
  type SharedState,
} from "./api/request-context.ts";
import { buildRoutes } from "./api/routes.ts";
import { ClientDisconnected } from "./http/body.ts";
import {
  ApiError,
  type ErrorCode,
  errorResponse,
  implementedMethods,
} from "./http/errors.ts";
import { parseJsonObject } from "./http/json.ts";
import { weightOf } from "./http/accept.ts";
import { checkContentType, isReadMethod } from "./http/content.ts";
import { findRoute, parseTarget } from "./http/router.ts";
import {
  type OutgoingResponse,
  type Response,
  send,
} from "./http/connection.ts";
import { logUnexpected } from "./log.ts";
import { errorCode, errorText } from "./store/error.ts";

/** A result that can be sent; undefined if the request must be judged again. */
type Settled = Result | undefined | Promise<Result | undefined>;

/** Responds to requests. */
export class Application {
  readonly #routes: ReadonlyMap<string, Route>;
  readonly #features: readonly FeatureHooks[];
  readonly #shared: SharedState;
  /** The hooks for the whole server. */
  readonly hooks: SingleHooks;

  constructor(
    options: ApiOptions & { readonly features: readonly Feature[] },
  ) {
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
    const context = new RequestContext(response, this.#shared);
    try {
      let result: Result | undefined;
      // A request is judged again if what it saw was rolled back.
      while (result === undefined) {
        try {
          result = await this.#judge(context);
        } catch (error) {
          result = await this.#fail(context, error);
        }
      }
      this.#send(context, result);
    } catch (error) {
      // A response that cannot be sent must not affect other clients.
      response.destroy();
      if (error instanceof ClientDisconnected) return;
      this.#shared.log("error", `Cannot send a response: ${error}`, {
        id: context.id,
      });
    }
  }

  /**
   * Returns the response to a request; undefined if the request must be judged
   * again. RFC 9110 leaves the order of the steps open; this is ours. The first
   * step that fails determines the response, and nothing is changed.
   */
  #judge(context: RequestContext): Settled {
    const { request, method } = context;
    const { base } = this.#shared;
    if (request.readError) throw request.readError; // 400, 408, 431
    this.hooks.checkQuota?.(context); // 429
    this.hooks.checkMessage?.(request); // 400, 417, 431, 501
    if (method === "OPTIONS" && request.url === "*") return serverDescription;
    const target = parseTarget(context.target); // 400, 414
    const match = findRoute(this.#routes, target.path, base.path); // 400
    if (!match) {
      const { path } = target;
      return !path.startsWith(base.path) &&
          this.hooks.respondOutside?.(context, path) ||
        redirect(target, this.#routes, base); // 308, 404
    }
    context.url = base.origin + target.path;
    context.ids = match.ids;
    context.route = match.route;
    const operation = operationOf(match.route, method); // 405, 501
    context.operation = operation;
    const waiting = this.hooks.beforeJudging?.(context); // 503
    if (waiting) return waiting; // and is judged again
    context.authenticate(); // 401, 403
    if (isReadMethod(method)) this.#checkAccept(context); // 406
    const sent = parseParameters(target.query); // 400
    const {
      consumes,
      parse = rejectUnknownParameters,
      parseBody = parseJsonObject,
    } = operation;
    const parameters = parse(sent); // 400
    if (consumes === undefined) {
      return this.#run(context, () => operation.run(context, parameters, {}));
    }
    const type = checkContentType(request, consumes); // 415
    const received = operation.receive?.(context, { type, sent });
    if (received) return this.#settle(context, received);
    return context.afterWaiting(context.readBody(), (bytes) => { // 413, 408, 401, 403
      const body = parseBody(bytes); // 400, 413
      const execute = () => operation.run(context, parameters, body); // 404 to 503
      return this.#run(
        context,
        () =>
          this.hooks.runOnce?.(context, { body: bytes, execute }) ?? execute(),
      );
    });
  }

  /** Runs an operation; a write only once there is room for its transaction. */
  #run(context: RequestContext, run: () => Outcome): Settled {
    const room = isReadMethod(context.method)
      ? undefined
      : this.#shared.store.whenRoom();
    if (room === undefined) return this.#settle(context, run());
    return context.afterWaiting(room, () => { // 401, 403
      context.signal.throwIfAborted();
      return this.#run(context, run);
    });
  }

  /**
   * Checks that the client accepts what the operation returns, or a format that
   * a feature has.
   *
   * @throws {ApiError} 40600
   */
  #checkAccept(context: RequestContext): void {
    const { headers: { accept }, operation } = context;
    const { produces = ["application/json"] } = operation ?? {};
    const isAccepted = produces.some((type) => weightOf(accept, type) > 0) ||
      this.#format(context, { status: 200, headers: [] });
    if (isAccepted) return;
    throw new ApiError(
      40600,
      `None of the accepted formats is available: this URL has ${
        produces.join(" and ")
      }.`,
    );
  }

  /** Returns a response in the format that the client prefers, if a feature has that. */
  #format(context: RequestContext, response: Response): Response | undefined {
    for (const { format } of this.#features) {
      const formatted = format?.(context, response);
      if (formatted) return formatted;
    }
    return undefined;
  }

  /** Returns a result as soon as everything in it is durable; undefined if the request must be judged again. */
  #settle(context: RequestContext, outcome: Outcome): Settled {
    if (outcome instanceof Promise) {
      return outcome.then((result) => this.#settle(context, result));
    }
    // Between a decision and the wait for its sequence number nothing may happen.
    const durable = this.hooks.beforeSending?.(context, outcome) ??
      this.#shared.store.durable(outcome.seq);
    return durable ? whenDurable(context, outcome, durable) : outcome;
  }

  /** Responds with an error as soon as the state that it reveals is durable. */
  async #fail(
    context: RequestContext,
    error: unknown,
  ): Promise<Result | undefined> {
    if (error instanceof ClientDisconnected) throw error;
    const apiError = toApiError(error);
    if (apiError.code === 50000) logUnexpected(context, apiError, error);
    const seq = stateDependentStatuses.includes(apiError.status)
      ? this.#shared.store.seq
      : 0;
    const response = errorResponse(apiError, this.hooks.documentationUrl);
    try {
      return await this.#settle(context, { ...response, seq });
    } catch (error) {
      return await this.#fail(context, error);
    }
  }

  #send(context: RequestContext, result: Response): void {
    const { method, caller, response, id } = context;
    const final = this.#format(context, result) ?? result;
    const { status, headers } = final;
    const fields = [...headers, "Vary", "Accept"];
    if (isReadMethod(method) && !headers.includes("Cache-Control")) {
      // A copy may be stored, but not used before the server has validated it.
      fields.push("Cache-Control", caller ? "private, no-cache" : "no-cache");
    }
    const shown = { status, fields, error: result.error };
    for (const { onResponse } of this.#features) onResponse?.(context, shown);
    fields.push("X-Request-Id", id);
    send(response, this.hooks.toParts?.(final) ?? final, fields);
  }
}

/** Returns a result once it is durable; undefined if the request must be judged again. */
async function whenDurable(
  { method }: RequestContext,
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
    if (isRolledBack && isReadMethod(method)) return undefined;
    throw error;
  }
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
  base: ApiOptions["base"],
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
  if (!implementedMethods.includes(method)) {
    const supported = implementedMethods.join(", ");
    throw new ApiError(
      50100,
      `The method ${method} is not implemented; supported methods: ${supported}.`,
    );
  }
  throw new ApiError(
    40500,
    `The method ${method} is not allowed here; allowed: ${allow}.`,
    { headers: ["Allow", allow] },
  );
}

/** The statuses of errors that reveal something about the records, users or authorizations. */
const stateDependentStatuses = [401, 403, 404, 409, 410, 412, 422, 428];

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
  // Any other text could name files or other machines.
  const message = name === "overloaded" ? errorText(error) : undefined;
  return new ApiError(code, message, { headers: ["Retry-After", "1"] });
}
