/** Loads the API that is served. */

import declareSample from "../../collections.ts";
import { type ApiDeclaration, declareApi } from "../../api/declaration/api.ts";
import type { Feature } from "../../api/feature.ts";
import { words } from "../../api/declaration/vocabulary.ts";
import { UsageError } from "../../usage.ts";

/**
 * Loads an API from a file, by default the sample API. The code that finds the
 * mistakes in a file is loaded only for that.
 *
 * @param features those of a server, which must do what the API declares
 * @throws {UsageError} with a line for each mistake in the file
 */
export async function loadApi(
  file: string | undefined,
  features?: readonly Feature[],
): Promise<ApiDeclaration> {
  const api = file === undefined
    ? declareApi(declareSample(words))
    : await (await import("./load-file.ts")).loadFile(file);
  const kept = api.collections.find(({ keep }) => keep);
  if (kept && features?.every(({ keeps }) => !keeps)) {
    throw new UsageError(
      `${kept.name}: this server lacks the feature for keep`,
    );
  }
  return api;
}
