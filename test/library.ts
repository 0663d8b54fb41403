/** A library, for tests of what the sample API lacks: references of every kind, rules, and private records. */

import type { ApiDeclaration } from "../src/api/declaration/api.ts";
import { declareApi } from "../src/api/declaration/api.ts";
import { vocabulary } from "../src/cli/declaration/checked-vocabulary.ts";
import { type Running, startApplication } from "./application.ts";
import { type Answer, storedAdmin } from "./harness.ts";
import { commit } from "./commit.ts";

const { collection, string, date, reference, optional } = vocabulary;

const name = string({ maxLength: 20 });

export const library = declareApi({
  title: "Library",
  roles: ["member", "librarian", "admin"],
  collections: [
    collection({
      name: "authors",
      singular: "author",
      access: { read: "anyone", write: "librarian", delete: "librarian" },
      properties: { name },
    }),
    collection({
      name: "books",
      singular: "book",
      access: { read: "anyone", write: "librarian", delete: "admin" },
      properties: {
        author_id: optional(reference("authors")),
        translator_id: optional(reference("authors", { as: "translations" })),
        sequel_of_id: optional(reference("books", { as: "sequels" })),
        title: name,
        published_on: optional(date()),
        reprinted_on: optional(date()),
      },
      check: ({ published_on, reprinted_on }) =>
        published_on && reprinted_on && reprinted_on < published_on
          ? { reprinted_on: "must not be before published_on" }
          : undefined,
    }),
  ],
});

/** A running library, and requests to it as a user. */
export interface Library extends Running {
  /** Sends a request with the token of a user, the admin's by default; `""` for none. */
  send(
    method: string,
    path: string,
    json?: unknown,
    token?: string,
  ): Promise<Answer>;
  /** Creates a user and returns the token. */
  join(username: string, role?: string): Promise<string>;
}

/** Starts a library, or another API. */
export async function startLibrary(
  options: Parameters<typeof startApplication>[0] = {},
): Promise<Library> {
  const running = await startApplication(
    options.declarations ? options : { declaration: library, ...options },
  );
  const send: Library["send"] = (
    method,
    path,
    json,
    token = running.token,
  ) =>
    running.request(method, `/v1/${path}`, {
      token: token || undefined,
      ...(json !== undefined && { json }),
    });
  const join: Library["join"] = async (username, role = "member") => {
    const { lastId } = running.store.table("users");
    const user = { ...storedAdmin, id: lastId + 1, username, role };
    await commit(running.store, [["put", "users", user]], 0);
    return await running.signIn(username);
  };
  return { ...running, send, join };
}

const forMembers = { read: "member", write: "member", delete: "member" };

/** Private notes of each user, about books that all users share. */
export const notes = declareApi({
  title: "Notes",
  roles: ["member", "editor", "admin"],
  collections: [
    collection({
      name: "books",
      singular: "book",
      access: { ...forMembers, read: "anyone" },
      properties: { title: name },
    }),
    collection({
      name: "notes",
      singular: "note",
      private: true,
      access: forMembers,
      properties: {
        book_id: reference("books"),
        draft_of_id: optional(reference("notes", { as: "drafts" })),
        text: name,
      },
      check: ({ text }) => text === "bad" ? { text: "must not be bad" } : null,
    }),
    collection({
      name: "quotes",
      singular: "quote",
      access: forMembers,
      properties: { note_id: reference("notes"), place: name },
    }),
    collection({
      name: "marks",
      singular: "mark",
      private: true,
      access: forMembers,
      properties: { book_id: optional(reference("books")) },
    }),
  ],
});

/** Starts an API of these, or of a variant, with a book, and a note about it by Ada and one by Bob. */
export async function startNotes(
  t: { after(end: () => unknown): void },
  vary = (declaration: ApiDeclaration) => declaration,
) {
  const app = await startLibrary({ declaration: vary(notes) });
  t.after(() => app.stop());
  const { send } = app;
  const ada = await app.join("ada");
  const bob = await app.join("bob");
  await send("POST", "books", { title: "A" });
  await send("POST", "notes", { book_id: 1, text: "of Ada" }, ada);
  await send("POST", "books/1/notes", { text: "of Bob" }, bob);
  return { ...app, ada, bob };
}
