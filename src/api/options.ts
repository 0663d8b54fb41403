/** The parts that the API is built from. */

import type { TokenSigner } from "../auth/jwt.ts";
import type { Logger, Store } from "../store/store.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import type { SettingReader } from "./settings/setting.ts";

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
