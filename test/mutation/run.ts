/**
 * Proves the tests: breaks the program in one place at a time, and lists what no
 * test notices. `npm run mutate -- [--seed=N] [--count=N] [FILE…]`, where a FILE
 * is the beginning of a path below `src`, `backdoors` stands for those of
 * `backdoors.json`, and `defects` for those of `defects.json`;
 * without any all are judged, which takes hours.
 *
 * The code is broken as it was compiled, in a copy. Of each file the tests of
 * `suites.json` run, the cheapest first, until one fails or takes far too long. What
 * does not parse is void; what the compiler would refuse is not sorted out.
 *
 * Those of `equivalent.json` are not judged: no client can see a difference, for
 * the reason that stands before them. These have no test: an error of the disk in
 * the midst of a batch, a turn that does not come for 30 s (50302), clients that
 * read nothing while memory is tight.
 */

import { spawn, spawnSync } from "node:child_process";
import {
  cpSync,
  mkdirSync,
  readdirSync,
  readFileSync,
  rmSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { parseArgs } from "node:util";
import { token } from "../source.ts";

/** Returns a list beside this file: it stays where it is written, as the tests are compiled. */
const read = (name: string): string[][] =>
  JSON.parse(readFileSync(join("test", "mutation", `${name}.json`), "utf8"));

/** The tests of a file, by the beginning of its path; the first that fits counts. */
const suites = read("suites");
/** Reasons, each before the mutants that are no gap for it. */
const equivalent = new Set(read("equivalent").flat());

const source = join(import.meta.dirname, "../..");
const copy = join(source, `../mutants-${process.pid}`);

interface Mutant {
  file: string;
  name: string;
  text: string;
  tests: string;
}

interface Edit {
  from: number;
  to: number;
  text: string;
}

const swaps = new Map(Object.entries({
  "===": "!==",
  "!==": "===",
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
  "&&": "||",
  "||": "&&",
  "+": "-",
  "-": "+",
  "true": "false",
  "false": "true",
  "await": "",
  "!": "",
}));
const declares =
  /^(async|break|case|catch|class|const|continue|default|do|else|export|finally|for|function|get|if|import|let|new|return|set|static|switch|throw|try|while|yield)$/;

/** Returns the changes of one place that a file can have. */
function editsOf(text: string): Edit[] {
  const tokens = Array.from(
    text.matchAll(token),
    ({ 0: word, index }) => ({ word, from: index, to: index + word.length }),
  ).filter(({ word }) => !/^\/[/*]/.test(word));
  /** Returns the place of the token that ends what begins at one: its semicolon, or the parenthesis that fits. */
  const endOf = (begin: number, isStatement: boolean) => {
    let depth = 0;
    for (let at = begin; at < tokens.length; at++) {
      const { word = "" } = tokens[at] ?? {};
      if (/^[([{]$/.test(word)) depth++;
      if (/^[)\]}]$/.test(word)) depth--;
      if (depth < 0) return undefined;
      if (depth === 0 && word === (isStatement ? ";" : ")")) return tokens[at];
    }
    return undefined;
  };
  return tokens.flatMap(({ word, from, to }, at): Edit[] => {
    const [before, next] = [tokens[at - 1], tokens[at + 1]];
    const edits: Edit[] = [];
    const swap = swaps.get(word);
    if (swap !== undefined) edits.push({ from, to, text: swap });
    if (/^\d/.test(word)) {
      edits.push({ from, to, text: word === "1" ? "0" : `(${word} + 1)` });
    }
    if (word === "if" && next?.word === "(") {
      const end = endOf(at + 1, false);
      if (end) {
        const condition = text.slice(next.from, end.to);
        edits.push({ from: next.from, to: end.to, text: `(!${condition})` });
      }
    }
    // A name alone is a field that is declared.
    const begins = /^[;{})]$/.test(before?.word ?? "") && /^[\w$]/.test(word) &&
      next?.word !== ";" && !declares.test(word);
    const end = endOf(at, true);
    if (!end) return edits;
    if (word === "throw" || begins) {
      edits.push({ from, to: end.to, text: ";" });
    }
    if (
      word === "return" && !/^(;|false|undefined)$/.test(next?.word ?? "")
    ) {
      edits.push({ from, to: end.to, text: "return undefined;" });
    }
    return edits;
  });
}

const testsOf = (file: string) =>
  suites.find(([path = ""]) => file.startsWith(path))?.[1] ?? "";

function mutantsOf(file: string): Mutant[] {
  const text = readFileSync(join(source, "src", file), "utf8");
  return editsOf(text).map((edit) => {
    const before = text.slice(0, edit.from).split("\n");
    const begin = text.lastIndexOf("\n", edit.from) + 1;
    const line = text.slice(begin, text.indexOf("\n", edit.to)).trim();
    const was = text.slice(edit.from, edit.to).slice(0, 60);
    return {
      file,
      name: `${before.length}: ${line.split("\n")[0]}  [${was} → ${
        edit.text.slice(0, 60)
      }]`,
      text: text.slice(0, edit.from) + edit.text + text.slice(edit.to),
      tests: testsOf(file),
    };
  });
}

/** Returns the mutants of a list of defects: the name, the file, a place in what was compiled, which must be found there once, what comes into its place, and the tests. */
function listed(list: string): Mutant[] {
  if (!isAsked(list)) return [];
  return read(list).map(([name = "", file = "", place = "", by, given]) => {
    const parts = readFileSync(join(source, "src", file), "utf8").split(place);
    if (parts.length !== 2) {
      throw new Error(`${name}: found ${parts.length - 1} times in ${file}`);
    }
    return { file, name, text: parts.join(by), tests: given ?? testsOf(file) };
  });
}

/** How long each test may take. */
const limits = new Map<string, number>();

/** Returns whether a test passes; false too if it takes longer than it may. */
function passes(name: string): Promise<boolean> {
  const temporary = join(copy, "tmp");
  mkdirSync(temporary, { recursive: true });
  const words = ["--test-reporter=tap", join(copy, `test/${name}.test.js`)];
  const child = spawn(process.execPath, words, {
    detached: true, // a group of its own, to be ended as a whole
    env: { ...process.env, TMPDIR: temporary },
    stdio: ["ignore", "pipe", "ignore"],
  });
  const end = (signal: NodeJS.Signals) => {
    try {
      process.kill(-(child.pid ?? 0), signal);
    } catch {
      // it has ended
    }
  };
  const kill = () => end("SIGKILL");
  process.once("exit", kill);
  return new Promise((resolve) => {
    let output = "";
    let hasFailed = false;
    const fail = () => {
      hasFailed = true;
      kill();
    };
    const timer = setTimeout(fail, limits.get(name) ?? 300_000);
    child.stdout.setEncoding("utf8").on("data", (text: string) => {
      output = (output + text).slice(-10_000);
      if (/^ *not ok /m.test(output)) fail();
    });
    child.once("close", (code) => {
      clearTimeout(timer);
      kill();
      process.off("exit", kill);
      rmSync(temporary, { recursive: true, force: true });
      resolve(code === 0 && !hasFailed);
    });
  });
}

async function judge(
  { file, text, tests }: Mutant,
): Promise<"caught" | "survives" | "void"> {
  const path = join(copy, "src", file);
  const original = readFileSync(path);
  writeFileSync(path, text);
  try {
    const { status } = spawnSync(process.execPath, ["--check", path]);
    if (status !== 0) return "void";
    for (const name of tests.split(" ")) {
      if (!await passes(name)) return "caught";
    }
    return "survives";
  } finally {
    writeFileSync(path, original);
  }
}

const { values, positionals } = parseArgs({
  options: { seed: { type: "string" }, count: { type: "string" } },
  allowPositionals: true,
});
const files = readdirSync(join(source, "src"), { recursive: true }).map(String)
  .filter((name) => name.endsWith(".js") && testsOf(name)).sort();
const isAsked = (name: string) =>
  positionals.length === 0 || positionals.some((each) => name.startsWith(each));
const all = files.filter(isAsked).flatMap(mutantsOf);
const step = Math.ceil(all.length / Number(values.count ?? Infinity)) || 1;
const mutants = [
  ...listed("backdoors"),
  ...listed("defects"),
  ...all.filter((_, at) => at % step === Number(values.seed ?? 0) % step),
];

for (const signal of ["SIGTERM", "SIGINT"]) {
  process.on(signal, () => process.exit(1));
}
const counts = { caught: 0, survives: 0, void: 0, equivalent: 0 };
process.on("exit", () => {
  rmSync(copy, { recursive: true, force: true });
  console.log(JSON.stringify(counts));
});
cpSync(source, copy, { recursive: true });
const names = mutants.flatMap(({ tests }) => tests.split(" "));
for (const name of new Set(names)) {
  const begin = performance.now();
  if (!await passes(name)) throw new Error(`${name} fails by itself`);
  limits.set(name, 3 * (performance.now() - begin) + 10_000);
}
for (const mutant of mutants) {
  const what = `${mutant.file}:${mutant.name}`;
  const result = equivalent.has(what.replace(/:\d+/, ""))
    ? "equivalent"
    : await judge(mutant);
  counts[result]++;
  if (result === "survives") console.log(what);
}
process.exitCode = counts.survives > 0 ? 1 : 0;
