/**
 * Authentication: maps an Authorization field to the user as currently stored.
 * A valid token is not enough: its authorization must still exist, and the role
 * is the user's current one.
 */

import { type Access, type Actor, mayAccess } from "../../auth/access.ts";
import { type Claims, TokenError } from "../../auth/jwt.ts";
import { ApiError, type ErrorCode } from "../../http/errors.ts";
import type { ApiDeclaration } from "../declaration/api.ts";
import type { ApiOptions } from "../options.ts";

/** The most verified Authorization fields that are remembered: 4 MB, as one may be padded with spaces. */
const maxVerified = 250;

/**
 * Returns an error of status 401. Its challenge has an error code only if the
 * request had a token (RFC 6750 section 3).
 */
export function unauthorized(
  { title }: ApiDeclaration,
  code: ErrorCode,
  message?: string,
): ApiError {
  // A quoted string of ASCII (RFC 9110 section 5.6.4).
  const realm = title.replace(/[^ !#-[\]-~]/g, "_");
  const error = code > 40101 ? ', error="invalid_token"' : "";
  return new ApiError(code, message, {
    headers: ["WWW-Authenticate", `Bearer realm="${realm}"${error}`],
  });
}

/** The dependencies of authentication. */
export interface Authentication
  extends
    Pick<ApiOptions, "base" | "declaration" | "now" | "signer" | "store"> {
  /** The claims of verified tokens by Authorization field. */
  readonly verified: Map<string, Claims>;
}

/**
 * Returns the user that an Authorization field currently identifies; undefined
 * without a field. A valid signature stays valid, so it is verified once, which
 * makes a GET a quarter faster; everything else is checked each time.
 *
 * @throws {ApiError} 40100 on another scheme, 40102 on an invalid token, 40103
 * on an expired one, 40104 on one whose authorization was deleted
 */
export function authenticate(
  authentication: Authentication,
  authorization: string | undefined,
): Actor | undefined {
  if (authorization === undefined) return undefined;
  const { declaration, now, store, verified } = authentication;
  const { sub: id, jti, iat, exp } = verified.get(authorization) ??
    verify(authentication, authorization);
  if (now() / 1000 >= exp) throw unauthorized(declaration, 40103);
  const authorizations = store.table("authorizations");
  const row = authorizations.get(jti);
  if (row === undefined) {
    throw jti <= authorizations.lastId
      ? unauthorized(declaration, 40104)
      : unauthorized(
        declaration,
        40102,
        "The token is not valid: its jti was never issued.",
      );
  }
  const { user_id, created_at } = row.document;
  const role = String(store.table("users").get(id)?.document["role"]);
  const grants = declaration.roles.grantsOf(role);
  if (user_id !== id || grants === undefined) {
    throw unauthorized(
      declaration,
      40102,
      "The token is not valid: its sub does not own its jti.",
    );
  }
  // After a backup is restored, the ids of later authorizations and users are
  // issued again.
  if (Math.floor(Date.parse(String(created_at)) / 1000) !== iat) {
    throw unauthorized(declaration, 40104);
  }
  return { id, role, grants };
}

/** Verifies the token of an Authorization field (RFC 6750 section 2.1), and returns its claims. */
function verify(
  { base, declaration, signer, verified }: Authentication,
  authorization: string,
): Claims {
  // Schemes are case-insensitive (RFC 9110 section 11.1).
  const bearer = /^bearer(?: +(.*))?$/i.exec(authorization);
  // The field may hold a token without its scheme, and is not repeated.
  if (!bearer) {
    throw unauthorized(
      declaration,
      40100,
      `The authentication scheme is not supported: send "Authorization: Bearer <token>" with a token from POST ${base.path}v1/authorizations.`,
    );
  }
  try {
    const claims = signer.verify(bearer[1] ?? "");
    if (verified.size >= maxVerified) verified.clear();
    verified.set(authorization, claims);
    return claims;
  } catch (error) {
    if (!(error instanceof TokenError)) throw error;
    throw unauthorized(declaration, 40102, error.message);
  }
}

/**
 * Checks that a caller has the access that an operation requires.
 *
 * @throws {ApiError} 40100 without a caller, 40300 if the role is too low
 */
export function requireAccess(
  { base, declaration }: Authentication,
  caller: Actor | undefined,
  access: Access,
): void {
  if (mayAccess(caller?.grants, access)) return;
  if (caller === undefined) {
    throw unauthorized(
      declaration,
      40100,
      `Authentication is required: send "Authorization: Bearer <token>" with a token from POST ${base.path}v1/authorizations.`,
    );
  }
  throw new ApiError(
    40300,
    `This requires the role ${access}; yours is ${caller.role}.`,
  );
}
