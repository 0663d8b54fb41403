/** A browser gets a page, programs get JSON, and a declared API has its own names everywhere: CONTRACT sections 10 and 13. */

import { test } from "node:test";
import { checkAnswer, type Row } from "./rows.ts";
import { libraryRows } from "./features/library.ts";

const { request, expect, rows } = await libraryRows({}, { FEATURES: "all" });

const browser = "text/html,application/xhtml+xml,*/*;q=0.8";
const page = {
  "Content-Type": "text/html; charset=utf-8",
  "Content-Security-Policy": /default-src 'none'.*frame-ancestors 'none'/,
  "Referrer-Policy": "no-referrer",
  "X-Content-Type-Options": "nosniff",
  Vary: /\bAccept\b/,
};
const shows = (path: string, status: number, Accept = browser): Row => [
  "anyone",
  `GET ${path}`,
  status,
  { headers: { Accept }, has: page, shows: /^<!DOCTYPE html>/i },
];
const json = (path: string, Accept: string): Row => [
  "anyone",
  `GET ${path}`,
  200,
  { headers: { Accept }, has: { Vary: /\bAccept\b/ }, shows: /^[[{]/ },
];
rows("A browser gets a page for every address", [
  ...["//", "/", "/authors", "/authors/{author}", "//docs", "/openapi.json"]
    .map((path) => shows(path, 200)),
  shows("/authors", 200, "text/html"),
  shows("/authors/999999", 404),
  shows("/nowhere", 404),
  shows("/users", 401),
  ["anyone", "GET /authors/", 308, { headers: { Accept: browser } }],
  ["member", "POST /authors", 40300, {}, { headers: { Accept: browser } }],
]);
rows("A program gets JSON where it prefers that", [
  ...[
    "",
    "*/*",
    "application/json, text/html",
    "text/html, application/json",
    "text/html;q=0.9, application/json",
    "application/*, text/html;q=0.5",
  ].map((accept) => json("/authors", accept)),
  json("//docs", ""),
  json("/openapi.json", "application/json"),
  json("//health", ""),
]);
rows("A library has its own names in every feature", [
  ["anyone", "GET //docs", 200, {
    shows: { errors: { 40000: /./, 42200: /./, 50303: /./ } },
  }],
  ["anyone", "GET /openapi.json", 200, {
    shows: { info: { title: "Library API" } },
  }],
]);
test("A browser that has the page is not sent it again", async () => {
  const headers = { Accept: browser, "If-None-Match": "*" };
  await expect(304, "anyone", "GET /authors", undefined, headers);
});
test("A library has its own names in its metrics", async () => {
  const type = "text/plain; version=0.0.4; charset=utf-8";
  checkAnswer(await request("admin", "GET //metrics"), "Library API", type);
});
