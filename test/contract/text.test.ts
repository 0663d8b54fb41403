/**
 * Which texts are the same where case does not count: for `unique`, for the
 * operators `contains` and `starts`, and at a start with an older store.
 */

import { strict as assert } from "node:assert";
import { join } from "node:path";
import { test } from "node:test";
import { collection } from "../../src/api/declaration/declaration.ts";
import {
  optional,
  string,
  unique,
} from "../../src/api/declaration/properties.ts";
import { declarationTable } from "../../src/api/declaration/remembered.ts";
import { tablesOf } from "../../src/api/routes.ts";
import { openDataFolder } from "../../src/data-folder.ts";
import { loadFeatures } from "../../src/features.ts";
import { openStore } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";
import { apiOf } from "../collections.ts";
import { lacks, removeFolder, temporaryFolder } from "../harness.ts";
import { commit } from "../commit.ts";

const access = {
  read: "anyone",
  write: "keeper",
  delete: "keeper",
} as const;
const books = collection({
  name: "books",
  singular: "book",
  access,
  properties: {
    title: unique(string({ maxLength: 50 })),
    part: optional(string({ maxLength: 50 })),
    shelf: optional(string({ maxLength: 50 })),
  },
  unique: [["part", "shelf"]],
});

/** Texts that are the same, and why. */
const same: readonly (readonly [one: string, other: string, why: string])[] = [
  ["Leo", "lEO", "case"],
  ["stra\u00dfe", "STRASSE", "full case folding"],
  ["STRA\u1e9eE", "strasse", "a capital \u00df"],
  ["\u017fonne", "Sonne", "the long s"],
  ["\ufb03", "FFI", "a ligature"],
  ["\u039f\u0394\u039f\u03a3", "\u03bf\u03b4\u03bf\u03c2", "a final sigma"],
  ["\u00b5m", "\u03bcm", "the micro sign"],
  ["caf\u00e9", "cafe\u0301", "composed or not"],
  ["\u212b", "\u00e5", "the \u00e5ngstr\u00f6m sign"],
  ["\uff21\uff22\uff11", "ab1", "full width"],
  ["\uac00", "\u1100\u1161", "composed or not, in Hangul"],
  [" a\u00a0b ", "a b", "space around it, and a space that does not break"],
  ["\u3000x\u2003", "x", "other white space around it"],
  ["zero\u200bwidth", "zerowidth", "a character without width"],
  ["soft\u00adhyphen", "softhyphen", "a soft hyphen"],
  ["\u01c5", "\u01c6", "title case"],
  ["\u1f80", "\u1f00\u03b9", "a subscript iota"],
];

const different: readonly (readonly [one: string, other: string])[] = [
  ["a", "\u00e4"],
  ["ss", "s"],
  ["a b", "ab"],
  ["a  b", "a b"],
  ["\u0430", "a"], // Cyrillic
  ["1", "l"],
  ["e\u0301", "e\u0300"],
];

test("texts that people call the same cannot both be taken, and are found by each other", async (t) => {
  const app = await startApplication({ declarations: [books] });
  t.after(() => app.stop());
  const post = async (json: object) => {
    const { token } = app;
    const { status, body } = await app.request("POST", "/v1/books", {
      token,
      json,
    });
    return { status, id: body.id, errors: body.errors };
  };
  const find = async (filter: string, text: string) => {
    const query = `${filter}=${encodeURIComponent(text)}`;
    const { body } = await app.request("GET", `/v1/books?${query}&limit=100`);
    return body.map(({ title }: { title: string }) => title);
  };
  for (const [at, [one, other, why]] of same.entries()) {
    const created = await post({ title: one, part: one, shelf: `${at}` });
    assert.equal(created.status, 201, why);
    const again = await post({ title: other });
    assert.equal(again.status, 422, why);
    assert.equal(again.errors?.[0]?.code, "unique", why);
    assert.equal(again.errors?.[0]?.field, "title", why);
    const group = await post({ title: `t${at}`, part: other, shelf: `${at}` });
    assert.equal(group.errors?.[0]?.code, "unique", why);
    for (const operator of ["contains", "starts"]) {
      const found = await find(`title:${operator}`, other);
      assert.ok(found.includes(one), `${operator}: ${why}`);
    }
    // What is stored stays as it was sent, and equality is exact.
    assert.deepEqual(await find("title", one), [one], why);
    assert.deepEqual(await find("title", other), [], why);
    // A record may keep its own text in another form.
    const { status } = await app.request("PATCH", `/v1/books/${created.id}`, {
      token: app.token,
      json: { title: other },
    });
    assert.equal(status, 201, why);
    await app.request("DELETE", `/v1/books/${created.id}`, {
      token: app.token,
    });
  }
  for (const [one, other] of different) {
    const first = await post({ title: one });
    const second = await post({ title: other });
    assert.deepEqual([first.status, second.status], [201, 201], one + other);
    for (const { id } of [first, second]) {
      await app.request("DELETE", `/v1/books/${id}`, { token: app.token });
    }
  }
});

test(
  "a start says which records of an older store have the same text, and changes nothing",
  {
    skip: lacks("evolution"),
  },
  async (t) => {
    const own = await temporaryFolder();
    t.after(() => removeFolder(own));
    const folder = join(own, "store");
    const api = apiOf([books]);
    const [{ adaptRecords } = {}] = await loadFeatures(["evolution"]);
    const at = "2026-01-01T00:00:00.000Z";
    /** Stores books and a declaration as a version did that compared only their case. */
    const fill = async (titles: readonly string[]) => {
      await (await openDataFolder(folder, api, { adaptRecords })).close();
      const store = await openStore({ folder, tables: tablesOf(api, []) });
      const remembered = store.table(declarationTable).get(1)?.document;
      const names = Object(remembered?.["names"]);
      const former = Object.entries(names).map(([name, rules]) => {
        const { text: _, ...rest } = JSON.parse(String(rules));
        return [name, JSON.stringify(rest)];
      });
      await commit(store, [
        ["put", declarationTable, {
          ...remembered,
          id: 1,
          names: Object.fromEntries(former),
        }],
        ...titles.map((title, index) =>
          ["put", "books", {
            id: index + 1,
            title,
            created_at: at,
            updated_at: at,
          }] as const
        ),
      ], 0);
      await store.close();
    };
    await fill(["stra\u00dfe", "Leo", "STRASSE", "caf\u00e9", "cafe\u0301"]);
    await assert.rejects(openDataFolder(folder, api, { adaptRecords }), {
      message:
        /nothing was changed:\nbooks\.title: 4 records do not fit \(id 1, 3, 4, 5\): .*already in use/,
    });
    const store = await openStore({ folder, tables: tablesOf(api, []) });
    await commit(store, [["del", "books", 1], ["del", "books", 4]], 0);
    await store.close();
    for (let start = 1; start <= 2; start++) {
      const messages: string[] = [];
      const opened = await openDataFolder(folder, api, {
        adaptRecords,
        log: (_, message) => void messages.push(message),
      });
      await opened.close();
      const said = messages.filter((each) =>
        each === "books.title has changed"
      );
      assert.equal(said.length, start === 1 ? 1 : 0, messages.join("\n"));
    }
  },
);
