/** Explains a flag that cannot be parsed. */

import { UsageError } from "../usage.ts";

/**
 * Returns the error to report for one of `parseArgs`: without its advice about
 * `--`, and with the flag that was probably meant.
 *
 * @param names those of all flags
 */
export function explainFlag(error: unknown, names: readonly string[]): unknown {
  if (!(error instanceof TypeError)) return error;
  const message = error.message.replace(/\.?\sTo specify.*/s, "")
    .replaceAll("\n", " ");
  const [, unknown] = /^Unknown option '--(.*)'$/.exec(message) ?? [];
  const meant = unknown &&
    names.find((name) =>
      name.startsWith(unknown) || sortLetters(name) === sortLetters(unknown)
    );
  const hint = meant ? `: did you mean --${meant}?` : "";
  return new UsageError(message + hint);
}

/** Returns the letters of a word in alphabetical order. */
function sortLetters(word: string): string {
  return [...word].sort().join("");
}
