/** Many records over `kill -9`: CONTRACT sections 8 and 17, all or none, exactly once. */

import assert from "node:assert/strict";
import { test } from "node:test";
import { startLibrary } from "./library.ts";

const { request, restart } = await startLibrary({
  FEATURES: "batches,deletions,idempotency",
});

/** Returns how many records a list has. */
const count = async (path: string) => {
  const { headers } = await request("admin", `GET ${path}`);
  return Number(headers["x-total-count"]);
};
/** Returns the response; undefined if the server was killed before. */
const attempt = (...sent: Parameters<typeof request>) =>
  request(...sent).catch(() => undefined);
const numbers = (length: number) => Array.from({ length }, (_, at) => at);

test("Batches and cascades are whole after a crash", async () => {
  let known = 0;
  for (const round of numbers(3)) {
    const before = await count("/authors");
    const authors = numbers(500).map((at) => ({ name: `${round} ${at}` }));
    const created = attempt("admin", "POST /authors", authors);
    const killed = Promise.race([
      created,
      new Promise((resolve) => setTimeout(resolve, round * 15)),
    ]);
    await killed;
    await restart();
    const after = await count("/authors");
    assert.ok(
      after === before || after === before + 500,
      `${before}, ${after}`,
    );
    if ((await created)?.status === 201) assert.equal(after, before + 500);
    known = after;
  }
  if (known === 0) await request("admin", "POST /authors", [{ name: "One" }]);
  const books = numbers(400).map((at) => ({
    title: "T",
    genre: "novel",
    isbn: `979${String(at).padStart(10, "0")}`,
  }));
  for (const round of numbers(3)) {
    await request("admin", "POST /books", books);
    const [{ id }] = (await request("admin", "GET /books?sortby=id")).json;
    const loans = numbers(400).map((at) => ({
      book_id: id + at,
      due_on: "2026-01-01",
    }));
    assert.equal((await request("admin", "POST /loans", loans)).status, 201);
    const deleted = attempt("admin", "DELETE /books?title=T&cascade=true");
    await Promise.race([
      deleted,
      new Promise((resolve) => setTimeout(resolve, 5 + round * 20)),
    ]);
    await restart();
    const left = [await count("/books"), await count("/loans")];
    assert.ok([0, 400].includes(left[0] ?? -1), String(left));
    assert.equal(left[0], left[1]);
    if ((await deleted)?.status === 200) assert.equal(left[0], 0);
    await request("admin", "DELETE /books?title=T&cascade=true");
  }
});

test("A keyed POST over crashes makes one record", async () => {
  const names = numbers(60).map((at) => `Once-${at}`);
  const send = (name: string) =>
    attempt("admin", "POST /authors", { name }, { "Idempotency-Key": name });
  const acknowledged = new Map<string, number>();
  for (const round of numbers(3)) {
    const all = names.map(async (name) => {
      const answer = await send(name);
      if (!answer) return;
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.json.id, acknowledged.get(name) ?? answer.json.id);
      acknowledged.set(name, answer.json.id);
    });
    await Promise.race([
      Promise.all(all),
      new Promise((resolve) => setTimeout(resolve, 10 + 10 * round)),
    ]);
    await restart();
    await Promise.all(all);
  }
  for (const name of names) {
    const answer = await send(name);
    assert.equal(answer?.status, 201);
    assert.equal(answer?.json.id, acknowledged.get(name) ?? answer?.json.id);
  }
  assert.equal(await count("/authors?name:starts=once"), names.length);
});
