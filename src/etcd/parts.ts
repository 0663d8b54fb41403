/** The parts of an open store in etcd. */

import type { StoreFolder } from "../store/log/folder.ts";
import type { TableDeclaration } from "../store/memory/table.ts";
import type { Logger, StoreLimits } from "../store/options.ts";
import type { EtcdClient } from "./client.ts";
import type { Loaded } from "./state.ts";

/** A server that is gone for so long loses what it held. */
const leaseSeconds = 60;
export const renewMs = 20_000;

/** Returns the key that is there while a server is. */
export function serverKey(id: string): string {
  return `servers/${id}`;
}

/** The lease of a server: the sign for the others that it is there. */
export class Lease {
  id: string | undefined;
  readonly #client: EtcdClient;
  readonly #serverId: string;

  constructor(client: EtcdClient, serverId: string) {
    this.#client = client;
    this.#serverId = serverId;
  }

  async renew(): Promise<void> {
    if (this.id !== undefined) {
      const body = { ID: this.id };
      const { result } = await this.#client.call("lease/keepalive", body);
      if (Number(result?.TTL) > 0) return;
    }
    const { ID } = await this.#client.call("lease/grant", {
      TTL: leaseSeconds,
    });
    await this.#client.put(serverKey(this.#serverId), "", ID);
    this.id = ID;
  }
}

/** The objects and options that all parts of an open store use. */
export interface EtcdParts {
  readonly client: EtcdClient;
  readonly lease: Lease;
  readonly declared: readonly TableDeclaration[];
  readonly loaded: Loaded;
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** True if reads may be answered from a state that is at most a second old. */
  readonly hasLocalReads: boolean;
  /** Aborted when the store closes. */
  readonly closing: AbortController;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
  readonly serverId: string;
  readonly incarnation: string;
}
