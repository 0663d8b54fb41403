/** Request bodies as a stream: their limits of size and time. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { streamBody } from "../../../src/features/imports/body.ts";
import { bodies, exchangeBody, stalledBody } from "../../bodies.ts";

async function read(
  ...args: Parameters<typeof streamBody>
): Promise<string> {
  let text = "";
  for await (const part of streamBody(...args)) text += part;
  return text;
}

for (const [kind, [body, expected]] of Object.entries(bodies)) {
  test(`a streamed body ${kind} is read, or refused`, async () => {
    assert.match(await exchangeBody(read, body), expected);
  });
}

test("a streamed body that stalls is abandoned, and its connection is closed", async () => {
  const received = await exchangeBody(read, stalledBody, 50);
  assert.match(received, /^HTTP\/1\.1 408 [^]*"errorCode":40800/);
  assert.match(received, /^Connection: close\r$/m);
});
