/** Many records over `kill -9`: CONTRACT sections 8 and 17, all or none, exactly once. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { book, startLibrary } from "./library.ts";

const { request, restart, expect, count } = await startLibrary({
  FEATURES: "batches,deletions,idempotency",
});

/** Returns the response; undefined if the server was killed before. */
const attempt = (...sent: Parameters<typeof request>) =>
  request(...sent).catch(() => undefined);
const numbers = (length: number) => Array.from({ length }, (_, at) => at);

test("Batches, cascades and keys are whole over crashes", async () => {
  const books = numbers(400).map((at) => book(at, { title: "T" }));
  const names = numbers(60).map((at) => `Once-${at}`);
  const acknowledged = new Map<string, number>();
  const createOnce = async (name: string) => {
    const key = { "Idempotency-Key": name };
    const answer = await attempt("admin", "POST /authors", { name }, key);
    // A cut of the power is an error of the disk before it is the end.
    if (!answer || answer.status >= 500) return;
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.json.id, acknowledged.get(name) ?? answer.json.id);
    acknowledged.set(name, answer.json.id);
  };
  for (const round of numbers(5)) {
    const { json: [{ id }] } = await request("admin", "POST /books", books);
    const loans = numbers(400).map((at) => ({
      book_id: id + at,
      due_on: "2026-01-01",
    }));
    await expect(201, "admin", "POST /loans", loans);
    const before = await count("/authors?name:starts=batch");
    const authors = numbers(500).map((at) => ({
      name: `Batch ${round} ${at}`,
    }));
    const created = attempt("admin", "POST /authors", authors);
    const deleted = attempt("admin", "DELETE /books?title=T&cascade=true");
    const all = names.map(createOnce);
    await [undefined, all[0], created, deleted, all.at(-1)][round];
    await restart();
    await Promise.all(all);
    const after = await count("/authors?name:starts=batch");
    const isCreated = (await created)?.status === 201 || after > before;
    assert.equal(after, isCreated ? before + 500 : before);
    const isDeleted = (await deleted)?.status === 200;
    const left = await count("/books");
    assert.ok(left === 0 || left === 400 && !isDeleted, String(left));
    assert.equal(await count("/loans"), left);
    await request("admin", "DELETE /books?title=T&cascade=true");
  }
  await Promise.all(names.map(createOnce));
  assert.equal(acknowledged.size, names.length);
  assert.equal(await count("/authors?name:starts=once"), names.length);
});
