/**
 * Everything that the core and the features know of each other. The core calls
 * a feature through {@linkcode Feature} and its hooks; a feature uses the API
 * through {@linkcode Api}. No feature knows another.
 */

import type { Methods, Operation, Route, RouteParts } from "./operation.ts";
import type { IncomingRequest, Response } from "../http/connection.ts";
import type { CreateServer } from "../http/server.ts";
import type { TokenSigner } from "../auth/jwt.ts";
import type { EtcdOptions } from "../store/shared.ts";
import type { Logger, Store, TableDeclaration } from "../store/store.ts";
import type { Roles } from "../auth/access.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import type { Collection, Declaration } from "./declaration/declaration.ts";
import type { OpenedDeclaration } from "./declaration/remembered.ts";
import type { Records } from "./records/records.ts";
import type {
  Execution,
  Outcome,
  RequestContext,
  Result,
  Select,
  Subject,
} from "./request-context.ts";
import type { SettingReader, Settings } from "./setting.ts";

/** The settings that a command needs. */
export interface CommandSettings {
  readonly dataDir: string;
  /** Where the store is, if it is not in the folder. */
  readonly etcd: EtcdOptions | undefined;
  readonly reader: SettingReader;
  /** The values of the flags by name; a flag without a value has the value 1. */
  readonly flags: ReadonlyMap<string, string>;
  /** Loads the declared API; throws a UsageError if that fails. */
  readonly loadApi: () => Promise<ApiDeclaration>;
  /** Loads the features that are on. */
  readonly loadFeatures: () => Promise<readonly Feature[]>;
}

/** A command, which returns its exit code, 0 by default. */
export type Command = readonly [
  maxArguments: number,
  run: (
    settings: CommandSettings,
    args: readonly string[],
  ) => Promise<number | void>,
];

/** Commands by name. */
export type Commands = Readonly<Record<string, Command>>;

/** The parts that the API is built from. */
export interface ApiOptions {
  readonly declaration: ApiDeclaration;
  readonly store: Store;
  readonly signer: TokenSigner;
  /** The URL at which the API is served: an origin or nothing, then a path that ends in a slash. */
  readonly base: { readonly origin: string; readonly path: string };
  /** The current time in milliseconds since 1970. */
  readonly now: () => number;
  readonly log: Logger;
  readonly settings: SettingReader;
}

/** The parts of the API that a feature builds on. */
export interface Api extends ApiOptions {
  readonly collections: ReadonlyMap<string, Collection>;
  /** The records of a collection, with its rules. */
  readonly records: (name: string) => Records;
  /** The records of all collections that clients can read. */
  readonly served: readonly Records[];
  /** The URLs in the root document by name, once the features are open. */
  readonly urls: Readonly<Record<string, string>>;
  /** All URLs by pattern, once the features are open. */
  readonly routes: ReadonlyMap<string, Route>;
  /** Adds a URL; with a name, also to the root document. */
  readonly add: (path: string, route: RouteParts, name?: string) => void;
}

/** An optional capability: a folder below `features/` and a line in features.ts. */
export interface Feature {
  readonly collections?: (roles: Roles) => readonly Declaration[];
  readonly tables?: readonly TableDeclaration[];
  /** Its settings, which are read before anything is opened. */
  readonly settings?: Settings;
  /** Commands that it adds to the command line, by name. */
  readonly commands?: Commands;
  /** Throws a UsageError if its settings cannot be used; called before anything is opened. */
  readonly checkSettings?: (settings: SettingReader) => void;
  /**
   * Adapts the stored records to a declaration that may have changed, and
   * remembers it; throws a CommandError if one does not fit. Returns true if a
   * snapshot must follow, so that the next start can do without the feature.
   * Without this hook a changed declaration is refused.
   */
  readonly adaptRecords?: ((opened: OpenedDeclaration) => boolean) | undefined;
  /** Adds the URLs of the feature, and returns its hooks. */
  open(api: Api): FeatureHooks | undefined | void;
}

/** The places at which the core calls a feature. */
export interface FeatureHooks extends SingleHooks {
  /** Extends the methods of a URL; called for each in the order of the features. */
  readonly extend?: (methods: Methods) => Methods | undefined;
  /**
   * Returns a response in the format that the client prefers; undefined if it
   * prefers none that the feature has. Called for each response, and first with
   * a successful one, to learn whether the client accepts any.
   */
  readonly format?: (
    request: HandledRequest,
    response: Response,
  ) => Response | undefined;
  /** Called for each response before it is sent; may add header fields. */
  readonly onResponse?: (
    request: HandledRequest,
    response: { readonly status: number; readonly fields: string[] },
  ) => void;
  /** Called before the first request, and after the last. */
  readonly start?: () => Promise<void>;
  readonly stop?: () => Promise<void>;
}

/** The hooks that at most one feature has. */
export interface SingleHooks {
  /** Creates a server of node:https instead of one of node:http. */
  readonly createSecureServer?: CreateServer;
  /** Header fields of every response: name, value, name, value, … */
  readonly serverFields?: readonly string[];
  /** Returns the address of the client of a request, given that of its connection. */
  readonly findClient?: (
    peer: string,
    headers: IncomingRequest["headers"],
  ) => string;
  /** Throws an ApiError if a client has sent too many requests; called again if the request is judged again. */
  readonly checkQuota?: (request: HandledRequest, client: string) => void;
  /** Called before a request is judged; only src/etcd has it. */
  readonly beforeJudging?: (
    request: HandledRequest,
  ) => Promise<void> | undefined;
  /** Waits until a result is durable; returns true if the request must be judged again. Only src/etcd has it. */
  readonly beforeSending?: (
    request: HandledRequest,
    result: Result,
  ) => Promise<boolean>;
  /** Checks the preconditions of a request, as {@linkcode RequestContext.checkPreconditions}. */
  readonly precondition?: (
    request: RequestContext,
    subject: Subject,
  ) => boolean;
  /** Returns the validators of a representation, as {@linkcode RequestContext.validators}. */
  readonly validators?: (
    request: RequestContext,
    subject: Subject,
  ) => readonly string[];
  /** Executes a request, unless it is a retry of one that was executed. */
  readonly runOnce?: (
    context: RequestContext,
    operation: Operation,
    execution: Execution,
  ) => Outcome;
  /** Finds the rows of a list, as {@linkcode Select}. */
  readonly select?: Select;
  /** The URL where errors are documented; the fragment of each is its code. */
  readonly documentationUrl?: string;
}

/** A request as it was sent, and the route that it found. */
export interface HandledRequest {
  /** The target as it was sent: in general a path and a query. */
  readonly target: string;
  /** Undefined if the URL is unknown. */
  readonly route: Route | undefined;
  readonly method: string;
  readonly headers: IncomingRequest["headers"];
  /** When its request began: a `performance.now()` value. */
  readonly start: number;
}
