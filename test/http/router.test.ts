import { strict as assert } from "node:assert";
import { test } from "node:test";
import { findRoute, parseTarget } from "../../src/http/router.ts";

const malformed = { name: "ApiError", code: 40000 };

test("a request target has a path and a query (RFC 9112 section 3.2)", () => {
  const table: readonly [string, string, string][] = [
    ["/", "/", ""],
    ["/a?b=c?d", "/a", "b=c?d"],
    ["http://example.com", "/", ""],
    ["http://example.com?x", "/", "x"],
    ["HTTPS://example.com:1/a/b?c", "/a/b", "c"],
    ["http://a%2d.example/", "/", ""],
    ["http://[2001:db8::1]:80/a", "/a", ""],
    ["//", "//", ""],
    ["//evil.example/a", "//evil.example/a", ""],
  ];
  for (const [target, path, query] of table) {
    assert.deepEqual(parseTarget(target), { path, query }, target);
  }
  for (
    const target of [
      "",
      "a",
      "*",
      "http://",
      "http:///a",
      "/a#b",
      "?a",
    ]
  ) {
    assert.throws(() => parseTarget(target), malformed, target);
  }
});

test("an id is a positive decimal integer without leading zeros", () => {
  const routes = new Map([["/:id", "one"]]);
  for (const id of [1, 10, Number.MAX_SAFE_INTEGER]) {
    assert.deepEqual(findRoute(routes, `/${id}`), { route: "one", ids: [id] });
  }
  const others = ["", "0", "01", "-1", "+1", "1.0", "1e3", " 1", "٣", "0x1"];
  for (const text of [...others, "9007199254740992", "99999999999999999"]) {
    assert.equal(findRoute(routes, `/${text}`), undefined, text);
  }
});

test("a route is found by its words and ids", () => {
  const patterns = ["/", "/v1", "/v1/", "/v1/a", "/v1/a/:id"];
  const routes = new Map(patterns.map((pattern) => [pattern, pattern]));
  routes.set("/v1/a/:id/b/:id", "both");
  const table: readonly [string, unknown][] = [
    ["/", { route: "/", ids: [] }],
    ["/v1", { route: "/v1", ids: [] }],
    ["/v1/", { route: "/v1/", ids: [] }],
    ["/v1/a", { route: "/v1/a", ids: [] }],
    ["/v1/%61", { route: "/v1/a", ids: [] }],
    ["/v1/a/", undefined],
    ["/v1/a//", undefined],
    ["/v1/a/7", { route: "/v1/a/:id", ids: [7] }],
    ["/v1/a/%37", { route: "/v1/a/:id", ids: [7] }],
    ["/v1/a/7/", undefined],
    ["/v1/a/07", undefined],
    ["/v1/a/7/b", undefined],
    ["/v1/a/7/b/8", { route: "both", ids: [7, 8] }],
    ["/v1/a%2F7", undefined],
    ["/v1/:id", undefined],
    ["/v1/a/:id", undefined],
    ["/v1/__proto__", undefined],
    ["/constructor", undefined],
    ["//", undefined],
    ["//v1", undefined],
    ["/V1", undefined],
  ];
  for (const [path, match] of table) {
    assert.deepEqual(findRoute(routes, path), match, path);
  }
  for (const path of ["/%", "/v1/%zz", "/nope/%e4", "/v1/a/%C3%28"]) {
    assert.throws(() => findRoute(routes, path), malformed, path);
  }
});

test("a number in the base of all paths is a fixed word", () => {
  const patterns = ["/7/8/", "/7/8/a/:id"];
  const routes = new Map(patterns.map((pattern) => [pattern, pattern]));
  const find = (path: string) => findRoute(routes, path, "/7/8/");
  assert.deepEqual(find("/7/8"), undefined);
  assert.deepEqual(find("/7/8/"), { route: "/7/8/", ids: [] });
  const match = { route: "/7/8/a/:id", ids: [7] };
  assert.deepEqual(find("/7/8/a/7"), match);
  assert.deepEqual(find("/%37/8/a/7"), match);
  assert.deepEqual(find("/7/9/a/7"), undefined);
});
