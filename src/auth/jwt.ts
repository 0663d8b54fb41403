/**
 * JSON Web Tokens (RFC 7519) signed with HMAC-SHA-256, and nothing else of the
 * standard: one algorithm, fixed by us and never chosen by the token (RFC 8725
 * sections 2.1 and 3.1). Bytes are verified first, then parsed, then the
 * claims are checked one by one.
 */

import { Buffer } from "node:buffer";
import { createHmac, timingSafeEqual } from "node:crypto";

/** What a token of ours says (RFC 7519 section 4.1). */
export interface Claims {
  /** The user's id. */
  readonly sub: number;
  /** The authorization's id. */
  readonly jti: number;
  /** Issued at and expires at, in seconds since 1970. */
  readonly iat: number;
  readonly exp: number;
}

/** Why a token is refused: `invalid`, or `expired` where nothing else is wrong. */
export class TokenError extends Error {
  override readonly name = "TokenError";
  readonly code: "invalid" | "expired";
  /** The header parameter or claim that failed, or the part of the token. */
  readonly part: string;

  constructor(code: "invalid" | "expired", part: string, message: string) {
    super(message);
    this.code = code;
    this.part = part;
  }
}

const issuer = "zoo-api";

/** One secret with the id that a token's header names it by. */
interface Key {
  readonly kid: string;
  readonly secret: Buffer;
}

/** Signs tokens with the first of its secrets and verifies with all of them. */
export class TokenSigner {
  readonly #keys: ReadonlyMap<string, Key>;
  readonly #signing: Key;

  /** @param secrets at least one, each of at least 32 bytes (RFC 7518 section 3.2) */
  constructor(secrets: readonly string[]) {
    const keys = secrets.map((text): Key => {
      const secret = Buffer.from(text);
      if (secret.length < 32) {
        throw new RangeError("Cannot sign with a secret of under 32 bytes");
      }
      // The id tells nothing of the secret, and is the same at every start.
      const kid = hmac(secret, "zoo-api key id").subarray(0, 9);
      return { kid: kid.toString("base64url"), secret };
    });
    const [signing] = keys;
    if (signing === undefined) throw new RangeError("Cannot sign: no secret");
    this.#signing = signing;
    this.#keys = new Map(keys.map((key) => [key.kid, key]));
  }

  /** The compact serialization of a token (RFC 7515 section 3.1). */
  sign({ sub, jti, iat, exp }: Claims): string {
    const { kid, secret } = this.#signing;
    const header = encode({ alg: "HS256", typ: "JWT", kid });
    const claims = encode({
      iss: issuer,
      sub: String(sub),
      iat,
      exp,
      jti: String(jti),
    });
    const input = `${header}.${claims}`;
    return `${input}.${hmac(secret, input).toString("base64url")}`;
  }

  /**
   * Verifies a token and returns its claims.
   *
   * @param now seconds since 1970
   * @throws {TokenError} saying which part failed
   */
  verify(token: string, now: number): Claims {
    const [header, claims, signature, more] = token.split(".");
    if (!header || !claims || !signature || more !== undefined) {
      throw invalid("token", "it must have three parts");
    }
    const key = this.#key(parse(header, "header"));
    const sent = decode(signature, "signature");
    const made = hmac(key.secret, `${header}.${claims}`);
    // A wrong length cannot be compared; ours is public (RFC 8725 section 3.3).
    if (sent.length !== made.length || !timingSafeEqual(sent, made)) {
      throw invalid("signature", "it does not match");
    }
    return checkClaims(parse(claims, "claims"), now);
  }

  #key(header: Readonly<Record<string, unknown>>): Key {
    if (header["alg"] !== "HS256") throw invalid("alg", "it must be HS256");
    if (header["typ"] !== "JWT") throw invalid("typ", "it must be JWT");
    // Extensions that must be understood are not (RFC 7515 section 4.1.11).
    if ("crit" in header) throw invalid("crit", "no extension is known");
    const { kid } = header;
    const key = typeof kid === "string" ? this.#keys.get(kid) : undefined;
    if (key === undefined) throw invalid("kid", "no such key is known");
    return key;
  }
}

/** RFC 7519 section 4.1: each claim is there and of its type; expiry is looked at last. */
function checkClaims(
  claims: Readonly<Record<string, unknown>>,
  now: number,
): Claims {
  const { iss, iat, exp, nbf } = claims;
  if (iss !== issuer) throw invalid("iss", `it must be ${issuer}`);
  const sub = idClaim(claims, "sub");
  const jti = idClaim(claims, "jti");
  if (!isTime(iat)) throw invalid("iat", "it must be a time");
  if (!isTime(exp)) throw invalid("exp", "it must be a time");
  // We never set it; who shares a secret with us might (section 4.1.5).
  if (nbf !== undefined && !(isTime(nbf) && nbf <= now)) {
    throw invalid("nbf", "it must be a time in the past");
  }
  if (now >= exp) {
    throw new TokenError("expired", "exp", "The token has expired.");
  }
  return { sub, jti, iat, exp };
}

function idClaim(
  claims: Readonly<Record<string, unknown>>,
  name: "sub" | "jti",
): number {
  const value = claims[name];
  if (typeof value === "string" && /^[1-9]\d{0,15}$/.test(value)) {
    return Number(value);
  }
  throw invalid(name, "it must be an id as a string");
}

function isTime(value: unknown): value is number {
  return typeof value === "number" && Number.isFinite(value) && value >= 0;
}

function invalid(part: string, reason: string): TokenError {
  return new TokenError(
    "invalid",
    part,
    `The token is not valid: ${part}: ${reason}.`,
  );
}

function hmac(secret: Buffer, text: string): Buffer {
  return createHmac("sha256", secret).update(text).digest();
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

/** Only the one canonical spelling: no padding, no other alphabet, no stray bits (RFC 7515 section 2). */
function decode(text: string, part: string): Buffer {
  const bytes = Buffer.from(text, "base64url");
  if (bytes.toString("base64url") !== text) {
    throw invalid(part, "it is not canonical base64url");
  }
  return bytes;
}

function parse(text: string, part: string): Readonly<Record<string, unknown>> {
  const bytes = decode(text, part);
  try {
    const value: unknown = JSON.parse(bytes.toString());
    if (typeof value === "object" && value !== null) return { ...value };
  } catch {
    // falls through to the same refusal
  }
  throw invalid(part, "it is not a JSON object");
}
