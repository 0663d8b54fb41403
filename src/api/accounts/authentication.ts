/**
 * Who is asking: from an Authorization field to a user that is in the store
 * now. A token alone proves nothing; its authorization must not have been
 * ended, and the role is the one that the user has at this moment.
 */

import {
  type Access,
  bearerToken,
  mayAccess,
  type Role,
  roles,
} from "../../auth/access.ts";

import { type Claims, TokenError, type TokenSigner } from "../../auth/jwt.ts";
import { ApiError, type ErrorCode } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import type { Store, Table } from "../../store/store.ts";

/** A signed-in user. */
export interface Caller {
  readonly id: number;
  readonly role: Role;
  /** The id of the authorization that the token names. */
  readonly authorizationId: number;
  /** When the token expires, in seconds since 1970. */
  readonly expiresAt: number;
}

/** How many verified tokens are kept, and how long their fields may be, in characters. */
const mostVerified = 1000;
const longestKept = 500;

const challenge = 'Bearer realm="zoo-api"';

/** A 401 to a request without credentials (RFC 6750 section 3: no error code then). */
function unauthenticated(message?: string): ApiError {
  return new ApiError(40100, message, {
    headers: ["WWW-Authenticate", challenge],
  });
}

/** A 401 to a token (RFC 6750 section 3.1). */
function invalidToken(code: ErrorCode, message?: string): ApiError {
  return new ApiError(code, message, {
    headers: ["WWW-Authenticate", `${challenge}, error="invalid_token"`],
  });
}

/** A user's role, undefined where the stored one is none that we know. */
export function roleOf(role: unknown): Role | undefined {
  return roles.find((known) => known === role);
}

/** Finds out who is asking. */
export class Authentication {
  readonly #users: Table;
  readonly #authorizations: Table;
  readonly #signer: TokenSigner;
  readonly #now: () => number;
  /** What fields whose token was found good say, the oldest first. */
  readonly #verified = new Map<string, Claims>();

  /** @param now milliseconds since 1970 */
  constructor(store: Store, signer: TokenSigner, now: () => number) {
    this.#users = store.table("users");
    this.#authorizations = store.table("authorizations");
    this.#signer = signer;
    this.#now = now;
  }

  /**
   * The caller that an Authorization field names; undefined without one.
   *
   * @throws {ApiError} 40100 on another scheme, 40102 on a token that is not
   * valid, 40103 on an expired one, 40104 on one whose authorization has ended
   */
  authenticate(authorization: string | undefined): Caller | undefined {
    if (authorization === undefined) return undefined;
    const { sub, jti, exp } = this.#known(authorization) ??
      this.#verify(authorization);
    return this.#look(sub, jti, exp);
  }

  /**
   * What a token says that was found good before. A good signature stays good,
   * so it is checked once (a quarter of what a small write costs); expiry, like
   * all that the store knows of an authorization, is looked at each time.
   */
  #known(authorization: string): Claims | undefined {
    const claims = this.#verified.get(authorization);
    if (claims === undefined || this.#now() / 1000 < claims.exp) return claims;
    this.#verified.delete(authorization);
    return undefined;
  }

  /** What a token says. */
  #verify(authorization: string): Claims {
    const token = bearerToken(authorization);
    if (token === undefined) {
      const [scheme = ""] = authorization.split(" ");
      throw unauthenticated(
        `The authentication scheme "${
          excerpt(scheme)
        }" is not known here: send "Authorization: Bearer <token>" with a token of POST /v1/authorizations.`,
      );
    }
    try {
      const claims = this.#signer.verify(token, this.#now() / 1000);
      const [oldest] = this.#verified.keys();
      if (this.#verified.size >= mostVerified && oldest !== undefined) {
        this.#verified.delete(oldest);
      }
      // A field that is padded with spaces would cost more memory than it's worth.
      if (authorization.length < longestKept) {
        this.#verified.set(authorization, claims);
      }
      return claims;
    } catch (error) {
      if (!(error instanceof TokenError)) throw error;
      throw invalidToken(
        error.code === "expired" ? 40103 : 40102,
        error.message,
      );
    }
  }

  /**
   * The same caller as of now: bodies arrive slowly and passwords are hashed
   * slowly, and meanwhile the authorization may have ended or the role changed.
   *
   * @throws {ApiError} 40104, 40103, 40102
   */
  reauthenticate(caller: Caller | undefined): Caller | undefined {
    if (caller === undefined) return undefined;
    const { id, authorizationId, expiresAt } = caller;
    if (this.#now() / 1000 >= expiresAt) throw invalidToken(40103);
    return this.#look(id, authorizationId, expiresAt);
  }

  #look(sub: number, jti: number, expiresAt: number): Caller {
    const known = this.#authorizations.get(jti);
    if (known === undefined) {
      throw jti <= this.#authorizations.lastId
        ? invalidToken(40104)
        : invalidToken(40102, "The token is not valid: jti: it is not known.");
    }
    const user = this.#users.get(sub);
    const role = roleOf(user?.document["role"]);
    if (known.document["user_id"] !== sub || role === undefined) {
      throw invalidToken(
        40102,
        "The token is not valid: sub: it does not own the jti.",
      );
    }
    return { id: sub, role, authorizationId: jti, expiresAt };
  }
}

/**
 * Refuses a caller that may not what an operation demands.
 *
 * @throws {ApiError} 40100 without a caller, 40300 where the role is too low
 */
export function requireAccess(
  caller: Caller | undefined,
  access: Access,
): void {
  if (mayAccess(caller?.role, access)) return;
  if (caller === undefined) {
    throw unauthenticated(
      'This needs authentication: send "Authorization: Bearer <token>" with a token of POST /v1/authorizations.',
    );
  }
  throw new ApiError(
    40300,
    `This needs the role ${access}; yours is ${caller.role}.`,
  );
}
