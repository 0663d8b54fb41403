/** What an open store in etcd is made of. */

import type { StoreFolder } from "../store/log/folder.ts";
import type { TableDeclaration } from "../store/memory/table.ts";
import type { Logger, StoreLimits } from "../store/options.ts";
import { entry } from "./client.ts";
import type { Loaded, Place } from "./state.ts";

/** A server that is gone for so long loses what it held. */
const leaseSeconds = 60;
export const renewMs = 20_000;

/** The lease of a server: the sign for the others that it is there. */
export class Lease {
  id: string | undefined;
  readonly #place: Place;
  readonly #serverId: string;

  constructor(place: Place, serverId: string) {
    this.#place = place;
    this.#serverId = serverId;
  }

  async renew(): Promise<void> {
    const { client } = this.#place;
    if (this.id !== undefined) {
      const { result } = await client.call("lease/keepalive", { ID: this.id });
      if (Number(result?.TTL) > 0) return;
    }
    const { ID } = await client.call("lease/grant", { TTL: leaseSeconds });
    const key = this.#place.server(this.#serverId);
    await client.call("kv/put", entry(key, "", ID));
    this.id = ID;
  }
}

/** What all parts of an open store use. */
export interface EtcdParts {
  readonly place: Place;
  readonly lease: Lease;
  readonly declared: readonly TableDeclaration[];
  readonly loaded: Loaded;
  readonly folder: StoreFolder;
  readonly limits: StoreLimits;
  readonly log: Logger;
  /** True if reads may be answered from a state that is at most a second old. */
  readonly hasLocalReads: boolean;
  /** Releases the lock of the folder. */
  readonly release: () => Promise<void>;
  readonly serverId: string;
  readonly incarnation: string;
}
