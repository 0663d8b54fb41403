/** Loads the API that is served. */

import declareSample from "../../collections.ts";
import { type ApiDeclaration, declareApi } from "../../api/declaration/api.ts";
import type { Feature } from "../../api/feature.ts";
import { words } from "../../api/declaration/vocabulary.ts";

/**
 * Loads an API from a file, by default the sample API. The code that finds the
 * mistakes in a file is loaded only for that.
 *
 * @throws {UsageError} with a line for each mistake in the file
 */
export async function loadApi(
  file: string | undefined,
  features?: readonly Feature[],
): Promise<ApiDeclaration> {
  if (file === undefined) return declareApi(declareSample(words));
  const { loadFile } = await import("./load-file.ts");
  return await loadFile(file, features);
}
