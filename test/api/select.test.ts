/** What a list shows, with all features and with none: with sorted indexes and without. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import process from "node:process";
import { describe, test, type TestContext } from "node:test";
import { featureNames } from "../../src/features.ts";
import type { Document, Mutation } from "../../src/store/store.ts";
import { heldFiles, type Running, startApplication } from "../application.ts";
import { commit } from "../commit.ts";

const names = [
  "Zoë",
  "ab",
  "Ab",
  "\u{1F993}",
  "\u{1F993}b",
  "\uFFFD",
  "\u{10400}",
  "a",
  "b c",
  "ÄB",
  "b\u{10400}",
];
/** Random queries; more in the whole check. */
const rounds = process.env["WHOLE"] === "1" ? 150 : 25;
const kinds = ["Equus", null, "equus"];

/** Returns a reproducible generator of random integers below a limit (a linear congruential generator). */
function numbers(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor(state / 2 ** 32 * below);
  };
}

function animal(id: number, below: (end: number) => number): Document {
  const at = new Date(below(1000)).toISOString();
  return {
    id,
    zoo_id: 1 + below(3),
    animal_type_id: 1 + below(5),
    name: names[below(names.length)] ?? "",
    species: kinds[below(kinds.length)] ?? null,
    sex: below(2) ? "female" : "unknown",
    born_on: null,
    weight_kg: below(3) ? below(40) / 2 + 0.5 : null,
    created_at: at,
    updated_at: at,
  };
}

function zoos(): Mutation[] {
  const at = new Date(0).toISOString();
  const others = {
    city: "Bern",
    country: "CH",
    created_at: at,
    updated_at: at,
  };
  return [1, 2, 3].map((
    id,
  ) => ["put", "zoos", { id, name: `Zoo ${id}`, ...others }]);
}

/** Compares two values as the contract does. */
function compare(a: unknown, b: unknown): number {
  if (typeof a === "string" && typeof b === "string") {
    // The bytes of UTF-8 are ordered as the code points are.
    return Buffer.compare(Buffer.from(a), Buffer.from(b));
  }
  return Number(a) - Number(b);
}

/** Returns the ids that a query must select, computed naively. */
function expected(
  all: readonly Document[],
  parameters: URLSearchParams,
): number[] {
  const names = (parameters.get("sortby") ?? "id").split(",");
  const words = (parameters.get("order") ?? "asc").split(",");
  const sort = names.map((name, at) => ({
    name,
    sign: (words.length > 1 ? words[at] : words[0]) === "desc" ? -1 : 1,
  }));
  sort.push({ name: "id", sign: sort.at(-1)?.sign ?? 1 });
  const conditions = Array.from(parameters, ([parameter, text]) => {
    const [name = "", operator = "eq"] = parameter.split(":");
    return { name, operator, text };
  });
  const found = all.filter((document) =>
    conditions.every(({ name, operator, text }) => {
      const value = document[name];
      if (value === undefined) return true; // no filter
      const numeric = typeof value === "number" || name === "weight_kg";
      const parse = (text: string) =>
        text === "null" ? null : numeric ? Number(text) : text;
      const operand = parse(text);
      if (operator === "eq") return value === operand;
      if (operator === "ne") return value !== operand;
      if (operator === "in") {
        return text.split(",").some((each) => parse(each) === value);
      }
      if (value === null) return false;
      const folded = [value, text].map((each) =>
        String(each).normalize("NFKC").toLowerCase().trim()
      );
      const [own = "", other = ""] = folded;
      if (operator === "contains") return own.includes(other);
      if (operator === "starts") return own.startsWith(other);
      const order = compare(value, operand);
      if (order === 0) return operator === "lte" || operator === "gte";
      return operator.startsWith(order < 0 ? "lt" : "gt");
    })
  );
  found.sort((a, b) => {
    for (const { name, sign } of sort) {
      const [left = null, right = null] = [a[name], b[name]];
      if (left === right) continue;
      if (left === null || right === null) return left === null ? 1 : -1;
      return sign * compare(left, right);
    }
    return 0;
  });
  return found.map(({ id }) => id);
}

/** Returns up to three random conditions, up to three sort properties and a page. */
function randomParameters(below: (end: number) => number): URLSearchParams {
  const name = () => names[below(names.length)] ?? "";
  const conditions = [
    ["zoo_id", `${1 + below(4)}`],
    ["animal_type_id", `${1 + below(5)}`],
    ["animal_type_id:in", `${1 + below(5)},${1 + below(5)}`],
    ["name", name()],
    ["name:ne", name()],
    ["name:in", `${name()},${name()}`],
    ["name:lt", name()],
    ["name:lte", name()],
    ["name:gt", name()],
    ["name:gte", name()],
    ["name:contains", ["B", "\u{1F993}", " C", "ë"][below(4)] ?? ""],
    ["name:starts", [...name()][0] ?? ""],
    ["name:starts", name().toUpperCase()],
    ["species", below(2) ? "null" : "equus"],
    ["species:ne", below(2) ? "null" : "equus"],
    ["species:in", below(2) ? "null" : "null,Equus"],
    ["species:contains", "QUUS"],
    ["species:starts", "eQ"],
    ["weight_kg:gte", `${below(20)}`],
    ["weight_kg:lt", `${below(20)}`],
    ["weight_kg:lte", `${below(20)}.5`],
    ["weight_kg:gt", `${below(20)}.5`],
    ["weight_kg", below(2) ? "null" : `${below(10)}.5`],
    ["id:gt", `${below(2000)}`],
    ["id:lte", `${1 + below(2000)}`],
  ];
  const parameters = new URLSearchParams();
  for (let count = below(4); count > 0; count--) {
    const [name = "", value = ""] = conditions[below(conditions.length)] ?? [];
    parameters.set(name, value);
  }
  const orders = ["name", "species", "weight_kg", "zoo_id", "id", "species"];
  const by = new Set<string>();
  for (let count = below(4); count > 0; count--) {
    by.add(orders[below(orders.length)] ?? "id");
  }
  if (by.size > 0) parameters.set("sortby", [...by].join());
  const direction = () => below(2) ? "asc" : "desc";
  if (below(2)) parameters.set("order", direction());
  else if (by.size > 0) parameters.set("order", [...by].map(direction).join());
  parameters.set("limit", `${1 + below(100)}`);
  parameters.set("offset", below(3) ? `${below(300)}` : `${below(2000)}`);
  return parameters;
}

function query(parameters: URLSearchParams): string {
  return [...parameters].map(([name, value]) =>
    `${name}=${encodeURIComponent(value)}`
  ).join("&");
}

for (const [title, features] of [["all", featureNames], ["no", []]] as const) {
  describe(`with ${title} features`, () => defineTests(features));
}

function defineTests(features: readonly string[]): void {
  const start = async (
    t: TestContext,
    options: Parameters<typeof startApplication>[0] = {},
  ): Promise<Running> => {
    const running = await startApplication({ ...options, features });
    t.after(() => running.stop());
    return running;
  };

  test("random queries return the same as a naive search, while records change", async (t) => {
    const running = await start(t);
    const { store } = running;
    const below = numbers(4);
    const records = new Map<number, Document>();
    for (let id = 1; id <= 2500; id++) records.set(id, animal(id, below));
    const puts = Array.from(
      records.values(),
      (document): Mutation => ["put", "animals", document],
    );
    await commit(store, [...zoos(), ...puts], 1);
    for (let round = 0; round < rounds; round++) {
      const parameters = randomParameters(below);
      const zooId = below(3) ? undefined : 1 + below(3);
      const path = zooId === undefined ? "animals" : `zoos/${zooId}/animals`;
      const url = `/v1/${path}?${query(parameters)}`;
      let isAnswered = false;
      const responding = running.request("GET", url).then((response) => {
        isAnswered = true;
        return response;
      });
      const states = [[...records.values()]];
      while (!isAnswered) {
        const id = 1 + below(2600);
        const document = animal(id, below);
        if (below(4)) records.set(id, document);
        else records.delete(id);
        states.push([...records.values()]);
        await commit(store, [
          records.has(id)
            ? ["put", "animals", document]
            : ["del", "animals", id],
        ], 1);
      }
      const response = await responding;
      assert.equal(response.status, 200, response.text);
      const offset = Number(parameters.get("offset"));
      const end = offset + Number(parameters.get("limit"));
      const got = JSON.stringify([
        response.headers.get("x-total-count"),
        response.body.map(({ id }: { id: number }) => id),
      ]);
      // The response shows one of the states between request and response.
      const isPossible = states.some((all) => {
        const ids = expected(
          all.filter(({ zoo_id }) => zooId === undefined || zoo_id === zooId),
          parameters,
        );
        return got ===
          JSON.stringify([`${ids.length}`, ids.slice(offset, end)]);
      });
      assert.ok(isPossible, `${url}: ${got}`);
    }
  });

  test("a text is found by its first letters, whatever follows them", async (t) => {
    const running = await start(t);
    const below = numbers(11);
    const ends = ["", " x", "\uFFFD", "\u{10400}", "\u{10FFFF}\u{10FFFF}", "Ä"];
    const puts = Array.from({ length: 2000 }, (_, place): Mutation => {
      const name = `${place % 35 ? "Other" : "Bär"}${ends[place % 6]}`;
      return ["put", "animals", { ...animal(place + 1, below), name }];
    });
    await commit(running.store, [...zoos(), ...puts], 1);
    const all = puts.map(([, , document]) => document as Document);
    for (const beginning of ["b", "BÄR", "bär ", "bär\uFFFD", "bär\u{10400}"]) {
      for (const sortby of ["id", "name", "weight_kg"]) {
        const parameters = new URLSearchParams({
          "name:starts": beginning,
          "weight_kg:gt": "1",
          sortby,
        });
        const response = await running.request(
          "GET",
          `/v1/animals?${query(parameters)}`,
        );
        const ids = response.body.map(({ id }: { id: number }) => id);
        assert.ok(ids.length > 0);
        assert.deepEqual(ids, expected(all, parameters).slice(0, 20));
      }
    }
  });

  test("a text is found by its first letters and by parts of it, with either form of sigma", async (t) => {
    const running = await start(t);
    const below = numbers(12);
    const greek = ["\u0391\u03a3", "\u03b1\u03c2", "\u03b1\u03c3\u0391"];
    const name = (place: number) => greek[place - 1000] ?? "Other";
    const puts = Array.from(
      { length: 2000 },
      (_, place): Mutation => [
        "put",
        "animals",
        { ...animal(place + 1, below), name: name(place) },
      ],
    );
    await commit(running.store, [...zoos(), ...puts], 1);
    for (const text of greek.slice(0, 2)) {
      for (const operator of ["starts", "contains"]) {
        const response = await running.request(
          "GET",
          `/v1/animals?name:${operator}=${encodeURIComponent(text)}`,
        );
        const ids = response.body.map(({ id }: { id: number }) => id);
        assert.deepEqual(ids, [1001, 1002, 1003], `${operator} ${text}`);
      }
    }
  });

  test("the total and the rows of a scan are a consistent snapshot, whatever is written during it", async (t) => {
    const running = await start(t);
    const { store } = running;
    const below = numbers(5);
    // At any time ten animals are marked: each write moves one of the marks.
    const put = (id: number, name: string): Mutation => [
      "put",
      "animals",
      { ...animal(id, below), name },
    ];
    const count = 20_000;
    const mutations = [];
    const marked = new Set<number>();
    for (let id = 1; id <= count; id++) {
      const mark = id % (count / 10) === 0;
      if (mark) marked.add(id);
      mutations.push(put(id, mark ? "marked" : "plain"));
    }
    await commit(store, [...zoos(), ...mutations], 1);
    let writing = true;
    let writes = 0;
    const writer = async () => {
      while (writing) {
        const [from = 0] = marked;
        const to = 1 + below(count);
        if (marked.has(to)) continue;
        marked.delete(from);
        marked.add(to);
        const gone: Mutation = below(2)
          ? put(from, "plain")
          : ["del", "animals", from];
        await commit(store, [gone, put(to, "marked")], 1);
        writes++;
      }
    };
    const written = writer();
    const orders = ["sortby=name", "sortby=weight_kg&order=desc", "order=desc"];
    for (let round = 0; round < 9; round++) {
      const order = orders[round % orders.length];
      const response = await running.request(
        "GET",
        `/v1/animals?name:contains=ARKE&limit=100&${order}`,
      );
      assert.equal(response.status, 200);
      assert.equal(response.headers.get("x-total-count"), "10");
      assert.equal(response.body.length, 10);
      for (const { name } of response.body) assert.equal(name, "marked");
    }
    // An index that is built meanwhile must not miss any of the writes either.
    const response = await running.request(
      "GET",
      "/v1/animals?name=marked&sortby=updated_at&limit=100",
    );
    assert.equal(response.headers.get("x-total-count"), "10");
    assert.equal(response.body.length, 10);
    writing = false;
    await written;
    assert.ok(writes > 0);
  });

  const skip = features.length === 0 &&
    "only the feature indexes waits for others";

  test("other requests are handled during a scan", { skip }, async (t) => {
    const running = await start(t);
    const below = numbers(6);
    const puts = Array.from(
      { length: 30_000 },
      (_, place): Mutation => ["put", "animals", animal(place + 1, below)],
    );
    await commit(running.store, [...zoos(), ...puts], 1);
    const order: string[] = [];
    const scans = Promise.all(
      ["a", "b"].map(async (text) => {
        const path = `/v1/animals?name:contains=${text}&sortby=weight_kg`;
        const response = await running.request("GET", path);
        order.push(`scan of ${response.status}`);
      }),
    );
    const response = await running.request("GET", "/v1/zoos/1");
    order.push(`record of ${response.status}`);
    await scans;
    assert.deepEqual(order, ["record of 200", "scan of 200", "scan of 200"]);
  });

  test("a scan returns only durable records", async (t) => {
    const { files, hold } = heldFiles();
    const running = await start(t, { files });
    const { store } = running;
    const below = numbers(7);
    const puts = Array.from(
      { length: 3000 },
      (_, place): Mutation => ["put", "animals", animal(place + 1, below)],
    );
    await commit(store, [...zoos(), ...puts], 1);
    const release = hold();
    const last: Document = { ...animal(9000, below), name: "the newest" };
    const written = commit(store, [["put", "animals", last]], 1);
    let isAnswered = false;
    const scan = running.request("GET", "/v1/animals?name:contains=newest")
      .then((response) => {
        isAnswered = true;
        return response;
      });
    // Requests that need no disk are answered; the earlier scan has long finished.
    for (let turn = 0; turn < 20; turn++) {
      await running.request("GET", "/v1/zoos/1");
    }
    assert.equal(isAnswered, false);
    release();
    await written;
    const response = await scan;
    assert.equal(response.headers.get("x-total-count"), "1");
    assert.equal(response.body[0]?.id, 9000);
  });

  test("a zoo that is deleted during a scan of its animals is gone", async (t) => {
    const running = await start(t);
    const below = numbers(8);
    const puts = Array.from({ length: 20_000 }, (_, place): Mutation => [
      "put",
      "animals",
      { ...animal(place + 1, below), zoo_id: 2 },
    ]);
    await commit(running.store, [...zoos(), ...puts], 1);
    const path = "/v1/zoos/2/animals?name:contains=a&sortby=name";
    const scan = running.request("GET", path);
    const removed = running.request("DELETE", "/v1/zoos/2?cascade=true", {
      token: running.token,
    });
    const [response] = await Promise.all([scan, removed]);
    // All of them or none, whichever request came first.
    if (response.status === 410) assert.equal(response.body.errorCode, 41000);
    else assert.equal(response.body.length, 20);
  });

  test("more sort orders than the cache holds indexes for are all served correctly", async (t) => {
    const running = await start(t);
    const below = numbers(9);
    const puts = Array.from(
      { length: 1200 },
      (_, place): Mutation => ["put", "animals", animal(place + 1, below)],
    );
    await commit(running.store, [...zoos(), ...puts], 1);
    const all = puts.map(([, , document]) => document as Document);
    const conditions = ["zoo_id=1", "sex=female", "species=null", "x"];
    const orders = ["name", "weight_kg", "sex,name", "sex,name&order=desc,asc"];
    await Promise.all(
      [...conditions, ...conditions].flatMap((condition) =>
        orders.map(async (by) => {
          const parameters = new URLSearchParams(
            `sortby=${by}&limit=50${condition === "x" ? "" : `&${condition}`}`,
          );
          const response = await running.request(
            "GET",
            `/v1/animals?${query(parameters)}`,
          );
          const ids = response.body.map(({ id }: { id: number }) => id);
          assert.deepEqual(ids, expected(all, parameters).slice(0, 50));
        })
      ),
    );
  });
}
