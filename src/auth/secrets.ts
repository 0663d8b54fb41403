/**
 * The secret that signs tokens when none is configured: random, made once, and
 * kept in the data folder for its owner's eyes only.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import {
  closeSync,
  fsyncSync,
  openSync,
  readFileSync,
  renameSync,
  writeSync,
} from "node:fs";
import { join } from "node:path";

/**
 * Reads `secret` in a folder, or makes it. It is on the disk before it signs
 * anything, so a token outlives a power cut. Call it only while holding the
 * folder's lock.
 *
 * @throws {Error} of the file system; RangeError where the file holds under 32
 * bytes
 */
export function keptSecret(folder: string): string {
  const file = join(folder, "secret");
  try {
    const secret = readFileSync(file, "utf8").trim();
    if (Buffer.byteLength(secret) >= 32) return secret;
    throw new RangeError(
      `Cannot sign with ${file}: it must hold at least 32 bytes`,
    );
  } catch (error) {
    if (!(error instanceof Error && "code" in error)) throw error;
    if (error.code !== "ENOENT") throw error;
  }
  const secret = randomBytes(32).toString("base64url");
  const descriptor = openSync(`${file}.new`, "w", 0o600);
  writeSync(descriptor, `${secret}\n`);
  fsyncSync(descriptor);
  closeSync(descriptor);
  renameSync(`${file}.new`, file);
  const folderDescriptor = openSync(folder, "r");
  fsyncSync(folderDescriptor);
  closeSync(folderDescriptor);
  return secret;
}
