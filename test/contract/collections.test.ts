/**
 * The responses of a collection to its parameters, compared with a model in
 * plain arrays: there are sixty animals, and for every query the expected ids
 * are computed here.
 */

import assert from "node:assert/strict";
import { Buffer } from "node:buffer";
import { after, before, describe, test } from "node:test";
import { type Answer, assertError, type Server, start } from "../harness.ts";
import { featureNames } from "../../src/features.ts";

interface Animal {
  readonly id: number;
  readonly zoo_id: number;
  readonly animal_type_id: number;
  readonly name: string;
  readonly species: string | null;
  readonly sex: string;
  readonly born_on: string | null;
  readonly weight_kg: number | null;
  readonly created_at: string;
  readonly updated_at: string;
}

// U+1D400 and the emoji are above U+FF5E as code points, and below it as
// UTF-16 code units.
const names = [
  "Lion",
  "lion",
  "LIONESS",
  "Big Cat",
  "Big+Cat",
  "C+E",
  "C E",
  "C+E again",
  "Fish & Chips",
  "Salt & Pepper",
  "100% Bear",
  "50% Bear = half",
  "null",
  "\u{1F981} Leo",
  "\u{FF5E}wave",
  "\u{1D400}bold",
  "\u{E000}private",
  "\u{C9}lan",
  "\u{E9}lan",
  "e\u{301}lan",
  "Zebra",
  "#1?",
  "semi;colon",
  "123",
  "~tilde",
  "\u{65E5}\u{672C}",
];
const species = [
  "Panthera leo",
  "panthera LEO",
  null,
  "Ursus arctos",
  "\u{C9}quus",
  "\u{1F40E} astral",
  "\u{FF5E} fullwidth",
  null,
  "Ursus",
];
const sexes = ["female", "male", "unknown"];
const births = ["2020-02-29", null, "1999-12-31", "2021-01-01", "2020-02-29"];
const weights = [0.5, 12.25, null, 200000, 9, 100, 12.25, null, 30, 4.75, 1e5];

const seeds = Array.from({ length: 60 }, (_, index) => ({
  id: index + 1,
  zoo_id: index % 3 + 1,
  animal_type_id: index % 4 + 1,
  name: names[(index * 7) % 60] ?? `Animal ${index}`,
  species: species[index % species.length] ?? null,
  sex: sexes[(index * 5 + Math.floor(index / 3)) % 3] ?? "unknown",
  born_on: births[index % births.length] ?? null,
  weight_kg: weights[index % weights.length] ?? null,
}));
const zoos = ["Basel", "Bern", "Zoo without website", "Empty"].map((
  name,
  index,
) => ({
  id: index + 1,
  name,
  city: "City",
  country: index === 0 ? "CH" : "DE",
  opened_on: index === 1 ? null : `190${index}-05-06`,
  website: index === 2 ? null : `https://zoo${index}.example.com/`,
}));

let server: Server;
let token: string;
let animals: readonly Animal[];

before(async () => {
  server = await start({
    seed: {
      zoos,
      animals: seeds,
      employees: ["ann@example.com", "Bob@example.com"].map((email, index) => ({
        id: index + 1,
        zoo_id: 1,
        name: `Employee ${index}`,
        job_title: "Keeper",
        email,
      })),
    },
  });
  token = await server.signIn();
  const weighed = new Map<number, number>();
  for (const id of [3, 31, 17]) { // so that times differ from record to record
    const changed = await server.request("PATCH", `/v1/animals/${id}`, {
      token,
      json: { weight_kg: id },
    });
    assert.equal(changed.status, 201, changed.text);
    weighed.set(id, id);
  }
  const all = await server.request("GET", "/v1/animals?limit=100");
  assert.equal(all.body?.length, 60, all.text);
  animals = seeds.map((seed, index) => ({
    ...seed,
    weight_kg: weighed.get(seed.id) ?? seed.weight_kg,
    created_at: all.body[index]?.created_at ?? "",
    updated_at: all.body[index]?.updated_at ?? "",
  }));
});

after(() => server.stop());

/** The order of two strings by their code points. */
function compareStrings(a: string, b: string): number {
  const left = Array.from(a, (letter) => letter.codePointAt(0) ?? 0);
  const right = Array.from(b, (letter) => letter.codePointAt(0) ?? 0);
  for (const [index, point] of left.entries()) {
    const other = right[index];
    if (other === undefined) return 1;
    if (point !== other) return point - other;
  }
  return left.length - right.length;
}

/** The animals by one property: null last always, ties by id. */
function sorted(
  list: readonly Animal[],
  key: keyof Animal,
  descending: boolean,
): Animal[] {
  return sortedBy(list, [[key, descending], ["id", descending]]);
}

/** The animals by several properties, each ascending or descending, with null last. */
function sortedBy(
  list: readonly Animal[],
  keys: readonly [keyof Animal, descending: boolean][],
): Animal[] {
  return [...list].sort((a, b) => {
    for (const [key, descending] of keys) {
      const [left, right] = [a[key], b[key]];
      if (left === right) continue;
      if (left === null) return 1;
      if (right === null) return -1;
      const order = typeof left === "number"
        ? left - Number(right)
        : compareStrings(left, String(right));
      return descending ? -order : order;
    }
    return 0;
  });
}

function ids(list: readonly { readonly id: number }[]): number[] {
  return list.map((record) => record.id);
}

function get(path: string): Promise<Answer> {
  return server.request("GET", path, { token });
}

/** Returns whether an animal matches one condition such as `weight_kg:lt=9`. */
function matches(animal: Animal, condition: string): boolean {
  const [left = "", text = ""] = condition.split("=").map(decodeURIComponent);
  const [name = "", operator = "eq"] = left.split(":");
  const found = Object.entries(animal).find(([key]) => key === name);
  const actual: string | number | null = found?.[1] ?? null;
  const nullable = ["species", "born_on", "weight_kg"].includes(name);
  const numeric = /id$|_kg$/.test(name);
  const wanted = (item: string) =>
    nullable && item === "null" ? null : numeric ? Number(item) : item;
  let order = NaN; // null satisfies no comparison
  if (typeof actual === "number") order = actual - Number(text);
  if (typeof actual === "string") order = compareStrings(actual, text);
  switch (operator) {
    case "eq":
      return actual === wanted(text);
    case "ne":
      return actual !== wanted(text);
    case "in":
      return text.split(",").some((item) => actual === wanted(item));
    case "lt":
      return order < 0;
    case "lte":
      return order <= 0;
    case "gt":
      return order > 0;
    case "gte":
      return order >= 0;
    case "contains":
      return actual !== null && fold(actual).includes(fold(text));
    default:
      assert.equal(operator, "starts");
      return actual !== null && fold(actual).startsWith(fold(text));
  }
}

/** Folds a text of the samples, of which none needs the full case folding. */
function fold(text: unknown): string {
  return String(text).normalize("NFKC").toLowerCase().trim();
}

describe("filters", () => {
  const e = encodeURIComponent;
  const queries: [about: string, queries: string][] = [
    [
      "ids and whole numbers",
      `id=7 id:ne=7 id:lt=5 id:lte=5 id:gt=9 id:gte=9 id:in=3,59,4,1000
      zoo_id=2 zoo_id=4 zoo_id=9007199254740991 zoo_id:gte=2 zoo_id:in=1,3
      animal_type_id=3 animal_type_id:gt=2`,
    ],
    [
      "numbers and null",
      `weight_kg=12.25 weight_kg=null weight_kg:ne=12.25 weight_kg:ne=null
      weight_kg:lt=9 weight_kg:lte=9 weight_kg:gt=12.25 weight_kg:gte=12.25
      weight_kg:in=9,null,0.5 weight_kg:in=9`,
    ],
    [
      "dates and null",
      `born_on=2020-02-29 born_on=null born_on:ne=2020-02-29 born_on:ne=null
      born_on:lt=2020-02-29 born_on:lte=2020-02-29 born_on:gt=2020-02-29
      born_on:gte=2020-02-29 born_on:in=1999-12-31,null`,
    ],
    ["enumerations", "sex=male sex:ne=male sex:in=male,unknown sex:in=female"],
    [
      "strings and null",
      `species=null species:ne=null species=Panthera%20leo
      species:ne=Panthera%20leo species:in=null,Ursus species:in=Ursus
      species:contains=LEO species:starts=ursus species:gte=Ursus
      species:lt=Ursus`,
    ],
    [
      "strings by the letter",
      `name=Lion name:ne=Lion name=null name=123 name= name:ne=
      name:contains= name:starts= name:in=Lion,lion,nobody name:contains=.*
      name=${e("\u{E9}lan")} name=${e("e\u{301}lan")}`,
    ],
    [
      "a plus sign, a space and other signs",
      `name=Big%20Cat name=Big+Cat name=C%2BE name=C%20E name:starts=C+E
      name=Fish%20%26%20Chips name=${e("50% Bear = half")} name=%231%3F
      name=semi%3Bcolon name=semi;colon name%3Acontains=bear`,
    ],
    [
      "strings without case",
      `name:contains=LION name:starts=aNiMaL%201 name:starts=${e("\u{C9}LA")}
      name:contains=${e("\u{1F981}")}`,
    ],
    [
      "strings by code point",
      `name:gt=${e("\u{FF5E}zzz")} name:lt=${e("\u{FF5E}")}
      name:gte=${e("\u{1D400}")} name:lte=Lion name:gte=lion`,
    ],
    [
      "several conditions at once",
      `weight_kg:gt=5&weight_kg:lt=50&sex=female&species:ne=null
      name:ne=Lion&name:contains=lion`,
    ],
  ];
  for (const [about, list] of queries) {
    test(`keep exactly what matches: ${about}`, async () => {
      for (const query of list.split(/\s+/)) {
        const answer = await get(`/v1/animals?limit=100&${query}`);
        assert.equal(answer.status, 200, `${query}: ${answer.text}`);
        const expected = animals.filter((animal) =>
          query.split("&").every((condition) => matches(animal, condition))
        );
        assert.deepEqual(ids(answer.body), ids(expected), query);
        assert.equal(
          answer.headers.get("x-total-count"),
          String(expected.length),
        );
      }
    });
  }

  test("times are compared by every operator that applies to them", async () => {
    for (const key of ["created_at", "updated_at"] as const) {
      const pivot = animals[16]?.[key] ?? "";
      for (const operator of ["", ":ne", ":lt", ":lte", ":gt", ":gte", ":in"]) {
        const condition = `${key}${operator}=${pivot}`;
        const answer = await get(`/v1/animals?limit=100&${condition}`);
        assert.equal(answer.status, 200, answer.text);
        const expected = animals.filter((animal) => matches(animal, condition));
        assert.deepEqual(ids(answer.body), ids(expected), condition);
      }
    }
  });

  for (
    const parameters of [
      "id:gt=40&id:lt=20",
      "weight_kg:gt=100&weight_kg:lt=50&sortby=weight_kg",
      "name:gte=M&name:lt=C&sortby=name",
    ]
  ) {
    test(`that contradict each other match nothing: ${parameters}`, async () => {
      for (const order of ["asc", "desc"]) {
        for (const offset of [0, 3]) {
          const query = `${parameters}&order=${order}&offset=${offset}`;
          const answer = await server.request("GET", `/v1/animals?${query}`);
          assert.deepEqual(answer.body, [], query);
          assert.equal(answer.headers.get("x-total-count"), "0");
        }
      }
    });
  }

  const skip = !featureNames.includes("negotiation");
  test("a list has at most a thousand values", { skip }, async () => {
    const query = (count: number) => {
      const ids = Array.from({ length: count - 2 }, (_, at) => 1e8 + at);
      return server.request("QUERY", "/v1/animals", {
        raw: `id:in=3,${ids.join()},2&fields=id`,
        headers: { "content-type": "application/x-www-form-urlencoded" },
      });
    };
    assert.deepEqual((await query(1000)).body, [{ id: 2 }, { id: 3 }]);
    const refused = await query(1001);
    assertError(refused, 40004);
  });

  test("other collections filter by the same rules", async () => {
    const cases: [string, number[]][] = [
      ["/v1/zoos?website=null", [3]],
      ["/v1/zoos?website=https://zoo1.example.com/", [2]],
      ["/v1/zoos?opened_on=null", [2]],
      ["/v1/zoos?opened_on:gt=1900-05-06", [3, 4]],
      ["/v1/zoos?country=CH", [1]],
      ["/v1/zoos?name:starts=b&sortby=name&order=desc", [2, 1]],
      ["/v1/employees?name=Employee%201", [2]],
      ["/v1/employees?hired_on=null&sortby=email", [2, 1]],
      ["/v1/users?role=admin", [1]],
      ["/v1/users?role=viewer", []],
      ["/v1/users?username:starts=ADM", [1]],
    ];
    for (const [path, expected] of cases) {
      const answer = await get(path);
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(ids(answer.body), expected, path);
    }
  });
});

describe("order", () => {
  const keys: (keyof Animal)[] = [
    "id",
    "zoo_id",
    "animal_type_id",
    "name",
    "species",
    "sex",
    "born_on",
    "weight_kg",
    "created_at",
    "updated_at",
  ];
  for (const key of keys) {
    test(`by ${key}: null last, ties by id in the same direction`, async () => {
      for (const order of ["", "&order=asc", "&order=desc"]) {
        const answer = await get(`/v1/animals?limit=100&sortby=${key}${order}`);
        assert.equal(answer.status, 200, answer.text);
        assert.deepEqual(
          ids(answer.body),
          ids(sorted(animals, key, order === "&order=desc")),
          `${key}${order}`,
        );
      }
    });
  }

  test("by several properties, each in its direction: null last in each, ties by id in that of the last", async () => {
    const several: [string, ...Parameters<typeof sortedBy>[1]][] = [
      ["sortby=species,weight_kg", ["species", false], ["weight_kg", false]],
      [
        "sortby=species,weight_kg&order=desc",
        ["species", true],
        ["weight_kg", true],
        ["id", true],
      ],
      [
        "sortby=species,sex&order=asc,desc",
        ["species", false],
        ["sex", true],
        ["id", true],
      ],
      [
        "sortby=weight_kg,born_on,sex&order=desc,desc,asc",
        ["weight_kg", true],
        ["born_on", true],
        ["sex", false],
      ],
      ["sortby=sex,id,name&order=asc,desc,asc", ["sex", false], ["id", true]],
    ];
    for (const [query, ...keys] of several) {
      for (const path of ["animals", "zoos/2/animals"]) {
        const scope = animals.filter(({ zoo_id }) =>
          path === "animals" || zoo_id === 2
        );
        const answer = await get(`/v1/${path}?limit=100&${query}`);
        const expected = ids(sortedBy(scope, [...keys, ["id", false]]));
        assert.deepEqual(ids(answer.body), expected, `${path}?${query}`);
      }
    }
  });

  test("order without sortby orders by id", async () => {
    const answer = await get("/v1/animals?order=desc&limit=3");
    assert.deepEqual(ids(answer.body), [60, 59, 58]);
  });

  test("a page is taken after filtering and sorting", async () => {
    const answer = await get(
      "/v1/animals?sex:ne=male&sortby=weight_kg&order=desc&limit=5&offset=8",
    );
    const females = animals.filter((animal) => animal.sex !== "male");
    assert.deepEqual(
      ids(answer.body),
      ids(sorted(females, "weight_kg", true)).slice(8, 13),
    );
    assert.equal(answer.headers.get("x-total-count"), String(females.length));
  });
});

describe("refused parameters", () => {
  const tables: [why: string, code: number, queries: string][] = [
    [
      "a value that does not fit",
      40004,
      `limit=0 limit=101 limit=-1 limit=1.5 limit=abc limit= limit=1e1
      limit=%205 limit=0x5 limit=null offset=-1 offset=1.5 offset=abc offset=
      page=0 page=-1 page=x page= per_page=0 per_page=101 order=up order=ASC
      order=&sortby=name sortby=foo sortby= sortby=url sortby=zoo_url
      sortby=link sortby=__proto__ sortby=toString sortby=name,foo
      sortby=name, sortby=name,sex,name sortby=name,Sex order=asc,desc
      order=asc,desc&sortby=name order=asc,up&sortby=name,sex
      order=asc,desc,asc&sortby=name,sex order=asc,&sortby=name,sex fields=foo fields=name,foo
      fields=constructor fields= id=abc id=1.5 id= id=null id:in=1,x id:in=
      zoo_id= zoo_id=null zoo_id:ne=null zoo_id:in=1,null animal_type_id=1.5
      sex=dog sex= sex=null sex:in=male,dog born_on=2021-02-29
      born_on=2021-2-9 born_on=yesterday born_on= born_on:in=2021-13-01
      weight_kg=abc weight_kg=NaN weight_kg=Infinity weight_kg=0x10 weight_kg=
      weight_kg=%2012 created_at=yesterday created_at=null`,
    ],
    [
      "an unknown or repeated parameter",
      40003,
      `foo=1 NAME=Lion link=x cascade=true __proto__=1 constructor=1
      toString=1 limit=1&limit=1 name=a&name=b name=a&%6eame=a
      weight_kg:gt=1&weight_kg:gt=1`,
    ],
    [
      "null, where values are compared by their order,",
      40004,
      ["lt", "lte", "gt", "gte"].map((operator) =>
        `id:${operator}=null weight_kg:${operator}=null
        born_on:${operator}=null species:${operator}=null`
      ).join(" "),
    ],
    [
      "an operator that does not exist or does not fit",
      40003,
      `foo:ne=1 name:like=x name:eq=x name:constructor=x limit:gt=5
      ${
        ["lt", "lte", "gt", "gte"].map((operator) => `sex:${operator}=male`)
          .join(" ")
      }
      ${
        ["contains", "starts"].map((operator) =>
          `id:${operator}=1 zoo_id:${operator}=1 animal_type_id:${operator}=1
          sex:${operator}=male born_on:${operator}=2020-02-29
          weight_kg:${operator}=9
          created_at:${operator}=2020-01-01T00:00:00.000Z`
        ).join(" ")
      }`,
    ],
  ];
  for (const [why, code, queries] of tables) {
    test(`${why} is 400 and named`, async () => {
      for (const query of queries.split(/\s+/)) {
        const name = /^\w+/.exec(query)?.[0] ?? "";
        const answer = await get(`/v1/animals?${query}`);
        assertError(answer, code, name);
      }
    });
  }

  test("both styles of paging at once are refused", async () => {
    for (
      const query of [
        "page=1&limit=5",
        "offset=5&page=1",
        "per_page=5&limit=5",
        "per_page=5&offset=0",
      ]
    ) {
      assertError(
        await get(`/v1/animals?${query}`),
        40003,
        /limit|offset|page/,
      );
    }
  });

  test("the message says what is allowed", async () => {
    const cases: [string, ...RegExp[]][] = [
      ["limit=101", /\b1\b/, /\b100\b/],
      ["per_page=0", /\b1\b/, /\b100\b/],
      ["order=up", /asc/, /desc/],
      ["sortby=foo", /name/, /weight_kg/],
      ["sortby=name,name", /different properties/],
      ["sortby=name&order=asc,desc", /one for each property/],
      ["sex=dog", /female/, /unknown/],
    ];
    for (const [query, ...words] of cases) {
      assertError(await get(`/v1/animals?${query}`), 40004, ...words);
    }
  });

  test("a password can be neither selected nor filtered nor sorted by", async () => {
    for (
      const query of ["password=x", "password:ne=x", "password:starts=x"]
    ) assertError(await get(`/v1/users?${query}`), 40003, "password");
    for (const query of ["sortby=password", "fields=password"]) {
      assertError(await get(`/v1/users?${query}`), 40004);
    }
  });

  test("credentials are required before parameters are validated", async () => {
    assertError(await server.request("GET", "/v1/employees?foo=1"), 40100);
  });
});

/** The targets of a Link field by their relation, as path and query. */
function targets(answer: Answer): Map<string, string> {
  const field = answer.headers.get("link") ?? "";
  const found = field.matchAll(/<([^>]*)>\s*;\s*rel="?(\w+)"?/g);
  return new Map(
    Array.from(found, ([, address = "", relation = ""]) => {
      assert.match(address, /^\/v1\//, "a path-absolute address");
      return [relation, address];
    }),
  );
}

/** The parameters of a URL, in which `+` is a plus sign. */
function parameters(address: string): Map<string, string> {
  const pairs = address.split("?")[1]?.split("&") ?? [];
  return new Map(pairs.map((pair) => {
    const [name = "", value = ""] = pair.split("=");
    return [decodeURIComponent(name), decodeURIComponent(value)];
  }));
}

describe("paging", () => {
  test("a page holds 20 records by default", async () => {
    for (const query of ["", "?", "?offset=0", "?page=1"]) {
      const answer = await get(`/v1/animals${query}`);
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(ids(answer.body), ids(animals.slice(0, 20)));
      assert.equal(answer.headers.get("x-total-count"), "60");
    }
    const third = await get("/v1/animals?page=3");
    assert.deepEqual(ids(third.body), ids(animals.slice(40)));
  });

  test("the bounds themselves are allowed", async () => {
    for (
      const [query, count] of [
        ["limit=1", 1],
        ["limit=100", 60],
        ["per_page=1", 1],
        ["per_page=100", 60],
        ["limit=60&offset=59", 1],
        ["limit=100&offset=60", 0],
        ["page=4", 0],
        ["page=1000000&per_page=100", 0],
        ["offset=1000000", 0],
      ] as const
    ) {
      const answer = await get(`/v1/animals?${query}`);
      assert.equal(answer.status, 200, answer.text);
      assert.equal(answer.body.length, count, query);
      assert.equal(answer.headers.get("x-total-count"), "60");
    }
  });

  const cases: [string, Record<string, string>][] = [
    ["limit=10", { first: "0", next: "10", last: "50" }],
    [
      "limit=10&offset=20",
      { first: "0", prev: "10", next: "30", last: "50" },
    ],
    ["limit=10&offset=50", { first: "0", prev: "40", last: "50" }],
    ["limit=40&offset=60", { first: "0", prev: "40", last: "40" }],
    ["limit=25&offset=61", { first: "0", prev: "50", last: "50" }],
    ["limit=10&offset=60", { first: "0", prev: "50", last: "50" }],
    ["limit=10&offset=5000", { first: "0", prev: "50", last: "50" }],
    ["limit=100", { first: "0", last: "0" }],
    ["limit=60&sortby=name&order=desc", { first: "0", last: "0" }],
    ["per_page=7&page=1", { first: "1", next: "2", last: "9" }],
    ["page=9&per_page=7", { first: "1", prev: "8", last: "9" }],
    ["per_page=7&page=5", { first: "1", prev: "4", next: "6", last: "9" }],
    ["per_page=7&page=10", { first: "1", prev: "9", last: "9" }],
    ["per_page=7&page=777", { first: "1", prev: "9", last: "9" }],
    ["page=2", { first: "1", prev: "1", next: "3", last: "3" }],
    [
      "limit=20&offset=20&sortby=species,name&order=asc,desc",
      { first: "0", prev: "0", next: "40", last: "40" },
    ],
    [
      "zoo_id=2&page=2&per_page=8&sortby=name&fields=id,name&sex:ne=male",
      { first: "1", prev: "1", last: "2" },
    ],
  ];
  for (const [query, expected] of cases) {
    test(`Link of ?${query} names the pages around it`, async () => {
      const answer = await get(`/v1/animals?${query}`);
      const links = targets(answer);
      assert.deepEqual(
        [...links.keys()].sort(),
        Object.keys(expected).sort(),
        String(answer.headers.get("link")),
      );
      const byPage = query.includes("page");
      const style = byPage ? ["page", "per_page"] : ["limit", "offset"];
      const position = byPage ? "page" : "offset";
      const asked = parameters(`?${query}`);
      for (const [relation, address] of links) {
        assert.equal(address.split("?")[0], "/v1/animals");
        const sent = parameters(address);
        assert.equal(
          sent.get(position) ?? (byPage ? "1" : "0"),
          expected[relation],
          relation,
        );
        for (const name of new Set([...asked.keys(), ...sent.keys()])) {
          if (name === position) continue;
          if (asked.has(name)) assert.equal(sent.get(name), asked.get(name));
          else assert.ok(style.includes(name), `${name} was not asked for`);
        }
      }
    });
  }

  test("nothing that matches has no Link", async () => {
    for (const query of ["name=nobody", "name=nobody&page=1", "zoo_id=4"]) {
      const answer = await get(`/v1/animals?${query}`);
      assert.equal(answer.status, 200);
      assert.deepEqual(answer.body, []);
      assert.equal(answer.headers.get("x-total-count"), "0");
      assert.equal(answer.headers.get("link"), null);
    }
  });

  test("no Link if one of its targets would pass 8 KiB", async () => {
    let path = "/v1/animals?limit=1&id:in=1";
    for (let id = 2; path.length < 8186; id++) {
      path += `,${id > 60 ? 9e15 + id : id}`;
    }
    const answer = await get(path);
    assert.equal(answer.status, 200, answer.text);
    assert.equal(answer.headers.get("x-total-count"), "60");
    assert.equal(answer.headers.get("link"), null);
  });

  const all = () => true;
  const walks: [string, (animal: Animal) => boolean, keyof Animal, boolean?][] =
    [
      ["animals", all, "id"],
      ["animals?limit=7", all, "id"],
      ["animals?per_page=7&order=desc", all, "id", true],
      ["animals?sortby=weight_kg&page=1&order=desc", all, "weight_kg", true],
      ["animals?limit=9&sortby=species", all, "species"],
      ["animals?limit=11&sortby=updated_at", all, "updated_at"],
      [
        "animals?species:in=null,Ursus&limit=4&sortby=name",
        (a) => a.species === null || a.species === "Ursus",
        "name",
      ],
      ["animals?limit=1&name:contains=+", (a) => a.name.includes("+"), "id"],
      ["animals?limit=1&name:contains=%26", (a) => a.name.includes("&"), "id"],
      ["animals?per_page=1&name:contains=%25", (a) => /%/.test(a.name), "id"],
      ["animals?limit=1&name:contains=%20c", (a) => /c/i.test(a.name), "id"],
      ["zoos/2/animals?limit=3", (a) => a.zoo_id === 2, "id"],
      ["zoos/2/animals?zoo_id=2&per_page=3", (a) => a.zoo_id === 2, "id"],
    ];
  for (const [path, keep, key, descending = false] of walks) {
    test(`the pages of /${path} hold each record exactly once`, async () => {
      const expected = ids(sorted(animals.filter(keep), key, descending));
      assert.ok(expected.length > 1, "a walk needs records");
      const forwards: number[] = [];
      const backwards: number[] = [];
      let last: string | undefined;
      let next: string | undefined = `/v1/${path}`;
      for (let pages = 0; next !== undefined && pages < 61; pages += 1) {
        const answer = await get(next);
        assert.equal(answer.status, 200, answer.text);
        assert.equal(
          answer.headers.get("x-total-count"),
          String(expected.length),
        );
        forwards.push(...ids(answer.body));
        const links = targets(answer);
        next = links.get("next");
        last = links.get("last");
        for (const address of links.values()) {
          assert.equal(address.split("?")[0], `/v1/${path.split("?")[0]}`);
        }
      }
      assert.deepEqual(forwards, expected);
      for (let pages = 0; last !== undefined && pages < 61; pages += 1) {
        const answer = await get(last);
        backwards.unshift(...ids(answer.body));
        last = targets(answer).get("prev");
      }
      assert.deepEqual(backwards, expected);
    });
  }
});

describe("sub-collections", () => {
  test("hold the zoo's own records, with their canonical URLs", async () => {
    const answer = await get("/v1/zoos/2/animals?limit=100&sortby=name");
    const own = animals.filter((animal) => animal.zoo_id === 2);
    assert.deepEqual(ids(answer.body), ids(sorted(own, "name", false)));
    assert.equal(answer.headers.get("x-total-count"), String(own.length));
    for (const animal of answer.body) {
      assert.equal(animal.url, `/v1/animals/${animal.id}`);
      assert.equal(animal.zoo_url, "/v1/zoos/2");
      assert.equal("link" in animal, false);
    }
  });

  test("take a zoo_id parameter, and another zoo's matches nothing", async () => {
    const own = ids(animals.filter((animal) => animal.zoo_id === 2));
    const cases: [string, number[]][] = [
      ["2/animals?limit=100&zoo_id=2", own],
      ["2/animals?limit=100&zoo_id:in=1,2", own],
      ["2/animals?limit=100&zoo_id:ne=1", own],
      ["2/animals?zoo_id=1", []],
      ["2/animals?zoo_id=999", []],
      ["2/animals?zoo_id:ne=2", []],
      ["4/animals", []],
      ["1/employees?fields=email", [1, 2]],
      ["2/employees", []],
    ];
    for (const [path, expected] of cases) {
      const answer = await get(`/v1/zoos/${path}`);
      assert.equal(answer.status, 200, answer.text);
      assert.deepEqual(ids(answer.body), expected, path);
      assert.equal(
        answer.headers.get("x-total-count"),
        String(expected.length),
      );
    }
    assertError(await get("/v1/zoos/2/animals?zoo_id=x"), 40004, "zoo_id");
    assertError(await get("/v1/zoos/2/animals?foo=1"), 40003, "foo");
  });
});

describe("fields", () => {
  const cases: [string, string[]][] = [
    ["name", ["id", "name"]],
    ["name,id", ["id", "name"]],
    ["id", ["id"]],
    ["zoo_url,sex", ["id", "sex", "zoo_url"]],
    ["url,created_at,weight_kg", ["created_at", "id", "url", "weight_kg"]],
  ];
  for (const [list, expected] of cases) {
    test(`?fields=${list} answers only these`, async () => {
      const whole = await get("/v1/animals/2");
      const part = await get(`/v1/animals?id=2&fields=${list}`);
      assert.equal(part.status, 200, part.text);
      assert.deepEqual(Object.keys(part.body[0] ?? {}).sort(), expected);
      const record = await get(`/v1/animals/2?fields=${list}`);
      assert.equal(record.status, 200, record.text);
      const { link: _link, ...properties } = record.body;
      assert.deepEqual(properties, part.body[0]);
      for (const key of expected) {
        assert.deepEqual(part.body[0]?.[key], whole.body[key]);
      }
    });
  }

  test("a record's URL has no other parameter", async () => {
    for (const query of ["limit=1", "name=Lion", "sortby=id", "cascade=true"]) {
      const name = query.split("=")[0] ?? "";
      assertError(await get(`/v1/animals/1?${query}`), 40003, name);
    }
    assertError(await get("/v1/animals/1?fields=foo"), 40004, "fields");
    assertError(await get("/v1/animals/1?fields=id&fields=foo"), 40004);
  });
});

test("HEAD of a collection has the headers of GET and no body", async () => {
  const path = "/v1/animals?limit=7&sex=male";
  const full = await get(path);
  const head = await server.request("HEAD", path, { token });
  assert.equal(head.status, 200);
  assert.equal(head.text, "");
  for (const name of ["x-total-count", "link", "content-type"]) {
    assert.ok(full.headers.get(name), name);
    assert.equal(head.headers.get(name), full.headers.get(name), name);
  }
  assert.equal(
    head.headers.get("content-length"),
    String(Buffer.byteLength(full.text)),
  );
});

test("a parameter on a write is refused and nothing is changed", async () => {
  const animal = {
    zoo_id: 1,
    animal_type_id: 1,
    name: "Written with a parameter",
  };
  const cases: [string, string, unknown, number][] = [
    ["POST", "/v1/animals?fields=name", animal, 40003],
    ["POST", "/v1/animals?limit=1", animal, 40003],
    ["POST", "/v1/zoos/1/animals?zoo_id=1", animal, 40003],
    ["PUT", "/v1/animals/1?foo=1", animal, 40003],
    ["PATCH", "/v1/animals/1?fields=name", { name: "New" }, 40003],
    ["DELETE", "/v1/animals/1?cascade=true", undefined, 40003],
    ["DELETE", "/v1/zoos/4?fields=id", undefined, 40003],
    ["DELETE", "/v1/zoos/4?cascade=yes", undefined, 40004],
    ["DELETE", "/v1/zoos/4?cascade=", undefined, 40004],
    ["DELETE", "/v1/zoos/4?cascade=1", undefined, 40004],
    [
      "DELETE",
      "/v1/zoos/4?cascade=true&cascade=true",
      undefined,
      40003,
    ],
    ["PATCH", "/v1/user?fields=id", { password: "long enough" }, 40003],
    [
      "POST",
      "/v1/authorizations?note=x",
      { username: "admin", password: "wrong" },
      40003,
    ],
  ];
  const before = await get("/v1/animals?limit=100");
  for (const [method, path, json, code] of cases) {
    const answer = await server.request(method, path, { token, json });
    assertError(answer, code);
  }
  const now = await get("/v1/animals?limit=100");
  assert.equal(now.text, before.text);
  assert.equal((await get("/v1/zoos")).headers.get("x-total-count"), "4");
  assert.equal((await get("/v1/user")).status, 200);
});
