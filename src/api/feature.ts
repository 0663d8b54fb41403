/**
 * Everything that the core and the features know of each other. The core calls
 * a feature through {@linkcode Feature} and its hooks; a feature uses the API
 * through {@linkcode Api}. No feature knows another.
 */

import type { Methods, Route, RouteParts } from "./operation.ts";
import type { IncomingRequest, Response } from "../http/connection.ts";
import type { ApiError } from "../http/errors.ts";
import type { CreateServer, GuardConnections } from "../http/server.ts";
import type { EtcdOptions } from "../store/shared.ts";
import type { StoreOptions, TableDeclaration } from "../store/store.ts";
import type { Roles } from "../auth/access.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import type { Collection, Declaration } from "./declaration/declaration.ts";
import type { OpenedDeclaration } from "./declaration/remembered.ts";
import type { ApiOptions } from "./options.ts";
import type { Records } from "./records/records.ts";
import type { Outcome, RequestContext, Result } from "./request-context.ts";
import type { RequestHooks } from "./request-types.ts";
import type { SettingReader, Settings } from "./settings/setting.ts";

/** The settings that a command needs. */
export interface CommandSettings {
  readonly dataDir: string;
  /** Where the store is, if it is not in the folder. */
  readonly etcd: EtcdOptions | undefined;
  readonly reader: SettingReader;
  /** The values of the flags by name; a flag without a value has the value 1. */
  readonly flags: ReadonlyMap<string, string>;
  /** Loads the declared API; throws a UsageError if that fails or, given the features of a server, if it needs another. */
  readonly loadApi: (
    features?: readonly Feature[],
  ) => Promise<ApiDeclaration>;
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
  /** Adds a URL, or replaces it; with a name, also in the root document. */
  readonly add: (path: string, route: RouteParts, name?: string) => void;
}

/** An optional capability: a folder below `features/` and a line in features.ts. */
export interface Feature {
  readonly collections?: (roles: Roles) => readonly Declaration[];
  readonly tables?: readonly TableDeclaration[];
  /** True if it deletes what a declaration keeps only for a while (`keep`). */
  readonly keeps?: true;
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
  /** Adds to the options with which the store is opened. */
  readonly storeOptions?: () => Partial<StoreOptions>;
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
    context: RequestContext,
    response: Response,
  ) => Response | undefined;
  /** Called for each response before it is sent; may add header fields. */
  readonly onResponse?: (
    request: RequestContext,
    response: {
      readonly status: number;
      readonly fields: string[];
      readonly error?: ApiError | undefined;
    },
  ) => void;
  /** Called before the first request, and after the last. */
  readonly start?: () => Promise<void>;
  readonly stop?: () => Promise<void>;
}

/** The hooks of which one is called: that of the last feature that has it. */
export interface SingleHooks extends RequestHooks<RequestContext> {
  /** Creates a server of node:https instead of one of node:http. */
  readonly createSecureServer?: CreateServer;
  /** Shares the connections among the clients. */
  readonly guardConnections?: GuardConnections;
  /** Header fields of every response: name, value, name, value, … */
  readonly serverFields?: readonly string[];
  /** Responds to a request for a URL outside of the base URL. */
  readonly respondOutside?: (context: RequestContext, path: string) => Outcome;
  /** Throws an ApiError if a client has sent too many requests; called again if the request is judged again. */
  readonly checkQuota?: (context: RequestContext) => void;
  /** Throws an ApiError if another server could interpret the header of a request differently. */
  readonly checkMessage?: (request: IncomingRequest) => void;
  /** Called before the caller is authenticated; if it returns a promise, the request waits for that, and is judged again. Only src/etcd has it. */
  readonly beforeJudging?: (
    context: RequestContext,
  ) => Promise<undefined> | undefined;
  /** Returns a response whose long content is sent in parts. */
  readonly toParts?: (response: Response) => Response;
  /** Waits until a result is durable; returns true if the request must be judged again. Only src/etcd has it. */
  readonly beforeSending?: (
    context: RequestContext,
    result: Result,
  ) => Promise<boolean>;
  /** The URL where errors are documented; the fragment of each is its code. */
  readonly documentationUrl?: string;
}
