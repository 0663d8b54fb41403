/** The declaration of the folders from version 0.2.0. */
export default (
  {
    boolean,
    choice,
    collection,
    date,
    email,
    integer,
    number,
    optional,
    reference,
    string,
    timestamp,
    unique,
  },
) => ({
  title: "library",
  collections: [
    collection({
      name: "authors",
      singular: "author",
      access: { read: "anyone", write: "keeper", delete: "admin" },
      properties: {
        name: string({ maxLength: 100 }),
        mail: unique(email()),
        born_on: optional(date()),
        teacher_id: optional(reference("authors", { as: "pupils" })),
      },
    }),
    collection({
      name: "books",
      singular: "book",
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: {
        author_id: reference("authors"),
        title: unique(string({ maxLength: 100 })),
        pages: optional(integer({ minimum: 1 })),
        price: optional(number()),
        state: choice("new", "used"),
        lent: optional(boolean()),
        seen_at: optional(timestamp()),
      },
    }),
    collection({
      name: "notes",
      singular: "note",
      private: true,
      access: { read: "viewer", write: "viewer", delete: "viewer" },
      properties: { text: string({ maxLength: 1000 }) },
    }),
  ],
});
