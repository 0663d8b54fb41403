/**
 * The examples of RFC 7396 appendix A, as far as they concern flat objects: a
 * record always has all its properties, so a property that a patch removes is
 * null.
 */

import { strict as assert } from "node:assert";
import { after, before, describe, test } from "node:test";
import { collection } from "../../src/api/declaration/declaration.ts";
import { optional, string } from "../../src/api/declaration/properties.ts";
import { type Running, startApplication } from "../application.ts";

const word = optional(string({ maxLength: 10 }));
const things = collection({
  name: "things",
  singular: "thing",
  access: { read: "anyone", write: "keeper", delete: "keeper" },
  properties: { a: word, b: word, e: word },
});

describe("a merge patch", () => {
  let app: Running;
  before(async () => {
    app = await startApplication({ declarations: [things] });
  });
  after(() => app.stop());

  /** The record after a patch, or the code of the error. */
  async function patched(before: object, patch: unknown): Promise<unknown> {
    const { token } = app;
    const made = await app.request("POST", "/v1/things", {
      token,
      json: before,
    });
    assert.equal(made.status, 201, made.text);
    const answer = await app.request("PATCH", made.body.url, {
      token,
      raw: JSON.stringify(patch),
      headers: { "content-type": "application/merge-patch+json" },
    });
    const { body: now } = await app.request("GET", made.body.url);
    if (answer.status !== 201) {
      assert.deepEqual(now, made.body, "a refused patch changes nothing");
      return answer.body.errorCode;
    }
    assert.deepEqual(answer.body, now);
    return { a: now.a, b: now.b, e: now.e };
  }

  const rows: readonly (readonly [object, unknown, unknown])[] = [
    [{ a: "b" }, { a: "c" }, { a: "c", b: null, e: null }],
    [{ a: "b" }, { b: "c" }, { a: "b", b: "c", e: null }],
    [{ a: "b" }, { a: null }, { a: null, b: null, e: null }],
    [{ a: "b", b: "c" }, { a: null }, { a: null, b: "c", e: null }],
    [{ e: null }, { a: "1" }, { a: "1", b: null, e: null }],
    [{ a: "b" }, {}, { a: "b", b: null, e: null }],
    // A value that the record cannot have, or a patch that is not an object, is
    // refused where the RFC would replace.
    [{ a: "b" }, { a: ["c"] }, 42200],
    [{ a: "b" }, { a: { bb: { ccc: null } } }, 42200],
    [{ a: "foo" }, null, 40002],
    [{ a: "foo" }, "bar", 40002],
    [{ a: "b" }, ["c"], 40002],
  ];
  for (const [before, patch, result] of rows) {
    const name = `${JSON.stringify(before)} and ${JSON.stringify(patch)}`;
    test(`of RFC 7396 appendix A: ${name}`, async () => {
      assert.deepEqual(await patched(before, patch), result);
    });
  }
});
