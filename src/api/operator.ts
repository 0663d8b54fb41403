/**
 * How the operator of the server changes records without a request: at the first
 * start, from a seed and at the command line, by the same rules as over HTTP.
 */

import type { Actor } from "../auth/access.ts";
import type { Row, Store } from "../store/store.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import {
  type Declaration,
  deriveCollection,
} from "./declaration/declaration.ts";
import type { Values } from "./declaration/properties.ts";
import type { Body } from "./declaration/validation.ts";
import { Records } from "./records/records.ts";
import { hashSecret, mutationsOf, planWrite } from "./records/writing.ts";
import { collectionsOf } from "./routes.ts";

/** The operator, who is not a user and has all rights; the log of changes has user id 0. */
export const localOperator: Actor = {
  id: 0,
  role: "",
  grants: { has: () => true },
};

/** The operator waits for a password hash like a client. */
const requester = { client: "", signal: new AbortController().signal };

/**
 * Returns the records of a collection, given its name or a declaration without
 * references, with the same rules as over HTTP.
 */
export function recordsOf(
  store: Store,
  declaration: ApiDeclaration,
  of: string | Declaration,
): Records {
  const collection = typeof of === "string"
    ? collectionsOf(declaration).get(of)
    : deriveCollection(of);
  if (collection === undefined) throw new Error(`No collection ${of}`);
  const options = { store, prefix: "", now: Date.now };
  return new Records(collection, options);
}

/**
 * Creates a user, durably.
 *
 * @throws {ApiError} if the name, role or password is invalid; {StoreError}
 */
export async function createUser(
  store: Store,
  declaration: ApiDeclaration,
  user: Body,
): Promise<void> {
  await writeAsOperator(recordsOf(store, declaration, "users"), user);
}

/**
 * Creates a record or, if its row is found, changes the properties in the body;
 * durably. The change is planned again after a password is hashed, since the
 * records may have changed meanwhile.
 *
 * @throws {ApiError} 42200; {StoreError}
 */
export async function writeAsOperator(
  records: Records,
  body: Body,
  find: () => Row | undefined = () => undefined,
): Promise<void> {
  const { store } = records;
  const plan = (hashes?: Values) => {
    const row = find();
    const options = { row, caller: localOperator, hashes, partial: true };
    const next = planWrite(records, body, options);
    return mutationsOf(records, { previous: row?.document, next });
  };
  plan(); // refuses an invalid body before it costs a hash
  const hashes = await hashSecret(records, body, requester);
  await store.settle(() => ({
    seq: store.apply(plan(hashes), localOperator.id),
  }));
}
