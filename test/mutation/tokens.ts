/** Splits TypeScript into tokens, as far as mutations need them: formatted code, without JSX. */

/** A token of the source. */
export interface Token {
  readonly kind: "word" | "number" | "text" | "regex" | "sign";
  readonly text: string;
  readonly start: number;
  readonly end: number;
}

const comment = /\/\*[\s\S]*?\*\/|\/\/[^\n]*/y;
const word = /[\w$#]+/y;
const quoted = /"(?:\\.|[^"\\\n])*"|'(?:\\.|[^'\\\n])*'/y;
const regex = /\/(?![*/])(?:\\.|\[(?:\\.|[^\]\\\n])*\]|[^/\\\n[])+\/[a-z]*/y;
const sign =
  />>>=|\.\.\.|===|!==|\*\*=|&&=|\|\|=|\?\?=|=>|==|!=|<=|>=|&&|\|\||\?\?|\?\.(?!\d)|\+\+|--|[+\-*/%&|^]=|./y;

/** After these, a slash begins a regular expression. */
const beforeRegex = /^(?:[(,=:[!&|?{};]|=>|&&|\|\||return|typeof)$/;

/** Returns the tokens of a source; template literals are tokens of their parts and of the code in them. */
export function tokenize(source: string): Token[] {
  const tokens: Token[] = [];
  /** For each open `${`, the number of braces open within it. */
  const templates: number[] = [];
  let at = 0;
  const match = (pattern: RegExp): string | undefined => {
    pattern.lastIndex = at;
    return pattern.exec(source)?.[0];
  };
  const add = (kind: Token["kind"], text: string) => {
    tokens.push({ kind, text, start: at, end: at + text.length });
    at += text.length;
  };
  /** Reads the text of a template up to its end or the next `${`. */
  const addTemplate = () => {
    const text = match(/[`}](?:\\[\s\S]|\$(?!\{)|[^`\\$])*(?:`|\$\{)/y) ?? "`";
    if (text.endsWith("${")) templates.push(0);
    add("text", text);
  };
  while (at < source.length) {
    const skipped = match(/\s+/y) ?? match(comment);
    if (skipped !== undefined) {
      at += skipped.length;
      continue;
    }
    const next = source[at];
    const depth = templates.at(-1);
    if (next === "`") addTemplate();
    else if (next === "}" && depth === 0) {
      templates.pop();
      addTemplate();
    } else {
      if (depth !== undefined && (next === "{" || next === "}")) {
        templates[templates.length - 1] = depth + (next === "{" ? 1 : -1);
      }
      const previous = tokens.at(-1)?.text ?? ";";
      const text = match(word);
      const literal = match(quoted);
      const pattern = beforeRegex.test(previous) ? match(regex) : undefined;
      if (text !== undefined) add(/^\d/.test(text) ? "number" : "word", text);
      else if (literal !== undefined) add("text", literal);
      else if (pattern !== undefined) add("regex", pattern);
      else add("sign", match(sign) ?? "");
    }
  }
  return tokens;
}
