/**
 * How the operator of the server changes records without a request: at the first
 * start, from a seed and at the command line, by the same rules as over HTTP.
 */

import type { Actor } from "../auth/access.ts";
import type { Store } from "../store/store.ts";
import { users } from "./accounts/users.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import { deriveCollection } from "./declaration/declaration.ts";
import type { Values } from "./declaration/properties.ts";
import type { Body } from "./declaration/validation.ts";
import { Records } from "./records/records.ts";
import { hashSecret } from "./records/writing.ts";

/** The operator, who is not a user and has all rights; the log of changes has user id 0. */
export const localOperator: Actor = {
  id: 0,
  role: "",
  grants: { has: () => true },
};

/** The operator waits for a password hash like a client. */
export const requester = { client: "", signal: new AbortController().signal };

/**
 * Creates a user, durably. The record is built again after its password is
 * hashed, since others may have been created meanwhile.
 *
 * @throws {ApiError} if the name, role or password is invalid; {StoreError}
 */
export async function createUser(
  store: Store,
  { roles }: ApiDeclaration,
  user: Body,
): Promise<void> {
  const records = new Records(deriveCollection(users(roles)), {
    store,
    now: Date.now,
  });
  const create = (hashes?: Values) =>
    records.putMutation(
      records.buildRecord(user, { caller: localOperator, hashes }),
    );
  create(); // refuses an invalid body before it costs a hash
  const hashes = await hashSecret(records, user, requester);
  await store.settle(() => ({
    // Without a user nobody could delete records.
    seq: store.apply([create(hashes)], 0, { allowWhenFull: true }),
  }));
}
