/** The vocabulary that is passed to a declaration file: see src/collections.ts. */

import { collection } from "./declaration.ts";
import {
  boolean,
  choice,
  date,
  email,
  integer,
  number,
  optional,
  reference,
  string,
  text,
  timestamp,
  unique,
  url,
} from "./properties.ts";

export const words = {
  collection,
  string,
  text,
  number,
  integer,
  boolean,
  date,
  timestamp,
  choice,
  email,
  url,
  reference,
  optional,
  unique,
};

/** The functions that are passed to a declaration file. */
export type Vocabulary = typeof words;
