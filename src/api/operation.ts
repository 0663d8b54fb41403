/**
 * The types of an operation, which is one method of one URL: app.ts runs it,
 * operations.ts builds those of records, and features add and extend them.
 */

import type { Collection } from "./declaration/declaration.ts";
import type { JsonSchema } from "./declaration/properties.ts";
import type { Body } from "./declaration/validation.ts";
import type { Parameters } from "./query/parameters.ts";
import type { ShowList } from "./records/reading.ts";
import type { Records } from "./records/records.ts";
import type { Outcome, RequestContext } from "./request-context.ts";
import type {
  RequestedRoute,
  Requirements,
  ScopedRecords,
} from "./request-types.ts";

/** One method of a URL; `P` is the type of its parsed parameters. */
export interface Operation<P = unknown> extends Requirements<RequestContext> {
  /** The media types of a request body; undefined if there is no body. */
  readonly consumes?: readonly string[];
  /** The records that it is about. */
  readonly resource?: Resource;
  /** Its part of a description of the API. */
  readonly docs?: OperationDocs;
  /** Parses the parameters; throws an ApiError if they are not valid. By default, none are allowed. */
  readonly parse?: (parameters: Parameters) => P;
  /** Parses the body, if not as one JSON object, to what `run` takes. */
  readonly parseBody?: (bytes: Uint8Array) => Body;
  /**
   * Receives the body itself, such as one that is not JSON; returns undefined
   * if it leaves that to the server.
   */
  readonly receive?: (
    context: RequestContext,
    body: {
      /** Its media type; undefined if there is no body. */
      readonly type: string | undefined;
      /** The parameters of the URL. */
      readonly sent: Parameters;
    },
  ) => Outcome | undefined;
  /** If it reads a list: runs it, and shows the rows in another format. */
  list?(context: RequestContext, parsed: P, show: ShowList): Outcome;
  /** Runs the operation. Declared as a method, so that every `Operation<P>` is assignable to `Operation`. */
  run(context: RequestContext, parsed: P, body: Body): Outcome;
}

/** The methods of a URL, without OPTIONS. */
export type Methods = Readonly<Record<string, Operation>>;

/** The parts that a URL is built from. */
export interface RouteParts {
  readonly methods: Methods;
  /** Declares what a body may hold. */
  readonly described?: Collection | undefined;
}

/** One URL. */
export interface Route
  extends RequestedRoute<RequestContext>, Pick<RouteParts, "described"> {
  /** By method; HEAD is served by GET. */
  readonly operations: ReadonlyMap<string, Operation>;
}

/** Records of a collection as one URL serves them. */
export interface Resource extends ScopedRecords<RequestContext> {
  readonly records: Records;
  /** The only properties that PATCH may change. */
  readonly only?: readonly string[];
}

/** The parts of an operation's description that do not follow from its method. */
export interface OperationDocs {
  /** A short description, and what it does not say, as sentences. */
  readonly summary?: string;
  readonly description?: string;
  /** The name of what it does, if that is the last segment of its URL. */
  readonly verb?: string;
  /** The heading of its URL, if it is not the name of a collection; empty if its URL is not described. */
  readonly tag?: string;
  /** True if its response stays the same while the server runs. */
  readonly isConstant?: true;
  /** Of a list that leaves some properties out: the collection as it shows it. */
  readonly listed?: Collection;
  /** Parameters of the query or, in a form, of the body. */
  readonly parameters?: readonly JsonSchema[];
  /** The schema of a JSON body. */
  readonly body?: JsonSchema;
  /** The successful responses by status: the schema of the content and the header fields. */
  readonly responses?: Readonly<
    Record<number, {
      readonly schema?: JsonSchema;
      /** Instead of a schema: a complete record of this collection. */
      readonly record?: Collection;
      readonly headers?: readonly string[];
    }>
  >;
  /** The statuses of errors that cannot be derived from the rest. */
  readonly errors?: readonly number[];
  /** Set by features: if preconditions are evaluated or required, and if a client may prefer other formats. */
  readonly conditional?: boolean;
  readonly requiresPrecondition?: boolean;
  readonly negotiable?: boolean;
}
