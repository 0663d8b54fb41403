/**
 * Authentication: maps an Authorization field to the user as the store has it
 * now. A valid token is not enough: its authorization must still exist, and the
 * role is the user's current one.
 */

import {
  type Access,
  bearerToken,
  mayAccess,
  type Role,
  roles,
} from "../../auth/access.ts";
import { TokenError, type TokenSigner } from "../../auth/jwt.ts";
import { ApiError, type ErrorCode } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import { formatTime, type Store } from "../../store/store.ts";

/** A signed-in user. */
export interface Caller {
  readonly id: number;
  readonly role: Role;
  /** The id of the authorization that the token names. */
  readonly authorizationId: number;
  /** When the token expires, in seconds since 1970. */
  readonly expiresAt: number;
  /** The end of the second in which the token was issued, as a time of records. */
  readonly issuedBefore: string;
}

/** The claims of a token: the parts of a caller that stay the same while the token is valid. */
type Identity = Omit<Caller, "role">;

/** Bounds of the cache of verified tokens; a field padded with spaces would waste memory. */
const maxCachedTokens = 1000;
const maxCachedLength = 500; // characters

/**
 * Returns an error of status 401. Its challenge has an error code only if the
 * request had a token (RFC 6750 section 3).
 */
export function unauthorized(code: ErrorCode, message?: string): ApiError {
  const error = code > 40101 ? ', error="invalid_token"' : "";
  return new ApiError(code, message, {
    headers: ["WWW-Authenticate", `Bearer realm="zoo-api"${error}`],
  });
}

/** Returns the role that a stored value names; undefined if there is no such role. */
export function roleOf(value: unknown): Role | undefined {
  return roles.find((role) => role === value);
}

/** The dependencies of authentication. */
export interface Authentication {
  readonly store: Store;
  readonly signer: TokenSigner;
  /** Returns milliseconds since 1970. */
  readonly now: () => number;
  /** The claims of verified tokens by Authorization field, the oldest first. */
  readonly verified: Map<string, Identity>;
}

/**
 * Returns the caller that an Authorization field identifies; undefined without
 * a field. A valid signature stays valid, so it is verified once (a quarter of
 * the cost of a small write); all else is checked each time.
 *
 * @throws {ApiError} 40100 on another scheme, 40102 on an invalid token, 40103
 * on an expired one, 40104 on one whose authorization was deleted
 */
export function authenticate(
  authentication: Authentication,
  authorization: string | undefined,
): Caller | undefined {
  if (authorization === undefined) return undefined;
  const { verified } = authentication;
  return reauthenticate(
    authentication,
    verified.get(authorization) ?? verify(authentication, authorization),
  );
}

/** Verifies the token of an Authorization field and caches its claims. */
function verify(
  { signer, now, verified }: Authentication,
  authorization: string,
): Identity {
  const token = bearerToken(authorization);
  if (token === undefined) {
    const [scheme = ""] = authorization.split(" ");
    throw unauthorized(
      40100,
      `The authentication scheme "${
        excerpt(scheme)
      }" is not supported: send "Authorization: Bearer <token>" with a token from POST /v1/authorizations.`,
    );
  }
  try {
    const { sub, jti, iat, exp } = signer.verify(token, now() / 1000);
    const identity = {
      id: sub,
      authorizationId: jti,
      expiresAt: exp,
      issuedBefore: formatTime(Math.min(Math.floor(iat) + 1, 1e11) * 1000),
    };
    if (authorization.length < maxCachedLength) {
      const [oldest = ""] = verified.keys();
      if (verified.size >= maxCachedTokens) verified.delete(oldest);
      verified.set(authorization, identity);
    }
    return identity;
  } catch (error) {
    if (!(error instanceof TokenError)) throw error;
    const code = error.code === "expired" ? 40103 : 40102;
    throw unauthorized(code, error.message);
  }
}

/**
 * Returns the same caller as of now. After a slow body or the hashing of a
 * password the authorization may have ended, or the role may have changed.
 *
 * @throws {ApiError} 40102, 40103, 40104
 */
export function reauthenticate(
  { store, now }: Authentication,
  caller: Identity | undefined,
): Caller | undefined {
  if (caller === undefined) return undefined;
  const { id, authorizationId, expiresAt, issuedBefore } = caller;
  if (now() / 1000 >= expiresAt) throw unauthorized(40103);
  const authorizations = store.table("authorizations");
  const authorization = authorizations.get(authorizationId);
  if (authorization === undefined) {
    if (authorizationId <= authorizations.lastId) throw unauthorized(40104);
    throw invalidToken("its jti was never issued");
  }
  const { user_id, created_at } = authorization.document;
  const role = roleOf(store.table("users").get(id)?.document["role"]);
  if (user_id !== id || role === undefined) {
    throw invalidToken("its sub does not own its jti");
  }
  // A restored backup issues the ids of later authorizations again.
  if (String(created_at ?? "") >= issuedBefore) throw unauthorized(40104);
  return { id, role, authorizationId, expiresAt, issuedBefore };
}

function invalidToken(reason: string): ApiError {
  return unauthorized(40102, `The token is not valid: ${reason}.`);
}

/**
 * Checks that a caller has the access that an operation requires.
 *
 * @throws {ApiError} 40100 without a caller, 40300 if the role is too low
 */
export function requireAccess(
  caller: Caller | undefined,
  access: Access,
): void {
  if (mayAccess(caller?.role, access)) return;
  if (caller === undefined) {
    throw unauthorized(
      40100,
      'Authentication is required: send "Authorization: Bearer <token>" with a token from POST /v1/authorizations.',
    );
  }
  throw new ApiError(
    40300,
    `This requires the role ${access}; yours is ${caller.role}.`,
  );
}
