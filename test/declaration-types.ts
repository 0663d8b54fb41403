/**
 * The types for declaration files, src/zoo-api.d.ts, have the same words and
 * options as the source. Compiled with the tests, and never run.
 */

import type * as published from "zoo-api";
import type { ApiFile } from "../src/api/declaration/api.ts";
import type { CollectionDeclaration } from "../src/api/declaration/declaration.ts";
import type { Vocabulary } from "../src/api/declaration/vocabulary.ts";

type Same<A, B> = [A] extends [B] ? [B] extends [A] ? true : never : never;

/** The names of the options of a word, which are its last parameter. */
type Options<Words, Word extends keyof Words> = Words[Word] extends
  (...args: infer Parameters) => unknown
  ? Parameters extends readonly [...infer _, (infer Last)?]
    ? keyof NonNullable<Last>
  : never
  : never;

type WithOptions = "string" | "number" | "integer" | "reference" | "date";

export const words: Same<keyof Vocabulary, keyof published.Vocabulary> = true;

export const options: {
  [Word in WithOptions]: Same<
    Options<Vocabulary, Word>,
    Exclude<Options<published.Vocabulary, Word>, "renamed"> // every word has that
  >;
} = { string: true, number: true, integer: true, reference: true, date: true };

export const ofCollections: Same<
  keyof CollectionDeclaration,
  keyof published.Collection
> = true;

export const ofApis: Same<keyof ApiFile, keyof published.Api> = true;
