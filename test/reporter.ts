/**
 * A reporter of tests: a dot for each that passes, and the file and the error of
 * each that fails. The `dot` reporter of Node.js 20 does not say which failed.
 */

import type { TestEvent } from "node:test/reporters";
import { inspect } from "node:util";

const dotsPerLine = 80;

export default async function* report(
  events: AsyncIterable<TestEvent>,
): AsyncGenerator<string> {
  let dots = 0;
  for await (const { type, data } of events) {
    if (type === "test:pass") {
      yield ++dots % dotsPerLine === 0 ? ".\n" : ".";
    } else if (type === "test:fail") {
      const { name, file = "", line = 0, details: { error } } = data;
      const reason = inspect(error.cause ?? error);
      // In a group the name begins with the file.
      const place = /group\.[jt]s$/.test(file) ? "" : ` (${file}:${line})`;
      yield `\nFAILED ${name}${place}\n${reason}\n`;
    } else if (type === "test:stderr") {
      yield data.message;
    }
  }
}
