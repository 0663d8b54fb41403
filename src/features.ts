/**
 * The optional capabilities of the server, each a folder below `features/`. A
 * feature that is switched off is never imported. If a folder and its line here
 * are deleted, what is left is a complete server, which refuses the settings
 * that the feature acted on.
 */

import type { Feature } from "./api/feature.ts";

type Modules = Readonly<
  Record<string, () => Promise<{ readonly feature: Feature }>>
>;

// With a type, because the list may be empty.
const modules: Modules = {
  marker: () => import("./features/marker/feature.ts"),
  "fast-writes": () => import("./features/fast-writes/feature.ts"),
  reserves: () => import("./features/reserves/feature.ts"),
  "open-network": () => import("./features/open-network/feature.ts"),
  indexes: () => import("./features/indexes/feature.ts"),
  evolution: () => import("./features/evolution/feature.ts"),
  conditional: () => import("./features/conditional/feature.ts"),
  expand: () => import("./features/expand/feature.ts"),
  imports: () => import("./features/imports/feature.ts"),
  deletions: () => import("./features/deletions/feature.ts"),
  batches: () => import("./features/batches/feature.ts"),
  aggregates: () => import("./features/aggregates/feature.ts"),
  events: () => import("./features/events/feature.ts"),
  idempotency: () => import("./features/idempotency/feature.ts"),
  openapi: () => import("./features/openapi/feature.ts"),
  metrics: () => import("./features/metrics/feature.ts"),
  page: () => import("./features/page/feature.ts"),
  // Last: formats of their own come before a fallback to JSON.
  negotiation: () => import("./features/negotiation/feature.ts"),
};

/** Those that are on if a setting of these names is. */
const modulesOfSettings: Modules = {
  CORS_ORIGINS: () => import("./features/cors/feature.ts"),
  PUBLIC: () => import("./features/static/feature.ts"),
  RATE_LIMIT: () => import("./features/rate-limit/feature.ts"),
  "TLS_CERT TLS_KEY": () => import("./features/tls/feature.ts"),
  TRUST_PROXY: () => import("./features/trust-proxy/feature.ts"),
};

/** The names that the setting `FEATURES` accepts. */
export const featureNames: readonly string[] = Object.keys(modules);

/** Imports the named features and those of the settings, in the order of the lists above. */
export async function loadFeatures(
  names: readonly string[],
  isSet: (setting: string) => boolean = () => false,
): Promise<readonly Feature[]> {
  const all = { ...modules, ...modulesOfSettings };
  const features: Feature[] = [];
  for (const [name, load] of Object.entries(all)) {
    const isOn = names.includes(name) || name.split(" ").some(isSet);
    if (isOn) features.push((await load()).feature);
  }
  return features;
}
