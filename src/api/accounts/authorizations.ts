/**
 * Authorizations: signing in creates one, deleting it signs out. Each is a
 * stored record, so that a token can be revoked before it expires.
 */

import type { Roles } from "../../auth/access.ts";
import { isHash, verifyPassword } from "../../auth/passwords.ts";
import {
  type Document,
  foldText,
  formatTime,
  type Store,
} from "../../store/store.ts";
import {
  type Declaration,
  deriveCollection,
} from "../declaration/declaration.ts";
import {
  anyString,
  choice,
  integer,
  type Json,
  optional,
  readOnly,
  string,
  timestamp,
  writeOnly,
} from "../declaration/properties.ts";
import { type Body, validate } from "../declaration/validation.ts";
import type { Api } from "../feature.ts";
import type { Records } from "../records/records.ts";
import type { RequestContext, Result } from "../request-context.ts";
import { unauthorized } from "./authentication.ts";

const hour = 60 * 60; // in seconds

/** The most authorizations of a user: ending them all, as a new password does, must not take long. */
const maxAuthorizations = 100;

/** The stored properties, besides `user_id`. */
const properties = {
  note: optional(string({ minLength: 0, maxLength: 100 })),
  expires_at: readOnly(timestamp()),
};

export function authorizations(
  { lowest }: Pick<Roles, "lowest">,
): Declaration {
  return {
    name: "authorizations",
    singular: "authorization",
    access: { read: lowest, write: "anyone", delete: lowest },
    immutable: true,
    owner: "user_id",
    properties,
  };
}

/**
 * The properties of a sign-in, both of the request and of the response. Any two
 * strings are accepted, so that validation does not reveal which usernames or
 * passwords are possible.
 */
export const signInForm = deriveCollection({
  name: "authorizations",
  singular: "authorization",
  access: { read: "anyone", write: "anyone", delete: "anyone" },
  immutable: true,
  properties: {
    username: writeOnly(anyString()),
    password: writeOnly(anyString()),
    expires_in: writeOnly(
      optional(integer({ minimum: 60, maximum: 30 * 24 * hour }), hour),
    ),
    ...properties,
    token: readOnly(anyString()),
    token_type: readOnly(choice("Bearer")),
  },
});

/**
 * Creates an authorization and its token for a user who supplies the right
 * password. In the same transaction the user's expired authorizations are
 * deleted, and the oldest if there are too many. The response must not be stored
 * (RFC 6749 section 5.1).
 *
 * @throws {ApiError} 42200; 40101 on a wrong name or password, which the client
 * cannot distinguish; 42900
 */
export async function signIn(
  context: RequestContext,
  body: Body,
  { declaration, signer }: Api,
  records: Records,
): Promise<Result> {
  const { table, representation, store, now } = records;
  const values = validate(signInForm, body, { store, table });
  // As it is stored: a phone begins it with a capital, and may end it with a space.
  const username = foldText(String(values["username"]));
  const password = String(values["password"]);
  const check = (beforeHash?: () => Promise<void>) =>
    checkPassword(store, { username, password }, context, beforeHash);
  const { limitSignIns } = context.shared.hooks;
  const user =
    await (limitSignIns ? limitSignIns(context, username, check) : check());
  if (user === undefined || !declaration.roles.grantsOf(user["role"])) {
    throw unauthorized(declaration, 40101);
  }
  const time = now();
  const iat = Math.floor(time / 1000);
  const exp = iat + Number(values["expires_in"]);
  const id = records.nextId();
  const document: Document = {
    id,
    user_id: user.id,
    note: values["note"] ?? null,
    expires_at: formatTime(exp * 1000),
    created_at: formatTime(time),
  };
  const mutations = [records.putMutation(document)];
  const others = table.find("user_id", user.id); // the oldest first
  const lastDropped = others.length - maxAuthorizations;
  for (const [index, { document: { id, expires_at } }] of others.entries()) {
    if (index > lastDropped && !isPast(expires_at, time)) continue;
    mutations.push(["del", table.name, id]);
  }
  const item = representation.asStandalone(representation.serialize(document));
  const response = {
    status: 201,
    headers: ["Location", representation.url(id), "Cache-Control", "no-store"],
    body: JSON.stringify({
      ...JSON.parse(item),
      token: signer.sign({ sub: user.id, jti: id, iat, exp }),
      token_type: "Bearer",
    }),
  };
  // Allowed on a full disk too, because a user must sign in to delete records.
  return records.commit(context, {
    mutations,
    response,
    by: user.id,
    allowWhenFull: true,
  });
}

/** Returns the user named in a sign-in, if the password is right. */
async function checkPassword(
  store: Store,
  { username, password }: Readonly<Record<"username" | "password", string>>,
  context: RequestContext,
  beforeHash?: () => Promise<void>,
): Promise<Document | undefined> {
  const found = findUser(store, username);
  const stored = found?.["password"];
  if (found && !isHash(stored)) {
    context.shared.log(
      "error",
      `The password hash of user ${found.id} is malformed`,
    );
  }
  const isRight = await verifyPassword(
    password,
    stored,
    context,
    beforeHash,
  );
  // While scrypt ran, the user may have been deleted or changed the password.
  const user = findUser(store, username);
  return isRight && user?.["password"] === stored ? user : undefined;
}

function findUser(store: Store, username: string): Document | undefined {
  const [row] = store.table("users").find("username", username);
  return row?.document;
}

/** Returns whether a time of a record is past. */
export function isPast(time: Json | undefined, now: number): boolean {
  return Date.parse(String(time)) <= now;
}
