/**
 * The budgets that keep the project small enough to be read: an addition must
 * be balanced by a removal, or raise a number here with a reason.
 */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { blocksOf, sourceFiles } from "./size.ts";

const files = sourceFiles();

function tokensOf(isCounted: (path: string) => boolean): number {
  return files.filter(({ path }) => isCounted(path))
    .reduce((sum, { tokens }) => sum + tokens, 0);
}

const isOptional = (path: string) => /^(?:features|cli|etcd)\//.test(path);

/** The code that a request runs through before it reaches the store. */
const beforeStore =
  /^(?:app\.ts|exchange\.ts|(?:http|auth)\/|api\/(?:routes|operations|feature|request-context)\.ts|api\/(?:declaration|accounts)\/|api\/query\/parameters\.ts)/;

const budgets: readonly [
  what: string,
  maxTokens: number,
  isCounted: (path: string) => boolean,
][] = [
  // Of these, 50 keep a stop from losing responses and taking more requests.
  ["the core", 65_060, (path) => !isOptional(path)],
  ["all that comes before the store", 29_750, (path) => beforeStore.test(path)],
  [
    "the store without indexes",
    19_000,
    (path) => /^store\/(?!indexes\/)/.test(path),
  ],
  // Of these, 150 find out what a full etcd has carried out although it refused it.
  ["the store in etcd", 7_500, (path) => path.startsWith("etcd/")],
  ["everything", 106_400, () => true],
];

for (const [what, maxTokens, isCounted] of budgets) {
  test(`${what} takes at most ${maxTokens} tokens`, (t) => {
    const tokens = tokensOf(isCounted);
    t.diagnostic(`${tokens} tokens`);
    assert.ok(tokens <= maxTokens, `${tokens} tokens`);
    assert.ok(tokens > maxTokens / 2, "the files are where they were");
  });
}

test("no file has more than 450 lines, and no folder more than a dozen files", () => {
  const folders = new Map<string, number>();
  for (const { path, text } of files) {
    const lines = text.split("\n").length - 1;
    assert.ok(lines <= 450, `${path}: ${lines} lines`);
    const folder = path.replace(/\/?[^/]*$/, "");
    folders.set(folder, (folders.get(folder) ?? 0) + 1);
  }
  for (const [folder, count] of folders) {
    assert.ok(count <= 12, `src/${folder}: ${count} files`);
  }
});

test("no class has more than 200 lines, and no function more than 60", () => {
  const tooLong: string[] = [];
  for (const { path, text } of files) {
    const blocks = [
      ...blocksOf(text, "class").filter(({ lines }) => lines > 200),
      ...blocksOf(text, "function").filter(({ lines }) => lines > 60),
    ];
    for (const { name, lines } of blocks) {
      tooLong.push(`${path}: ${name}, ${lines} lines`);
    }
  }
  assert.deepEqual(tooLong, []);
});

test("the length of a function is counted from its first line to its last", () => {
  const text = `export async function one(
  a: {
    readonly b: number;
  },
): Promise<void> {
  const two = (c: number) => {
    return c;
  };
}

class Three {
  async *#four(d: number): AsyncGenerator<number> {
    yield d;
  }
}
`;
  assert.deepEqual(blocksOf(text, "function"), [
    { name: "one", lines: 9 },
    { name: "two", lines: 3 },
    { name: "#four", lines: 3 },
  ]);
  assert.deepEqual(blocksOf(text, "class"), [{ name: "Three", lines: 5 }]);
});
