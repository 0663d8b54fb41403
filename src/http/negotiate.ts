/** The choice among several media types, for features that offer others than JSON. */

import { weightOf } from "./accept.ts";

/**
 * Chooses one of the media types that a URL offers: the most preferred one, or
 * the first of several equally preferred ones.
 *
 * @param offers in the order that the server prefers
 */
export function negotiate<Offer extends string>(
  accept: string | undefined,
  offers: readonly Offer[],
): Offer | undefined {
  let best: Offer | undefined;
  let maxWeight = 0;
  for (const offer of offers) {
    const weight = weightOf(accept, offer);
    if (weight > maxWeight) [best, maxWeight] = [offer, weight];
  }
  return best;
}
