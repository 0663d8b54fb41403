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
import { join } from "node:path";
import process from "node:process";

export const ndjson = { "Content-Type": "application/x-ndjson" };

export const linesOf = (records: object[]): string =>
  records.map((record) => `${JSON.stringify(record)}\n`).join("");

export const book = (at: number, more: object = {}): object => ({
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

/** Starts a server; users are named like a role, perhaps with a number. */
export async function startLibrary(environment: Environment) {
  const options = {
    COLLECTIONS: beside("library"),
    DATA_DIR: join(temporaryFolder(), "store"),
    ...environment,
  };
  let server = await serve(options);
  const { request, tokenOf } = clientsOf(() => server.origin, {
    expires_in: 1e6,
  });

  return {
    options,
    request,
    tokenOf,
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
      const sent = { ...ndjson, ...headers };
      const { status, json, text, headers: { location } } = await request(
        who,
        `POST ${path}`,
        lines,
        sent,
      );
      assert.equal(status, 202, text);
      assert.equal(location, json.url);
      return await ended(who, json.id);
    },
    ended,
  };

  /** Returns a task once it has ended. */
  async function ended(who: string, id: number): Promise<Task> {
    for (;;) {
      const { json, status, text } = await request(who, `GET /tasks/${id}`);
      assert.equal(status, 200, text);
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
