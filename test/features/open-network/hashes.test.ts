import { strict as assert } from "node:assert";
import { test } from "node:test";
import { hashPassword, verifyPassword } from "../../../src/auth/passwords.ts";
import { turns } from "../../../src/features/open-network/feature.ts";
import { cheapHashes } from "../../cheap-hashes.ts";
import { background, visitor } from "../../requester.ts";

const takingTurns = { ...background, turns };

test("at most two hashes are computed at a time, so files need not wait", async (t) => {
  // Node.js has four threads for hashes and files: two stay free for the
  // store's files.
  const count = cheapHashes(t);
  await Promise.all(
    Array.from({ length: 8 }, () => hashPassword("x", takingTurns)),
  );
  assert.equal(count.most, 2);
});

test("any number of hashes wait, but none whose client has disconnected", async (t) => {
  const count = cheapHashes(t);
  const leaver = visitor();
  const hashes = Array.from(
    { length: 60 },
    () => hashPassword("x", takingTurns),
  );
  const left = verifyPassword("x", undefined, { ...leaver, turns });
  leaver.leave();
  await assert.rejects(left, /has left/);
  assert.equal(new Set(await Promise.all(hashes)).size, 60);
  assert.equal(count.total, 60);
});
