/** The records of the benchmark: animals in up to a thousand zoos, the same at every run. */

import type { Document } from "../../src/store/store.ts";

const at = "2026-01-01T00:00:00.000Z";

/** As many zoos as animals, but at most a thousand. */
export function zoos(animals: number): Document[] {
  return Array.from({ length: Math.min(1000, animals) }, (_, place) => ({
    id: place + 1,
    name: `Zoo ${place + 1}`,
    city: "Berlin",
    country: "DE",
    opened_on: null,
    website: null,
    created_at: at,
    updated_at: at,
  }));
}

/** One animal; names and weights are spread as if at random. */
export function animal(id: number): Document {
  const spread = Math.imul(id, 2654435761) >>> 0;
  return {
    id,
    zoo_id: 1 + (id - 1) % 1000,
    animal_type_id: 1 + spread % 50,
    name: `Animal ${spread.toString(36)}`,
    species: "Equus quagga",
    sex: "female",
    born_on: "2020-02-29",
    weight_kg: 1 + spread % 4000 / 10,
    created_at: at,
    updated_at: at,
  };
}
