/** A library: an API that uses each function of the vocabulary that the sample API does not need. */

export default (
  {
    collection,
    string,
    integer,
    date,
    choice,
    optional,
    unique,
    reference,
  }: import("zoo-api").Vocabulary,
) => ({
  title: "Library API",
  roles: ["member", "librarian", "admin"],
  collections: [
    collection({
      name: "authors",
      singular: "author",
      access: { read: "anyone", write: "librarian", delete: "admin" },
      properties: {
        name: string({ maxLength: 100 }),
        born_on: optional(date()),
      },
    }),
    collection({
      name: "books",
      singular: "book",
      access: { read: "anyone", write: "librarian", delete: "librarian" },
      properties: {
        author_id: optional(reference("authors")),
        translator_id: optional(reference("authors", { as: "translations" })),
        sequel_of_id: optional(reference("books", { as: "sequels" })),
        title: string({ maxLength: 200 }),
        genre: choice("novel", "poetry", "science"),
        pages: optional(integer({ minimum: 1 })),
        isbn: unique(string({
          maxLength: 13,
          pattern: /^97[89]\d{10}$/,
          description: "13 digits that begin with 978 or 979",
        })),
        published_on: optional(date()),
        reprinted_on: optional(date()),
      },
      sort: ["title"],
      check: (book) =>
        book.reprinted_on !== null && book.published_on !== null &&
          book.reprinted_on < book.published_on
          ? { reprinted_on: "must not be before published_on" }
          : undefined,
    }),
    collection({
      name: "notes",
      singular: "note",
      private: true,
      access: { read: "member", write: "member", delete: "member" },
      properties: { text: string({ maxLength: 1000 }) },
    }),
  ],
});
