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

const utf8 = new TextDecoder("utf-8", { fatal: true });

/** Reads the file that a setting names, without a byte-order mark and the newline at its end. */
export function readText(name: string, file: string): string {
  try {
    return utf8.decode(readFileSync(file)).replace(/\r?\n$/, "");
  } catch (error) {
    const path = JSON.stringify(file);
    throw new UsageError(
      `${name}: cannot read ${path} (${
        errorCode(error)
      }): it must be a readable file of UTF-8 text`,
    );
  }
}
