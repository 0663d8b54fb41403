/**
 * The secret that signs tokens when none is configured: random, made once, and
 * kept in the data folder for its owner's eyes only.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import {
  readSmallFile,
  realFiles,
  writeAll,
  writeAtomically,
} from "./store/log/files.ts";

/**
 * Reads `secret` in a folder, or makes it. It is on the disk before it signs
 * anything, so a token outlives a power cut. Call it only while holding the
 * folder's lock.
 *
 * @throws {RangeError} where the file holds under 32 bytes; Error of the file
 * system
 */
export async function loadOrCreateSecret(folder: string): Promise<string> {
  const kept = await readSmallFile(realFiles, folder, "secret");
  if (kept !== undefined) {
    const secret = kept.toString().trim();
    if (Buffer.byteLength(secret) >= 32) return secret;
    throw new RangeError(
      `Cannot sign with the file "secret" in ${folder}: it must hold at least 32 bytes`,
    );
  }
  const secret = randomBytes(32).toString("base64url");
  await writeAtomically(
    realFiles,
    join(folder, "secret"),
    (file) => writeAll(file, Buffer.from(`${secret}\n`), 0),
  );
  return secret;
}
