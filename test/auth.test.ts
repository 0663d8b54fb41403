/** Hashes and signatures, where a client cannot see what they are: CONTRACT section 5. */

import assert from "node:assert/strict";
import { scryptSync } from "node:crypto";
import process from "node:process";
import { test } from "node:test";
import { TokenSigner } from "../src/auth/jwt.ts";
import { hashPassword, verifyPassword } from "../src/auth/passwords.ts";

const password = "corr\u00e9ct horse";
const hash = await hashPassword(password);

test("A hash is scrypt with its parameters and a salt of its own", async () => {
  const [name, N, r, p, salt = "", key] = hash.split("$");
  assert.deepEqual([name, Number(N) >= 2 ** 14, r, p], [
    "scrypt",
    true,
    "8",
    "5",
  ]);
  assert.ok(Buffer.from(salt, "base64url").length >= 16);
  const again = scryptSync(password, Buffer.from(salt, "base64url"), 32, {
    N: Number(N),
    r: 8,
    p: 5,
  });
  assert.equal(again.toString("base64url"), key);
  assert.notEqual((await hashPassword(password)).split("$")[4], salt);
});

test("A password matches its own hash alone, however it was composed", async () => {
  const cheap = (N: number, text = password) => {
    const options = { N, r: 1, p: 1 };
    const key = scryptSync(text, Buffer.alloc(16), 32, options);
    return `scrypt$${N}$1$1$${"A".repeat(22)}$${key.toString("base64url")}`;
  };
  for (
    const [given, stored, expected] of [
      [password, hash, true],
      ["corre\u0301ct horse", hash, true],
      [`${password} `, hash, false],
      [password, cheap(2), true],
      [password, cheap(64), true],
      [password, cheap(2, "other"), false],
      [password, cheap(64).replace("$64$", "$32$"), false],
      [password, cheap(2).slice(0, -1), false],
      [password, "", false],
      [password, undefined, false],
    ] as const
  ) {
    const shown = `${given} ${stored}`;
    assert.equal(await verifyPassword(given, stored), expected, shown);
  }
});

test("Without a user a password costs as much", async () => {
  const cost = async (stored: unknown) => {
    const before = process.cpuUsage();
    await verifyPassword("wrong", stored);
    return process.cpuUsage(before).user;
  };
  const real = await cost(hash);
  for (const stored of [undefined, "malformed"]) {
    assert.ok(await cost(stored) > real / 3);
  }
});

const secret = "0123456789abcdef0123456789abcdef";
const claims = { sub: 7, jti: 8, iat: 1_700_000_000, exp: 1_700_003_600 };
const sign = (...secrets: string[]) => new TokenSigner(secrets, "API");
const refuses = (signer: TokenSigner, token: string) =>
  assert.equal(signer.verify(token), undefined, token);

test("The first secret signs and all verify", () => {
  const token = sign(secret).sign(claims);
  assert.deepEqual(sign(secret).verify(token), claims);
  const both = sign(`${secret}2`, secret);
  assert.deepEqual(both.verify(token), claims);
  assert.equal(both.sign(claims), sign(`${secret}2`).sign(claims));
  refuses(sign(`${secret}2`), token);
  refuses(new TokenSigner([secret], "Other"), token);
});

test("A secret has 32 bytes of text, and a kid reveals none of it", () => {
  for (const short of ["", secret.slice(1), "\0".repeat(40), `${secret}\n`]) {
    assert.throws(() => sign(short), RangeError);
  }
  assert.throws(() => sign(), RangeError);
  const [head = ""] = sign(secret).sign(claims).split(".");
  const { kid } = JSON.parse(Buffer.from(head, "base64url").toString());
  assert.ok(kid.length >= 8 && kid.length < 24 && !secret.includes(kid));
});

test("A token with any bit flipped is refused", () => {
  const signer = sign(secret);
  const bytes = Buffer.from(signer.sign(claims));
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const copy = Buffer.from(bytes);
    copy.writeUInt8(copy.readUInt8(bit >> 3) ^ 1 << (bit & 7), bit >> 3);
    refuses(signer, copy.toString("latin1"));
  }
});
