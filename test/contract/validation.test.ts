/**
 * The content that a body may have: tables of invalid values of each property, of valid
 * ones at the limits, and of bodies that are not JSON objects. A refused
 * request leaves no trace.
 */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { after, before, describe, test } from "node:test";
import {
  type Answer,
  assertError,
  assertInvalid,
  exchange,
  type Server,
  start,
} from "../harness.ts";
import { seed } from "../seed.ts";

type Properties = Readonly<Record<string, unknown>>;

let server: Server;
let token: string;

before(async () => {
  server = await start({ seed });
  token = await server.signIn();
});

after(() => server.stop());

/**
 * A complete collection, and the number of its records. The response shows that
 * the server is alive.
 */
async function state(path: string): Promise<string> {
  const [collection = ""] = /^\/v1\/\w+/.exec(path) ?? [];
  const answer = await server.request("GET", collection, { token });
  assert.equal(answer.status, 200, answer.text);
  return `${answer.headers.get("x-total-count")} ${answer.text}`;
}

/** How a body is sent. */
interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Sends a body, JSON by default, and asserts that it changed nothing. */
async function refused(
  raw: string | Uint8Array,
  { method = "POST", path = "/v1/zoos", headers = {} }: Sent = {},
): Promise<Answer> {
  const before = await state(path);
  const answer = await server.request(method, path, {
    token,
    raw,
    headers: { "content-type": "application/json", ...headers },
  });
  assert.ok(answer.status >= 400, `${answer.status} ${answer.text}`);
  assert.equal(await state(path), before);
  return answer;
}

const long = (length: number) => "x".repeat(length);

/** 64 characters, the at sign, and a domain that fills up the rest. */
const email = (length: number) =>
  `${long(64)}@${long(63)}.${long(63)}.${long(length - 196)}.de`;

/** A value as it is spelled in the body, for what JSON.stringify cannot produce. */
class Raw {
  readonly text: string;
  constructor(text: string) {
    this.text = text;
  }
}

/** The JSON of an object, with raw values as they are. */
function json(properties: Properties): string {
  const members = Object.entries(properties)
    .filter(([, value]) => value !== undefined)
    .map(([name, value]) => {
      const text = value instanceof Raw ? value.text : JSON.stringify(value);
      return `${JSON.stringify(name)}:${text}`;
    });
  return `{${members.join()}}`;
}

/** Invalid values by their code; `undefined` omits the property. */
type Wrong = Readonly<Record<string, readonly unknown[]>>;

const text: Wrong = {
  type: [1, true, ["a"], { a: "a" }],
  length: ["", " \u3000 ", long(101), "🦒".repeat(101)],
  "": [
    ...["a\u0000b", "a\nb", "a\u007Fb", "a\u0085b"],
    ...[new Raw('"\\ud800"'), new Raw('"a\\udc00\\ud800"')],
  ],
};

const requiredText: Wrong = {
  ...text,
  required: [undefined],
  type: [1, null, true, ["a"], { a: "a" }],
};

const date: Wrong = {
  type: [20230101, false],
  "length|format": [""],
  format: [
    ...["2023-02-29", "1900-02-29", "2023-04-31", "2023-13-01", "2023-00-10"],
    ...["2023-01-00", "2023-1-1", "20230101", "2023-01-01 ", "٢٠٢٣-01-01"],
    "2023-01-01T00:00:00Z",
  ],
};

const number: Wrong = {
  required: [undefined],
  type: [null, "1", true, [1]],
  "type|range": [1.5],
  range: [0, -1, 2 ** 53, new Raw("1e400"), new Raw("-1e400")],
};

const zooId: Wrong = { ...number, reference: [9_000_000] };

/** The values at the limits that a collection accepts, and those that it refuses, by property. */
interface Rules {
  readonly base: Properties;
  readonly right: Readonly<Record<string, readonly unknown[]>>;
  readonly wrong: Readonly<Record<string, Wrong>>;
}

const website = (length: number) => `https://zoo.example/${long(length - 20)}`;

const collections: Readonly<Record<string, Rules>> = {
  zoos: {
    base: { name: "Zoo", city: "Ghent", country: "BE" },
    right: {
      name: ["x", long(100), "🦒".repeat(100), " Zoo "],
      country: ["ZZ"],
      opened_on: ["2000-02-29", "2024-02-29", "1844-08-01", null],
      website: ["http://zoo.example", website(2_000), null],
    },
    wrong: {
      name: requiredText,
      city: requiredText,
      country: {
        required: [undefined],
        type: [null, 49],
        format: ["be", "Be", "B1", "ÄÖ"],
        "format|length": ["B", "BEL"],
      },
      opened_on: date,
      website: {
        type: [5],
        format: [
          ...["zoo.example", "/visit", "ftp://zoo.example/", "https://"],
          ...["javascript:alert(1)", "http:///zoo.example"],
        ],
        length: [website(2_001)],
      },
    },
  },
  animals: {
    base: { zoo_id: 1, animal_type_id: 3, name: "Ada" },
    right: {
      animal_type_id: [1, 2 ** 53 - 1, new Raw("1.0"), new Raw("1e2")],
      species: ["x", long(100), null],
      sex: ["female", "male", "unknown"],
      weight_kg: [200_000, 0.001, new Raw("5e-324"), null],
    },
    wrong: {
      zoo_id: zooId,
      animal_type_id: number,
      name: requiredText,
      species: text,
      sex: {
        type: [null],
        "type|enum": [1],
        enum: ["other", "Female"],
        "enum|length": [""],
      },
      born_on: date,
      weight_kg: {
        type: ["5"],
        range: [0, new Raw("-0.0"), -1, 200_000.01, new Raw("1e400")],
      },
    },
  },
  employees: {
    base: { zoo_id: 1, name: "Bo", job_title: "Keeper", email: "bo@a.example" },
    right: {
      email: [email(254), "b.o+zoo@a-b.example"],
      hired_on: ["2016-02-29", null],
    },
    wrong: {
      zoo_id: zooId,
      name: requiredText,
      job_title: requiredText,
      email: {
        required: [undefined],
        type: [null, 5],
        format: ["bo", "bo@", "@a.example", "b o@a.example", "b@o@a.example"],
        length: [email(255)],
        unique: ["Eva@a.example", "eVA@A.EXAMPLE"],
      },
      hired_on: date,
    },
  },
  users: {
    base: { username: "carol", password: "0123456789" },
    right: {
      username: ["a1", `0${long(31)}`, "a._-"],
      role: ["keeper"],
      password: [long(128)],
    },
    wrong: {
      username: {
        required: [undefined],
        type: [null, 5],
        "format|length": ["a", long(33)],
        format: ["Carol", "-carol", "car ol", "carol\n"],
        unique: ["admin"],
      },
      role: { type: [null], "type|enum": [1], enum: ["root"] },
      password: {
        required: [undefined],
        type: [null, 1234567890],
        length: [long(9), long(129), "🦒".repeat(9)],
      },
    },
  },
};

for (const [name, { base, right, wrong }] of Object.entries(collections)) {
  const path = `/v1/${name}`;
  describe(`a record of ${name}`, () => {
    for (const [property, byCode] of Object.entries(wrong)) {
      const cases = Object.entries(byCode).flatMap(([code, values]) =>
        values.map((value) => ({ value, expected: { [property]: code } }))
      );

      test(`is refused for a wrong ${property}`, async () => {
        for (const { value, expected } of cases) {
          const raw = json({ ...base, [property]: value });
          assertInvalid(await refused(raw, { path }), expected);
        }
      });

      test(`cannot be changed to a wrong ${property}`, async () => {
        const sent = { method: "PATCH", path: `${path}/1` };
        for (const { value, expected } of cases) {
          // The value that the record already has is not that of another one.
          if (value === undefined || expected[property] === "unique") continue;
          assertInvalid(
            await refused(json({ [property]: value }), sent),
            expected,
          );
        }
      });
    }

    for (const [property, values] of Object.entries(right)) {
      test(`accepts ${property} up to its limits, as it was sent`, async () => {
        for (const value of values) {
          const answer = await server.request("POST", path, {
            token,
            raw: json({ ...base, [property]: value }),
            headers: { "content-type": "application/json" },
          });
          assert.equal(answer.status, 201, answer.text);
          assert.equal(answer.text.includes("password"), false);
          const kept = value instanceof Raw ? Number(value.text) : value;
          if (property !== "password") {
            assert.equal(answer.body[property], kept);
          }
          const { url } = answer.body;
          const gone = await server.request("DELETE", url, { token });
          assert.equal(gone.status, 204, gone.text);
        }
      });
    }

    test("is refused with all missing properties at once", async () => {
      const needed = Object.entries(wrong)
        .filter(([, byCode]) => byCode.required)
        .map(([property]) => [property, "required"]);
      const expected = Object.fromEntries(needed);
      assertInvalid(await refused("{}", { path }), expected);
      const put = { method: "PUT", path: `${path}/1` };
      // A password is required only when the user is created.
      if (name !== "users") assertInvalid(await refused("{}", put), expected);
    });
  });
}

describe("an e-mail address", () => {
  const person = { zoo_id: 1, name: "Bo", job_title: "Vet" };

  test("is unique, however it is written", async () => {
    const path = "/v1/employees";
    const own = { ...person, email: "Own@a.example" };
    const made = await server.request("POST", path, { token, json: own });
    assert.equal(made.status, 201, made.text);
    const { url } = made.body;
    const raw = json({ ...person, email: "EVA@a.example" });
    for (const method of ["PUT", "PATCH"]) {
      const answer = await refused(raw, { method, path: url });
      assertInvalid(answer, { email: "unique" });
    }
    const changed = { ...person, email: "own@A.example" };
    const put = await server.request("PUT", url, { token, json: changed });
    assert.equal(put.status, 201, put.text);
    assert.equal(put.body.email, "own@A.example");

    const gone = await server.request("DELETE", url, { token });
    assert.equal(gone.status, 204, gone.text);
    const again = await server.request("POST", path, { token, json: own });
    assert.equal(again.status, 201, again.text);
    await server.request("DELETE", again.body.url, { token });
  });
});

describe("an object", () => {
  const valid = { name: "Zoo", city: "Ghent", country: "BE" };

  test("is refused with all invalid properties at once", async () => {
    const wrong = {
      name: 5,
      city: "",
      country: "be",
      opened_on: "2023-02-29",
      website: "zoo.example",
      foo: 1,
      bar: null,
    };
    assertInvalid(await refused(json(wrong)), {
      name: "type",
      city: "length",
      country: "format",
      opened_on: "format",
      website: "format",
      foo: "unknown",
      bar: "unknown",
    });
  });

  for (
    const name of [
      "foo",
      "Name",
      "foo_url",
      "zoo_url",
      "__proto__",
      "constructor",
      "prototype",
      "toString",
      "hasOwnProperty",
      "password",
      "",
    ]
  ) {
    test(`has no property "${name}", not even a null`, async () => {
      const members = json(valid).slice(1);
      for (const value of ["1", "null", json(valid)]) {
        const raw = `{"${name}":${value},${members}`;
        for (const method of ["POST", "PUT", "PATCH"]) {
          const path = method === "POST" ? "/v1/zoos" : "/v1/zoos/1";
          const answer = await refused(raw, { method, path });
          assertInvalid(answer, { [name]: "unknown" });
        }
      }
    });
  }

  test("may not name __proto__ or constructor", async () => {
    for (const name of ["__proto__", "constructor"]) {
      const answer = await refused(`{"${name}":${json(valid)}}`);
      assert.equal(answer.status, 422, answer.text);
      const fields = answer.body.errors.map((one: { field: string }) =>
        one.field
      );
      assert.deepEqual(fields.sort(), [name, "city", "country", "name"].sort());
    }
  });

  test("may hold the same name in two different objects", async () => {
    const raw = '{"a":{"x":1},"b":[{"x":1},{"x":1}],"c":"\\",\\"c\\":1"}';
    const answer = await refused(raw, { method: "PATCH", path: "/v1/zoos/1" });
    assertInvalid(answer, { a: "unknown", b: "unknown", c: "unknown" });
  });

  for (
    const [what, raw] of [
      ["twice", '{"name":"a","name":"b"}'],
      ["twice with one value", '{"name":"a","city":"b","name":"a"}'],
      ["in two spellings", '{"name":"a","n\\u0061me":"b"}'],
      ["twice within", '{"name":{"a":1,"a":2}}'],
      ["twice within a list", '{"name":[{},[{"a":1,"b":2,"a":3}]]}'],
      ["twice where it is a prototype's", '{"__proto__":1,"__proto__":1}'],
      ["twice though empty", '{"":1,"":2}'],
    ] as const
  ) {
    test(`cannot have a property ${what}`, async () => {
      for (const method of ["POST", "PUT", "PATCH"]) {
        const path = method === "POST" ? "/v1/zoos" : "/v1/zoos/1";
        assertError(await refused(raw, { method, path }), 40001);
      }
    });
  }
});

describe("a body", () => {
  const valid = '{"name":"Zoo","city":"Ghent","country":"BE"}';
  const bytes = (text: string) => Buffer.from(text, "latin1");
  const limit = 2 ** 16;

  for (
    const [what, raw] of [
      ["missing", ""],
      ["blank", " \n"],
      ["cut off", valid.slice(0, -1)],
      ["followed by more", valid + " x"],
      ["two objects", valid + valid],
      ["in single quotes", "{'name':'Zoo'}"],
      ["with a comma too many", '{"name":"Zoo",}'],
      ["with a comment", '{"name":"Zoo"/* */}'],
      ["with a number that JSON has not", '{"name":01}'],
      ["with NaN", '{"name":NaN}'],
      ["with a bare control character", '{"name":"a\nb"}'],
      ["with half an escape", '{"name":"\\u12"}'],
      ["behind a byte-order mark", "\uFEFF" + valid],
      ["in UTF-16", Buffer.from(valid, "utf16le")],
      ["with a byte that UTF-8 has not", bytes('{"name":"\xff"}')],
      ["with an overlong form", bytes('{"name":"\xc0\xaf"}')],
      ["with a surrogate as UTF-8", bytes('{"name":"\xed\xa0\x80"}')],
      ["with half a character", bytes('{"name":"\xe2\x82"}')],
      ["never closed", "[".repeat(60_000)],
    ] as const
  ) {
    test(`is refused ${what}`, async () => {
      assertError(await refused(raw), 40001);
    });
  }

  for (const raw of ["[]", "[5]", '"name"', "null", "5", "true"]) {
    test(`is an object, not ${raw}`, async () => {
      for (const method of ["POST", "PUT", "PATCH"]) {
        const path = method === "POST" ? "/v1/zoos" : "/v1/zoos/1";
        assertError(await refused(raw, { method, path }), 40002);
      }
    });
  }

  test("nested 10,000 deep is refused without harm", async () => {
    const nested = "[".repeat(10_000) + "]".repeat(10_000);
    const objects = '{"a":'.repeat(10_000) + "1" + "}".repeat(10_000);
    const list = await refused(nested);
    assert.equal(list.status, 400, list.text);
    for (const raw of [`{"name":${nested}}`, objects]) {
      const answer = await refused(raw);
      assert.ok([400, 422].includes(answer.status), answer.text);
      assert.equal(answer.body.error, answer.body.errorMsg);
    }
  });

  test("with half a surrogate pair as a name is refused", async () => {
    const answer = await refused('{"\\ud800":1}');
    assert.ok([400, 422].includes(answer.status), answer.text);
    assert.equal(answer.body.error, answer.body.errorMsg);
  });

  for (
    const type of [
      "text/plain",
      "text/json",
      "application/jsonx",
      "application/xml",
      "application/octet-stream",
      "application/x-www-form-urlencoded",
      ";application/json",
      "application/json; charset=iso-8859-1",
      'application/json; charset="utf-16"',
    ]
  ) {
    test(`is not accepted as ${type}`, async () => {
      for (const method of ["POST", "PUT", "PATCH"]) {
        const path = method === "POST" ? "/v1/zoos" : "/v1/zoos/1";
        const headers = { "content-type": type };
        const answer = await refused(valid, { method, path, headers });
        assertError(answer, 41500);
      }
    });
  }

  test("is not accepted without a media type", async () => {
    const before = await state("/v1/zoos");
    const raw = Buffer.from(valid); // fetch sends none for bytes
    const answer = await server.request("POST", "/v1/zoos", { token, raw });
    assert.ok([400, 415].includes(answer.status), answer.text);
    assert.equal(await state("/v1/zoos"), before);
  });

  test("that is missing is what is wrong, not its media type", async () => {
    const before = await state("/v1/zoos");
    for (const [method, path] of [["POST", "zoos"], ["PATCH", "zoos/1"]]) {
      const answer = await server.request(`${method}`, `/v1/${path}`, {
        token,
      });
      assertError(answer, 40001);
      assert.match(answer.body.errorMsg, /missing/);
    }
    assert.equal(await state("/v1/zoos"), before);
  });

  test("is not accepted in parts (RFC 9110 section 14.5)", async () => {
    for (const method of ["POST", "PUT", "PATCH"]) {
      const path = method === "POST" ? "/v1/zoos" : "/v1/zoos/1";
      const headers = { "content-range": "bytes 0-9/99" };
      const answer = await refused(valid, { method, path, headers });
      assertError(answer, 40000);
    }
  });

  test("is a merge patch for PATCH only", async () => {
    const headers = { "content-type": "application/merge-patch+json" };
    assertError(await refused(valid, { headers }), 41500);
    const put = { method: "PUT", path: "/v1/zoos/1", headers };
    assertError(await refused(valid, put), 41500);
  });

  for (const coding of ["gzip", "br", "deflate", "nope", "identity, gzip"]) {
    test(`is not accepted in the coding ${coding}`, async () => {
      const headers = { "content-encoding": coding };
      assertError(await refused(valid, { headers }), 41500);
    });
  }

  for (
    const [what, raw, headers] of [
      ["application/json", valid, {}],
      ["APPLICATION/JSON", valid, {}],
      ["application/json; charset=utf-8", valid, {}],
      ['application/json;charset="UTF-8"', valid, {}],
      ["application/json", valid, { "content-encoding": "identity" }],
      ["application/json", valid, { "content-encoding": "Identity" }],
      ["application/json", valid, { "content-encoding": "" }],
      ["application/json", valid, { "content-encoding": ", identity," }],
      ["application/json", valid.padEnd(limit), {}],
      ["application/json", ` \r\n\t${valid}\n`, {}],
    ] as const
  ) {
    const more = Object.values(headers).join();
    test(`of ${raw.length} bytes is accepted as ${what} ${more}`, async () => {
      const answer = await server.request("POST", "/v1/zoos", {
        token,
        raw,
        headers: { "content-type": what, ...headers },
      });
      assert.equal(answer.status, 201, answer.text);
      const { url } = answer.body;
      const gone = await server.request("DELETE", url, { token });
      assert.equal(gone.status, 204, gone.text);
    });
  }

  test("of more than 64 KiB is too large", async () => {
    assertError(await refused(valid.padEnd(limit + 1)), 41300);
  });

  test("is too large in chunks too", async () => {
    const before = await state("/v1/zoos");
    const head = [
      "POST /v1/zoos HTTP/1.1",
      "Host: a.example",
      "Connection: close",
      `Authorization: Bearer ${token}`,
      "Content-Type: application/json",
      "Transfer-Encoding: chunked",
    ].join("\r\n");
    const size = (limit + 1).toString(16);
    const chunk = `${size}\r\n${valid.padEnd(limit + 1)}\r\n0\r\n\r\n`;
    const received = await exchange(server.port, `${head}\r\n\r\n${chunk}`);
    assert.match(received, /^HTTP\/1\.1 413 /);
    assert.match(received, /"errorCode":\s*41300\b/);
    assert.equal(await state("/v1/zoos"), before);
  });
});
