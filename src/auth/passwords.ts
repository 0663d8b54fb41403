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

/** How many may wait for their turn, so that nobody's sign-in waits longer than some seconds. */
const maxWaiting = 16;

/** Too many passwords are waiting to be hashed; nothing was done. */
export class BusyError extends Error {
  override readonly name = "BusyError";
}

/**
 * Hashes a password; the result is `scrypt$N$r$p$salt$hash` with base64url parts.
 *
 * @param signal ends the wait for a turn; its reason is thrown
 * @throws {BusyError}
 */
export async function hashPassword(
  password: string,
  signal?: AbortSignal,
): Promise<string> {
  const { N, r, p } = parameters;
  const salt = randomBytes(saltLength);
  const hash = await derive(password, { salt, cost: parameters, signal });
  const parts = [N, r, p, salt.toString("base64url"), toText(hash)];
  return `scrypt$${parts.join("$")}`;
}

/**
 * Whether a password fits a stored hash. Without a hash (no such user) it takes
 * as long and says no, so that time does not tell which names exist.
 *
 * @param signal ends the wait for a turn; its reason is thrown
 * @throws {Error} where the stored hash is not one of ours
 * @throws {BusyError}
 */
export async function verifyPassword(
  password: string,
  stored: string | undefined,
  signal?: AbortSignal,
): Promise<boolean> {
  if (stored === undefined) {
    const salt = Buffer.alloc(saltLength);
    await derive(password, { salt, cost: parameters, signal });
    return false;
  }
  const [kind, N, r, p, salt = "", hash = ""] = stored.split("$");
  const expected = Buffer.from(hash, "base64url");
  if (kind !== "scrypt" || expected.length !== keyLength) {
    throw new Error("Cannot verify a password: its stored hash is malformed");
  }
  const found = await derive(password, {
    salt: Buffer.from(salt, "base64url"),
    cost: { N: Number(N), r: Number(r), p: Number(p) },
    signal,
  });
  return timingSafeEqual(found, expected);
}

function toText(bytes: Buffer): string {
  return bytes.toString("base64url");
}

let running = 0;
/** Those that wait for a turn, in the order in which they came. */
const waiting = new Set<() => void>();

async function derive(
  password: string,
  { salt, cost, signal }: {
    readonly salt: Buffer;
    readonly cost: {
      readonly N: number;
      readonly r: number;
      readonly p: number;
    };
    readonly signal: AbortSignal | undefined;
  },
): Promise<Buffer> {
  await takeTurn(signal);
  try {
    return await new Promise((resolve, reject) => {
      scrypt(password, salt, keyLength, cost, (error, key) => {
        if (error) reject(error);
        else resolve(key);
      });
    });
  } finally {
    const [next] = waiting; // its turn begins where this one ends
    if (next === undefined) running--;
    else {
      waiting.delete(next);
      next();
    }
  }
}

/** Waits until one of the hashes at a time is free to be made. */
async function takeTurn(signal: AbortSignal | undefined): Promise<void> {
  signal?.throwIfAborted();
  if (running < atOnce) {
    running++;
    return;
  }
  if (waiting.size >= maxWaiting) throw new BusyError();
  await new Promise<void>((resolve, reject) => {
    waiting.add(resolve);
    signal?.addEventListener("abort", () => {
      // Aborted later, its turn has begun, and this does nothing.
      waiting.delete(resolve);
      reject(signal.reason);
    }, { once: true });
  });
}
