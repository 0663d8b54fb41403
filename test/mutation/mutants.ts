/** The mutants of a source file: each changes one decision of the code. */

import { type Token, tokenize } from "./tokens.ts";

/** A compiled source with one change. */
export interface Mutant {
  /** From the project's root. */
  readonly file: string;
  /** The first source line that begins with this code; 0 if there is none, because of types. */
  readonly line: number;
  /** The line as it is compiled, without indentation. */
  readonly code: string;
  /** The change: `=== → !==`. */
  readonly change: string;
  readonly source: string;
}

/** A replacement of a part of the source. */
interface Edit {
  readonly start: number;
  readonly end: number;
  readonly text: string;
  readonly change: string;
}

const operators: Readonly<Record<string, string>> = {
  "&&": "||",
  "||": "&&",
  "===": "!==",
  "!==": "===",
  "<": "<=",
  "<=": "<",
  ">": ">=",
  ">=": ">",
};

const brackets: Readonly<Record<string, string>> = {
  "(": ")",
  "[": "]",
  "{": "}",
};

/**
 * Returns all mutants of a file. They are made from the compiled source, which
 * has the same lines of code as the file, except for types.
 */
export function mutantsOf(
  file: string,
  { code, compiled: source }: {
    readonly code: string;
    readonly compiled: string;
  },
): Mutant[] {
  const lines = code.split("\n").map((line) => line.trim());
  const compiledLines = source.split("\n").map((line) => line.trim());
  const tokens = tokenize(source);
  return tokens.flatMap((_, index) => editsAt(source, tokens, index))
    .map(({ start, end, text, change }) => {
      const before = source.slice(0, start).split("\n").length - 1;
      const line = compiledLines[before] ?? "";
      return {
        file,
        line: lines.findIndex((each) => each.startsWith(line)) + 1,
        code: line,
        change,
        source: source.slice(0, start) + text + source.slice(end),
      };
    });
}

function editsAt(
  source: string,
  tokens: readonly Token[],
  index: number,
): Edit[] {
  const token = tokens[index];
  if (token === undefined || token.kind === "text") return [];
  const { text, start, end } = token;
  const edits: Edit[] = [];
  // The formatter puts spaces around operators, and none around type arguments.
  const isSpaced = source[start - 1] === " " && /\s/.test(source[end] ?? "");
  const isOperator = isSpaced || /^\s*$/.test(lineBefore(source, start));
  const operator = isOperator ? operators[text] : undefined;
  if (
    token.kind === "sign" && operator !== undefined &&
    !isWholeCondition(tokens, index)
  ) {
    edits.push({ start, end, text: operator, change: `${text} → ${operator}` });
  }
  if (text === "?" && isSpaced) {
    edits.push({ start, end, text: "&& false ?", change: "? never" });
    edits.push({ start, end, text: "|| true ?", change: "? always" });
  }
  if (
    text === "!" && token.kind === "sign" && !isWholeCondition(tokens, index)
  ) {
    edits.push({ start, end, text: "", change: "without !" });
  }
  if (text === "if" || text === "while") {
    edits.push(...conditionEdits(source, tokens, index));
  }
  const value = tokens[index + 1];
  if (text === "return" && value && /^(?:true|false)$/.test(value.text)) {
    const other = String(value.text !== "true");
    const change = `return ${value.text} → ${other}`;
    edits.push({ start: value.start, end: value.end, text: other, change });
  }
  const last = isStatementStart(tokens, index)
    ? endOfStatement(tokens, index)
    : undefined;
  if (last !== undefined) {
    edits.push({ start, end: last.end, text: ";", change: "no statement" });
  }
  const access = text === "access" && endOfProperty(tokens, index);
  if (access && value) {
    const change = 'access: "anyone"';
    edits.push({ start, end: access.start, text: change, change });
  }
  return edits;
}

function lineBefore(source: string, at: number): string {
  return source.slice(source.lastIndexOf("\n", at - 1) + 1, at);
}

/** Returns the mutations of `if (a)` to `if (false && (a))` and `if (true || (a))`. */
function conditionEdits(
  source: string,
  tokens: readonly Token[],
  index: number,
): Edit[] {
  const open = tokens[index + 1];
  const close = tokens[closing(tokens, index + 1)];
  if (open?.text !== "(" || close === undefined) return [];
  const { end: start } = open;
  const { start: end } = close;
  const condition = source.slice(start, end);
  return [
    { start, end, text: `false && (${condition})`, change: "if never" },
    { start, end, text: `true || (${condition})`, change: "if always" },
  ];
}

/**
 * Returns whether an operator is an equality or a negation that decides an `if`
 * alone: then the condition is mutated as a whole.
 */
function isWholeCondition(tokens: readonly Token[], index: number): boolean {
  if (!/^(?:[!=]==|!)$/.test(tokens[index]?.text ?? "")) return false;
  const from = tokens.findLastIndex(({ text }, at) =>
    at < index && text === "if"
  );
  const to = closing(tokens, from + 1);
  return from >= 0 && index < to &&
    !tokens.slice(from, to).some(({ text }) => /^(?:&&|\|\|)$/.test(text));
}

/** Returns the index of the bracket that closes the one at an index. */
function closing(tokens: readonly Token[], index: number): number {
  let depth = 0;
  for (let at = index; at < tokens.length; at++) {
    const { kind, text = "" } = tokens[at] ?? {};
    if (kind !== "sign") continue;
    if (text in brackets) depth++;
    else if (/^[)\]}]$/.test(text) && --depth === 0) return at;
  }
  return tokens.length;
}

/** Returns the token after a property of an object; undefined if it is none, or has a type. */
function endOfProperty(
  tokens: readonly Token[],
  index: number,
): Token | undefined {
  const previous = tokens[index - 1]?.text ?? "";
  const isProperty = /^[{,]$/.test(previous) &&
    tokens[index + 1]?.text === ":" && tokens[index + 2]?.kind === "word";
  return isProperty
    ? tokens.slice(index + 2).find(({ text }) => /^[,}]$/.test(text))
    : undefined;
}

/** Returns whether a `throw`, a call or an assignment can begin here. */
function isStatementStart(tokens: readonly Token[], index: number): boolean {
  const token = tokens[index];
  if (token?.kind !== "word" || !/^[a-z#]/i.test(token.text)) return false;
  const previous = tokens[index - 1]?.text ?? ";";
  if (!/^(?:[;{})]|else)$/.test(previous)) return false;
  // Omitting the only `throw` of an `if` is the same as a condition that never
  // holds.
  if (token.text === "throw" && /^[{)]$/.test(previous)) return false;
  return !/^(?:if|for|while|do|switch|case|return|const|let|import|export|function|class|try|catch|finally|else|async|static|readonly|get|set|type|interface|break|continue|new|default|yield)$/
    .test(token.text);
}

/** Returns the last token of a `throw`, a call or an assignment; undefined if the statement is none. */
function endOfStatement(
  tokens: readonly Token[],
  index: number,
): Token | undefined {
  const isThrow = tokens[index]?.text === "throw";
  let isAssignment = false;
  for (let at = index; at < tokens.length; at++) {
    const { kind, text = "" } = tokens[at] ?? {};
    if (kind !== "sign") continue;
    if (text in brackets) {
      if (text === "{" && !isThrow) return undefined;
      at = closing(tokens, at);
    } else if (text === ";") {
      const isCall = tokens[at - 1]?.text === ")";
      return isThrow || isCall || isAssignment ? tokens[at] : undefined;
    } else if (text === "=") isAssignment = true;
    else if (!isThrow && !isAssignment && !/^\??\.$/.test(text)) {
      return undefined;
    }
  }
  return undefined;
}
