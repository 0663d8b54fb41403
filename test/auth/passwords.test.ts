import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import { test } from "node:test";
import {
  hashPassword,
  isHash,
  verifyPassword,
} from "../../src/auth/passwords.ts";
import { cheapHashes } from "../cheap-hashes.ts";
import { background, visitor } from "../requester.ts";

test("a hash contains its parameters but not the password, and matches no other", async () => {
  const [one, two] = await Promise.all([
    hashPassword("open sesame", background),
    hashPassword("open sesame", background),
  ]);
  assert.match(one, /^scrypt\$\d+\$\d+\$\d+\$[\w-]{22}\$[\w-]{43}$/);
  assert.notEqual(one, two, "each hash has a salt of its own");
  assert.equal(await verifyPassword("open sesame", one, background), true);
  assert.equal(await verifyPassword("open sesame ", one, background), false);
  assert.equal(await verifyPassword("", one, background), false);
});

test("a hash with other parameters is verified with those", async () => {
  // RFC 7914 section 12, third vector, cut to our length.
  const hash = Buffer.from(
    "7023bdcb3afd7348461c06cd81fd38ebfda8fbba904f8e3ea9b543f6545da1f2",
    "hex",
  ).toString("base64url");
  const salt = Buffer.from("SodiumChloride").toString("base64url");
  const stored = `scrypt$16384$8$1$${salt}$${hash}`;
  assert.equal(await verifyPassword("pleaseletmein", stored, background), true);
  assert.equal(
    await verifyPassword("pleaseletmeout", stored, background),
    false,
  );
});

test("without a hash, or with a malformed one, no password matches, and just as much is computed", async (t) => {
  cheapHashes(t);
  const stored = await hashPassword("open sesame", background);
  const rest = `${"A".repeat(22)}$${"A".repeat(43)}`;
  const malformed = [
    undefined,
    5,
    [stored],
    "",
    "plain",
    "scrypt$1$2$3$4$5",
    `argon2$16384$8$1$${rest}`,
    `scrypt$3$8$5$${rest}`,
    `scrypt$16384$8$5$${rest}A`,
  ];
  const scrypt = t.mock.method(crypto, "scrypt");
  syncBuiltinESMExports();
  const work: unknown[] = [];
  for (const hash of [stored, ...malformed]) {
    assert.equal(await verifyPassword("wrong", hash, background), false);
    const { arguments: [password, salt, ...cost] = [] } =
      scrypt.mock.calls.at(-1) ?? {};
    work.push([password, Buffer.from(salt as Buffer).length, cost.slice(0, 2)]);
  }
  scrypt.mock.restore();
  syncBuiltinESMExports();
  assert.equal(scrypt.mock.callCount(), work.length);
  for (const each of work) assert.deepEqual(each, work[0]);
});

test("a hash is accepted from elsewhere if it can be verified, and costs no more than one of this server", async () => {
  const rest = `${"s".repeat(22)}$${"h".repeat(43)}`;
  const own = await hashPassword("open sesame", background);
  const table: readonly [cost: string, isAccepted: boolean][] = [
    ["16384$8$5", true],
    ["2$1$1", true],
    ["1$1$1", false],
    ["0$1$1", false],
    ["3$1$1", false],
    ["2$0$1", false],
    ["2$1$0", false],
    ["32768$8$5", false],
    ["16384$9$5", false],
    ["16384$8$6", false],
    ["2$1$x", false],
  ];
  assert.equal(isHash(own), true);
  for (const [cost, isAccepted] of table) {
    assert.equal(isHash(`scrypt$${cost}$${rest}`), isAccepted, cost);
  }
  for (const text of [`${own}A`, ` ${own}`, "", "open sesame"]) {
    assert.equal(isHash(text), false, text);
  }
});

test("a password is hashed only after a last check, which may refuse it", async (t) => {
  const count = cheapHashes(t);
  const refuse = () => {
    throw new Error("refused");
  };
  await assert.rejects(
    verifyPassword("x", undefined, background, refuse),
    /refused/,
  );
  assert.equal(count.most, 0);
});

test("without turns hashes are computed one after the other, but not for a client who has disconnected", async (t) => {
  const count = cheapHashes(t);
  const leaver = visitor();
  const hashes = Array.from(
    { length: 8 },
    () => hashPassword("x", background),
  );
  const left = verifyPassword("x", undefined, leaver);
  const later = hashPassword("x", background);
  leaver.leave();
  await assert.rejects(left, /has left/);
  await later;
  assert.equal(new Set(await Promise.all(hashes)).size, 8);
  assert.deepEqual([count.most, count.total], [1, 9]);
});

test("a password is the same however a keyboard composes it, and a hash of the typed form stays valid", async (t) => {
  cheapHashes(t);
  const [composed, decomposed] = ["pässword ﬁve", "pa\u0308ssword five"];
  const stored = await hashPassword(decomposed, background);
  for (const typed of [composed, decomposed]) {
    assert.equal(await verifyPassword(typed, stored, background), true);
  }
  assert.equal(await verifyPassword("passwordfive", stored, background), false);
  // As version 0.1 hashed it.
  const { normalize } = String.prototype;
  t.mock.method(String.prototype, "normalize", function (this: string) {
    return String(this);
  });
  const typed = await hashPassword(decomposed, background);
  String.prototype.normalize = normalize;
  assert.equal(await verifyPassword(decomposed, typed, background), true);
  assert.equal(await verifyPassword(composed, typed, background), false);
});
