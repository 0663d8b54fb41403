/**
 * Authentication and access: sign-in, tokens, users and their passwords. The
 * tokens that must be refused are created here by hand.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { createHmac } from "node:crypto";
import { after, before, describe, test } from "node:test";
import {
  adminPassword,
  type Answer,
  assertError,
  assertInvalid,
  jwtSecret,
  removeFolder,
  type RequestOptions,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { runHere, type ServerHere, startHere } from "../in-process.ts";

const password = "a password of sixteen";
const zoo = { id: 1, name: "Basel", city: "Basel", country: "CH" };
const animal = { zoo_id: 1, animal_type_id: 1, name: "Leo" };

let server: Server;
let admin: string;
let keeper: string;
let viewer: string;

before(async () => {
  server = await start({ seed: { zoos: [zoo], animals: [], employees: [] } });
  admin = await server.signIn();
  keeper = await tokenOf(await newUser("keeper", "keeper"));
  viewer = await tokenOf(await newUser("viewer", "viewer"));
});

after(() => server.stop());

interface User {
  readonly id: number;
  readonly username: string;
}

/** Creates a user with {@linkcode password}. */
async function newUser(username: string, role: string): Promise<User> {
  const answer = await server.request("POST", "/v1/users", {
    token: admin,
    json: { username, role, password },
  });
  assert.equal(answer.status, 201, answer.text);
  return answer.body;
}

function tokenOf(user: User): Promise<string> {
  return server.signIn(user.username, password);
}

function signIn(json: unknown, init: RequestOptions = {}): Promise<Answer> {
  return server.request("POST", "/v1/authorizations", { ...init, json });
}

type Claims = Record<string, unknown>;

function encode(text: string): string {
  return Buffer.from(text).toString("base64url");
}

function hmac(text: string, secret = jwtSecret, hash = "sha256"): string {
  return createHmac(hash, secret).update(text).digest("base64url");
}

function partsOf(token: string): [string, string, string] {
  const [header = "", claims = "", signature = ""] = token.split(".");
  return [header, claims, signature];
}

function decoded(part: string): Claims {
  return JSON.parse(Buffer.from(part, "base64url").toString());
}

/** Signs the admin's token again with some claims changed; undefined removes one. */
function forge(
  changes: { readonly header?: Claims; readonly claims?: Claims },
  secret = jwtSecret,
  hash = "sha256",
): string {
  const [header, claims] = partsOf(admin);
  return seal(
    JSON.stringify({ ...decoded(header), ...changes.header }),
    JSON.stringify({ ...decoded(claims), ...changes.claims }),
    secret,
    hash,
  );
}

function seal(
  header: string,
  claims: string,
  secret = jwtSecret,
  hash = "sha256",
): string {
  const input = `${encode(header)}.${encode(claims)}`;
  return `${input}.${hmac(input, secret, hash)}`;
}

/** The same bytes in another spelling: the last letter's unused bits are set. */
function respelled(part: string): string {
  const letters =
    "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
  assert.notEqual(part.length % 4, 0, "every bit of the last letter counts");
  const last = letters[letters.indexOf(part.at(-1) ?? "") ^ 1] ?? "";
  const other = part.slice(0, -1) + last;
  assert.deepEqual(
    Buffer.from(other, "base64url"),
    Buffer.from(part, "base64url"),
  );
  return other;
}

/** JSON of which base64url leaves unused bits in the last letter. */
function uneven(part: string): string {
  let text = Buffer.from(part, "base64url").toString();
  while (Buffer.byteLength(text) % 3 === 0) text += " ";
  return text;
}

describe("signing in", () => {
  test("responds with a new authorization and, only once, its token", async () => {
    const answer = await signIn({
      username: "viewer",
      password,
      expires_in: 60,
      note: "on the phone",
    });
    assert.equal(answer.status, 201, answer.text);
    assert.match(String(answer.headers.get("cache-control")), /\bno-store\b/);
    const { id, token, created_at, expires_at, ...rest } = answer.body;
    assert.equal(answer.headers.get("location"), rest.url);
    assert.deepEqual(rest, {
      token_type: "Bearer",
      note: "on the phone",
      url: `/v1/authorizations/${id}`,
      link: rest.link,
    });
    assert.equal(rest.link.rel, "collection /v1/authorizations");
    assert.equal(rest.link.href, "/v1/authorizations");
    assert.equal(rest.link.type, "application/json");
    assert.match(created_at, /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z$/);
    const seconds = (Date.parse(expires_at) - Date.parse(created_at)) / 1000;
    assert.ok(Math.abs(seconds - 60) <= 1, `${seconds} s`);

    const shown = await server.request("GET", rest.url, { token });
    assert.equal(shown.status, 200, shown.text);
    assert.equal(shown.body.id, id);
    assert.equal(shown.body.note, "on the phone");
    assert.equal(shown.body.expires_at, expires_at);
    assert.equal("token" in shown.body, false);
    assert.equal(shown.text.includes(token), false);
  });

  test("creates a JWT of exactly the promised header and claims", () => {
    const [first, second, signature] = partsOf(admin);
    assert.match(admin, /^[\w-]+\.[\w-]+\.[\w-]{43}$/);
    const header = decoded(first);
    assert.deepEqual(Object.keys(header).sort(), ["alg", "kid", "typ"]);
    assert.equal(header["alg"], "HS256");
    assert.equal(header["typ"], "JWT");
    const claims = decoded(second);
    assert.deepEqual(
      Object.keys(claims).sort(),
      ["exp", "iat", "iss", "jti", "sub"],
    );
    assert.equal(claims["iss"], "zoo-api");
    assert.equal(claims["sub"], "1");
    assert.match(String(claims["jti"]), /^[1-9]\d*$/);
    assert.equal(typeof claims["jti"], "string");
    assert.equal(Number(claims["exp"]) - Number(claims["iat"]), 3600);
    assert.equal(signature, hmac(`${first}.${second}`));
  });

  test("refuses wrong types, ranges and unknown properties", async () => {
    const name = { username: "nobody" };
    const both = { ...name, password: "nothing" };
    const cases: [unknown, Record<string, string>][] = [
      [{}, { username: "required", password: "required" }],
      [name, { password: "required" }],
      [{ username: 1, password: null }, { username: "type", password: "type" }],
      [{ ...both, expires_in: 59 }, { expires_in: "range" }],
      [{ ...both, expires_in: 2592001 }, { expires_in: "range" }],
      [{ ...both, expires_in: "60" }, { expires_in: "type" }],
      [{ ...both, note: 5 }, { note: "type" }],
      [{ ...both, note: "\u{1F981}".repeat(101) }, { note: "length" }],
      [{ ...both, role: "admin" }, { role: "unknown" }],
      [{ ...both, foo: null }, { foo: "unknown" }],
      [
        { ...name, expires_in: 1, note: [], foo: 1 },
        {
          password: "required",
          expires_in: "range",
          note: "type",
          foo: "unknown",
        },
      ],
    ];
    for (const [json, expected] of cases) {
      assertInvalid(await signIn(json), expected);
    }
    assertError(await signIn([]), 40002);
    assertError(await signIn("admin"), 40002);
  });

  test("allows the bounds of expires_in and note", async () => {
    const answer = await signIn({
      username: "viewer",
      password,
      expires_in: 2592000,
      note: "\u{1F981}".repeat(100),
    });
    assert.equal(answer.status, 201, answer.text);
    const { iat, exp } = decoded(partsOf(answer.body.token)[1]);
    assert.equal(Number(exp) - Number(iat), 2592000);
  });

  test("any two strings that are wrong get one and the same response", async () => {
    const wrong = await signIn({ username: "admin", password: "wrong" });
    assertError(wrong, 40101);
    const pairs: [string, string][] = [
      ["nobody", "wrong"],
      ["nobody", adminPassword],
      ["admin", `${adminPassword} `],
      ["admin", adminPassword.toUpperCase()],
      ["admin", ""],
      ["", ""],
      ["__proto__", "constructor"],
      ["viewer", adminPassword],
      ["\u{1F981}".repeat(500), "\u{0}\n"],
      ["admin", "p".repeat(8000)],
    ];
    // A name is the same with a capital or a space.
    const folded = {
      username: " \uff21dmin\u200b ", // a full-width A
      password: adminPassword,
    };
    assert.equal((await signIn(folded)).status, 201);
    for (const [username, password] of pairs) {
      const answer = await signIn({ username, password });
      assert.equal(answer.status, 401, answer.text);
      assert.equal(answer.text, wrong.text, username);
      assert.equal(
        answer.headers.get("www-authenticate"),
        wrong.headers.get("www-authenticate"),
      );
    }
  });

  test("ignores an Authorization field", async () => {
    for (const authorization of ["Bearer nonsense", "Basic YTpi"]) {
      const answer = await signIn(
        { username: "viewer", password },
        { headers: { authorization } },
      );
      assert.equal(answer.status, 201, answer.text);
    }
  });
});

describe("a token", () => {
  const now = () => Math.floor(Date.now() / 1000);
  const forgeries: [string, () => string, number?][] = [
    ["signed with another secret", () => forge({}, "z".repeat(32))],
    ["signed with an empty secret", () => forge({}, "")],
    ["alg none, no signature", () => {
      const [header, claims] = partsOf(forge({ header: { alg: "none" } }));
      return `${header}.${claims}.`;
    }],
    ["alg none, signed", () => forge({ header: { alg: "none" } })],
    ["alg NONE, signed", () => forge({ header: { alg: "NONE" } })],
    ["alg hs256", () => forge({ header: { alg: "hs256" } })],
    [
      "alg HS384",
      () => forge({ header: { alg: "HS384" } }, jwtSecret, "sha384"),
    ],
    [
      "alg HS512",
      () => forge({ header: { alg: "HS512" } }, jwtSecret, "sha512"),
    ],
    ["alg HS512, signed as HS256", () => forge({ header: { alg: "HS512" } })],
    ["HS512 called HS256", () => forge({}, jwtSecret, "sha512")],
    ["alg RS256", () => forge({ header: { alg: "RS256" } })],
    ["without alg", () => forge({ header: { alg: undefined } })],
    ["alg as a list", () => forge({ header: { alg: ["HS256"] } })],
    ["an unknown kid", () => forge({ header: { kid: "other" } })],
    ["kid __proto__", () => forge({ header: { kid: "__proto__" } })],
    ["kid as a number", () => forge({ header: { kid: 1 } })],
    ["a critical extension", () => forge({ header: { crit: ["b64"] } })],
    ...["iss", "sub", "iat", "exp", "jti"].flatMap((
      claim,
    ): [string, () => string][] => [
      [`without ${claim}`, () => forge({ claims: { [claim]: undefined } })],
      [`${claim} null`, () => forge({ claims: { [claim]: null } })],
      [`${claim} a list`, () => forge({ claims: { [claim]: ["1"] } })],
    ]),
    ["another iss", () => forge({ claims: { iss: "other" } })],
    ["sub as a number", () => forge({ claims: { sub: 1 } })],
    ["jti as a number", () => {
      const { jti } = decoded(partsOf(admin)[1]);
      return forge({ claims: { jti: Number(jti) } });
    }],
    ["iat as a string", () => forge({ claims: { iat: String(now()) } })],
    ["exp as a string", () => forge({ claims: { exp: `${now() + 60}` } })],
    ["exp true", () => forge({ claims: { exp: true } })],
    ["a jti never given", () => forge({ claims: { jti: "9007199254740991" } })],
    ["jti 0", () => forge({ claims: { jti: "0" } })],
    ["jti abc", () => forge({ claims: { jti: "abc" } })],
    ["an empty jti", () => forge({ claims: { jti: "" } })],
    ["jti __proto__", () => forge({ claims: { jti: "__proto__" } })],
    ["jti with a leading zero", () => {
      const { jti } = decoded(partsOf(admin)[1]);
      return forge({ claims: { jti: `0${jti}` } });
    }],
    ["a sub that does not own the jti", () => {
      const { sub } = decoded(partsOf(keeper)[1]);
      return forge({ claims: { sub } });
    }],
    ["a sub of no user", () => forge({ claims: { sub: "999999" } })],
    [
      "expired",
      () => forge({ claims: { iat: now() - 100, exp: now() - 1 } }),
      40103,
    ],
    ["expired in 1970", () => forge({ claims: { iat: 0, exp: 1 } }), 40103],
    ["no JSON in the header", () => seal("{", decodedText(admin, 1))],
    ["a header that is null", () => seal("null", decodedText(admin, 1))],
    ["no JSON in the claims", () => seal(decodedText(admin, 0), "{")],
    ["claims that are null", () => seal(decodedText(admin, 0), "null")],
    ["claims that are a list", () => seal(decodedText(admin, 0), "[]")],
    ["empty claims", () => seal(decodedText(admin, 0), "")],
    ["a padded signature", () => `${admin}=`],
    ["a signature in another spelling", () => {
      const [header, claims, signature] = partsOf(admin);
      return `${header}.${claims}.${respelled(signature)}`;
    }],
    ["a header in another spelling", () => {
      const [first, second] = partsOf(admin);
      const input = `${respelled(encode(uneven(first)))}.${second}`;
      return `${input}.${hmac(input)}`;
    }],
    ["claims in another spelling", () => {
      const [first, second] = partsOf(admin);
      const input = `${first}.${respelled(encode(uneven(second)))}`;
      return `${input}.${hmac(input)}`;
    }],
    ["padded claims", () => {
      const [first, second] = partsOf(admin);
      const input = `${first}.${
        Buffer.from(uneven(second)).toString("base64").replaceAll("+", "-")
          .replaceAll("/", "_")
      }`;
      return `${input}.${hmac(input)}`;
    }],
    ["a cut signature", () => admin.slice(0, -1)],
    ["a longer signature", () => `${admin}AAAA`],
    ["no signature", () => admin.slice(0, admin.lastIndexOf("."))],
    ["an empty signature", () => admin.slice(0, admin.lastIndexOf(".") + 1)],
    ["four parts", () => `${admin}.${partsOf(admin)[2]}`],
    ["a leading dot", () => `.${admin}`],
    ["dots only", () => ".."],
    ["a word", () => "nonsense"],
    ["its own id", () => String(decoded(partsOf(admin)[1])["jti"])],
  ];

  function decodedText(token: string, part: 0 | 1): string {
    return Buffer.from(partsOf(token)[part], "base64url").toString();
  }

  test("signed again here without a change is accepted", async () => {
    const answer = await server.request("GET", "/v1/user", {
      token: forge({}),
    });
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.body.username, "admin");
  });

  for (const [name, make, code = 40102] of forgeries) {
    test(`is refused: ${name}`, async () => {
      const token = make();
      for (const path of ["/v1/user", "/v1/zoos"]) {
        assertError(await server.request("GET", path, { token }), code);
      }
      const write = await server.request("POST", "/v1/animals", {
        token,
        json: animal,
      });
      assertError(write, code);
    });
  }

  test("is refused with any bit flipped", async () => {
    const parts = partsOf(admin);
    const tokens = parts.flatMap((part, place) =>
      Array.from(Buffer.from(part, "base64url"), (_, index) => {
        const bytes = Buffer.from(part, "base64url");
        bytes[index] = (bytes[index] ?? 0) ^ (1 << index % 8);
        return parts.with(place, bytes.toString("base64url")).join(".");
      })
    );
    assert.ok(tokens.length > 100);
    for (const token of tokens) {
      assertError(await server.request("GET", "/v1/user", { token }), 40102);
    }
  });

  test("is accepted whatever the case of the scheme", async () => {
    for (const scheme of ["bearer", "BEARER"]) {
      const answer = await server.request("GET", "/v1/user", {
        headers: { authorization: `${scheme} ${admin}` },
      });
      assert.equal(answer.status, 200, answer.text);
    }
  });

  test("is not accepted in another scheme", async () => {
    const wrong = [`Basic ${admin}`, admin, `Bearer\t${admin}`, "Bearer"];
    for (const authorization of wrong) {
      for (const path of ["/v1/user", "/v1/zoos"]) {
        const answer = await server.request("GET", path, {
          headers: { authorization },
        });
        assertError(answer, authorization === "Bearer" ? 40102 : 40100);
        assert.equal(
          /The token is not valid/.test(answer.text),
          authorization === "Bearer",
        );
        assert.ok(!answer.text.includes(admin.slice(0, 20)), answer.text);
      }
    }
  });
});

describe("authorizations", () => {
  test("are listed to their owner alone, without tokens", async () => {
    const owner = await newUser("lister", "admin");
    const [first, second] = [await tokenOf(owner), await tokenOf(owner)];
    const list = await server.request("GET", "/v1/authorizations", {
      token: first,
    });
    assert.equal(list.status, 200, list.text);
    const given = [first, second].map((token) =>
      Number(decoded(partsOf(token)[1])["jti"])
    );
    assert.deepEqual(
      new Set(list.body.map((entry: { id: number }) => entry.id)),
      new Set(given),
    );
    for (const entry of list.body) {
      assert.equal("token" in entry, false);
      assert.equal("link" in entry, false);
      assert.equal(entry.url, `/v1/authorizations/${entry.id}`);
      assert.ok(Date.parse(entry.expires_at) > Date.now());
    }
    assert.equal(list.text.includes(partsOf(first)[2]), false);

    // Those of others do not exist, not even for another admin.
    const path = `/v1/authorizations/${given[0]}`;
    for (const method of ["GET", "HEAD", "DELETE"]) {
      for (const token of [admin, viewer]) {
        const answer = await server.request(method, path, { token });
        assert.equal(answer.status, 404, method);
        if (method !== "HEAD") assertError(answer, 40401);
      }
    }
    const still = await server.request("GET", path, { token: first });
    assert.equal(still.status, 200, still.text);
  });

  test("end with DELETE, and their tokens with them", async () => {
    const ended = await server.signIn("viewer", password);
    const path = `/v1/authorizations/${decoded(partsOf(ended)[1])["jti"]}`;
    const answer = await server.request("DELETE", path, { token: ended });
    assert.equal(answer.status, 204);
    assert.equal(answer.text, "");
    for (const address of ["/v1/user", "/v1/zoos", path]) {
      assertError(
        await server.request("GET", address, { token: ended }),
        40104,
      );
    }
    const list = await server.request("GET", "/v1/authorizations", {
      token: viewer,
    });
    assert.equal(list.text.includes(`"${path}"`), false);
    const gone = await server.request("GET", path, { token: viewer });
    assertError(gone, 41000);
    assertError(
      await server.request("DELETE", path, { token: viewer }),
      40401,
    );
  });
});

describe("roles", () => {
  test("of a viewer and above may read employees", async () => {
    for (const token of [viewer, keeper]) {
      const answer = await server.request("GET", "/v1/employees", { token });
      assert.equal(answer.status, 200, answer.text);
    }
  });

  test("are read at each request", async () => {
    const user = await newUser("climber", "viewer");
    const token = await tokenOf(user);
    const tryToPost = async () => {
      const init = { token, json: animal };
      return (await server.request("POST", "/v1/animals", init)).status;
    };
    const become = async (role: string) => {
      const answer = await server.request("PATCH", `/v1/users/${user.id}`, {
        token: admin,
        json: { role },
      });
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.body.role, role);
    };
    assert.equal(await tryToPost(), 403);
    await become("keeper");
    assert.equal(await tryToPost(), 201);
    await become("viewer");
    assert.equal(await tryToPost(), 403);
    const path = `/v1/users/${user.id}`;
    const deleted = await server.request("DELETE", path, { token: admin });
    assert.equal(deleted.status, 204);
    assertError(
      await server.request("GET", "/v1/zoos", { token }),
      40104,
    );
    assertError(
      await signIn({ username: "climber", password }),
      40101,
    );
    assertError(
      await server.request("GET", path, { token: admin }),
      41000,
    );
  });
});

describe("users", () => {
  test("are records without a password", async () => {
    const json = { username: "plain.user_1-x", password };
    const made = await server.request("POST", "/v1/users", {
      token: admin,
      json,
    });
    assert.equal(made.status, 201, made.text);
    const { id, created_at, updated_at, link, ...rest } = made.body;
    assert.deepEqual(
      rest,
      { username: json.username, role: "viewer", url: `/v1/users/${id}` },
    );
    assert.equal(created_at, updated_at);
    assert.equal(link.href, "/v1/users");
    assert.equal(made.headers.get("location"), rest.url);
    const shown = await server.request("GET", rest.url, { token: admin });
    assert.deepEqual(shown.body, made.body);
    const own = await server.request("GET", "/v1/user", {
      token: await server.signIn(json.username, password),
    });
    assert.equal(own.status, 200, own.text);
    assert.equal(own.body.id, id);
    assert.equal(own.body.url, rest.url);
    assert.equal("password" in own.body, false);
  });

  test("are checked, with every failing property at once", async () => {
    const good = { username: "checked", password };
    const cases: [unknown, Record<string, string>][] = [
      [{}, { username: "required", password: "required" }],
      [{ ...good, username: null }, { username: "type" }],
      ...["A", "a", "-ab", "a b", ".ab", "aB", `a${"b".repeat(32)}`, "\u{E9}a"]
        .map((username): [unknown, Record<string, string>] => [
          { ...good, username },
          { username: "format" },
        ]),
      [{ ...good, username: "admin" }, { username: "unique" }],
      [{ ...good, password: "nine sign" }, { password: "length" }],
      [{ ...good, password: "p".repeat(129) }, { password: "length" }],
      [{ ...good, password: "\u{1F981}".repeat(9) }, { password: "length" }],
      [{ ...good, password: 1234567890 }, { password: "type" }],
      [{ ...good, role: "root" }, { role: "enum" }],
      [{ ...good, role: null }, { role: "type" }],
      [{ ...good, email: "a@example.com" }, { email: "unknown" }],
      [
        { username: "admin", role: "", password: "short", hash: null },
        {
          username: "unique",
          role: "enum",
          password: "length",
          hash: "unknown",
        },
      ],
    ];
    for (const [json, expected] of cases) {
      const answer = await server.request("POST", "/v1/users", {
        token: admin,
        json,
      });
      assert.equal(answer.status, 422, `${JSON.stringify(json)}`);
      // A name of the wrong length may fail by length or by format.
      if (expected["username"] === "format") {
        for (const error of answer.body.errors) {
          if (error.code === "length") Object.assign(error, { code: "format" });
        }
      }
      assertInvalid(answer, expected);
    }
    const list = await server.request("GET", "/v1/users?username=checked", {
      token: admin,
    });
    assert.deepEqual(list.body, []);
  });

  test("may have passwords of 10 and of 128 code points", async () => {
    const long = "\u{1F981}".repeat(128);
    for (const [username, password] of [["ten", "ten signs!"], ["big", long]]) {
      const made = await server.request("POST", "/v1/users", {
        token: admin,
        json: { username, password },
      });
      assert.equal(made.status, 201, made.text);
      assert.equal((await signIn({ username, password })).status, 201);
    }
    const cut = await signIn({ username: "big", password: long.slice(0, -2) });
    assertError(cut, 40101);
  });

  test("can change nothing but their password themselves", async () => {
    const cases: [unknown, Record<string, string>][] = [
      [{ role: "admin" }, { role: "read_only" }],
      [{ username: "other" }, { username: "read_only" }],
      [{ foo: 1 }, { foo: "unknown" }],
      [{ password: "short" }, { password: "length" }],
      [{ password: null }, { password: "type" }],
      [
        { role: "admin", password: "short", foo: null },
        { role: "read_only", password: "length", foo: "unknown" },
      ],
    ];
    for (const [json, expected] of cases) {
      const answer = await server.request("PATCH", "/v1/user", {
        token: viewer,
        json,
      });
      assertInvalid(answer, expected);
    }
    const own = await server.request("GET", "/v1/user", { token: viewer });
    assert.equal(own.body.username, "viewer");
    assert.equal(own.body.role, "viewer");
  });

  test("lose all authorizations with a changed password", async () => {
    const user = await newUser("changer", "viewer");
    const changes: [string, string, string | undefined][] = [
      ["/v1/user", "another long password", undefined],
      [`/v1/users/${user.id}`, "one more long password", admin],
    ];
    let current = password;
    for (const [path, next, by] of changes) {
      const tokens = [
        await server.signIn("changer", current),
        await server.signIn("changer", current),
      ];
      const answer = await server.request("PATCH", path, {
        token: by ?? tokens[0],
        json: { password: next },
      });
      assert.equal(answer.status, 201, answer.text);
      assert.equal(answer.body.id, user.id);
      assert.equal("password" in answer.body, false);
      for (const token of tokens) {
        assertError(
          await server.request("GET", "/v1/user", { token }),
          40104,
        );
      }
      assertError(
        await signIn({ username: "changer", password: current }),
        40101,
      );
      current = next;
    }
    const token = await server.signIn("changer", current);
    const list = await server.request("GET", "/v1/authorizations", { token });
    assert.equal(list.body.length, 1, "only the new one is live");
  });

  test("keep their password when a PUT omits it", async () => {
    const user = await newUser("putter", "keeper");
    const token = await tokenOf(user);
    const answer = await server.request("PUT", `/v1/users/${user.id}`, {
      token: admin,
      json: { username: "putter2" },
    });
    assert.equal(answer.status, 201, answer.text);
    assert.equal(answer.body.role, "viewer", "back to its default");
    const own = await server.request("GET", "/v1/user", { token });
    assert.equal(own.status, 200, own.text);
    assert.equal(own.body.username, "putter2");
    assert.equal(
      (await signIn({ username: "putter2", password })).status,
      201,
    );
  });
});

test("the last admin can be neither deleted nor demoted", async () => {
  const own = await startHere();
  try {
    const first = await own.signIn();
    const ask = (method: string, id: number, json?: unknown, token = first) =>
      own.request(method, `/v1/users/${id}`, { token, json });
    const removed = await ask("DELETE", 1);
    assertError(removed, 40901);
    assert.match(removed.text, /role admin and cannot be deleted/);
    const demoted = await ask("PATCH", 1, { role: "keeper" });
    assertError(demoted, 40901);
    assert.match(demoted.text, /role admin and cannot be given another role/);
    assertError(await ask("PUT", 1, { username: "admin" }), 40901);
    const unchanged = await ask("PATCH", 1, { role: "admin" });
    assert.equal(unchanged.status, 201, unchanged.text);

    const made = await own.request("POST", "/v1/users", {
      token: first,
      json: { username: "second", role: "admin", password },
    });
    const second = await own.signIn("second", password);
    // Two admins who demote each other at once: one of them must fail.
    const race = await Promise.all([
      ask("PATCH", made.body.id, { role: "viewer" }, first),
      ask("PATCH", 1, { role: "viewer" }, second),
    ]);
    const statuses = race.map((answer) => answer.status).sort();
    assert.equal(statuses[0], 201, statuses.join());
    assert.ok(statuses[1] === 403 || statuses[1] === 409, statuses.join());
    const left = race[0].status === 201 ? first : second;
    const admins = await own.request("GET", "/v1/users?role=admin", {
      token: left,
    });
    assert.equal(admins.body.length, 1, admins.text);
    const { id = 0 } = admins.body[0] ?? {};
    assertError(await ask("DELETE", id, undefined, left), 40901);
  } finally {
    await own.stop();
  }
});

test("old tokens survive a restart and a rotation of secrets", async () => {
  const folder = await temporaryFolder();
  const [old, fresh] = ["o".repeat(32), "f".repeat(40)];
  const running = async (
    secrets: string,
    work: (server: ServerHere) => Promise<void>,
  ) => {
    const env = { JWT_SECRET: secrets };
    const own = await startHere({ folder, env });
    try {
      await work(own);
    } finally {
      await own.stop();
    }
  };
  const ask = (own: ServerHere, token: string) =>
    own.request("GET", "/v1/user", { token });
  let first = "";
  let second = "";
  let ended = "";
  try {
    await running(old, async (own) => {
      first = await own.signIn();
      ended = await own.signIn();
      const { jti } = decoded(partsOf(ended)[1]);
      await own.request("DELETE", `/v1/authorizations/${jti}`, {
        token: first,
      });
      assert.ok(first.endsWith(`.${hmac(first.replace(/\.[^.]*$/, ""), old)}`));
    });
    await running(`${fresh},${old}`, async (own) => {
      assert.equal((await ask(own, first)).status, 200);
      assertError(await ask(own, ended), 40104);
      second = await own.signIn();
      const input = second.replace(/\.[^.]*$/, "");
      assert.ok(second.endsWith(`.${hmac(input, fresh)}`));
      const [kid, other] = [first, second].map((token) =>
        decoded(partsOf(token)[0])["kid"]
      );
      assert.notEqual(kid, other);
      // The right secret with the id of the other one.
      const [header] = partsOf(first);
      const [, claims] = partsOf(second);
      const crossed = `${header}.${claims}`;
      assertError(
        await ask(own, `${crossed}.${hmac(crossed, fresh)}`),
        40102,
      );
    });
    await running(fresh, async (own) => {
      assertError(await ask(own, first), 40102);
      assert.equal((await ask(own, second)).status, 200);
    });
  } finally {
    await removeFolder(folder);
  }
});

test("no response, log line or export shows a password, hash or token", async () => {
  const folder = await temporaryFolder();
  const own = await startHere({ folder, env: { LOG: "debug" } });
  const secrets = [1, 2, 3, 4, 5].map((n) => `unmistakable-${n}-password`);
  const [first = "", second = "", third = "", fourth = "", fifth = ""] =
    secrets;
  const texts: string[] = [];
  const ask = async (method: string, path: string, init: RequestOptions) => {
    const answer = await own.request(method, path, init);
    texts.push(answer.text, JSON.stringify([...answer.headers]));
    return answer;
  };
  try {
    const token = await own.signIn();
    const user = { username: "shy", role: "keeper", password: first };
    const made = await ask("POST", "/v1/users", { token, json: user });
    const path = `/v1/users/${made.body.id}`;
    await ask("POST", "/v1/users", { token, json: user });
    await ask("POST", "/v1/users", { token, raw: JSON.stringify(user) });
    await ask("PATCH", path, { token, json: { password: second } });
    await ask("PATCH", path, { token, json: { password: [third] } });
    await ask("PATCH", path, { token, json: { password: third, role: "x" } });
    await ask("PATCH", path, {
      token,
      raw: `{"password": "${third}", "role": }`,
      headers: { "content-type": "application/json" },
    });
    for (const password of [fourth, fifth]) {
      await ask("POST", "/v1/authorizations", {
        json: { username: "shy", password },
      });
    }
    const theirs = await own.signIn("shy", second);
    for (const address of ["/v1/users", path, "/v1/user"]) {
      await ask("GET", address, { token });
      await ask("OPTIONS", address, { token });
    }
    await ask("GET", "/v1/user", { token: theirs.slice(0, -3) });
    await ask("GET", "/v1/authorizations", { token: theirs });
    await own.stop();
    for (const collection of ["users", "authorizations"]) {
      const result = await runHere([
        "export",
        collection,
        "--data-dir",
        folder,
      ]);
      texts.push(result.stdout, result.stderr);
    }
    texts.push((await runHere(["user", "list", "--data-dir", folder])).stdout);
    texts.push(own.output());
    const words = [
      adminPassword,
      jwtSecret,
      ...secrets,
      ...[token, theirs].map((one) => partsOf(one)[2].slice(0, 40)),
    ];
    for (const text of texts) {
      for (const word of words) assert.equal(text.includes(word), false, text);
      assert.doesNotMatch(text, /scrypt|"(hash|salt)"/i);
    }
  } finally {
    await own.stop();
    await removeFolder(folder);
  }
});
