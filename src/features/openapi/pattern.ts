/**
 * Strings that match a regular expression. What it reads is what most patterns
 * are made of: characters, classes, groups, choices and counts. The callers
 * check what it returns, so that anything else may be read wrongly.
 */

const digits = "0123456789";
const lower = "abcdefghijklmnopqrstuvwxyz";
const upper = lower.toUpperCase();
const word = `${lower}${upper}${digits}_`;
const printable = `${word} -.,:;!?+*/=()[]{}<>@#$%&"'|~^\`\\`;
const escapes: Readonly<Record<string, string>> = {
  d: digits,
  w: word,
  s: " ",
  D: without(digits),
  W: without(word),
  S: without(" "),
  t: "\t",
  n: "\n",
  "p{L}": lower + upper,
  "p{Lu}": upper,
  "p{Ll}": lower,
  "p{N}": digits,
  "p{Nd}": digits,
};

function without(characters: string): string {
  return [...printable].filter((each) => !characters.includes(each)).join("");
}

/** Returns a string that may match a pattern; different numbers give different ones, as far as the pattern allows. */
export function sampleOfPattern(pattern: string, n: number): string {
  return new Sampler(pattern, n).readChoice();
}

class Sampler {
  readonly #pattern: string;
  readonly #n: number;
  #at = 0;

  constructor(pattern: string, n: number) {
    this.#pattern = pattern;
    this.#n = n;
  }

  /** Reads what is before the end of a group; returns a sample of its first alternative. */
  readChoice(): string {
    const [first = ""] = this.#readAlternatives();
    return first;
  }

  #readAlternatives(): readonly string[] {
    const samples = [this.#readSequence()];
    while (this.#match(/\|/y)) samples.push(this.#readSequence());
    this.#match(/\)/y);
    return samples;
  }

  #readSequence(): string {
    let sample = "";
    while (this.#at < this.#pattern.length && !/[|)]/.test(this.#next())) {
      const start = this.#at;
      const part = this.#readPart();
      const end = this.#at;
      sample += part.repeat(this.#readCount());
      if (end === start) break; // a part that cannot be read
    }
    return sample;
  }

  #readPart(): string {
    if (this.#match(/\^|\$|\\[bB]/y)) return "";
    if (this.#match(/\(\?<?[=!]/y)) { // what is ahead or behind is not checked
      this.#readAlternatives();
      return "";
    }
    if (this.#match(/\((?:\?:|\?<\w+>)?/y)) return this.readChoice();
    if (this.#match(/\[/y)) return this.#readClass();
    if (this.#match(/\./y)) return this.#choose(word);
    return this.#choose(this.#readCharacter());
  }

  #readClass(): string {
    const isNegated = this.#match(/\^/y) !== undefined;
    let characters = "";
    while (this.#at < this.#pattern.length && !this.#match(/\]/y)) {
      const from = this.#readCharacter();
      const isRange = from.length === 1 && this.#match(/-(?!\])/y);
      characters += isRange ? range(from, this.#readCharacter()) : from;
    }
    return this.#choose(isNegated ? without(characters) : characters);
  }

  /** Returns the characters that one of the pattern can stand for. */
  #readCharacter(): string {
    const code = this.#match(/\\(?:x|u)\{?([\da-f]{2,6})\}?/iy)?.[1];
    if (code !== undefined) return String.fromCodePoint(parseInt(code, 16));
    const escaped = this.#match(/\\(p\{\w+\}|.)/y)?.[1];
    if (escaped !== undefined) return escapes[escaped] ?? escaped;
    return this.#match(/./suy)?.[0] ?? "";
  }

  /** Reads a quantifier; returns the least count, 1 for `*`, `+` and `?`. */
  #readCount(): number {
    const [text = "", min = "1"] =
      this.#match(/(?:[*+?]|\{(\d+)(?:,\d*)?\})\??/y) ?? [];
    return text === "" ? 1 : Number(min);
  }

  #choose(characters: string): string {
    const all = [...characters];
    return all[(this.#n - 1) % all.length] ?? "";
  }

  #next(): string {
    return this.#pattern.charAt(this.#at);
  }

  #match(expression: RegExp): RegExpExecArray | undefined {
    expression.lastIndex = this.#at;
    const found = expression.exec(this.#pattern);
    if (found === null) return undefined;
    this.#at = expression.lastIndex;
    return found;
  }
}

/** Returns the characters between two, as far as they are few. */
function range(from: string, to: string): string {
  const [first = 0, last = 0] = [from, to].map((each) => each.codePointAt(0));
  const length = Math.min(last - first + 1, 100);
  return Array.from(
    { length },
    (_, at) => String.fromCodePoint(first + at),
  ).join("");
}
