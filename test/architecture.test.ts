/** The shape of the source: who imports whom, and what no file has. */

import assert from "node:assert/strict";
import { posix } from "node:path";
import { test } from "node:test";
import { filesOf, tokensOf } from "./source.ts";

const source = filesOf("src");

/** The rooms from the ground up: a file imports from its own room and from floors below it. */
const floors: (string[])[] = [
  ["http", "auth", "store", "log.ts", "nearest.ts"],
  ["model"],
  ["settings.ts", "collections.ts"],
  ["api"],
  ["app.ts", "features.ts", "etcd"],
  ["open.ts"],
  ["features"],
  ["serve.ts"],
  ["cli"],
  ["main.ts"],
];
/** What features build upon, besides their own files. */
const foundation =
  /^(api|http|model|store)\/|^(settings|log|nearest|features\/clients)\.ts$|^features\/(imports\/command\.ts open|idempotency\/feature\.ts auth\/passwords)\.ts$/;
/** Who uses a module of Node.js; all others may not. */
const users: Record<string, RegExp> = {
  "node:http": /^http\/server\.ts$/,
  "node:https": /^features\/tls\//,
  "node:fs":
    /^(store|cli|features\/(imports|page|static))\/|^(settings|open)\.ts$/,
  "node:child_process": /^$/,
  "node:worker_threads": /^$/,
  "node:vm": /^$/,
};

interface Import {
  from: string;
  to: string;
  isType: boolean;
}

/** Returns the imports of all files, also those that are made later. */
const imports: Import[] = Array.from(source).flatMap(([from, text]) =>
  Array.from(
    text.matchAll(
      /^(?:import|export) (type )?(?:[^;"]*? from )?"([^"]+)"|\bimport\("([^"]+)"\)/gm,
    ),
    ([, type, name, later]): Import => {
      const to = name ?? later ?? "";
      return {
        from,
        to: to.startsWith(".") ? posix.join(posix.dirname(from), to) : to,
        isType: type !== undefined,
      };
    },
  )
).filter(({ from }) => !from.startsWith("features/page/assets/"));
const own = imports.filter(({ to }) => source.has(to));
const floorOf = (path: string) =>
  floors.findIndex((rooms) => rooms.includes(path.split("/")[0] ?? ""));

test("Imports lead down, never back up", () => {
  for (const { from, to } of own) {
    assert.ok(floorOf(from) >= 0, `${from} is on no floor`);
    const [room, other] = [from, to].map((path) => path.split("/")[0]);
    assert.ok(
      room === other || floorOf(to) < floorOf(from),
      `${from} imports ${to}`,
    );
  }
});

test("A feature imports no other feature, and nothing that signs", () => {
  for (const { from, to } of own) {
    const folder = /^features\/[^/]+\//.exec(from)?.[0];
    if (folder === undefined || to.startsWith(folder)) continue;
    const isAllowed = foundation.test(to) || foundation.test(`${from} ${to}`);
    assert.ok(isAllowed, `${from} imports ${to}`);
  }
});

test("Only Node's own modules are imported, where they belong", () => {
  for (const { from, to, isType } of imports) {
    if (source.has(to)) continue;
    assert.match(to, /^node:|^zoo-api$/, from); // a declaration names the types of zoo-api
    const allowed = users[to.replace("fs/promises", "fs")];
    assert.ok(
      isType || !allowed || allowed.test(from),
      `${from} imports ${to}`,
    );
  }
});

test("Imports form no circle", () => {
  const done = new Set<string>();
  const visit = (path: string, before: string[]): void => {
    assert.ok(!before.includes(path), [...before, path].join(" → "));
    if (done.has(path)) return;
    for (const { from, to } of own) {
      if (from === path) visit(to, [...before, path]);
    }
    done.add(path);
  };
  for (const path of source.keys()) visit(path, []);
});

test("No file of the source is unused", () => {
  const all = Array.from(filesOf("src").values()).join("\n");
  for (const path of source.keys()) {
    if (/^main\.ts$|\/feature\.ts$/.test(path)) continue; // begun by name
    const isImported = own.some(({ to }) => to === path);
    const name = posix.basename(path).replace(/\.[jt]s$/, "");
    assert.ok(isImported || new RegExp(`\\b${name}\\.[jt]s"`).test(all), path);
  }
});

test("No line is exempt from the compiler", () => {
  const keywords =
    /^(return|typeof|in|of|case|await|yield|void|delete|else|do|throw|new)$/;
  for (const [path, text] of source) {
    assert.doesNotMatch(text, /@ts-|deno-lint-ignore|eslint-/, path);
    if (!path.endsWith(".ts")) continue;
    const tokens = tokensOf(text);
    for (const [at, each] of tokens.entries()) {
      const before = tokens[at - 1] ?? "";
      const place = `${path}: ${tokens.slice(at - 5, at + 3).join(" ")}`;
      if (each === "any") {
        assert.ok(before === "." || tokens[at + 1] === ":", place);
      }
      const isOperand = /^[\w$\])]+$/.test(before) && !keywords.test(before);
      assert.ok(each !== "!" || !isOperand, place);
    }
  }
});

const notFunctions =
  /^(export )?(default )?(abstract )?(if|for|while|switch|try|do|else|class|interface|type|const enum)\b/;

/** Returns the functions of a formatted file: the lines from the first to the last, those of functions within them aside. */
function* functionsOf(text: string): Generator<[string, number]> {
  const lines = text.split("\n");
  const inner: [from: number, to: number][] = [];
  for (let at = lines.length - 1; at >= 0; at--) {
    const line = lines[at] ?? "";
    const [indent = ""] = /^ */.exec(line) ?? [];
    const isBody = /(=>|\)(: [^=]*)?) \{$/.test(line);
    if (!isBody) continue;
    // A signature of several lines ends with a line that begins with its parenthesis.
    let from = at;
    const isOuter = (each = "") =>
      each.startsWith(indent) && /[^ )}\]]/.test(each[indent.length] ?? "");
    while (!isOuter(lines[from])) from--;
    if (notFunctions.test((lines[from] ?? "").trim())) continue;
    const to = lines.findIndex((each, index) =>
      index > at && each.startsWith(`${indent}}`)
    );
    const nested = inner.filter(([first, last]) => first > from && last <= to);
    const outermost = nested.filter(([first, last]) =>
      !nested.some(([a, b]) => a < first && b >= last)
    );
    inner.push([from, to]);
    const named = outermost.filter(([first]) =>
      /^ *(async )?(function|\w+ = )|^ *(const|let) /.test(lines[first] ?? "")
    );
    yield [
      `${from + 1}: ${(lines[from] ?? "").trim()}`,
      named.reduce((rest, [a, b]) => rest - (b - a + 1), to - from + 1),
    ];
  }
}

test("No function has more than 60 lines", () => {
  const long = Array.from(source).flatMap(([path, text]) =>
    Array.from(functionsOf(text)).flatMap(([place, lines]) =>
      lines > 60 ? `${path}:${place} ${lines} lines` : []
    )
  );
  assert.deepEqual(long, []);
});

test("A file says first what it is for, and a folder holds a dozen", () => {
  const counts = new Map<string, number>();
  for (const [path, text] of source) {
    assert.match(text, /^(#!.*|"use strict";)?\s*\/\*\*/, path);
    const folder = posix.dirname(path);
    counts.set(folder, (counts.get(folder) ?? 0) + 1);
  }
  for (const [folder, count] of counts) {
    assert.ok(count <= (folder === "." ? 13 : 12), `${folder}: ${count}`);
  }
});
