/** Files that are read line by line. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { test } from "node:test";
import { scanGrowingLog } from "../../src/cli/recovery/growing-log.ts";
import { type OpenFile, readLines } from "../../src/store/log/files.ts";
import { encodeEntries, encodeHeader } from "../../src/store/log/format.ts";

/** A file in memory, of which only `read` is used. */
function fileOf(text: string): OpenFile {
  const content = Buffer.from(text);
  return readableAs(() => content);
}

/** A file whose content is asked for at each read. */
function readableAs(content: () => Buffer): OpenFile {
  const file: Partial<OpenFile> = {
    read: (bytes, position) => {
      const bytesRead = content().copy(bytes, 0, position);
      return Promise.resolve({ bytesRead });
    },
  };
  return file as OpenFile;
}

test("no line is read twice or never", async () => {
  const text = "\n".repeat(10_000) + "a\nb";
  let next = { byte: 0, line: 1 };
  let joined = "";
  for await (const lines of readLines(fileOf(text))) {
    for (const { bytes, byte, end, line, hasNewline } of lines) {
      assert.deepEqual({ byte, line }, next);
      next = { byte: end, line: line + 1 };
      joined += `${bytes}${hasNewline ? "\n" : ""}`;
    }
  }
  assert.equal(joined, text);
});

test("a log that grows while it is read has no fault, and no line is lost or applied twice", async () => {
  const { line, seed } = encodeHeader({
    store: "s",
    generation: 1,
    salt: "1234",
    seq: 0,
    at: "",
  });
  const lines = Array.from(
    { length: 2000 },
    (_, at) =>
      encodeEntries([{ seq: at + 1, at: "", by: 0, text: "[]", bytes: 0 }], {
        durable: at,
        seed,
      }),
  );
  const whole = Buffer.concat([line, ...lines]);
  // Whatever has been written when a chunk is read, also half a line.
  for (const written of [30_000, 65_500, 65_536, 65_600, 100_000]) {
    const content = Buffer.concat([
      whole.subarray(0, written),
      Buffer.alloc(whole.length - written),
    ]);
    let reads = 0;
    const file = readableAs(() => ++reads === 1 ? content : whole);
    let expected = 0;
    const scan = await scanGrowingLog(file, "wal-1.jsonl", (_, seq) => {
      assert.equal(seq, ++expected);
    });
    assert.deepEqual(scan.faults, []);
    assert.equal(scan.seq, 2000);
    assert.equal(scan.end, whole.length);
  }
});

test("a bad line that stays bad is a fault at its place, also after one that became good", async () => {
  const start = { store: "s", generation: 1, salt: "1234", seq: 0, at: "" };
  const { line, seed } = encodeHeader(start);
  const lines = [1, 2, 3, 4, 5].map((seq) =>
    encodeEntries([{ seq, at: "", by: 0, text: "[]", bytes: 0 }], {
      durable: seq - 1,
      seed,
    })
  );
  const good = Buffer.concat([line, ...lines]);
  const fourth = line.length + 3 * (lines[0]?.length ?? 0);
  good[fourth + 20] = 0x21;
  const torn = Buffer.from(good).fill(0, fourth - 10, fourth - 2);
  let reads = 0;
  const file = readableAs(() => ++reads > 2 ? good : torn);
  const { faults, seq } = await scanGrowingLog(file, "wal-1.jsonl", () => {});
  assert.equal(seq, 3);
  assert.deepEqual(faults.map(({ byte, line }) => ({ byte, line })), [
    { byte: fourth, line: 5 },
  ]);
});
