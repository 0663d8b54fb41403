/**
 * Hashes passwords with scrypt (RFC 7914). The parameters are stored with each hash,
 * so that they can be raised later without asking anyone for a new password. Hashing
 * is slow and uses much memory on purpose: at most two hashes are computed at a time.
 */

import { Buffer } from "node:buffer";
import {
  randomBytes,
  scrypt,
  type ScryptOptions,
  timingSafeEqual,
} from "node:crypto";
import type { Requester } from "../admission.ts";

/** Cost, block size and parallelization: 16 MiB of memory per hash, as OWASP recommends for small machines. */
const hashParameters = { N: 16384, r: 8, p: 5 };
const keyBytes = 32;
const saltBytes = 16;

/**
 * Hashes a password, in the form NFKC, as keyboards differ in the characters that
 * they compose (NIST SP 800-63B section 5.1.1.2); the result is `scrypt$N$r$p$salt$hash` with base64url parts.
 *
 * @throws the reason of the requester's signal, or {OverloadedError}, of a turn
 */
export async function hashPassword(
  password: string,
  requester: Requester,
): Promise<string> {
  const salt = randomBytes(saltBytes);
  const key = await compute(
    requester,
    () => deriveKey(password.normalize("NFKC"), salt, hashParameters),
  );
  return formatHash(salt, key);
}

/**
 * Returns whether a text is a hash that can be verified, and costs no more than one
 * of this server. It may cost less: then the time of a failed sign-in can reveal
 * that the user exists.
 */
export function isHash(text: unknown): text is string {
  // N is a power of two; the highest numbers are the hashParameters.
  return typeof text === "string" &&
    /^scrypt\$(?:2|4|8|16|32|64|128|256|512|1024|2048|4096|8192|16384)\$[1-8]\$[1-5]\$[\w-]+\$[\w-]{43}$/
      .test(text);
}

/**
 * Returns whether a password matches a stored hash. Without one (no such user), or
 * with a malformed one, it takes as long and returns false, so that neither the
 * time nor the result reveals which usernames exist.
 *
 * @param beforeHash called, and awaited, just before the hash is computed; may reject
 * @throws the reason of the requester's signal, or {OverloadedError}
 */
export async function verifyPassword(
  password: string,
  stored: unknown,
  requester: Requester,
  beforeHash: () => Promise<void> | void = () => {},
): Promise<boolean> {
  const text = isHash(stored) ? stored : dummyHash;
  const [, N, r, p, salt = "", hash = ""] = text.split("$");
  // A hash of version 0.1 is of the password as it was typed.
  const forms = new Set([password.normalize("NFKC"), password]);
  return await compute(requester, async () => {
    await beforeHash();
    const parameters = { N: Number(N), r: Number(r), p: Number(p) };
    let isRight = false;
    for (const form of forms) {
      const key = await deriveKey(
        form,
        Buffer.from(salt, "base64url"),
        parameters,
      );
      if (timingSafeEqual(key, Buffer.from(hash, "base64url"))) isRight = true;
    }
    return isRight && text !== dummyHash;
  });
}

/** The last hash without a turn: these are computed one after the other. */
let last: Promise<unknown> = Promise.resolve();

/** Computes a hash in its turn: two of Node's four threads stay free for files. */
function compute<T>(requester: Requester, work: () => Promise<T>): Promise<T> {
  const { signal, turns } = requester;
  if (turns) return turns.hash.run(requester, work);
  const result = last.then(() => {
    signal.throwIfAborted(); // nobody waits for it any more
    return work();
  });
  last = result.catch(() => {});
  return result;
}

function formatHash(salt: Buffer, key: Buffer): string {
  const parts = [salt, key].map((bytes) => bytes.toString("base64url"));
  return ["scrypt", ...Object.values(hashParameters), ...parts].join("$");
}

/** Costs as much to verify as the hash of a user. */
const dummyHash = formatHash(Buffer.alloc(saltBytes), Buffer.alloc(keyBytes));

function deriveKey(
  password: string,
  salt: Buffer,
  parameters: ScryptOptions,
): Promise<Buffer> {
  return new Promise((resolve, reject) => {
    scrypt(password, salt, keyBytes, parameters, (error, key) => {
      if (error) reject(error);
      else resolve(key);
    });
  });
}
