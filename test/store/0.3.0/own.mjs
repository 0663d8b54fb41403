export default (
  { collection, string, integer, reference, optional, unique },
) => ({
  title: "Upgrade",
  roles: ["member", "librarian", "admin"],
  collections: [
    collection({
      name: "books",
      singular: "book",
      access: { read: "anyone", write: "librarian", delete: "librarian" },
      properties: {
        title: string({ maxLength: 100 }),
        pages: optional(integer({ minimum: 1 })),
        isbn: optional(unique(string({ maxLength: 13 }))),
        format: optional(string({ maxLength: 20 }), "paper"),
      },
    }),
    collection({
      name: "items",
      singular: "item",
      access: { read: "member", write: "member", delete: "librarian" },
      properties: {
        book_id: reference("books"),
        label: string({ maxLength: 20 }),
      },
    }),
    collection({
      name: "notes",
      singular: "note",
      private: true,
      access: { read: "member", write: "member", delete: "member" },
      properties: {
        text: string({ maxLength: 200 }),
        book_id: optional(reference("books")),
      },
    }),
  ],
});
