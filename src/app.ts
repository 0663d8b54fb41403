/**
 * Joins the parts. {@linkcode Application.handle} is the life of a request, a
 * step a line, in the order in which HTTP decides.
 */

import { Authentication, authorize } from "./api/authentication.ts";
import type { Declaration } from "./api/declaration.ts";
import { parseParameters } from "./api/query.ts";
import type { Call, Result } from "./api/records.ts";
import { buildRoutes, type Operation, type Route } from "./api/routes.ts";
import type { TokenSigner } from "./auth/jwt.ts";
import type { Base } from "./config.ts";
import { ApiError, type ErrorCode } from "./http/errors.ts";
import { negotiate, parseMediaType } from "./http/headers.ts";
import { parseJsonObject } from "./http/json.ts";
import { parseTarget, type Router, type Target } from "./http/router.ts";
import {
  type Answer,
  ClientGone,
  errorAnswer,
  hasBody,
  implemented,
  notImplemented,
  receive,
  type Request,
  type Response,
  send,
} from "./http/server.ts";
import type { Log } from "./log.ts";
import { type Store, StoreError } from "./store/store.ts";

/** What an application is made of. */
export interface ApplicationOptions {
  readonly declarations: readonly Declaration[];
  readonly store: Store;
  readonly signer: TokenSigner;
  readonly base: Base;
  /** Milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Log;
}

/** Answers requests. */
export class Application {
  readonly #store: Store;
  readonly #base: Base;
  readonly #log: Log;
  readonly #routes: Router<Route>;
  readonly #authentication: Authentication;

  constructor(options: ApplicationOptions) {
    const { store, signer, now, base, log } = options;
    this.#store = store;
    this.#base = base;
    this.#log = log;
    this.#routes = buildRoutes(options);
    this.#authentication = new Authentication(store, signer, now);
  }

  /** Answers one request; never throws. */
  handle(request: Request, response: Response): void {
    try {
      const result = this.#decide(request);
      if (result instanceof Promise) {
        result.then((result) => this.#answer(request, response, result))
          .catch((error) => this.#fail(request, response, error));
      } else {
        this.#answer(request, response, result);
      }
    } catch (error) {
      this.#fail(request, response, error);
    }
  }

  /** RFC 9110 leaves the order open; this is ours. The first step that fails answers, and nothing is changed. */
  #decide(request: Request): Result | Promise<Result> {
    const { method = "", url = "", headers } = request;
    checkMessage(request);
    if (method === "OPTIONS" && url === "*") return describeServer();
    const target = parseTarget(url);
    const found = this.#find(target);
    if ("redirect" in found) return found.redirect;
    const operation = chooseOperation(found.route, method);
    const caller = operation.ignoresCredentials
      ? undefined
      : this.#authentication.identify(headers.authorization);
    authorize(caller, operation.access);
    if (method === "GET" || method === "HEAD") checkAccept(headers.accept);
    const parameters = operation.parse(parseParameters(target.query));
    const address = this.#base.origin + target.path;
    const confirm = () => {
      const now = this.#authentication.confirm(caller);
      authorize(now, operation.access);
      return now;
    };
    const call: Call = { ids: found.ids, caller, address, confirm };
    const { consumes } = operation;
    if (consumes === undefined) return operation.run(call, parameters, {});
    checkContentType(request, consumes);
    return receive(request).then((bytes) => {
      const body = parseJsonObject(bytes);
      return operation.run({ ...call, caller: confirm() }, parameters, body);
    });
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
  #answer(
    request: Request,
    response: Response,
    result: Result,
  ): void {
    const settled = this.#store.settled(result.seq);
    if (settled === undefined) return this.#send(request, response, result);
    settled.then(() => this.#send(request, response, result))
      .catch((error) => this.#lookAgain(request, response, error));
  }

  /** What was seen has been taken back, as the disk is full: a reader is shown what is there now. */
  #lookAgain(
    request: Request,
    response: Response,
    error: unknown,
  ): void {
    const taken = error instanceof StoreError && error.code === "disk-full";
    const { method } = request;
    if (taken && (method === "GET" || method === "HEAD")) {
      this.handle(request, response);
    } else this.#fail(request, response, error);
  }

  /** Answers with an error when the state that it speaks of is durable. */
  #fail(
    request: Request,
    response: Response,
    error: unknown,
  ): void {
    if (error instanceof ClientGone) return;
    const known = toApiError(error);
    if (known.code === 50000) {
      const { method, url } = request;
      const text = error instanceof Error ? error.stack : String(error);
      this.#log("error", known.message, { method, url, error: text });
    }
    const settled = tellsState.has(known.status)
      ? this.#store.settled(this.#store.seq)
      : undefined;
    if (settled === undefined) {
      this.#send(request, response, errorAnswer(known));
    } else {
      settled.then(() => this.#send(request, response, errorAnswer(known)))
        .catch((error) => this.#lookAgain(request, response, error));
    }
  }

  #send(
    { method, url }: Request,
    response: Response,
    answer: Answer,
  ): void {
    send(response, answer);
    this.#log("debug", "answered", { method, url, status: answer.status });
  }
}

/** What node:http lets pass: another major version (RFC 9110 section 2.5), no Host (RFC 9112 section 3.2). */
function checkMessage({ httpVersion, headers }: Request): void {
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
  const headers = ["Allow", implemented.join(", ")];
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
  if (!implemented.includes(method)) throw notImplemented(method);
  throw new ApiError(
    40500,
    `The method ${method} is not allowed here: allowed are ${allow}.`,
    { headers: ["Allow", allow] },
  );
}

/** RFC 9110 section 15.5.7. */
function checkAccept(accept: string | undefined): void {
  if (negotiate(accept, ["application/json"]) !== undefined) return;
  throw new ApiError(
    40600,
    "The format asked for is not available: this address has application/json.",
  );
}

/** RFC 9110 section 15.5.16; with the field that tells what would do, as RFC 5789 section 2.2 advises. */
function checkContentType(
  request: Request,
  allowed: readonly string[],
): void {
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
  if (field !== undefined && allowed.includes(field)) return;
  // What has no content has no type either: that is for the next step to tell.
  if (field === undefined && !hasBody(request)) return;
  const type = parseMediaType(field ?? "");
  const charset = type?.parameters.get("charset") ?? "utf-8";
  if (type && allowed.includes(type.type) && charset === "utf-8") return;
  const name = method === "PATCH" ? "Accept-Patch" : "Accept-Post";
  throw new ApiError(
    41500,
    `The Content-Type must be ${allowed.join(" or ")}, in UTF-8.`,
    method === "PUT" ? {} : { headers: [name, allowed.join(", ")] },
  );
}

/** Errors that tell something of the records, users or authorizations that there are. */
const tellsState: ReadonlySet<number> = new Set([401, 403, 404, 409, 410, 422]);

const storeErrors: Readonly<Record<string, ErrorCode>> = {
  "read-only": 50300,
  "disk-full": 50301,
  "overloaded": 50302,
};

/** What a client may know of an error: of one that we did not foresee, nothing. */
function toApiError(error: unknown): ApiError {
  if (error instanceof ApiError) return error;
  const code = error instanceof StoreError
    ? storeErrors[error.code]
    : undefined;
  return code === 50302
    ? new ApiError(code, undefined, { headers: ["Retry-After", "1"] })
    : new ApiError(code ?? 50000);
}
