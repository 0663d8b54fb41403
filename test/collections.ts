/**
 * The declarations that the tests serve: the sample zoos, animals and
 * employees. A copy of their own, so that src/collections.ts can be edited.
 */

import { fileURLToPath } from "node:url";
import type { ApiDeclaration, ApiFile } from "../src/api/declaration/api.ts";
import { declareApi } from "../src/api/declaration/api.ts";
import { type Declaration } from "../src/api/declaration/declaration.ts";
import type { Vocabulary } from "../src/api/declaration/vocabulary.ts";
import { vocabulary } from "../src/cli/declaration/checked-vocabulary.ts";

export default declare;

function declare(
  {
    collection,
    string,
    number,
    integer,
    date,
    choice,
    email,
    url,
    reference,
    optional,
    unique,
  }: Vocabulary,
): ApiFile {
  return {
    title: "zoo-api",
    collections: [
      collection({
        name: "zoos",
        singular: "zoo",
        access: { read: "anyone", write: "keeper", delete: "admin" },
        properties: {
          name: string({ maxLength: 100 }),
          city: string({ maxLength: 100 }),
          country: string({
            minLength: 2,
            maxLength: 2,
            pattern: /^[A-Z]{2}$/,
            description: "two capital letters (ISO 3166-1 alpha-2)",
          }),
          opened_on: optional(date()),
          website: optional(url()),
        },
      }),
      collection({
        name: "animals",
        singular: "animal",
        access: { read: "anyone", write: "keeper", delete: "keeper" },
        properties: {
          zoo_id: reference("zoos"),
          animal_type_id: integer({ minimum: 1 }),
          name: string({ maxLength: 100 }),
          species: optional(string({ maxLength: 100 })),
          sex: optional(choice("female", "male", "unknown"), "unknown"),
          born_on: optional(date()),
          weight_kg: optional(
            number({ exclusiveMinimum: 0, maximum: 200_000 }),
          ),
        },
      }),
      collection({
        name: "employees",
        singular: "employee",
        access: { read: "viewer", write: "keeper", delete: "admin" },
        properties: {
          zoo_id: reference("zoos"),
          name: string({ maxLength: 100 }),
          job_title: string({ maxLength: 100 }),
          email: unique(email()),
          hired_on: optional(date()),
        },
      }),
    ],
  };
}

/** The file itself, for `COLLECTIONS`. */
export const collectionsFile = fileURLToPath(import.meta.url);

export const sample = declareApi(declare(vocabulary));

export const { collections } = sample;

/** Declares an API with the default roles. */
export function apiOf(collections: readonly Declaration[]): ApiDeclaration {
  return { ...sample, collections };
}
