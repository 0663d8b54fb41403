/** A server of the library with some features, and requests to it. */

import assert from "node:assert/strict";
import { execSync } from "node:child_process";
import {
  beside,
  clientsOf,
  type Environment,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";
import { against } from "../rows.ts";
import { join } from "node:path";
import process from "node:process";

export const ndjson = { "Content-Type": "application/x-ndjson" };

export const linesOf = (records: object[]) =>
  records.map((record) => `${JSON.stringify(record)}\n`).join("");

export const book = (at: number, more: object = {}) => ({
  title: `Book ${at}`,
  genre: "novel",
  isbn: `978${String(at).padStart(10, "0")}`,
  ...more,
});

/** An import, as `/tasks` shows it. */
interface Task {
  status: string;
  type: string;
  collection: string;
  id: number;
  lines: number;
  imported: number;
  rejected: number;
  message: string;
  errors: {
    line: number;
    errors: {
      field: string;
      code: string;
    }[];
  }[];
}

/** Runs rows against the library, with fixtures beside an author. */
export const libraryRows = (
  fixtures: Parameters<typeof against>[0]["fixtures"],
  environment: Environment,
) =>
  against({
    title: "Library API",
    roles: ["member", "librarian", "admin"],
    collections: ["authors", "books", "loans", "notes", "wishes"],
    fixtures: { author: ["authors", { name: "Author {n}" }], ...fixtures },
    environment: { COLLECTIONS: beside("library"), ...environment },
  });

/** Starts a server; users are named like a role, perhaps with a number. */
export async function startLibrary(environment: Environment) {
  const options = {
    COLLECTIONS: beside("library"),
    DATA_DIR: join(temporaryFolder(), "store"),
    ...environment,
  };
  let server = await serve(options);
  const form = { expires_in: 1e6 };
  const clients = clientsOf(() => server.origin, form);
  const { expect } = clients;

  return {
    options,
    ...clients,
    get server() {
      return server;
    },
    /** Starts it again after a signal; `torture.sh` makes a power cut of SIGKILL. */
    async restart(
      signal: NodeJS.Signals = "SIGKILL",
      environment: Environment = {},
    ) {
      const { CUT = "", REMOUNT = "" } = process.env;
      if (CUT && signal === "SIGKILL") execSync(CUT);
      await stop(server, signal);
      if (CUT && signal === "SIGKILL") execSync(REMOUNT);
      server = await serve({ ...options, ...environment });
    },
    /** Sends lines, and returns the task once it has ended. */
    async importLines(
      who: string,
      path: string,
      lines: string,
      headers: Record<string, string> = {},
    ) {
      const sent = [lines, { ...ndjson, ...headers }];
      const answer = await expect(202, who, `POST ${path}`, ...sent);
      assert.equal(answer.headers["location"], answer.json.url);
      return await ended(who, answer.json.id);
    },
    ended,
  };

  /** Returns a task once it has ended. */
  async function ended(who: string, id: number): Promise<Task> {
    for (;;) {
      const { json } = await expect(200, who, `GET /tasks/${id}`);
      if (json.status !== "queued" && json.status !== "running") return json;
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }
}

/** Returns what is listed of lines: the number, and each field with its code. */
export function listed(
  { errors }: Pick<Task, "errors">,
): Record<number, string> {
  return Object.fromEntries(
    errors.map((
      { line, errors },
    ) => [
      line,
      errors.map(({ field, code }) => `${field} ${code}`.trim()).join(", "),
    ]),
  );
}
