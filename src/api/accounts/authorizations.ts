/**
 * Authorizations: signing in creates one, deleting it signs out. Each is a
 * stored record, so that a token can be revoked before it expires.
 */

import { verifyPassword } from "../../auth/passwords.ts";
import { type Document, formatTime } from "../../store/store.ts";
import { collection, deriveCollection } from "../declaration/declaration.ts";
import {
  anyString,
  integer,
  type Json,
  type JsonSchema,
  optional,
  readOnly,
  string,
  timestamp,
} from "../declaration/properties.ts";
import { type Body, validate } from "../declaration/validation.ts";
import type { Records } from "../records/records.ts";
import { recordSchema } from "../representation.ts";
import type { RequestContext, Result } from "../request-context.ts";
import { type AccountOptions, roleOf, unauthorized } from "./authentication.ts";

const hour = 60 * 60; // in seconds

/** The stored properties, besides `user_id`. */
export const authorizations = collection({
  name: "authorizations",
  singular: "authorization",
  access: { read: "viewer", write: "anyone", delete: "viewer" },
  immutable: true,
  owner: "user_id",
  properties: {
    note: optional(string({ minLength: 0, maxLength: 100 })),
    expires_at: readOnly(timestamp()),
  },
});

/** The body of a sign-in. Any two strings are accepted, so that validation does not reveal which usernames or passwords are possible. */
export const signInForm = collection({
  name: "authorizations",
  singular: "authorization",
  access: authorizations.access,
  properties: {
    username: anyString(),
    password: anyString(),
    expires_in: optional(
      integer({ minimum: 60, maximum: 30 * 24 * hour }),
      hour,
    ),
    note: authorizations.properties.note,
  },
});

const form = deriveCollection(signInForm);

/** The schemas of the properties that only the response to a sign-in has. */
export const tokenSchemas = {
  token: { type: "string", readOnly: true },
  token_type: { type: "string", readOnly: true, const: "Bearer" },
};

/** Signs users in. */
export class Authorizations {
  readonly #records: Records;
  readonly #options: AccountOptions;

  constructor(records: Records, options: AccountOptions) {
    this.#records = records;
    this.#options = options;
  }

  /** The names that a body may have, for OPTIONS. */
  get writable(): readonly string[] {
    return Object.keys(signInForm.properties);
  }

  /** The JSON Schema of request and response in one, for OPTIONS. */
  get schema(): JsonSchema {
    const record = recordSchema(this.#records.collection);
    const sent = form.properties
      .map(({ name, schema }) => [name, { ...schema, writeOnly: true }]);
    return {
      ...record,
      properties: {
        ...Object.fromEntries(sent),
        ...(record["properties"] as JsonSchema), // also of the note
        ...tokenSchemas,
      },
      required: ["username", "password"],
    };
  }

  /**
   * Creates an authorization and its token for a user who supplies the right
   * password. The user's expired authorizations are deleted in the same
   * transaction.
   *
   * @throws {ApiError} 42200; 40101 on a wrong name or password, which cannot be
   * told apart
   */
  async signIn(context: RequestContext, body: Body): Promise<Result> {
    const { table } = this.#records;
    const { store } = this.#options;
    const values = validate(form, body, { store, table, valuesFromUrl: {} });
    const user = await this.#checkPassword(values, context.abortSignal());
    const now = this.#options.now();
    const iat = Math.floor(now / 1000);
    const exp = iat + Number(values["expires_in"]);
    const id = this.#records.nextId();
    const document: Document = {
      id,
      user_id: user.id,
      note: values["note"] ?? null,
      expires_at: formatTime(exp * 1000),
      created_at: formatTime(now),
    };
    const claims = { sub: user.id, jti: id, iat, exp };
    const token = this.#options.signer.sign(claims);
    const mutations = [this.#records.putMutation(document)];
    for (const row of this.#records.table.find("user_id", user.id)) {
      const { id, expires_at } = row.document;
      if (isPast(expires_at, now)) {
        mutations.push(["del", "authorizations", id]);
      }
    }
    return this.#records.commit(context, {
      mutations,
      response: this.#respond(document, token),
      by: user.id,
      allowWhenFull: true, // as a user must sign in to delete records
    });
  }

  #respond(document: Document, token: string) {
    const { representation } = this.#records;
    const record = representation.asStandalone(
      representation.serialize(document),
    );
    return {
      status: 201,
      headers: [
        "Location",
        representation.url(document.id),
        "Cache-Control",
        "no-store", // RFC 6749 section 5.1
      ],
      body: JSON.stringify({
        ...JSON.parse(record),
        token,
        token_type: "Bearer",
      }),
    };
  }

  async #checkPassword(
    { username, password }: Readonly<Record<string, Json>>,
    signal: AbortSignal,
  ): Promise<Document> {
    const findUser = () => {
      const users = this.#options.store.table("users");
      const [row] = users.find("username", String(username));
      return row?.document;
    };
    const stored = findUser()?.["password"];
    const isRight = await verifyPassword(
      String(password),
      typeof stored === "string" ? stored : undefined,
      signal,
    );
    // While scrypt ran, the user may have been deleted or changed the password.
    const user = findUser();
    if (
      !isRight || user === undefined || user["password"] !== stored ||
      roleOf(user["role"]) === undefined
    ) {
      throw unauthorized(40101);
    }
    return user;
  }
}

/** Returns whether a time of a record is past. */
export function isPast(time: Json | undefined, now: number): boolean {
  return Date.parse(String(time)) <= now;
}
