/**
 * The optional capabilities of the server, each a folder below `features/`. A
 * feature that is switched off is never imported. If a folder and its line here
 * are deleted, what is left is a complete server, which refuses the settings
 * that the feature acted on.
 */

import type { Feature } from "./api/feature.ts";

/** The names that the setting `FEATURES` accepts. */
export const featureNames: readonly string[] = [
  "marker",
  "fast-writes",
  "reserves",
  "open-network",
  "indexes",
  "evolution",
  "conditional",
  "expand",
  "events", // begins a history before others write
  "imports",
  "deletions",
  "batches",
  "aggregates",
  "idempotency",
  "openapi",
  "metrics",
  "page",
  "negotiation", // last: formats of their own come before a fallback to JSON
];

/** Those that are on if one of these settings is. */
const settingsOf: Readonly<Record<string, readonly string[]>> = {
  cors: ["CORS_ORIGINS"],
  static: ["PUBLIC"],
  "rate-limit": ["RATE_LIMIT"],
  tls: ["TLS_CERT", "TLS_KEY"],
  "trust-proxy": ["TRUST_PROXY"], // last: it decides who a client is
};

/** Imports the named features and those of the settings, in the order of the lists above. */
export async function loadFeatures(
  names: readonly string[],
  isSet: (setting: string) => boolean = () => false,
): Promise<readonly Feature[]> {
  const isNamed = (name: string) => names.includes(name);
  const withSetting = Object.keys(settingsOf)
    .filter((name) => settingsOf[name]?.some(isSet));
  const features: Feature[] = [];
  for (const name of [...featureNames.filter(isNamed), ...withSetting]) {
    const { feature }: { readonly feature: Feature } = await import(
      `./features/${name}/feature.ts`
    );
    features.push(feature);
  }
  return features;
}
