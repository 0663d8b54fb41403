/**
 * How the commands change records: as the operator, under the same rules as over
 * HTTP.
 */

import { users as usersOf } from "../api/accounts/users.ts";
import type { ApiDeclaration } from "../api/declaration/api.ts";
import {
  type Declaration,
  deriveCollection,
  seesAll,
} from "../api/declaration/declaration.ts";
import { anyString, type Property } from "../api/declaration/properties.ts";
import { type Body, validationError } from "../api/declaration/validation.ts";
import { Records } from "../api/records/records.ts";
import { createRecord } from "../api/records/writing.ts";
import type { RequestContext } from "../api/request-context.ts";
import { collectionsOf } from "../api/routes.ts";
import type { Actor, Roles } from "../auth/access.ts";
import { hashParameters } from "../auth/passwords.ts";
import { CommandError } from "../config.ts";
import { ApiError } from "../http/errors.ts";
import type { Store } from "../store/store.ts";

/** The operator at the command line, who is not a user and has all rights. */
export const localOperator: Actor = { id: 0, grants: { has: () => true } };

/** The request of a command. The operator is not a user; the log records user id 0. */
export const operator: RequestContext = {
  client: "",
  ids: [],
  caller: localOperator,
  url: "",
  method: "",
  asNdjson: false,
  headers: {},
  scope: () => undefined,
  authenticate: () => localOperator,
  afterWaiting: async (promise, resume) => await resume(await promise),
  signal: new AbortController().signal,
};

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
  const options = { store, prefix: "", now: Date.now, requireIfMatch: false };
  return new Records(collection, options);
}

/**
 * Returns the owner of a new private record that is imported: the user that its
 * body names, if the caller sees the records of all users, or else the caller;
 * null for none.
 *
 * @throws {ApiError} 42200
 */
export function ownerOfImported(
  { collection, store }: Records,
  { owner_id: named }: Body,
  caller: Actor | undefined,
): number | null {
  if (named === undefined || !seesAll(collection, caller)) {
    return caller?.id || null; // the operator is not a user
  }
  if (named === null) return null;
  if (typeof named === "number" && store.table("users").get(named)) {
    return named;
  }
  throw validationError([{
    field: "owner_id",
    code: "reference",
    message: '"owner_id" must be null or the id of a user.',
  }]);
}

/** @throws {CommandError} if the name, role or password is invalid */
export async function createUser(
  store: Store,
  declaration: ApiDeclaration,
  user: Readonly<Record<string, unknown>>,
): Promise<void> {
  await commitOrExplain(
    store,
    () => createRecord(recordsOf(store, declaration, "users"), operator, user),
  );
}

/** Makes a change durable; reports failed validation in one line. */
export async function commitOrExplain(
  store: Store,
  change: Parameters<Store["settle"]>[0],
): Promise<void> {
  try {
    await store.settle(change);
  } catch (error) {
    if (!(error instanceof ApiError)) throw error;
    const messages = error.errors?.map(({ message }) => message);
    throw new CommandError(messages?.join(" ") ?? error.message);
  }
}

/** Users with the hashes of their passwords instead of the passwords: only the command line exports and imports these. */
export function usersWithHashes(roles: Roles): Declaration {
  const { properties, ...others } = usersOf(roles);
  const hash: Property = {
    ...anyString(),
    expected: "a hash as printed by export users --with-hashes",
    check: (value) =>
      typeof value === "string" && isPasswordHash(value)
        ? undefined
        : { code: "format", reason: "is not the hash of a password" },
  };
  return { ...others, properties: { ...properties, password: hash } };
}

/**
 * Returns whether a text has the form of a hash, and costs no more to verify than
 * a hash of this server. It may cost less: then the time of a failed sign-in can
 * reveal that the user exists.
 */
export function isPasswordHash(text: string): boolean {
  const [, N = 0, r = 0, p = 0] =
    /^scrypt\$(\d+)\$(\d+)\$(\d+)\$[\w-]{22}\$[\w-]{43}$/.exec(text)
      ?.map(Number) ?? [];
  const isPowerOfTwo = N > 1 && Number.isInteger(Math.log2(N));
  return isPowerOfTwo && r > 0 && p > 0 &&
    N <= hashParameters.N && r <= hashParameters.r && p <= hashParameters.p;
}
