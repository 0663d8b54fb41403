/** Tokens and passwords, and the backdoors that a change could open in them. */

import assert from "node:assert/strict";
import { createHook } from "node:async_hooks";
import { Buffer } from "node:buffer";
import { createHmac, scryptSync } from "node:crypto";
import process from "node:process";
import { test } from "node:test";
import { canSign, TokenSigner } from "../../src/auth/jwt.ts";
import { hashPassword, verifyPassword } from "../../src/auth/passwords.ts";

const secret = "a secret of more than thirty-two bytes";
const claims = { sub: 3, jti: 7, iat: 1_700_000_000, exp: 1_700_003_600 };
const signerOf = (secrets: string[], issuer = "test") =>
  Object.assign(new TokenSigner(issuer), { secrets });
const signer = signerOf([secret]);
const token = signer.sign(claims);
const [header = "", payload = "", signature = ""] = token.split(".");

const encode = (value: unknown) =>
  Buffer.from(JSON.stringify(value)).toString("base64url");
const decode = (part: string) =>
  JSON.parse(Buffer.from(part, "base64url").toString());
const sign = (head: string, body: string, key = secret, hash = "sha256") =>
  `${head}.${body}.${
    createHmac(hash, key).update(`${head}.${body}`).digest("base64url")
  }`;

test("A token is what RFC 7519 and an independent HMAC say", () => {
  assert.equal(token, sign(header, payload));
  const { kid, ...others } = decode(header);
  assert.deepEqual(others, { alg: "HS256", typ: "JWT" });
  assert.deepEqual(decode(payload), {
    iss: "test",
    sub: "3",
    iat: claims.iat,
    exp: claims.exp,
    jti: "7",
  });
  assert.deepEqual(signer.verify(token), claims);
  assert.equal(
    decode(signerOf([secret], "x").sign(claims).split(".")[0] ?? "").kid,
    kid,
  );
});

test("A short secret cannot sign", () => {
  for (
    const bad of ["", "short", "x".repeat(31), "\0".repeat(40), "é".repeat(15)]
  ) {
    assert.equal(canSign(bad), false);
    assert.throws(() => signerOf([bad]), RangeError);
    assert.throws(() => signerOf([secret, bad]), RangeError);
  }
  assert.throws(() => signerOf([]).sign(claims), TypeError);
  assert.ok(canSign("x".repeat(32)) && canSign("é".repeat(16)));
});

test("The header of a token reveals nothing of the secret", () => {
  const text = JSON.stringify(decode(header));
  const key = Buffer.from(secret);
  for (let at = 0; at + 4 <= secret.length; at++) {
    const part = key.subarray(at, at + 4);
    for (const form of ["utf8", "hex", "base64url"] as const) {
      assert.ok(!text.includes(part.toString(form).slice(0, 5)), text);
    }
  }
  assert.match(decode(header).kid, /^[\w-]{12}$/);
  const other = signerOf([`${secret}!`]).sign(claims);
  assert.notEqual(other.split(".")[0], header);
});

test("A token that this server would not sign is refused", () => {
  const { kid } = decode(header);
  const valid = decode(payload);
  const bad: Record<string, string> = {
    "no signature": `${header}.${payload}.`,
    "two parts": `${header}.${payload}`,
    "four parts": `${token}.`,
    padding: `${token}=`,
    "another secret": sign(header, payload, `${secret}!`),
    "an empty secret": sign(header, payload, "\0"),
    "the key's id as secret": sign(header, payload, kid),
    "alg none": `${encode({ alg: "none", typ: "JWT", kid })}.${payload}.`,
    "alg none, signed": sign(encode({ alg: "none", typ: "JWT", kid }), payload),
    HS512: sign(
      encode({ alg: "HS512", typ: "JWT", kid }),
      payload,
      secret,
      "sha512",
    ),
    "no kid": sign(encode({ alg: "HS256", typ: "JWT" }), payload),
    "another kid": sign(
      encode({ alg: "HS256", typ: "JWT", kid: "x" }),
      payload,
    ),
    "a further parameter": sign(
      encode({ ...decode(header), jku: "x" }),
      payload,
    ),
    "another issuer": signerOf([secret], "other").sign(claims),
    "another last character": token.slice(0, -1) +
      (signature.endsWith("A") ? "B" : "A"),
    "a payload of null": sign(header, encode(null)),
    "no JSON": sign(header, "eyJ"),
  };
  for (
    const change of [
      { sub: 3 },
      { sub: "03" },
      { sub: "x" },
      { jti: undefined },
      { exp: "1700003600" },
      { exp: undefined },
      { iat: 1.5 },
      { role: "admin" },
    ]
  ) bad[JSON.stringify(change)] = sign(header, encode({ ...valid, ...change }));
  for (const [what, text] of Object.entries(bad)) {
    assert.equal(signer.verify(text), undefined, what);
  }
});

test("A token with any bit flipped is refused", () => {
  const bytes = Buffer.from(token);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const copy = Buffer.from(bytes);
    copy.writeUInt8(copy.readUInt8(bit >> 3) ^ 1 << (bit & 7), bit >> 3);
    assert.equal(signer.verify(copy.toString("latin1")), undefined);
  }
});

test("All secrets verify, and the first one signs", () => {
  const both = signerOf([`${secret}, the next`, secret]);
  assert.deepEqual(both.verify(token), claims);
  assert.notEqual(both.sign(claims), token);
  assert.equal(signer.verify(both.sign(claims)), undefined);
});

/** The stored form of a password. */
const stored = await hashPassword("correct hörse");

test("A password is stored as what scrypt makes of it", async () => {
  const [name, N, r, p, salt = "", key] = stored.split("$");
  assert.deepEqual([name, N, r, p], ["scrypt", "16384", "8", "5"]);
  const expected = scryptSync(
    "correct hörse",
    Buffer.from(salt, "base64url"),
    32,
    { N: 16384, r: 8, p: 5 },
  );
  assert.equal(key, expected.toString("base64url"));
  // Keyboards differ in how they compose characters.
  assert.equal(await verifyPassword("correct ho\u0308rse", stored), true);
});

test("No master password: nothing but the user's own is right", async () => {
  // Parameters are stored beside a hash: these are cheap.
  const salt = Buffer.alloc(16, "salt");
  const key = scryptSync("correct horse", salt, 32, { N: 16, r: 1, p: 1 });
  const hash = [
    "scrypt",
    16,
    1,
    1,
    salt.toString("base64url"),
    key.toString("base64url"),
  ].join("$");
  assert.equal(await verifyPassword("correct horse", hash), true);
  for (
    const other of [
      "",
      "correct",
      "correct horse ",
      "Correct horse",
      "admin",
      "master",
      secret,
      hash,
    ]
  ) {
    assert.equal(await verifyPassword(other, hash), false, other);
  }
  for (let at = 0; at < 200; at++) {
    assert.equal(await verifyPassword(`wrong ${at}`, hash), false);
  }
  for (let at = 0; at < key.length; at++) {
    const other = Buffer.from(key);
    other.writeUInt8(other.readUInt8(at) ^ 1, at);
    const stored = hash.replace(/[^$]+$/, other.toString("base64url"));
    assert.equal(await verifyPassword("correct horse", stored), false);
  }
  for (const stored of [undefined, `${hash}$`]) {
    assert.equal(await verifyPassword("correct horse", stored), false);
  }
});

test("Without a user a password costs as much", async () => {
  const cost = async (stored: unknown) => {
    const before = process.cpuUsage();
    await verifyPassword("wrong password", stored);
    return process.cpuUsage(before).user;
  };
  const real = await cost(stored);
  for (const none of [undefined, "malformed"]) {
    assert.ok(await cost(none) > real / 3);
  }
});

test("At most two passwords are hashed at a time", async () => {
  const hash = "scrypt$16$1$1$c2FsdA$".padEnd(64, "A");
  const running = new Set<number>();
  let most = 0;
  const hook = createHook({
    init(id, type) {
      if (type !== "SCRYPTREQUEST") return;
      running.add(id);
      most = Math.max(most, running.size);
    },
    after: (id) => running.delete(id),
  }).enable();
  const all = Array.from({ length: 8 }, () => verifyPassword("wrong", hash));
  assert.ok((await Promise.all(all)).every((isRight) => !isRight));
  hook.disable();
  assert.equal(most, 2);
});
