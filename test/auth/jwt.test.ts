import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { createHmac } from "node:crypto";
import { test } from "node:test";
import { canSign, TokenError, TokenSigner } from "../../src/auth/jwt.ts";

const secret = "a secret of at least 32 bytes, really";
const other = "another secret of at least 32 bytes!!";
const now = 1_000_000;
const claims = { sub: 7, jti: 9, iat: now, exp: now + 60 };

function encode(value: unknown): string {
  return Buffer.from(JSON.stringify(value)).toString("base64url");
}

/** Creates a token with a valid signature over any content. */
function forge(header: unknown, payload: unknown): string {
  return forgeText(JSON.stringify(header), JSON.stringify(payload));
}

/** The same for content that JSON.stringify would not write. */
function forgeText(header: string, payload: string | Uint8Array): string {
  const parts = [header, payload].map((text) =>
    Buffer.from(text).toString("base64url")
  );
  const input = parts.join(".");
  const mac = createHmac("sha256", secret).update(input).digest("base64url");
  return `${input}.${mac}`;
}

const notUtf8 = Buffer.from('{"x":"\xe9"}', "latin1");
const signer = new TokenSigner([secret], "zoo-api");
const good = signer.sign(claims);
const [head = "", body = "", mac = ""] = good.split(".");
const header = JSON.parse(Buffer.from(head, "base64url").toString());
const payload = JSON.parse(Buffer.from(body, "base64url").toString());

test("a token has the claims of RFC 7519 and verifies to what was signed", () => {
  assert.deepEqual(Object.keys(header), ["alg", "typ", "kid"]);
  assert.equal(header.alg, "HS256");
  assert.equal(header.typ, "JWT");
  assert.deepEqual(payload, {
    iss: "zoo-api",
    sub: "7",
    iat: now,
    exp: now + 60,
    jti: "9",
  });
  assert.deepEqual(signer.verify(good), claims);
  assert.deepEqual(signer.verify(forge(header, payload)), claims);
});

test("a token is invalid unless it is one that the server itself would sign", () => {
  const endless = JSON.stringify(payload)
    .replace(String(payload.exp), "1e999");
  const { exp, iat, ...others } = payload;
  const table: readonly [string, string][] = [
    ["", "header"],
    ["a.b", "header"],
    [`..${mac}`, "header"],
    [`.${body}.${mac}`, "header"],
    [`${head}=.${body}.${mac}`, "header"],
    [forge({ ...header, alg: "none" }, payload), "header"],
    [forge({ ...header, alg: "hs256" }, payload), "header"],
    [forge({ ...header, alg: "HS512" }, payload), "header"],
    [forge({ ...header, typ: "at+jwt" }, payload), "header"],
    [forge({ ...header, kid: undefined }, payload), "header"],
    [forge({ ...header, kid: "__proto__" }, payload), "header"],
    [forge({ ...header, kid: 1 }, payload), "header"],
    [forge({ ...header, kid: [header.kid] }, payload), "header"],
    [forge({ ...header, crit: ["exp"] }, payload), "header"],
    [forge([], payload), "header"],
    [forge("HS256", payload), "header"],
    [`${good}.`, "signature"],
    [`${good}.x`, "signature"],
    [`${head}..${mac}`, "signature"],
    [`${head}.${body}.`, "signature"],
    [`${head}.${body}`, "signature"],
    [`${head}.${body}.${mac}=`, "signature"],
    [`${head}.${body}.${mac.slice(0, -1)}`, "signature"],
    [`${head}.${body}.${flipLast(mac)}`, "signature"],
    [`${head}.${encode({ ...payload, sub: "1" })}.${mac}`, "signature"],
    [forge(header, null), "claims"],
    [forge(header, []), "claims"],
    [forgeText(JSON.stringify(header), "{"), "claims"],
    [forgeText(JSON.stringify(header), ""), "claims"],
    [forgeText(JSON.stringify(header), notUtf8), "claims"],
    [
      forgeText(JSON.stringify(header), `${JSON.stringify(payload)} `),
      "claims",
    ],
    [forge(header, { ...payload, iss: "other" }), "claims"],
    [forge(header, { ...payload, sub: 7 }), "claims"],
    [forge(header, { ...payload, sub: "07" }), "claims"],
    [forge(header, { ...payload, sub: "9007199254740993" }), "claims"],
    [forge(header, { ...payload, sub: { toString: 7 } }), "claims"],
    [forge(header, { ...payload, sub: undefined }), "claims"],
    [forge(header, { ...payload, jti: "" }), "claims"],
    [forge(header, { ...payload, iat: "now" }), "claims"],
    [forge(header, { ...payload, iat: undefined }), "claims"],
    [forge(header, { ...payload, iat: -1e17 }), "claims"],
    [forge(header, { ...payload, iat: 0.5 }), "claims"],
    [forge(header, { ...payload, exp: 1e17 }), "claims"],
    [forge(header, { ...payload, exp: `${now + 60}` }), "claims"],
    [forge(header, { ...payload, exp: undefined }), "claims"],
    [forge(header, { ...payload, exp: null }), "claims"],
    [forge(header, { ...others, exp, iat }), "claims"],
    [forge(header, { ...payload, nbf: now }), "claims"],
    [forgeText(JSON.stringify(header), endless), "claims"],
  ];
  for (const [token, part] of table) {
    const verb = part === "claims" ? "do" : "does";
    assert.throws(() => signer.verify(token), {
      constructor: TokenError,
      message:
        `The token is not valid: its ${part} ${verb} not come from this server.`,
    }, `${part}: ${token}`);
  }
});

/** Flips an unused bit of the last character: the bytes stay, but the text is not canonical. */
function flipLast(text: string): string {
  const alphabet =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  const last = alphabet.indexOf(text.at(-1) ?? "");
  return text.slice(0, -1) + alphabet[last ^ 1];
}

test("every flipped bit of a token is detected", () => {
  const bytes = Buffer.from(good);
  for (let bit = 0; bit < bytes.length * 8; bit++) {
    const flipped = Buffer.from(bytes);
    const at = bit >> 3;
    flipped[at] = (flipped[at] ?? 0) ^ (1 << (bit & 7));
    assert.throws(() => signer.verify(flipped.toString("latin1")));
  }
});

test("only text of at least 32 bytes can sign, no zeros and no broken UTF-8", () => {
  for (const each of [secret, "ä".repeat(16), "a b".repeat(11)]) {
    assert.ok(canSign(each), each);
  }
  const bytes = Buffer.alloc(40, 0xff).toString();
  const line = `${"a".repeat(32)}\n`;
  for (const each of ["a".repeat(31), "\0".repeat(44), line, bytes]) {
    assert.ok(!canSign(each), JSON.stringify(each));
    assert.throws(() => new TokenSigner([each], "zoo-api"), RangeError);
  }
});

test("all secrets verify and the first one signs", () => {
  const rotated = new TokenSigner([other, secret], "zoo-api");
  assert.deepEqual(rotated.verify(good), claims);
  const renewed = rotated.sign(claims);
  assert.deepEqual(
    new TokenSigner([other], "zoo-api").verify(renewed),
    claims,
  );
  assert.throws(() => signer.verify(renewed), { message: /its header/ });
});

test("a short secret, or none, signs nothing", () => {
  assert.throws(() => new TokenSigner(["x".repeat(31)], "zoo-api"), RangeError);
  assert.throws(() => new TokenSigner([], "zoo-api"), RangeError);
});
