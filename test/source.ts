/** The program's own source, as text: for the tests of its size and of its shape. */

import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";

/** Returns the folder of the project, from which the tests may have been built elsewhere. */
function findRoot(folder: string): string {
  return existsSync(join(folder, "src/main.ts"))
    ? folder
    : findRoot(join(folder, ".."));
}
const root = findRoot(import.meta.dirname);

/** Returns the text of each file of code below a folder, by its path from there. */
export function filesOf(folder: string): ReadonlyMap<string, string> {
  const names = readdirSync(join(root, folder), { recursive: true });
  return new Map(
    names.map(String).filter((name) =>
      /\.m?[jt]s$/.test(name) && !name.endsWith(".d.ts")
    ).sort().map((
      name,
    ) => [name, readFileSync(join(root, folder, name), "utf8")]),
  );
}

/** A comment, a text, a regular expression, a word, a number, an operator of several characters, or any other character. */
export const token = new RegExp(
  [
    String.raw`\/\*[\s\S]*?\*\/|\/\/[^\n]*`,
    ...["`", '"', "'"].map((quote) =>
      String.raw`${quote}(?:\\[\s\S]|[^\\${quote}${
        quote === "`" ? "" : String.raw`\n`
      }])*${quote}`
    ),
    String
      .raw`\/(?![*\/ ])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^\/\\\n])+\/[a-z]*(?=[\s.,;)\]])`,
    String.raw`[A-Za-z_$#][\w$]*|\d[\w.]*`,
    String.raw`=>|\?\?=|===|!==|\.\.\.|\?\.|&&=|\|\|=|\?\?|&&|\|\|`,
    String.raw`[<>=!]=|\+\+|--|[+\-*\/%]=|\S`,
  ].join("|"),
  "g",
);

/** Returns the tokens of a file, without its comments: the measure of size that does not change with the width of a line. */
export function tokensOf(text: string) {
  return (text.match(token) ?? []).filter((each) => !/^\/[/*]/.test(each));
}
