/**
 * What this server serves. Edit this file to serve your own records: addresses,
 * checks, filters, sort orders, links, OPTIONS answers and access rules all
 * follow from these declarations.
 *
 * Every record also has `id`, `created_at`, `updated_at` and its addresses. A
 * property that refers to another collection (`zoo_id`) gives the record an
 * address (`zoo_url`) and the other collection a sub-collection
 * (`/zoos/7/animals`).
 */

import { declare, type RecordOf } from "./api/declaration.ts";
import {
  date,
  email,
  httpAddress,
  integer,
  number,
  oneOf,
  optional,
  reference,
  text,
  unique,
} from "./api/properties.ts";

export const zoos = declare({
  name: "zoos",
  singular: "zoo",
  access: { read: "anyone", write: "keeper", remove: "admin" },
  properties: {
    name: text({ max: 100 }),
    city: text({ max: 100 }),
    country: text({
      min: 2,
      max: 2,
      pattern: /^[A-Z]{2}$/,
      allowed: "two capital letters (ISO 3166-1 alpha-2)",
    }),
    opened_on: optional(date()),
    website: optional(httpAddress()),
  },
});

export const animals = declare({
  name: "animals",
  singular: "animal",
  access: { read: "anyone", write: "keeper", remove: "keeper" },
  properties: {
    zoo_id: reference("zoos"),
    animal_type_id: integer({ min: 1 }),
    name: text({ max: 100 }),
    species: optional(text({ max: 100 })),
    sex: optional(oneOf("female", "male", "unknown"), "unknown"),
    born_on: optional(date()),
    weight_kg: optional(number({ over: 0, max: 200_000 })),
  },
});

export const employees = declare({
  name: "employees",
  singular: "employee",
  access: { read: "viewer", write: "keeper", remove: "admin" },
  properties: {
    zoo_id: reference("zoos"),
    name: text({ max: 100 }),
    job_title: text({ max: 100 }),
    email: unique(email()),
    hired_on: optional(date()),
  },
});

/** All that is served, in the order of the root document. */
export const collections = [zoos, animals, employees];

export type Zoo = RecordOf<typeof zoos>;
export type Animal = RecordOf<typeof animals>;
export type Employee = RecordOf<typeof employees>;
