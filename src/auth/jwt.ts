/**
 * Signs and verifies JSON Web Tokens (RFC 7519). A token is valid only if it
 * is, byte for byte, one that this server would sign for the same claims. So
 * its sender has no choice: not of the algorithm, which is always HMAC-SHA-256
 * (RFC 8725 sections 2.1 and 3.1), not of a further claim or header parameter,
 * and not of another spelling of the same base64url or JSON.
 */

import { Buffer } from "node:buffer";
import { createHmac, timingSafeEqual } from "node:crypto";

/** The claims of a token (RFC 7519 section 4.1), besides its constant issuer. */
export interface Claims {
  /** The user's id. */
  readonly sub: number;
  /** The authorization's id. */
  readonly jti: number;
  /** Issued at and expires at, in seconds since 1970. */
  readonly iat: number;
  readonly exp: number;
}

/** The token was not signed by this server. */
export class TokenError extends Error {}

/** A secret, and the encoded header of the tokens that it signs. */
interface Key {
  readonly secret: Buffer;
  readonly header: string;
}

/** Signs tokens with the first of its secrets; verifies them with any. */
export class TokenSigner {
  readonly #keys: readonly [Key, ...Key[]];
  readonly #issuer: string;

  /**
   * @param secrets at least one, each of at least 32 bytes (RFC 7518 section 3.2)
   * @param issuer the claim `iss` of all tokens
   */
  constructor(secrets: readonly string[], issuer: string) {
    const [signing, ...others] = secrets.map(createKey);
    if (signing === undefined) throw new RangeError("Cannot sign: no secret");
    this.#keys = [signing, ...others];
    this.#issuer = issuer;
  }

  /** Returns the compact serialization of a token (RFC 7515 section 3.1). */
  sign(claims: Claims): string {
    return seal(this.#keys[0], this.#encodeClaims(claims));
  }

  /**
   * Verifies a token and returns its claims, which are parsed only if the
   * header and the signature are valid. It may have expired: a token is verified
   * once, but its expiry must be checked at each use.
   *
   * @throws {TokenError} whose message names the part that is invalid
   */
  verify(token: string): Claims {
    const [header = "", payload = ""] = token.split(".");
    const key = this.#keys.find((key) => key.header === header);
    if (!key) throw invalid("header does");
    if (!isEqual(token, seal(key, payload))) throw invalid("signature does");
    const claims = parseClaims(payload);
    // Another server may have the same secret.
    if (claims === undefined || this.#encodeClaims(claims) !== payload) {
      throw invalid("claims do");
    }
    return claims;
  }

  #encodeClaims({ sub, jti, iat, exp }: Claims): string {
    const iss = this.#issuer;
    return encode({ iss, sub: String(sub), iat, exp, jti: String(jti) });
  }
}

/** What to do about a file with a secret that cannot sign. */
export const badSecret =
  "it must hold text of at least 32 bytes; delete it, and the next start creates one: everybody has to sign in again";

/** Returns whether a secret is text of at least 32 bytes (RFC 7518 section 3.2): zeros, as of a file that a power cut has spoiled, would be no secret. */
export function canSign(secret: string): boolean {
  return Buffer.byteLength(secret) >= 32 && !/[\p{Cc}\uFFFD]/u.test(secret);
}

function createKey(text: string): Key {
  if (!canSign(text)) {
    throw new RangeError("Cannot sign with less than 32 bytes of text");
  }
  const secret = Buffer.from(text);
  // The id reveals nothing about the secret, and is the same at every start.
  const kid = hmac(secret, "zoo-api key id").slice(0, 12);
  return { secret, header: encode({ alg: "HS256", typ: "JWT", kid }) };
}

/** Returns the token with these encoded claims. */
function seal({ secret, header }: Key, payload: string): string {
  const input = `${header}.${payload}`;
  return `${input}.${hmac(secret, input)}`;
}

/** Compares tokens in a time that reveals nothing but their lengths, which are not secret. */
function isEqual(one: string, other: string): boolean {
  const a = Buffer.from(one);
  const b = Buffer.from(other);
  return a.length === b.length && timingSafeEqual(a, b);
}

/** Parses encoded claims; returns undefined if they are not a JSON object with numbers that a token can have. */
function parseClaims(payload: string): Claims | undefined {
  try {
    const text = Buffer.from(payload, "base64url").toString();
    const { sub, jti, iat, exp } = JSON.parse(text);
    // No authorization has the id 0.
    const claims = { sub: Number(sub), jti: Number(jti) || NaN, iat, exp };
    const isValid = Object.values(claims)
      .every((value) => Number.isSafeInteger(value) && value >= 0);
    return isValid ? claims : undefined;
  } catch {
    return undefined;
  }
}

function invalid(subject: string): TokenError {
  return new TokenError(
    `The token is not valid: its ${subject} not come from this server.`,
  );
}

function hmac(secret: Buffer, text: string): string {
  return createHmac("sha256", secret).update(text).digest("base64url");
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}
