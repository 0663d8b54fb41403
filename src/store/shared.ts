/** The members that only a store of several servers has. Features ask for it; the kernel does without. */

import type { LogLine } from "./log/format.ts";
import { Store } from "./transactions.ts";

/** Where a store in etcd is, and how it is used. */
export interface EtcdOptions {
  /** URLs such as `http://10.0.0.1:2379`. */
  readonly endpoints: readonly string[];
  /** The beginning of all keys; ends with a slash. */
  readonly prefix: string;
  readonly user: string | undefined;
  readonly password: string | undefined;
  readonly hasLocalReads: boolean;
  /** How long a call may take; 5 seconds by default. */
  readonly timeoutMs?: number;
}

/** A store that several servers share. */
export abstract class SharedStore extends Store {
  /** Identifies this server among those that share the store, also after a restart. */
  abstract readonly serverId: string;

  /** Changes when sequence numbers may be given again. */
  abstract readonly incarnation: string;

  /** More measurements, by name: a description and a value. */
  abstract readonly gauges: Readonly<
    Record<string, readonly [string, number]>
  >;

  /** Returns the transactions after a sequence number that are durable, some at least; none if the first of them is deleted. */
  abstract transactionsAfter(seq: number): Promise<readonly LogLine[]>;

  /** Returns whether a server has used this store in the last minute. */
  abstract isServed(serverId: string): Promise<boolean>;
}

/** Returns a store as one that several servers share; undefined if it is in a folder. */
export function asShared(store: Store): SharedStore | undefined {
  return store instanceof SharedStore ? store : undefined;
}
