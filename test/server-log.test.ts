/** The lines of the log: their levels, and what happens if nobody reads them. */

import { strict as assert } from "node:assert";
import { Writable } from "node:stream";
import { test } from "node:test";
import { createLogger } from "../src/log.ts";
import { exchange, start } from "./harness.ts";

/** A reader that takes a line only on demand. */
class SlowReader extends Writable {
  readonly lines: Record<string, unknown>[] = [];
  #resume: (() => void) | undefined;
  isStopped = true;

  constructor() {
    super({ decodeStrings: false });
  }

  override _write(line: string, _encoding: unknown, done: () => void): void {
    this.lines.push(JSON.parse(line));
    if (this.isStopped) this.#resume = done;
    else done();
  }

  async readAll(): Promise<void> {
    this.isStopped = false;
    const drained = new Promise((resolve) => this.once("drain", resolve));
    this.#resume?.();
    if (this.writableNeedDrain) await drained;
  }
}

test("a level includes those before it; messages that somebody is waiting for are always printed", () => {
  const reader = new SlowReader();
  reader.isStopped = false;
  const { log, print } = createLogger("info", reader);
  let calls = 0;
  const fields = () => ({ calls: ++calls });
  log("error", "one", { id: 7 });
  log("info", "two", fields);
  log("debug", "three", fields);
  print("debug", "four");
  const shown = reader.lines.map(({ time: _, ...line }) => line);
  assert.deepEqual(shown, [
    { level: "error", message: "one", id: 7 },
    { level: "info", message: "two", calls: 1 },
    { level: "debug", message: "four" },
  ]);
  assert.equal(calls, 1);
});

test("no line holds a raw control character", () => {
  let text = "";
  const output = new Writable({
    decodeStrings: false,
    write(line, _encoding, done) {
      text += line;
      done();
    },
  });
  const name = "a\u0000\u001b\u007f\u0085\u009b\u00e4";
  createLogger("info", output).log("info", "message", { name });
  assert.doesNotMatch(text, /\p{Cc}(?!$)/u);
  assert.equal(JSON.parse(text).name, name);
});

test("on a terminal the lines are plain text, without control characters", () => {
  const lines: string[] = [];
  const output = new Writable({
    decodeStrings: false,
    write(line, _encoding, done) {
      lines.push(line);
      done();
    },
  });
  const terminal = Object.assign(output, { isTTY: true });
  const { log } = createLogger(undefined, terminal);
  log("info", "created user kim", { id: 7, path: "/\u009b2J" });
  log("error", "two\nlines \u001b[2J");
  log("debug", "not shown");
  assert.equal(lines.length, 2);
  assert.match(
    lines[0] ?? "",
    /^\d\d:\d\d:\d\d created user kim \{"id":7,"path":"\/\\u009b2J"\}\n$/,
  );
  assert.match(lines[1] ?? "", /^[\d:]{8} two\\u000alines \\u001b\[2J\n$/);
});

test("for a reader that stops reading at most a mebibyte waits; the rest is counted", async () => {
  const reader = new SlowReader();
  const { log } = createLogger("debug", reader);
  const text = "x".repeat(10_000);
  for (let count = 0; count < 1000; count++) log("info", text);
  assert.ok(reader.writableLength < (1 << 20) + 11_000);
  await reader.readAll();
  const written = reader.lines.filter(({ message }) => message === text).length;
  assert.ok(written > 90, `${written}`);
  assert.equal(
    reader.lines.at(-1)?.["message"],
    `dropped ${1000 - written} lines that nobody read`,
  );
  log("info", "again");
  assert.equal(reader.lines.at(-1)?.["message"], "again");
  assert.equal(reader.lines.length, written + 2);
});

test("at the level debug there is a line for what is not a request", async () => {
  const server = await start({ env: { LOG: "debug" } });
  try {
    const malformed = await exchange(server.port, "NONSENSE\r\n\r\n");
    const [, id] = /^X-Request-Id: (\S+)\r$/m.exec(malformed) ?? [];
    await server.end();
    const lines = server.output().split("\n")
      .filter((line) => line.includes('"message":"answered"'))
      .map((line) => JSON.parse(line))
      .filter(({ method }) => method === "")
      .map(({ time: _, ms: __, ...line }) => line);
    const answered = {
      level: "debug",
      message: "answered",
      client: "127.0.0.1",
      method: "",
      path: "…",
    };
    assert.deepEqual(lines, [{ ...answered, id, status: 400 }]);
  } finally {
    await server.stop();
  }
});
