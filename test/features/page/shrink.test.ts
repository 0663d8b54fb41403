/** The shrinking of the page's files: nothing but comments and white space goes, and that only where neither matters. */

import { strict as assert } from "node:assert";
import { readdirSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { transformSync } from "esbuild"; // which tsx depends on
import { shrink } from "../../../src/features/page/shrink.ts";
import { root } from "../../root.ts";

const folder = join(root, "src/features/page/assets");

/** The page's files, those of its folders too. */
const files = readdirSync(folder, { recursive: true, encoding: "utf8" })
  .filter((name) => name.includes("."));

/** Returns the text without all that does not matter, as another program removes it; it leaves white space in the values of custom properties, which no script reads. */
function minimal(loader: "js" | "css", text: string): string {
  const { code } = transformSync(text, { loader, minify: true });
  return loader === "css" ? code.replace(/(?<=[,:]) /g, "") : code;
}

test("each of the page's files means the same when shrunk, in at most four fifths of the bytes", () => {
  let before = 0;
  let after = 0;
  for (const name of files) {
    const text = readFileSync(join(folder, name), "utf8");
    const extension = name.replace(/.*\./, "");
    const shrunk = shrink(extension, text);
    before += text.length;
    after += shrunk.length;
    if (extension === "js" || extension === "css") {
      const expected = minimal(extension, text);
      assert.equal(minimal(extension, shrunk), expected, name);
    } else {
      const words = (html: string) => html.replace(/\s+/g, " ");
      assert.equal(words(shrunk), words(text).replaceAll("> <", "><"));
    }
  }
  assert.ok(after < before * 0.8, `${after} of ${before} bytes`);
});

test("literals and separate tokens stay as they are", () => {
  const cases: readonly (readonly [script: string, shrunk: string])[] = [
    [
      `const a = "b = c; // d /* e */ => f" ;`,
      `const a="b = c; // d /* e */ => f";`,
    ],
    [`const a = 'it is "b = c"' + "it's" ;`, `const a='it is "b = c"'+"it's";`],
    ["const a = `b = c\n  ${ d } // e` ;", "const a=`b = c\n  ${ d } // e`;"],
    ['const a = "\\" = " + `\\` = ` ;', 'const a="\\" = "+`\\` = `;'],
    [`const a = /b = "c/ ; d = "e = f" ;`, `const a=/b = "c/;d="e = f";`],
    [`a(/[/ = "]\\/ = '/g , b) ;`, `a(/[/ = "]\\/ = '/g,b);`],
    [`a = b / c ; d = "e = / f" ;`, `a=b/c;d="e = / f";`],
    [`return /b = "c/ .test(a) ;`, `return/b = "c/.test(a);`],
    ["a = b + +c - -d + e++ + f ;", "a=b+ +c- -d+e++ +f;"],
    ["return a\n  ?? typeof b in c ;", "return a??typeof b in c;"],
    ["a( // it's\n  b, /* = */\n) ;\n", "a(b);"],
    ["if (a) {\n  b() ;\n}\nc ;", "if(a){b()}c;"],
    ["for (const a of [\n  b,\n]) c ;", "for(const a of[b])c;"],
  ];
  for (const [script, shrunk] of cases) {
    assert.equal(shrink("js", script), shrunk);
  }
});

test("the page's scripts have at most 400 lines, and no circle of imports", () => {
  const imports = new Map<string, readonly string[]>();
  for (const name of files.filter((each) => each.endsWith(".js"))) {
    const text = readFileSync(join(folder, name), "utf8");
    const lines = text.split("\n").length - 1;
    assert.ok(lines <= 400, `${name} has ${lines} lines`);
    const found = text.matchAll(
      /^(?:import|export|\}) [^;]*?"(\..*?\.js)";$/gm,
    );
    const modules = [...found].map(([, module = ""]) =>
      join(dirname(name), module)
    );
    imports.set(name, modules);
  }
  const visit = (name: string, path: readonly string[]): void => {
    assert.ok(!path.includes(name), [...path, name].join(" → "));
    for (const next of imports.get(name) ?? []) visit(next, [...path, name]);
  };
  assert.ok((imports.get("page.js")?.length ?? 0) > 4);
  for (const name of imports.keys()) visit(name, []);
});
