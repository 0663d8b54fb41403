/**
 * A field notebook: each observer sees and changes their own notes alone; the
 * overseer sees all of them, and keeps the list of sites that anyone may read.
 *
 *     zoo-api --collections notebook.mjs --base-url /api/ --public public
 */

/** @type {import("zoo-api").DeclareApi} */
export default (
  { collection, string, text, number, integer, timestamp, optional, reference },
) => ({
  title: "Field notebook",
  roles: ["observer", "overseer", "admin"],
  collections: [
    collection({
      name: "sites",
      singular: "site",
      access: { read: "anyone", write: "overseer", delete: "admin" },
      properties: {
        name: string({ maxLength: 100 }),
        latitude: number({ minimum: -90, maximum: 90 }),
        longitude: number({ minimum: -180, maximum: 180 }),
      },
    }),
    collection({
      name: "notes",
      singular: "note",
      private: "overseer",
      access: { read: "observer", write: "observer", delete: "observer" },
      properties: {
        site_id: reference("sites"),
        species: string({ maxLength: 100 }),
        count: optional(integer({ minimum: 1 })), // null: not counted
        seen_at: timestamp(),
        text: optional(text({ maxLength: 10_000 })),
      },
      sort: ["seen_at"],
    }),
  ],
});
