/**
 * The optional capabilities of the server, each a folder below `features/`. A
 * feature that is switched off is never imported. If a folder and its line here
 * are deleted, what is left is a complete server.
 */

import type { Feature } from "./api/feature.ts";

// With a type, because the list may be empty.
const modules: Readonly<
  Record<string, () => Promise<{ readonly feature: Feature }>>
> = {
  imports: () => import("./features/imports/feature.ts"),
  events: () => import("./features/events/feature.ts"),
  idempotency: () => import("./features/idempotency/feature.ts"),
  openapi: () => import("./features/openapi/feature.ts"),
  metrics: () => import("./features/metrics/feature.ts"),
  page: () => import("./features/page/feature.ts"),
  cors: () => import("./features/cors/feature.ts"), // on with CORS_ORIGINS
};

/** The names that the setting `FEATURES` accepts. */
export const featureNames: readonly string[] = Object.keys(modules)
  .filter((name) => name !== "cors");

/** Imports the named features, in the order of the list above. */
export async function loadFeatures(
  names: readonly string[],
): Promise<readonly Feature[]> {
  const features: Feature[] = [];
  for (const [name, load] of Object.entries(modules)) {
    if (names.includes(name)) features.push((await load()).feature);
  }
  return features;
}
