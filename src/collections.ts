/**
 * The sample API: what this server serves unless `--collections` names another
 * file. URLs, validation, filters, sort orders, links, OPTIONS responses and
 * access control all follow from these declarations.
 *
 * Every record also has `id`, `created_at`, `updated_at` and its URLs. A
 * property that refers to another collection (`zoo_id`) gives the record a URL
 * property (`zoo_url`) and the other collection a sub-collection
 * (`/zoos/7/animals`).
 */

export default (
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
  }: import("./api/declaration/vocabulary.ts").Vocabulary,
) => ({
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
        weight_kg: optional(number({ exclusiveMinimum: 0, maximum: 200_000 })),
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
});
