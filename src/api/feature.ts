/**
 * All that the core and the features know of each other. The core calls a
 * feature through {@linkcode Feature} and its hooks; a feature uses the API
 * through {@linkcode Api}. No feature knows another.
 */

import type { IncomingRequest } from "../http/server.ts";
import type { TableDeclaration } from "../store/store.ts";
import type { Caller } from "./accounts/authentication.ts";
import type { Collection, Declaration } from "./declaration/declaration.ts";
import type { Records } from "./records/records.ts";
import type { RunOnce } from "./request-context.ts";
import type { Operation, Route, RouteOptions } from "./routes.ts";

/** What a command is told of the settings. */
export interface CommandSettings {
  readonly dataDir: string;
}

/** What a feature is given to build on. */
export interface Api extends RouteOptions {
  readonly collections: ReadonlyMap<string, Collection>;
  /** The records of a collection, with its rules. */
  readonly records: (name: string) => Records;
  /** Those that anybody can be told of. */
  readonly served: readonly Records[];
  /** All addresses, those too that are added later. */
  readonly routes: ReadonlyMap<string, Route>;
  /** Adds an address; under a name, to the root document too. */
  readonly add: (path: string, route: Route, name?: string) => void;
}

/** An optional capability: a folder below `features/` and a line in features.ts. */
export interface Feature {
  readonly collections?: readonly Declaration[];
  readonly tables?: readonly TableDeclaration[];
  /** Commands that it adds to the command line, by name; each returns the exit code. */
  readonly commands?: Readonly<
    Record<
      string,
      (args: readonly string[], settings: CommandSettings) => Promise<number>
    >
  >;
  /** Adds its URLs, and returns what it does besides. */
  open(api: Api): FeatureHooks | undefined | void;
}

/** What a feature does besides adding URLs. */
export interface FeatureHooks {
  /** What a POST that makes records becomes. */
  readonly extendCreate?: (
    post: Operation,
    into: Records,
  ) => Operation | undefined;
  /** How a POST that may be a repeated one is carried out. */
  readonly runOnce?: (
    request: IncomingRequest,
    sent: {
      readonly caller: Caller | undefined;
      readonly path: string;
      readonly secret: boolean;
      readonly reauthenticate: () => unknown;
      readonly abortSignal: () => AbortSignal;
    },
  ) => RunOnce | undefined;
  /** Called for each response when it is sent. */
  readonly onResponse?: (response: SentResponse) => void;
  /** Before the first request, and behind the last. */
  readonly start?: () => Promise<void>;
  readonly stop?: () => Promise<void>;
}

/** An answer that is about to be sent. */
export interface SentResponse {
  /** Undefined where the address is unknown. */
  readonly route: Route | undefined;
  readonly method: string;
  readonly status: number;
  /** When its request began, on the clock of `performance`. */
  readonly start: number;
}
