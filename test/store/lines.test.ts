/** Files that are read line by line. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { type OpenFile, readLines } from "../../src/store/log/files.ts";

/** A file in memory, of which only `read` is used. */
function fileOf(text: string): OpenFile {
  const content = Buffer.from(text);
  const file: Partial<OpenFile> = {
    read: (bytes, position) => {
      const bytesRead = content.copy(bytes, 0, position);
      return Promise.resolve({ bytesRead });
    },
  };
  return file as OpenFile;
}

test("at most 4,096 lines are read at a time, none of them twice or never", async () => {
  const text = "\n".repeat(10_000) + "a\nb";
  const counts: number[] = [];
  let next = { byte: 0, line: 1 };
  let joined = "";
  for await (const lines of readLines(fileOf(text))) {
    counts.push(lines.length);
    for (const { bytes, byte, end, line, hasNewline } of lines) {
      assert.deepEqual({ byte, line }, next);
      next = { byte: end, line: line + 1 };
      joined += `${bytes}${hasNewline ? "\n" : ""}`;
    }
  }
  assert.equal(joined, text);
  assert.equal(Math.max(...counts), 4096);
});
