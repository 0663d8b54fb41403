/** Request bodies in memory: their limits of size and time. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { type BodyLimits, readBody } from "../../src/http/body.ts";
import type { OutgoingResponse } from "../../src/http/connection.ts";
import { bodies, exchangeBody, stalledBody } from "../bodies.ts";

async function read(
  response: OutgoingResponse,
  limits: BodyLimits,
): Promise<string> {
  return (await readBody(response, limits)).toString();
}

for (const [kind, [body, expected]] of Object.entries(bodies)) {
  test(`a body ${kind} is read, or refused`, async () => {
    assert.match(await exchangeBody(read, body), expected);
  });
}

test("a small body must arrive in time", async () => {
  const received = await exchangeBody(read, stalledBody, 50);
  assert.match(received, /^HTTP\/1\.1 408 [^]*"errorCode":40800/);
  assert.match(received, /^Connection: close\r$/m);
});
