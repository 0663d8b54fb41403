/**
 * Signs and verifies JSON Web Tokens (RFC 7519). The only algorithm is HMAC-SHA-256,
 * which a token cannot change (RFC 8725 sections 2.1 and 3.1). The header is parsed
 * to find the key, then the signature is verified, and only then are the claims
 * parsed and checked one by one.
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

/** The token is `invalid`, or `expired` if it is valid otherwise. */
export class TokenError extends Error {
  override readonly name = "TokenError";
  readonly code: "invalid" | "expired";

  constructor(code: "invalid" | "expired", message: string) {
    super(message);
    this.code = code;
  }
}

type JsonObject = Readonly<Record<string, unknown>>;

/** Signs tokens with the first of its secrets; verifies them with any. */
export class TokenSigner {
  /** By key id, the header parameter `kid`. */
  readonly #secrets: ReadonlyMap<string, Buffer>;
  readonly #signingKey: readonly [kid: string, secret: Buffer];
  readonly #issuer: string;

  /**
   * @param secrets at least one, each of at least 32 bytes (RFC 7518 section 3.2)
   * @param issuer the claim `iss` of all tokens
   */
  constructor(secrets: readonly string[], issuer: string) {
    this.#issuer = issuer;
    const keys = secrets.map((text): [string, Buffer] => {
      const secret = Buffer.from(text);
      if (secret.length < 32) {
        throw new RangeError("Cannot sign with a secret shorter than 32 bytes");
      }
      // The id reveals nothing about the secret, and is the same at every start.
      const kid = hmac(secret, "zoo-api key id").slice(0, 12);
      return [kid, secret];
    });
    const [signingKey] = keys;
    if (signingKey === undefined) {
      throw new RangeError("Cannot sign: no secret");
    }
    this.#signingKey = signingKey;
    this.#secrets = new Map(keys);
  }

  /** Returns the compact serialization of a token (RFC 7515 section 3.1). */
  sign({ sub, jti, iat, exp }: Claims): string {
    const [kid, secret] = this.#signingKey;
    const header = encode({ alg: "HS256", typ: "JWT", kid });
    const claims = encode({
      iss: this.#issuer,
      sub: String(sub),
      iat,
      exp,
      jti: String(jti),
    });
    const input = `${header}.${claims}`;
    return `${input}.${hmac(secret, input)}`;
  }

  /**
   * Verifies a token and returns its claims.
   *
   * @param now seconds since 1970
   * @throws {TokenError} whose message names the part that is invalid
   */
  verify(token: string, now: number): Claims {
    const [header, claims, signature, rest] = token.split(".");
    if (!header || !claims || !signature || rest !== undefined) {
      throw invalid("token", "it must have three parts");
    }
    const secret = this.#findSecret(parseObject(header, "header"));
    // Compared as text, so that only its canonical base64url is accepted.
    const actual = Buffer.from(signature);
    const expected = Buffer.from(hmac(secret, `${header}.${claims}`));
    // timingSafeEqual throws if the lengths differ; the length is no secret.
    if (
      actual.length !== expected.length || !timingSafeEqual(actual, expected)
    ) {
      throw invalid("signature", "it does not match");
    }
    const parsed = parseObject(claims, "claims");
    if (parsed["iss"] !== this.#issuer) {
      throw invalid("iss", `it must be ${this.#issuer}`);
    }
    return checkClaims(parsed, now);
  }

  #findSecret(header: JsonObject): Buffer {
    if (header["alg"] !== "HS256") throw invalid("alg", "it must be HS256");
    if (header["typ"] !== "JWT") throw invalid("typ", "it must be JWT");
    // Unsupported critical extensions must be rejected (RFC 7515 section 4.1.11).
    if ("crit" in header) throw invalid("crit", "no extension is supported");
    const { kid } = header;
    const secret = typeof kid === "string" ? this.#secrets.get(kid) : undefined;
    if (secret === undefined) throw invalid("kid", "there is no such key");
    return secret;
  }
}

/** Checks that each claim exists and has its type (RFC 7519 section 4.1), and last that the token has not expired. */
function checkClaims(claims: JsonObject, now: number): Claims {
  const sub = idClaim(claims, "sub");
  const jti = idClaim(claims, "jti");
  const iat = timeClaim(claims, "iat");
  const exp = timeClaim(claims, "exp");
  // Our tokens have no nbf, but another server with the same secret might set it.
  if ("nbf" in claims && timeClaim(claims, "nbf") > now) {
    throw invalid("nbf", "it must be a time in the past");
  }
  if (now >= exp) {
    throw new TokenError("expired", "The token has expired.");
  }
  return { sub, jti, iat, exp };
}

function idClaim(claims: JsonObject, name: "sub" | "jti"): number {
  const value = claims[name];
  const id = Number(value);
  if (Number.isSafeInteger(id) && id > 0 && String(id) === value) return id;
  throw invalid(name, "it must be an id as a string");
}

function timeClaim(claims: JsonObject, name: "iat" | "exp" | "nbf"): number {
  const value = claims[name];
  if (typeof value === "number" && Number.isFinite(value) && value >= 0) {
    return value;
  }
  throw invalid(name, "it must be a time");
}

function invalid(part: string, reason: string): TokenError {
  return new TokenError(
    "invalid",
    `The token is not valid: ${part}: ${reason}.`,
  );
}

const utf8 = new TextDecoder("utf-8", { fatal: true });

function hmac(secret: Buffer, text: string): string {
  return createHmac("sha256", secret).update(text).digest("base64url");
}

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

/**
 * Parses a part of a token. Its base64url must be canonical: no padding, no other
 * alphabet, no stray bits (RFC 7515 section 2).
 */
function parseObject(text: string, part: string): JsonObject {
  const bytes = Buffer.from(text, "base64url");
  if (bytes.toString("base64url") !== text) {
    throw invalid(part, "it is not canonical base64url");
  }
  try {
    const value: unknown = JSON.parse(utf8.decode(bytes));
    if (typeof value === "object" && value !== null) return { ...value };
  } catch {
    // It is not UTF-8 or not JSON (RFC 7519 section 7.2): reported below.
  }
  throw invalid(part, "it is not a JSON object");
}
