/**
 * Authorizations: signing in makes one, deleting it signs out. Each is a
 * record, so a token can be ended before it expires.
 */

import type { TokenSigner } from "../../auth/jwt.ts";
import { verifyPassword } from "../../auth/passwords.ts";
import { ApiError } from "../../http/errors.ts";
import {
  type Document,
  formatTime,
  type Mutation,
  type Store,
} from "../../store/store.ts";
import { roleOf } from "./authentication.ts";
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
import type { Records } from "../records/records.ts";
import type { RequestContext, Result } from "../request-context.ts";
import { recordSchema } from "../representation.ts";
import { type Body, validate } from "../declaration/validation.ts";

const day = 24 * 60 * 60; // seconds

/** What is stored, beside `user_id`. */
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

/** What is sent: any two strings are tried, as which are possible is not for validation to tell. */
export const signInForm = collection({
  name: "authorizations",
  singular: "authorization",
  access: authorizations.access,
  properties: {
    username: anyString(),
    password: anyString(),
    expires_in: optional(integer({ minimum: 60, maximum: 30 * day }), 60 * 60),
    note: authorizations.properties.note,
  },
});

/** What is shown only once. */
export const tokenSchemas = {
  token: { type: "string", readOnly: true },
  token_type: { type: "string", readOnly: true, const: "Bearer" },
};

/** Signs in and out. */
export class Authorizations {
  readonly #records: Records;
  readonly #store: Store;
  readonly #signer: TokenSigner;
  readonly #now: () => number;
  readonly #form = deriveCollection(signInForm);

  /** @param now milliseconds since 1970 */
  constructor(
    records: Records,
    { store, signer, now }: {
      readonly store: Store;
      readonly signer: TokenSigner;
      readonly now: () => number;
    },
  ) {
    this.#records = records;
    this.#store = store;
    this.#signer = signer;
    this.#now = now;
  }

  /** The names that a body may have, for OPTIONS. */
  get writable(): readonly string[] {
    return Object.keys(signInForm.properties);
  }

  /** The JSON Schema of what is sent and of what is answered, for OPTIONS. */
  get schema(): JsonSchema {
    const record = recordSchema(this.#records.collection);
    const sent = Object.entries(signInForm.properties)
      .filter(([name]) => name !== "note")
      .map(([name, { schema }]) => [name, { ...schema, writeOnly: true }]);
    return {
      ...record,
      properties: {
        ...Object.fromEntries(sent),
        ...(record["properties"] as JsonSchema), // an object, made above
        ...tokenSchemas,
      },
      required: ["username", "password"],
    };
  }

  /**
   * Makes an authorization for who knows a password, and its token. The
   * expired ones of the same user go in the same transaction.
   *
   * @throws {ApiError} 42200; 40101 where name or password is wrong, which
   * cannot be told apart
   */
  async signIn(call: RequestContext, body: Body): Promise<Result> {
    const values = validate(this.#form, body, {
      previous: undefined,
      partial: false,
      valuesFromUrl: {},
      exists: () => true,
      isDuplicate: () => false,
    });
    const user = await this.#checkPassword(values, call.abortSignal());
    const now = this.#now();
    const iat = Math.floor(now / 1000);
    const exp = iat + Number(values["expires_in"]);
    const document: Document = {
      id: this.#records.nextId(),
      user_id: user.id,
      note: values["note"] ?? null,
      expires_at: formatTime(exp * 1000),
      created_at: formatTime(now),
    };
    const expired = Array.from(
      this.#records.table.find("user_id", user.id),
    ).filter(({ document: { expires_at } }) => isPast(expires_at, now));
    const token = this.#signer.sign({
      sub: user.id,
      jti: document.id,
      iat,
      exp,
    });
    const { representation } = this.#records;
    const mutations = [
      this.#records.putMutation(document),
      ...expired.map(({ document: { id } }): Mutation => [
        "del",
        "authorizations",
        id,
      ]),
    ];
    const response = {
      status: 201,
      headers: [
        "Location",
        representation.url(document.id),
        "Cache-Control",
        "no-store", // RFC 6749 section 5.1
      ],
      body: JSON.stringify({
        ...JSON.parse(
          representation.asStandalone(representation.serialize(document)),
        ),
        token,
        token_type: "Bearer",
      }),
    };
    // On a full disk too: who deletes must sign in first.
    const options = { by: user.id, allowWhenFull: true };
    return this.#records.commit(call, { mutations, response, ...options });
  }

  async #checkPassword(
    { username, password }: Readonly<Record<string, Json>>,
    abandoned: AbortSignal,
  ): Promise<Document> {
    const find = () => {
      const [row] = this.#store.table("users").find(
        "username",
        String(username),
      );
      return row?.document;
    };
    const before = find();
    const stored = before?.["password"];
    const right = await verifyPassword(
      String(password),
      typeof stored === "string" ? stored : undefined,
      abandoned,
    );
    // While scrypt ran, the user may have been deleted or got a new password.
    const user = find();
    if (
      !right || user === undefined || user["password"] !== stored ||
      roleOf(user["role"]) === undefined
    ) {
      throw new ApiError(40101, undefined, {
        headers: ["WWW-Authenticate", 'Bearer realm="zoo-api"'],
      });
    }
    return user;
  }
}

/** Whether a moment, as records have it, is over. */
export function isPast(moment: Json | undefined, now: number): boolean {
  return Date.parse(String(moment)) <= now;
}
