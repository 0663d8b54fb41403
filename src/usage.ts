/** Mistakes of the operator: errors that end a command with one line each, and the files that settings name. */

import { readFileSync } from "node:fs";
import { errorCode } from "./store/error.ts";

/** An invalid command line or setting; exit code 2. */
export class UsageError extends Error {
  override readonly name = "UsageError";
}

/** A command that failed for a reason the operator can act on; exit code 1. */
export class CommandError extends Error {
  override readonly name = "CommandError";
}

/** Reads the file that a setting names, without a byte-order mark and the newline at its end. */
export function readText(name: string, file: string): string {
  try {
    return readFileSync(file, "utf8").replace(/^\ufeff|\r?\n$/g, "");
  } catch (error) {
    const path = JSON.stringify(file);
    throw new UsageError(
      `${name}: cannot read ${path} (${
        errorCode(error)
      }): it must be a readable file`,
    );
  }
}
