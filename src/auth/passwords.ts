/**
 * Passwords as scrypt hashes (RFC 7914), each with its parameters beside it, so
 * that they can be raised later without asking anyone for a new password.
 * Hashing is slow and takes memory on purpose: at most two run at a time, the
 * others wait.
 */

import { Buffer } from "node:buffer";
import { randomBytes, scrypt, timingSafeEqual } from "node:crypto";

/** Cost, block size, parallelization: 16 MiB of memory a hash, OWASP's choice for small machines. */
const parameters = { N: 16384, r: 8, p: 5 };
const keyLength = 32; // bytes
const saltLength = 16; // bytes
const atOnce = 2;

/** Hashes a password; the result is `scrypt$N$r$p$salt$hash` with base64url parts. */
export async function hashPassword(password: string): Promise<string> {
  const { N, r, p } = parameters;
  const salt = randomBytes(saltLength);
  const hash = await derive(password, salt, parameters);
  const parts = [N, r, p, salt.toString("base64url"), toText(hash)];
  return `scrypt$${parts.join("$")}`;
}

/**
 * Whether a password fits a stored hash. Without a hash (no such user) it takes
 * as long and says no, so that time does not tell which names exist.
 *
 * @throws {Error} where the stored hash is not one of ours
 */
export async function verifyPassword(
  password: string,
  stored: string | undefined,
): Promise<boolean> {
  if (stored === undefined) {
    await derive(password, Buffer.alloc(saltLength), parameters);
    return false;
  }
  const [kind, N, r, p, salt = "", hash = ""] = stored.split("$");
  const expected = Buffer.from(hash, "base64url");
  if (kind !== "scrypt" || expected.length !== keyLength) {
    throw new Error("Cannot verify a password: its stored hash is malformed");
  }
  const found = await derive(password, Buffer.from(salt, "base64url"), {
    N: Number(N),
    r: Number(r),
    p: Number(p),
  });
  return timingSafeEqual(found, expected);
}

function toText(bytes: Buffer): string {
  return bytes.toString("base64url");
}

let running = 0;
const waiting: (() => void)[] = [];

async function derive(
  password: string,
  salt: Buffer,
  cost: { readonly N: number; readonly r: number; readonly p: number },
): Promise<Buffer> {
  if (running < atOnce) running++;
  else await new Promise<void>((resolve) => waiting.push(resolve));
  try {
    return await new Promise((resolve, reject) => {
      scrypt(password, salt, keyLength, cost, (error, key) => {
        if (error) reject(error);
        else resolve(key);
      });
    });
  } finally {
    const next = waiting.shift(); // takes over the place of this one
    if (next) next();
    else running--;
  }
}
