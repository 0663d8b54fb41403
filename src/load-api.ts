/** Loads the declaration file. */

import { resolve } from "node:path";
import { pathToFileURL } from "node:url";
import {
  type ApiDeclaration,
  type DeclareApi,
  declareApi,
} from "./api/declaration/api.ts";
import { vocabulary } from "./api/declaration/vocabulary.ts";

/** Loads an API from a file, by default from src/collections.ts. */
export async function loadApi(
  file: string | undefined,
): Promise<ApiDeclaration> {
  const module: { readonly default: DeclareApi } = file === undefined
    ? await import("./collections.ts")
    : await import(pathToFileURL(resolve(file)).href);
  return declareApi(module.default(vocabulary));
}
