/**
 * Counts the source: tokens, which do not change with the width of a line, and
 * lines that are neither blank nor comments.
 *
 *     node --import tsx test/size.ts
 */

import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { root } from "./root.ts";

const token =
  /\/\*[\s\S]*?\*\/|\/\/[^\n]*|`(?:\\[\s\S]|[^\\`])*`|"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'|\/(?![*/ ])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n])+\/[a-z]*(?=[\s.,;)\]])|[A-Za-z_$#][\w$]*|\d[\w.]*|=>|\?\?=|===|!==|\.\.\.|\?\.|&&=|\|\|=|\?\?|&&|\|\||[<>=!]=|\+\+|--|[+\-*/%]=|\S/g;

/** A source file, by its path below `src`. */
export interface SourceFile {
  readonly path: string;
  readonly text: string;
  readonly tokens: number;
  readonly codeLines: number;
}

const src = join(root, "src");

/** The source files of the server or, with another pattern, also others. */
export function sourceFiles(pattern = /\.ts$/): SourceFile[] {
  return readdirSync(src, { recursive: true, encoding: "utf8" })
    .filter((path) => pattern.test(path) && !path.endsWith(".d.ts"))
    .map((path) => {
      const text = readFileSync(join(src, path), "utf8");
      const found = text.match(token) ?? [];
      const code = text.split("\n")
        .filter((line) => !/^\s*($|\/\/|\*|\/\*)/.test(line));
      return {
        path,
        text,
        tokens: found.filter((each) => !/^\/[/*]/.test(each)).length,
        codeLines: code.length,
      };
    });
}

/** A function, method or class, and its number of lines. */
export interface Block {
  readonly name: string;
  readonly lines: number;
}

const starts = {
  class: /^(?:export )?(?:abstract )?class (\w+)/,
  function:
    /^\s*(?:(?:export|default|async|static|override|get|set) )*(?:(?:function\*? ?|\*)?(#?\w+)(?:<.*>)?\(.*|(?:const|let) (\w+)(?:: .*)? = (?:async )?(?:\(.*|\w+ => \{))$/,
};

/**
 * The functions or classes of a formatted text: each ends at the first closing
 * brace with the indentation of its first line.
 */
export function blocksOf(
  text: string,
  kind: keyof typeof starts,
): Block[] {
  const lines = text.split("\n");
  return lines.flatMap((line, index) => {
    const [, method, arrow] = starts[kind].exec(line) ?? [];
    const name = method ?? arrow;
    if (
      name === undefined || /^(?:if|for|while|switch|catch|return)$/.test(name)
    ) {
      return [];
    }
    const indentation = /^\s*/.exec(line)?.[0] ?? "";
    const length = lines.slice(index + 1).findIndex((each) =>
      each.startsWith(`${indentation}}`) && !each.endsWith("{")
    );
    const opens = lines.slice(index, index + 30).findIndex((each) =>
      each.endsWith("{") && /^\s*/.exec(each)?.[0] === indentation
    );
    return opens < 0 || length < 0 || opens > length
      ? []
      : [{ name, lines: length + 2 }];
  });
}

function print(): void {
  const folders = new Map<string, [tokens: number, lines: number]>();
  for (const { path, tokens, codeLines } of sourceFiles()) {
    const folder = path.replace(/\/?[^/]*$/, "") || ".";
    for (const name of new Set([folder, "all"])) {
      const [sum, lines] = folders.get(name) ?? [0, 0];
      folders.set(name, [sum + tokens, lines + codeLines]);
    }
  }
  for (const [name, [tokens, lines]] of [...folders].sort()) {
    console.log(`${tokens}`.padStart(7), `${lines}`.padStart(6), name);
  }
}

if (process.argv[1] === import.meta.filename) print();
