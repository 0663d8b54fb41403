/**
 * The oracle of full memory: what each record may be, according to the
 * responses to whoever wrote it. A record has one writer at a time. After each
 * response, and after a restart, it must be
 *
 * - as it was last acknowledged or shown,
 * - without what was refused with 503,
 * - either as before or as sent, if there was no response.
 *
 * Each line of an import is such a record too; as long as its task has not
 * ended, it may also be missing.
 */

import type { Body } from "../../harness.ts";
import type { Reply } from "./client.ts";

/** The state of a record that does not exist. */
const absent = "";

/** What one record may be. */
export interface Entry {
  readonly collection: string;
  readonly key: string;
  /** Given by the server; undefined until a response, or a reader, shows it. */
  id: number | undefined;
  /** Each state that it may be in. */
  possible: readonly string[];
  /** The last outcome, for messages. */
  outcome: "sent" | "acknowledged" | "refused" | "deleted" | "imported";
  /** Counts the changes, so that a reader notices those that it overlaps with. */
  changes: number;
  /** True once it was shown: it may have been deleted since. */
  wasShown: boolean;
}

/** An import, and its lines. */
export interface Import {
  readonly lines: readonly Entry[];
  /** The URL of its task; undefined if there was no response. */
  url: string | undefined;
}

/** Returns the text of a record: what it must be follows from its key and length. */
export function textOf(key: string, length: number): string {
  return `${key} `.repeat(Math.ceil(length / (key.length + 1))).slice(
    0,
    length,
  );
}

/** The properties of a record to send. */
export function contentOf(key: string, version: number, length: number) {
  const mixed = Math.imul(key.length * 7919 + length, 2654435761) >>> 0;
  const [a, b, c] = [mixed % 7, mixed % 101, mixed % 10_007];
  return { key, version, text: textOf(key, length), a, b, c };
}

function stateOf(version: number, length: number): string {
  return `${version}:${length}`;
}

/** Returns the state of a record that was read; throws an error if its content is not its own. */
function readState({ key, version, text }: Body): string {
  const own = String(text);
  if (own !== textOf(String(key), own.length)) {
    throw new Error(`Changed: the text of ${key} is ${own.slice(0, 100)}`);
  }
  return stateOf(Number(version), own.length);
}

export class Ledger {
  readonly #entries = new Map<string, Entry>();
  readonly imports: Import[] = [];
  acknowledged = 0;
  refused = 0;

  get size(): number {
    return this.#entries.size;
  }

  #add(collection: string, key: string, possible: readonly string[]): Entry {
    const entry: Entry = {
      ...{ collection, key, possible, id: undefined, outcome: "sent" },
      ...{ changes: 0, wasShown: false },
    };
    this.#entries.set(key, entry);
    return entry;
  }

  /** Adds a record that is about to be sent for the first time. */
  add(collection: string): Entry {
    return this.#add(collection, `r${this.#entries.size}`, [absent]);
  }

  /** Adds an import that is about to be sent. */
  addImport(
    collection: string,
    count: number,
    length: number,
  ): { readonly task: Import; readonly body: string } {
    const state = stateOf(1, length);
    const lines = Array.from({ length: count }, () => {
      const key = `i${this.#entries.size}`;
      return this.#add(collection, key, [absent, state]);
    });
    const task: Import = { lines, url: undefined };
    this.imports.push(task);
    const records = lines.map(({ key }) => contentOf(key, 1, length));
    const body = records.map((each) => `${JSON.stringify(each)}\n`).join("");
    return { task, body };
  }

  /** Notes the response to an import. */
  settleImport(task: Import, { status, body }: Reply): void {
    if (status === 202) task.url = body.url;
    if (status !== 503) return;
    for (const line of task.lines) {
      line.possible = [absent];
      line.outcome = "refused";
    }
    this.imports.splice(this.imports.indexOf(task), 1);
  }

  /** Sends a change to a version of a length, or a deletion, and notes the outcome. */
  async change(
    entry: Entry,
    next: readonly [version: number, length: number] | "deletion",
    send: () => Promise<Reply>,
  ): Promise<Reply> {
    const before = entry.possible;
    const state = next === "deletion" ? absent : stateOf(...next);
    entry.possible = [...before, state];
    entry.changes++;
    const reply = await send();
    entry.changes++;
    if (reply.status === 0) return reply;
    if (reply.status >= 200 && reply.status < 300) {
      entry.possible = [state];
      entry.outcome = state === absent ? "deleted" : "acknowledged";
      if (reply.status === 201) entry.id = reply.body.id;
      this.acknowledged++;
    } else if (reply.status === 503) {
      entry.possible = before;
      entry.outcome = "refused";
      this.refused++;
    } else {
      throw new Error(
        `A change of ${entry.collection}: ${reply.status} ${reply.text}`,
      );
    }
    return reply;
  }

  /** Returns the records whose state and id are known, and that exist. */
  settled(): Entry[] {
    return [...this.#entries.values()].filter((entry) =>
      entry.id !== undefined && entry.possible.length === 1 &&
      entry.possible[0] !== absent
    );
  }

  /** Throws an error if a record is shown whose creation was refused, or that nobody sent. */
  see({ key, id }: Body): void {
    const { outcome, id: known } = this.#entries.get(String(key)) ?? {};
    // One that was created, and whose change was refused, has an id.
    const isRefused = outcome === "refused" && known === undefined;
    if (outcome === undefined || isRefused) {
      throw new Error(
        `${key} (${id}) is there, but was ${outcome ?? "not sent"}`,
      );
    }
  }

  /** Notes a record that was read; throws an error if it must not be there. */
  note(collection: string, record: Body): Entry {
    const key = String(record["key"]);
    const entry = this.#entries.get(key);
    if (entry?.collection !== collection) {
      throw new Error(`Nobody created ${collection}/${record.id} ${key}`);
    }
    const { outcome, possible, id = record.id } = entry;
    const state = readState(record);
    if (id !== record.id) {
      throw new Error(`${key} is there twice: as ${id} and as ${record.id}`);
    }
    if (!possible.includes(state)) {
      const isThere = possible.every((each) => each === absent);
      throw new Error(
        isThere
          ? `${collection}/${id} ${key} is there, but was ${outcome}`
          : `${key} is at ${state} instead of ${possible} (${outcome})`,
      );
    }
    entry.id = id;
    entry.wasShown = true;
    return entry;
  }

  /**
   * Compares a collection with what it may hold, and takes what it shows for
   * settled. After a restart nothing that is missing may appear later, but lines
   * of imports; while the server runs, a request without a response may still
   * be carried out.
   */
  async verify(
    collection: string,
    records: AsyncIterable<Body>,
    isRestarted: boolean,
  ): Promise<number> {
    const found = new Set<Entry>();
    for await (const record of records) {
      const entry = this.note(collection, record);
      if (found.has(entry)) throw new Error(`${entry.key} is there twice`);
      found.add(entry);
      entry.possible = [readState(record)];
    }
    const pending = new Set(this.imports.flatMap(({ lines }) => lines));
    for (const entry of this.#entries.values()) {
      if (entry.collection !== collection || found.has(entry)) continue;
      if (!entry.possible.includes(absent)) {
        throw new Error(
          `${collection}/${entry.id} ${entry.key} is lost: it was ${entry.outcome}`,
        );
      }
      if (isRestarted && !pending.has(entry)) entry.possible = [absent];
    }
    return found.size;
  }

  /**
   * Expects all imports to have ended: each line of one that was accepted must
   * have been there once; of one without a response, all lines or none.
   */
  endImports(): void {
    for (const { lines, url } of this.imports) {
      const shown = lines.filter(({ wasShown }) => wasShown).length;
      const isRight = shown === lines.length ||
        (url === undefined && shown === 0);
      if (!isRight) {
        throw new Error(
          `Of an import (${url}) ${shown} of ${lines.length} lines are there`,
        );
      }
      for (const line of lines) line.outcome = "imported";
    }
    this.imports.length = 0;
  }
}
