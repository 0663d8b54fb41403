/** Mistakes in a declaration file: all are reported at once, each with its place and what is allowed. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { findMistakes } from "../../src/cli/declaration/mistakes.ts";
import { vocabulary } from "../../src/cli/declaration/checked-vocabulary.ts";

/** The vocabulary as plain JavaScript sees it: each function takes any arguments. */
const words = vocabulary as unknown as Readonly<
  Record<
    keyof typeof vocabulary | "maybe" | "table" | "prose",
    (...values: readonly unknown[]) => object
  >
>;
const {
  boolean,
  choice,
  collection,
  date,
  email,
  integer,
  number,
  optional,
  reference,
  string,
  table,
  prose,
  timestamp,
  unique,
  url,
} = words;

/** The mistakes in whatever the function of a declaration file returns. */
function mistakesInApi(returned: unknown): readonly string[] {
  return findMistakes(returned as Parameters<typeof findMistakes>[0]);
}

const access = { read: "anyone", write: "keeper", delete: "admin" };

/** Declares a collection with these properties; other options override its own. */
function declare(name: string, properties: object, options: object = {}) {
  const singular = `one of ${name}`;
  return collection({ name, singular, access, properties, ...options });
}

function mistakesOf(...collections: readonly unknown[]): readonly string[] {
  return mistakesInApi({ collections });
}

/** The mistakes in one property of a collection. */
function mistakesIn(property: unknown, name = "pages"): readonly string[] {
  return mistakesOf(declare("books", { [name]: property }));
}

test("arguments that say nothing are no mistake", () => {
  const options = { maxLength: 9 };
  assert.deepEqual(mistakesIn(string(options, undefined)), []);
  assert.deepEqual(mistakesOf(...[plain].map(collection)), []);
});

test("a property cannot be changed once it is made, and a class is no check", () => {
  const name = string({ maxLength: 9 });
  assert.throws(() => Object.assign(name, { check: () => undefined }), {
    name: "TypeError",
  });
  const check = class {};
  assert.deepEqual(
    mistakesOf(declare("books", { name }, { check })),
    [
      "books: check is [class check]: it must be a function that is not async",
    ],
  );
});

test("how long records are kept is a number of days from one of their dates", () => {
  const properties = { at: timestamp(), name: string({ maxLength: 9 }) };
  const withKeep = (keep: unknown) =>
    mistakesOf(declare("books", properties, { keep }));
  for (const keep of [{ days: 1 }, { days: 36_500, by: "at" }]) {
    assert.deepEqual(withKeep(keep), []);
  }
  for (
    const keep of [
      90,
      null,
      {},
      { days: 0 },
      { days: 1.5 },
      { days: "9" },
      { days: 9, by: "name" },
      { days: 9, by: "updated" },
      { days: 9, hours: 1 },
    ]
  ) {
    const [mistake = "", ...others] = withKeep(keep);
    assert.deepEqual(others, []);
    assert.match(
      mistake,
      /^books: keep is .*: it must be an object such as \{ days: 90, by: "at" \}/,
    );
  }
});

test("a declaration without mistakes has none", () => {
  const authors = declare("authors", {
    name: string({ maxLength: 9 }),
    born_on: optional(date()),
    mentor_id: optional(reference("authors", { as: "pupils" })),
  });
  const books = declare("books", {
    author_id: reference("authors"),
    translator_id: optional(reference("authors", { as: "translations" })),
    isbn: unique(
      optional(string({ maxLength: 13, minLength: 13, pattern: /^\d+$/u })),
    ),
    genre: optional(choice("novel", "poetry"), "novel"),
    pages: integer({ minimum: 1, maximum: 1 }),
    price: number({ exclusiveMinimum: 0, maximum: 0.5 }),
    is_lent: unique(boolean()),
    at: timestamp(),
    email: email(),
    home: url(),
  }, {
    unique: [["author_id", "pages"], ["isbn"]],
    sort: ["genre", "id", "created_at"],
    check: () => undefined,
  });
  const api = { title: "Ünï", roles: ["keeper", "admin"] };
  assert.deepEqual(
    mistakesInApi({ ...api, collections: [authors, books] }),
    [],
  );
});

const properties: Readonly<Record<string, readonly [unknown, RegExp]>> = {
  "an unknown word": [
    prose(),
    /^prose is not a word .*one of collection, string/,
  ],
  "an unknown word around a property": [words.maybe(date()), /^maybe is not a/],
  "a word that is not called": [
    string,
    /^\[Function: string\] is not a property: it must be one such as date\(\)/,
  ],
  "a word that is not called in another": [
    optional(email),
    /^\[Function: email\] is not a property: it must be one such as date\(\)/,
  ],
  "no property": [5, /^5 is not a property: it must be one such as date\(\)$/],
  "undefined": [undefined, /^undefined is not a property/],
  "nothing in another": [optional(), /^undefined is not a property/],
  "nothing that is unique": [unique(), /^undefined is not a property/],
  "an object": [{ type: "string" }, /^\{ type: 'string' \} is not a property/],
  "a property within no property": [unique(7), /^7 is not a property/],
  "an unknown option": [
    string({ maxLength: 9, maxlength: 9 }),
    /^maxlength is not an option of string: .* one of minLength, maxLength, /,
  ],
  "a second argument": [
    string({ maxLength: 9 }, { unique: true }),
    /^string is also given \{ unique: true \}: it takes 1 argument$/,
  ],
  "a second argument beside a former name": [
    integer({ minimum: 1, renamed: "sheets" }, { maximum: 5 }),
    /^integer is also given \{ maximum: 5 \}: it takes 1 argument$/,
  ],
  "a second argument of a word without options": [
    unique(date(), true),
    /^unique is also given true: it takes 1 argument$/,
  ],
  "a third argument": [
    optional(date(), null, { unique: true }),
    /^optional is also given \{ unique: true \}: it takes 2 arguments$/,
  ],
  "an option of a word without any": [
    date({ minimum: 1 }),
    /^minimum is not an option of date: it must be one of renamed$/,
  ],
  "a number for options": [
    integer(5),
    /^the options of integer are 5: .* minimum, /,
  ],
  "no maxLength": [string({}), /^maxLength is missing: .* integer from 1/],
  "maxLength zero": [string({ maxLength: 0 }), /^maxLength is 0: it must be/],
  "maxLength as text": [string({ maxLength: "9" }), /^maxLength is "9": it/],
  "a fraction as minLength": [
    string({ minLength: 0.5, maxLength: 9 }),
    /^minLength is 0.5: it must be an integer from 0 up to 9$/,
  ],
  "minLength above maxLength": [
    string({ minLength: 5, maxLength: 2 }),
    /^minLength is 5: it must be an integer from 0 up to 2$/,
  ],
  "a maxLength that no memory holds": [
    string({ minLength: 1e9, maxLength: 1e9 }),
    /^maxLength is 1000000000: it must be an integer from 1 up to 10000000$/,
  ],
  "limits between which there is nothing": [
    integer({ exclusiveMinimum: 5, maximum: 5 }),
    /^exclusiveMinimum is 5: it must be a number below 5$/,
  ],
  "a pattern as text": [
    string({ maxLength: 9, pattern: "^a" }),
    /^pattern is "\^a": it must be a regular expression/,
  ],
  "a pattern with state": [
    string({ maxLength: 9, pattern: /a/g }),
    /^pattern is \/a\/g: it must be a regular expression without flags other than u$/,
  ],
  "a pattern that JSON Schema cannot say": [
    string({ maxLength: 9, pattern: /a/i }),
    /^pattern is \/a\/i: /,
  ],
  "an empty description": [
    string({ maxLength: 9, description: "" }),
    /^description is "": it must be a string/,
  ],
  "minimum above maximum": [
    integer({ minimum: 5, maximum: 2 }),
    /^minimum is 5: it must be an integer up to 2$/,
  ],
  "exclusiveMinimum above maximum": [
    number({ exclusiveMinimum: 5, maximum: 4 }),
    /^exclusiveMinimum is 5: it must be a number below 4$/,
  ],
  "a fraction as bound of an integer": [
    integer({ minimum: 1.5 }),
    /^minimum is 1.5: it must be an integer/,
  ],
  "a bound that is not a number": [number({ maximum: NaN }), /^maximum is NaN/],
  "an empty choice": [
    choice(),
    /^choices is \[\]: .* list of different values/,
  ],
  "a choice twice": [
    choice("a", "a"),
    /^choices is \[ 'a', 'a' \]: it must be/,
  ],
  "a choice of numbers": [choice(1, 2), /^choices is \[ 1, 2 \]: .* a string/],
  "a default that is refused": [
    optional(string({ maxLength: 3 }), "too long"),
    /^default is "too long": it must be a string of 1 to 3 characters$/,
  ],
  "a default that does not match": [
    optional(string({ maxLength: 3, pattern: /^a/ }), "b"),
    /^default is "b": it must be a string of 1 to 3 characters that matches \/\^a\/$/,
  ],
  "a default that is no choice": [
    optional(choice("a", "b"), "c"),
    /^default is "c": it must be one of "a", "b"$/,
  ],
  "the default of a wrong property": [
    optional(string({}), "x"),
    /^maxLength is missing/,
  ],
  "a former name that no property can have": [
    date({ renamed: "A b" }),
    /^renamed is "A b": it must be 1 to 100 lower-case letters, /,
  ],
  "the former name of another": [
    integer({ minimum: 1, renamed: "pages" }),
    /^renamed is "pages": .* none of .*, pages$/,
  ],
  "a former name beside a mistake": [
    choice(1, { renamed: "size" }),
    /^choices is \[ 1 \]: it must be a list of different values/,
  ],
  "optional twice": [
    optional(optional(date())),
    /^optional\(…\) is used twice/,
  ],
  "an object like a property": [
    { schema: {} },
    /^\{ schema: {} \} is not a prop/,
  ],
  "a unique property with a default": [
    optional(unique(date()), "2020-01-01"),
    /^default is "2020-01-01": a reference or unique property has none$/,
  ],
  "a property with a default that is unique": [
    unique(optional(date(), "2020-01-01")),
    /^default is "2020-01-01": a reference or unique property has none$/,
  ],
  "options for a word without any": [
    date("2020"),
    /^the options of date are "2020": they must be an object with any of renamed$/,
  ],
  "the vocabulary": [words, /is not a property/],
};

describe("one line reports a property that is declared as", () => {
  for (const [title, [property, message]] of Object.entries(properties)) {
    test(title, () => {
      const [line = "", ...others] = mistakesIn(property);
      assert.deepEqual(others, []);
      assert.match(line, /^books\.pages: /);
      assert.match(line.slice("books.pages: ".length), message);
      assert.doesNotMatch(line, /\n/);
    });
  }
});

test("each property that cannot have its name is reported", () => {
  const names = ["Title", "home_url", "page", "id", "constructor", "a b", "7"];
  for (const name of [...names, "cascade", "link", "_a"]) {
    const [line = "", ...others] = mistakesIn(date(), name);
    assert.deepEqual(others, []);
    const start = `books.${name}: name is ${JSON.stringify(name)}: it must be `;
    assert.ok(line.startsWith(start), line);
  }
});

const plain = declare("authors", {});

const collections: Readonly<
  Record<string, readonly [readonly unknown[], readonly RegExp[]]>
> = {
  "no collection": [[], [/^collections is \[\]: .* one or more collections$/]],
  "an unknown word for a collection": [[table({})], [
    /^collections\[0\]: table is not a word/,
  ]],
  "a collection that is not called": [[plain, collection], [
    /^collections\[1\]: the options of collection are \[Function.* name, /,
  ]],
  "a collection without options": [[collection(), collection("x"), null], [
    /^collections\[0\]: the options of collection are undefined: .* name, /,
    /^collections\[1\]: the options of collection are "x": /,
    /^collections\[2\]: the options of collection are null: /,
  ]],
  "a collection with options that it does not read": [
    [collection({ ...plain, singular: "" }, { private: true })],
    [
      /^authors: a second argument is not an option of collection: .* private,/,
      /^authors: singular is "": /,
    ],
  ],
  "a collection without anything": [[collection({})], [
    /^collections\[0\]: name is missing: .* none of answers, authorizations/,
    /^collections\[0\]: singular is missing: /,
    /^collections\[0\]: access is missing: it must be a plain object$/,
    /^collections\[0\]: properties is missing: it must be a plain object$/,
  ]],
  "what is not a collection": [[date()], [
    /^collections\[0\]: it is not a collection\(…\)$/,
  ]],
  "a collection without a name": [
    [declare("", { title: date() }), declare("books", {})],
    [/^collections\[0\]: name is "": it must be 1 to 100 lower-case letters, /],
  ],
  "properties that are no plain object": [
    [
      declare("books", new Map([["title", date()]])),
      declare("authors", { [Symbol("title")]: date() }),
      declare("shelves", Object.create(date())),
    ],
    ["books", "authors", "shelves"]
      .map((name) =>
        new RegExp(`^${name}: properties is .*: it must be a plain object$`)
      ),
  ],
  "more properties than a body has names": [
    [declare(
      "books",
      Object.fromEntries(
        Array.from({ length: 901 }, (_, at) => [`p${at}`, date()]),
      ),
    )],
    [/^books: it has 901 properties: at most 900 are allowed$/],
  ],
  "malformed and reserved names": [
    [
      "Books",
      "7books",
      "users",
      "events",
      "answers",
      "constructor",
      "openapi",
      "current_user",
      "documentation",
    ].map((
      name,
    ) => declare(name, {}, { singular: name.toLowerCase().slice(0, -1) + "e" }))
      .toSpliced(1, 1),
    [
      /^Books: name is "Books": /,
      /^users: name is "users": /,
      /^events: name is "events": /,
      /^answers: name is "answers": /,
      /^constructor: name is "constructor": /,
      /^openapi: name is "openapi": /,
      /^current_user: name is "current_user": /,
      /^documentation: name is "documentation": /,
    ],
  ],
  "a name and a singular twice": [[plain, plain], [
    /^authors: name is "authors": it must be .*, authors$/,
    /^authors: singular is "one of authors": it must be a noun/,
  ]],
  "former names that are reserved, declared or taken": [
    [
      declare("books", { a: date({ renamed: "created_at" }) }, {
        renamed: "authorizations",
      }),
      declare("films", { a: date() }, { renamed: "books" }),
      declare("plays", { a: date() }, { renamed: "dramas" }),
      declare("songs", { a: date() }, { renamed: "dramas" }),
    ],
    [
      /^books: renamed is "authorizations": .*none of answers, authorizations, /,
      /^books\.a: renamed is "created_at": .*none of id, created_at, /,
      /^films: renamed is "books": .*, books, films, plays, songs, authorizations$/,
      /^songs: renamed is "dramas": .*, dramas$/,
    ],
  ],
  "two properties with one former name": [
    [declare("books", {
      a: date({ renamed: "old" }),
      b: date(),
      c: date({ renamed: "old" }),
    })],
    [/^books\.c: renamed is "old": .*, a, b, c, old$/],
  ],
  "unknown options": [
    [declare("books", {}, { immutable: true, propertys: {}, renamed: 5 })],
    [
      /^books: immutable is not an option of collection: it must be one of name/,
      /^books: propertys is not an option of collection/,
      /^books: renamed is 5: it must be 1 to 100 lower-case letters, /,
    ],
  ],
  "access of unknown roles": [
    [declare("books", {}, { access: { read: "anybody", write: "keeper" } })],
    [
      /^books\.access: read is "anybody": .* one of "anyone", "viewer", "keeper", "admin"$/,
      /^books\.access: delete is missing: it must be one of "anyone"/,
    ],
  ],
  "access by an unknown name": [
    [declare("books", {}, { access: { ...access, remove: "admin" } })],
    [/^books\.access: remove is not an option of access: .* read, write, delete$/],
  ],
  "private records that anyone may read": [
    [declare("books", {}, { private: true })],
    [/^books\.access: read is "anyone": it must be one of "viewer", /],
  ],
  "private records with an owner of their own": [
    [
      declare("books", { owner_id: date() }, {
        access: { ...access, read: "viewer" },
        private: true,
      }),
      declare("pets", { owner_id: optional(reference("books")) }),
    ],
    [/^books\.owner_id: name is "owner_id": .*none of id, .*, owner_id/],
  ],
  "groups and orders of unknown properties": [
    [declare("books", { a: date() }, {
      unique: [["a", "x"]],
      sort: ["y"],
      check: 5,
      private: 1,
    })],
    [
      /^books: unique is \[ \[ 'a', 'x' \] \]: .* each one of "a"$/,
      /^books: sort is \[ 'y' \]: .* each one of "a", "id", "created_at"/,
      /^books: private is 1: it must be true or false$/,
      /^books: check is 5: it must be a function that is not async$/,
      /^books\.access: read is "anyone"/,
    ],
  ],
  "a check that is async": [
    [declare("books", {}, { check: async () => {} })],
    [/^books: check is \[AsyncFunction: check\]: it must be a function that/],
  ],
  "a reference to an unknown collection": [
    [plain, declare("books", { author_id: reference("author") })],
    [/^books\.author_id: collection is "author": .* one of "authors", "books"$/],
  ],
  "a reference without a name for it": [
    [
      plain,
      declare("books", {
        a_id: reference(),
        b_id: reference("authors", { as: "B" }),
      }),
    ],
    [/^books\.a_id: collection is missing/, /^books\.b_id: as is "B": it must/],
  ],
  "a reference with text for options": [
    [plain, declare("books", { author_id: reference("authors", "works") })],
    [/^books\.author_id: the options of reference are "works": .* any of /],
  ],
  "a group of no properties": [
    [declare("books", {}, { unique: [["a"]] })],
    [/^books: unique is .*, each a property, of which there are none$/],
  ],
  "a reference with a wrong name": [
    [plain, declare("books", { author: reference("authors") })],
    [/^books\.author: name is "author": it must be a name that ends in "_id", /],
  ],
  "a reference with a default": [
    [plain, declare("books", { author_id: optional(reference("authors"), 7) })],
    [/^books\.author_id: default is 7: a reference or unique property has none$/],
  ],
  "required references in circles": [
    [
      declare("a", { a_id: reference("a"), b_id: reference("b") }),
      declare("b", { c_id: reference("c") }),
      declare("c", { a_id: reference("a", { as: "others" }) }),
      declare("d", { a_id: reference("a"), d_id: optional(reference("d")) }),
    ],
    [
      /^a\.a_id: required references lead from a back to a: .* optional/,
      /^a\.b_id: required references lead from b back to a: /,
      /^a: two references give it the property a_url: /,
      /^b\.c_id: required references lead from c back to b: /,
      /^c\.a_id: required references lead from a back to c: /,
      /^d: two references give it the property d_url: /,
    ],
  ],
  "two references that share a name": [
    [
      plain,
      declare("books", {
        author_id: reference("authors"),
        translator_id: reference("authors"),
      }),
    ],
    [/^authors: two references give it the property books_url: .*\{ as: "…" \}/],
  ],
};

describe("every mistake is reported in", () => {
  for (const [title, [declared, messages]] of Object.entries(collections)) {
    test(title, () => {
      const lines = mistakesOf(...declared);
      assert.equal(lines.length, messages.length, lines.join("\n"));
      for (const [index, message] of messages.entries()) {
        assert.match(lines[index] ?? "", message);
      }
    });
  }
});

test("private records require a role that does not see those of all users", () => {
  const access = { read: "user", write: "user", delete: "user" };
  const of = (isPrivate: boolean, ...roles: string[]) => {
    const collections = [
      declare("books", {}, { access, private: isPrivate }),
    ];
    return mistakesInApi({ roles, collections });
  };
  const [mistake = "", ...others] = of(true, "user");
  assert.match(mistake, /^books: private is true: it must be false, unless/);
  assert.deepEqual(others, []);
  assert.deepEqual(of(false, "user"), []);
  assert.deepEqual(of(true, "user", "admin"), []);
});

test("missing access is reported even if the roles are wrong", () => {
  const books = declare("books", {}, { access: { read: "boss", write: "" } });
  const lines = mistakesInApi({ roles: [], collections: [books] });
  assert.match(lines[0] ?? "", /^roles is \[\]/);
  assert.deepEqual(lines.slice(1), [
    'books.access: write is "": it must be one of the roles',
    "books.access: delete is missing: it must be one of the roles",
  ]);
});

test("a value of any kind is a mistake of its option, also where others are compared with it", () => {
  const arrow = () => {};
  const values = [Symbol("x"), Object.create(null), 5n, arrow, class A {}];
  const options = [
    ...["name", "singular", "access", "properties", "unique", "sort"],
    ...["private", "renamed", "check", "keep"],
  ];
  for (const value of values) {
    for (const option of options) {
      if (option === "check" && value === arrow) continue;
      const odd = declare("books", {
        author_id: reference("authors"),
      }, { [option]: value });
      for (const all of [[odd, plain], [plain, odd]]) {
        const lines = mistakesOf(...all);
        const isReported = (line: string) => line.includes(`: ${option} is `);
        assert.ok(lines.some(isReported), `${option}: ${lines.join("\n")}`);
      }
    }
    for (const option of ["title", "roles", "collections"]) {
      const lines = mistakesInApi({ collections: [plain], [option]: value });
      assert.ok(lines[0]?.startsWith(`${option} is `), lines.join("\n"));
    }
    const words = { renamed: value, description: value, pattern: value };
    for (const [option, odd] of Object.entries(words)) {
      const lines = mistakesIn(string({ maxLength: 9, [option]: odd }));
      assert.match(lines.join("\n"), new RegExp(`: ${option} is `));
    }
    assert.match(mistakesIn(choice(value)).join("\n"), /choices is /);
    assert.match(mistakesIn(reference(value), "a_id").join("\n"), /ion is /);
  }
});

test("wrong titles and roles are reported, and access is not compared with them", () => {
  const odd = declare("books", {}, { access: { ...access, write: "boss" } });
  for (const title of ["", 5, "a\nb", "x".repeat(101)]) {
    const lines = mistakesInApi({ title, collections: [plain] });
    assert.match(
      lines.join("\n"),
      /^the API|^title is .*: it must be 1 to 100 characters, not blank/,
    );
  }
  for (const roles of [[], ["a", "a"], ["A"], ["anyone"], "admin", [1]]) {
    const lines = mistakesInApi({ roles, collections: [odd] });
    assert.equal(lines.length, 1, lines.join("\n"));
    assert.match(
      lines[0] ?? "",
      /^roles is .*: it must be a list of different/,
    );
  }
  const others = mistakesInApi({ name: "x", collections: [plain] });
  assert.deepEqual(others, [
    "name is not an option of the returned API: it must be one of title, roles, collections",
  ]);
  for (const returned of [undefined, null, 5, []]) {
    assert.match(
      mistakesInApi(returned).join("\n"),
      /^the options of the returned API are .* title, roles, collections$/,
    );
  }
});
