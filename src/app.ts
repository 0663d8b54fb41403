/**
 * Joins the parts. {@linkcode Application.handle} is the life of a request, a
 * step a line, in the order in which HTTP decides.
 */

import { performance } from "node:perf_hooks";
import {
  Authentication,
  type Caller,
  requireAccess,
} from "./api/accounts/authentication.ts";
import {
  type Parameters,
  parseForm,
  parseParameters,
} from "./api/query/parameters.ts";
import type {
  RequestContext,
  Result,
  RunOnce,
  StoreResponse,
} from "./api/request-context.ts";
import type { Feature, FeatureHooks } from "./api/feature.ts";
import {
  buildRoutes,
  type Operation,
  type Route,
  type RouteOptions,
} from "./api/routes.ts";
import { ndjsonType } from "./api/representation.ts";
import { BusyError } from "./auth/passwords.ts";
import type { Base } from "./config.ts";
import { corsHeaders } from "./http/cors.ts";
import { ApiError, type ErrorCode } from "./http/errors.ts";
import {
  negotiate,
  parseMediaType,
  parsePrefer,
  type Preferences,
} from "./http/headers.ts";
import { decodeUtf8, parseJsonObject } from "./http/json.ts";
import { parseTraceId, requestId } from "./http/request-id.ts";
import { parseTarget, type Router, type Target } from "./http/router.ts";
import {
  ClientDisconnected,
  errorResponse,
  hasContent,
  implementedMethods,
  type IncomingRequest,
  isFromLoopback,
  notImplemented,
  type OutgoingResponse,
  readBody,
  type Response,
  send,
  streamBody,
} from "./http/server.ts";
import type { Log } from "./log.ts";
import { type Store, StoreError } from "./store/store.ts";

/** What an application is made of. */
export type ApplicationOptions =
  & Omit<RouteOptions, "requireIfMatch" | "log">
  & {
    readonly log: Log;
    readonly features: readonly Feature[];
    readonly requireIfMatch?: boolean;
    /** Origins whose scripts may read the responses; `*` is any. */
    readonly corsOrigins?: readonly string[];
  };

/** The longest body of lines, in bytes. */
const maximumLines = 1 << 30;

/**
 * How many exports may be under way, over all collections: each holds on to
 * all its records until its client has them.
 */
const maxExports = 16;

/** A request on its way to its answer. */
interface Exchange {
  readonly request: IncomingRequest;
  readonly response: OutgoingResponse;
  readonly id: string;
  /** When it began, in milliseconds of no meaning by themselves. */
  readonly start: number;
  // Known from the step that finds them on.
  route: Route | undefined;
  caller: Caller | undefined;
  body: Uint8Array | undefined;
  /** Whether it holds one of the places for exports. */
  exports: boolean;
}

/** Answers requests. */
export class Application {
  readonly #store: Store;
  readonly #base: Base;
  readonly #log: Log;
  readonly #routes: Router<Route>;
  readonly #features: readonly FeatureHooks[];
  readonly #corsOrigins: readonly string[];
  readonly #authentication: Authentication;
  /** How many exports are under way. */
  #exports = 0;

  constructor(options: ApplicationOptions) {
    const { store, signer, now, base, log } = options;
    this.#store = store;
    this.#base = base;
    this.#log = log;
    const { features, corsOrigins = [], requireIfMatch = false } = options;
    this.#corsOrigins = corsOrigins;
    const { router, open } = buildRoutes(
      { ...options, requireIfMatch },
      features,
    );
    this.#routes = router;
    this.#features = open;
    this.#authentication = new Authentication(store, signer, now);
  }

  /** Goes on with what was left unfinished; to be called before the first request. */
  async start(): Promise<void> {
    for (const { start } of this.#features) await start?.();
  }

  /** Ends the work in the background where it can be gone on with. */
  async stop(): Promise<void> {
    for (const { stop } of this.#features) await stop?.();
  }

  /** Answers one request; never throws. */
  handle(request: IncomingRequest, response: OutgoingResponse): void {
    this.#handle({
      request,
      response,
      id: requestId(request.headers["x-request-id"]),
      start: performance.now(),
      route: undefined,
      caller: undefined,
      body: undefined,
      exports: false,
    });
  }

  #handle(exchange: Exchange): void {
    try {
      const result = this.#decide(exchange);
      if (result instanceof Promise) {
        result.then(
          (result) => this.#answer(exchange, result),
          (error) => this.#fail(exchange, error),
        );
      } else {
        this.#answer(exchange, result);
      }
    } catch (error) {
      this.#fail(exchange, error);
    }
  }

  /** RFC 9110 leaves the order open; this is ours. The first step that fails answers, and nothing is changed. */
  #decide(exchange: Exchange): Result | Promise<Result> {
    const { request, response } = exchange;
    const { method = "", url: rawTarget = "", headers } = request;
    checkMessage(request);
    if (method === "OPTIONS" && rawTarget === "*") return describeServer();
    const target = parseTarget(rawTarget);
    const found = this.#find(target);
    if ("redirect" in found) return found.redirect;
    exchange.route = found.route;
    const operation = chooseOperation(found.route, method);
    const caller = operation.ignoresCredentials
      ? undefined
      : this.#authentication.authenticate(headers.authorization);
    exchange.caller = caller;
    const isFree = operation.publicFromLoopback && isFromLoopback(request);
    if (!isFree) requireAccess(caller, operation.access);
    const format = isSafe(method)
      ? chooseFormat(headers.accept, operation)
      : undefined;
    const { consumes, queryInForm, secret = false } = operation;
    const sent = parseParameters(target.query);
    const parameters = operation.parse(sent);
    const url = this.#base.origin + target.path;
    const reauthenticate = () => {
      const now = this.#authentication.reauthenticate(caller);
      requireAccess(now, operation.access);
      return now;
    };
    const abortSignal = () => whenClosed(response);
    const { path } = target;
    const repeats = method === "POST"
      ? first(
        this.#features,
        ({ runOnce }) =>
          runOnce?.(request, {
            caller,
            path,
            secret,
            reauthenticate,
            abortSignal,
          }),
      )
      : undefined;
    const throwIfAborted = () => {
      if (request.socket.destroyed) throw new ClientDisconnected();
    };
    const callOf = (
      caller: Caller | undefined,
      storeResponse?: StoreResponse,
    ): RequestContext => ({
      ids: found.ids,
      resolveScope: found.route.scope,
      caller,
      url,
      reauthenticate,
      throwIfAborted,
      abortSignal,
      acquireExportSlot: () => this.#holdExport(exchange),
      method,
      asNdjson: format === ndjsonType,
      headers,
      storeResponse,
    });
    if (consumes === undefined) {
      return operation.run(callOf(caller), parameters, {});
    }
    const type = checkContentType(request, consumes);
    const once: RunOnce = repeats ?? ((_, carryOut) => carryOut());
    if (type === ndjsonType && operation.importNdjson) {
      const body = streamBody(response, { most: maximumLines });
      return operation.importNdjson(callOf(caller), body, once);
    }
    const arriving = exchange.body ?? readBody(request);
    return Promise.resolve(arriving).then((bytes) => {
      exchange.body = bytes;
      if (queryInForm) {
        const parsed = parseFormParameters(bytes, sent);
        const parameters = operation.parse(parsed);
        return operation.run(callOf(reauthenticate()), parameters, {});
      }
      const body = parseJsonObject(bytes);
      const run = (storeResponse?: StoreResponse) =>
        operation.run(
          callOf(reauthenticate(), storeResponse),
          parameters,
          body,
        );
      if (repeats !== undefined) reauthenticate();
      return once(bytes, run);
    });
  }

  /** Takes a place before anything waits, and gives it back when the response is closed, however that comes. */
  #holdExport(exchange: Exchange): void {
    const { request, response } = exchange;
    if (exchange.exports) return; // it is answered anew
    if (request.socket.destroyed) throw new ClientDisconnected();
    if (this.#exports >= maxExports) {
      const message = `${maxExports} exports are under way already.`;
      throw new StoreError("overloaded", message);
    }
    exchange.exports = true;
    this.#exports++;
    response.once("close", () => this.#exports--);
  }

  /** The route of an address, or the answer that leads there. */
  #find({ path, query }: Target): {
    readonly route: Route;
    readonly ids: readonly number[];
  } | { readonly redirect: Result } {
    const found = this.#routes.find(path);
    if (found === undefined) throw unknownAddress(path, this.#base);
    if ("route" in found) return found;
    const location = this.#base.origin + found.redirect +
      (query && `?${escapeQuery(query)}`);
    const headers = ["Location", location];
    const body = JSON.stringify({ location });
    return { redirect: { status: 308, headers, body, seq: 0 } };
  }

  /** Sends an answer when all that it shows is durable. */
  #answer(exchange: Exchange, result: Result): void {
    this.#store.onDurable(result.seq, (error) => {
      if (error) this.#lookAgain(exchange, error);
      else this.#send(exchange, result);
    });
  }

  /** What was seen has been taken back, as the disk is full: a reader is shown what is there now. */
  #lookAgain(exchange: Exchange, error: unknown): void {
    const taken = error instanceof StoreError && error.code === "disk-full";
    const { method = "" } = exchange.request;
    if (taken && isSafe(method)) {
      this.#handle(exchange);
    } else this.#fail(exchange, error);
  }

  /** Answers with an error when the state that it speaks of is durable. */
  #fail(exchange: Exchange, error: unknown): void {
    if (error instanceof ClientDisconnected) return;
    const { request: { method, url, headers }, id } = exchange;
    const known = toApiError(error);
    if (known.code === 50000) {
      const text = error instanceof Error ? error.stack : String(error);
      this.#log("error", known.message, { id, method, url, error: text });
    }
    const seq = tellsState.has(known.status) ? this.#store.seq : 0;
    this.#answer(exchange, { ...errorResponse(known, headers.accept), seq });
  }

  /** Whatever is wrong with an answer, only its own client is told nothing. */
  #send(exchange: Exchange, answer: Response): void {
    try {
      this.#write(exchange, answer);
    } catch (error) {
      exchange.response.destroy();
      this.#log("error", `Cannot answer: ${error}`, { id: exchange.id });
    }
  }

  #write(exchange: Exchange, answer: Response): void {
    const { request, response, id, route, caller } = exchange;
    const { method = "", url } = request;
    const { prefer } = request.headers;
    const preferred = typeof prefer === "string" && !isSafe(method)
      ? applyPreferences(parsePrefer(prefer), method, answer)
      : answer;
    const { status, headers } = preferred;
    const fields = [...headers, "Vary", isSafe(method) ? "Accept" : varied];
    if (isSafe(method)) {
      if (!headers.includes("Cache-Control")) {
        // A copy may be kept, but not shown before we have been asked.
        fields.push("Cache-Control", caller ? "private, no-cache" : "no-cache");
      }
      if (route !== undefined) fields.push(...route.fields);
    }
    fields.push(...corsHeaders(this.#corsOrigins, {
      method,
      headers: request.headers,
      allow: route?.allow,
    }));
    const { start } = exchange;
    for (const feature of this.#features) {
      feature.onResponse?.({ route, method, status, start });
    }
    fields.push("X-Request-Id", id);
    send(response, preferred, fields);
    const trace = parseTraceId(request.headers["traceparent"]);
    this.#log("debug", "answered", { id, trace, method, url, status });
  }
}

/** Aborted when a response is closed: sent, or given up by its client. */
function whenClosed(response: OutgoingResponse): AbortSignal {
  const controller = new AbortController();
  const abort = () => controller.abort(new ClientDisconnected());
  if (response.req.socket.destroyed) abort();
  else response.once("close", abort);
  return controller.signal;
}

/** What node:http lets pass: another major version (RFC 9110 section 2.5), no Host (RFC 9112 section 3.2). */
function checkMessage({ httpVersion, headers }: IncomingRequest): void {
  if (!httpVersion.startsWith("1.")) {
    throw new ApiError(40000, `This is HTTP/1.1, not HTTP/${httpVersion}.`);
  }
  if (headers.host === undefined && httpVersion !== "1.0") {
    throw new ApiError(40000, "A request must have a Host field.");
  }
}

/** Percent-encodes what some clients send in a query though no address may hold it (RFC 3986 section 3.4). */
function escapeQuery(query: string): string {
  return query.replace(/["<>\\^`{|}]/g, encodeURIComponent);
}

/** `OPTIONS *` (RFC 9110 section 9.3.7): what the server as a whole can. */
function describeServer(): Result {
  const headers = ["Allow", implementedMethods.join(", ")];
  return { status: 204, headers, body: undefined, seq: 0 };
}

function unknownAddress(path: string, base: Base): ApiError {
  const version = /^v\d+(?=\/|$)/.exec(path.slice(base.path.length))?.[0];
  const other = path.startsWith(base.path) && version && version !== "v1";
  return new ApiError(
    40400,
    other
      ? `There is no version ${version} of this API: use ${base.path}v1.`
      : `There is no such address: ${base.path} names those that there are.`,
  );
}

/** 405 with Allow where another method would do (RFC 9110 section 15.5.6), 501 where no address has it. */
function chooseOperation(
  { operations, allow }: Route,
  method: string,
): Operation {
  const operation = operations.get(method === "HEAD" ? "GET" : method);
  if (operation !== undefined) return operation;
  if (!implementedMethods.includes(method)) throw notImplemented(method);
  throw new ApiError(
    40500,
    `The method ${method} is not allowed here: allowed are ${allow}.`,
    { headers: ["Allow", allow] },
  );
}

/** Whether a method only reads (RFC 9110 section 9.2.1), so that its answers can be kept. */
function isSafe(method: string): boolean {
  return method === "GET" || method === "HEAD" || method === "QUERY";
}

/** What the answers to all other methods depend on. */
const varied = "Accept, Prefer";

/**
 * Does without the record in an answer where a client would rather not have it
 * (RFC 7240 section 4.2). It can fetch it later, so an answer that may not be
 * kept stays whole: its token is shown only once.
 */
function applyPreferences(
  { return: wished, handling }: Preferences,
  method: string,
  answer: Response,
): Response {
  const { status, headers } = answer;
  const made = status === 201 && !headers.includes("no-store");
  const applied = [
    ...(made && wished ? [`return=${wished}`] : []),
    ...(handling === "strict" ? ["handling=strict"] : []), // as always
  ];
  if (applied.length === 0) return answer;
  const fields = [...headers, "Preference-Applied", applied.join(", ")];
  if (!made || wished !== "minimal") return { ...answer, headers: fields };
  const without = method === "POST" ? 201 : 204;
  return { status: without, headers: fields, body: undefined };
}

/** The parameters of a QUERY: those of its body, or else of its address. */
function parseFormParameters(bytes: Uint8Array, sent: Parameters): Parameters {
  const form = parseForm(decodeUtf8(bytes));
  if (form.size === 0) return sent;
  if (sent.size === 0) return form;
  throw new ApiError(
    40003,
    "There are parameters both in the address and in the body: send them in one place.",
  );
}

/** What the first of some things comes to that comes to anything. */
function first<T, R>(
  all: readonly T[],
  of: (each: T) => R | undefined,
): R | undefined {
  for (const each of all) {
    const found = of(each);
    if (found !== undefined) return found;
  }
  return undefined;
}

/** RFC 9110 section 15.5.7. Who takes RFC 9457's JSON means our errors; the rest is JSON. */
function chooseFormat(
  accept: string | undefined,
  { produces = ["application/json"] }: Operation,
): string {
  const errors = produces.includes("application/json")
    ? ["application/problem+json"]
    : [];
  const found = negotiate(accept, [...produces, ...errors]);
  if (found !== undefined) return found;
  throw new ApiError(
    40600,
    `The format asked for is not available: this address has ${
      produces.join(" and ")
    }.`,
  );
}

/** The media type of the body. RFC 9110 section 15.5.16; with the field that tells what would do, as RFC 5789 section 2.2 advises. */
function checkContentType(
  request: IncomingRequest,
  allowed: readonly string[],
): string | undefined {
  const { headers, method } = request;
  const encoding = headers["content-encoding"]?.trim().toLowerCase();
  if (encoding !== undefined && encoding !== "identity") {
    throw new ApiError(
      41500,
      "The body must not have a Content-Encoding other than identity.",
      { headers: ["Accept-Encoding", "identity"] },
    );
  }
  const field = headers["content-type"];
  if (field === undefined && method === "QUERY") { // RFC 10008 section 2
    throw new ApiError(
      40000,
      `The request must have a Content-Type: ${allowed.join(" or ")}.`,
    );
  }
  if (field !== undefined && allowed.includes(field)) return field;
  // What has no content has no type either: that is for the next step to tell.
  if (field === undefined && !hasContent(request)) return undefined;
  const type = parseMediaType(field ?? "");
  const charset = type?.parameters.get("charset") ?? "utf-8";
  if (type && allowed.includes(type.type) && charset === "utf-8") {
    return type.type;
  }
  const name = method === "PATCH" ? "Accept-Patch" : "Accept-Post";
  throw new ApiError(
    41500,
    `The Content-Type must be ${allowed.join(" or ")}, in UTF-8.`,
    method === "PUT" || method === "QUERY" // QUERY's field is the route's
      ? {}
      : { headers: [name, allowed.join(", ")] },
  );
}

/** Errors that tell something of the records, users or authorizations that there are. */
const tellsState: ReadonlySet<number> = new Set([
  401,
  403,
  404,
  409,
  410,
  412,
  422,
  428,
]);

const storeErrors: Readonly<Record<string, ErrorCode>> = {
  "read-only": 50300,
  "disk-full": 50301,
  "overloaded": 50302,
};

/** What a client may know of an error: of one that we did not foresee, nothing. */
function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  if (error instanceof BusyError) return overloaded();
  const code = error instanceof StoreError
    ? storeErrors[error.code]
    : undefined;
  return code === 50302 && error instanceof StoreError
    ? overloaded(error.message)
    : new ApiError(code ?? 50000);
}

function overloaded(message?: string): ApiError {
  return new ApiError(50302, message, { headers: ["Retry-After", "1"] });
}
