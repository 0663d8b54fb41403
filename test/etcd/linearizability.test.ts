/** The checker of histories, by histories whose answer is known. */

import { strict as assert } from "node:assert";
import { describe, test } from "node:test";
import { Random } from "../torture/random.ts";
import {
  findViolation,
  type Operation,
  type Value,
} from "./linearizability.ts";

type Span = readonly [start: number, end: number];
const never = Infinity;

function operation(
  text: string,
  [start, end]: Span,
  rest: Pick<Operation, "requires"> & Partial<Operation>,
): Operation {
  return { text, start, end, ...rest };
}

const read = (value: Value, span: Span) =>
  operation(`read ${value}`, span, { requires: { is: value } });
const write = (next: Value, span: Span) =>
  operation(`write ${next}`, span, { requires: undefined, next });
const cas = (value: Value, next: Value, span: Span) =>
  operation(`${value} to ${next}`, span, { requires: { is: value }, next });
const refused = (value: Value, span: Span) =>
  operation(`not ${value}`, span, { requires: { isNot: value } });

const histories: readonly [
  name: string,
  isLinearizable: boolean,
  history: readonly Operation[],
][] = [
  ["nothing", true, []],
  ["a read of the first value", true, [read(null, [0, 1])]],
  ["a read of what was written", true, [
    write("a", [0, 1]),
    read("a", [2, 3]),
  ]],
  ["a read of what nobody wrote", false, [read("a", [0, 1])]],
  ["a stale read", false, [write("a", [0, 1]), read(null, [2, 3])]],
  ["an old value during a write", true, [
    write("a", [0, 9]),
    read(null, [2, 3]),
  ]],
  ["reads that go back in time during a write", false, [
    write("a", [0, 9]),
    read("a", [1, 2]),
    read(null, [3, 4]),
  ]],
  ["a value seen before its write began", false, [
    read("a", [0, 1]),
    write("a", [2, 3]),
  ]],
  ["a lost update", false, [
    write("a", [0, 1]),
    cas("a", "b", [2, 5]),
    cas("a", "c", [3, 6]),
  ]],
  ["two writes at once, the later one lost to the earlier", true, [
    write("a", [0, 5]),
    write("b", [1, 6]),
    read("a", [7, 8]),
  ]],
  ["readers that disagree about two writes at once", false, [
    write("a", [0, 5]),
    write("b", [1, 6]),
    read("a", [7, 8]),
    read("b", [9, 10]),
  ]],
  ["a refusal that nothing explains", false, [
    write("a", [0, 1]),
    refused("a", [2, 3]),
  ]],
  ["a refusal while another one was first", true, [
    write("a", [0, 1]),
    refused("a", [2, 5]),
    cas("a", "b", [3, 4]),
  ]],
  ["an unknown write that happened", true, [
    write("a", [0, never]),
    read("a", [5, 6]),
  ]],
  ["an unknown write that never happened", true, [
    write("a", [0, never]),
    read(null, [5, 6]),
  ]],
  ["an unknown write that happened late", true, [
    write("a", [0, never]),
    write("b", [1, 2]),
    read("b", [3, 4]),
    read("a", [5, 6]),
  ]],
  ["an unknown write that happened twice", false, [
    write("a", [0, never]),
    read("a", [1, 2]),
    write("b", [3, 4]),
    read("b", [5, 6]),
    read("a", [7, 8]),
  ]],
  ["an unknown write seen before it began", false, [
    read("a", [0, 1]),
    write("a", [2, never]),
  ]],
  ["an unknown comparison that cannot have succeeded", false, [
    write("a", [0, 1]),
    cas("z", "b", [2, never]),
    read("b", [3, 4]),
  ]],
  ["a record created twice", false, [
    cas(null, "a", [0, 3]),
    cas(null, "b", [1, 4]),
  ]],
  ["a record created again after a delete", true, [
    cas(null, "a", [0, 1]),
    cas("a", null, [2, 9]),
    cas(null, "b", [3, 9]),
  ]],
];

describe("a history", () => {
  for (const [name, isLinearizable, history] of histories) {
    test(`with ${name} is ${isLinearizable ? "" : "not "}linearizable`, () => {
      const violation = findViolation(history, null);
      assert.equal(violation === undefined, isLinearizable, violation);
      const reversed = findViolation([...history].reverse(), null);
      assert.equal(reversed === undefined, isLinearizable, reversed);
    });
  }

  test("of many clients of a real register is linearizable, and not with one read of another moment", () => {
    for (let seed = 1; seed <= 10; seed++) {
      const random = new Random(seed);
      const long = simulate(random, 12, 20);
      assert.equal(findViolation(long, null), undefined, `seed ${seed}`);
      const history = simulate(random, 4, 6);
      const stale = { start: 1e6, end: 1e6 + 1, text: "stale" };
      const requires = { is: "written by nobody" };
      const changed = [...history, { ...stale, requires }];
      assert.match(findViolation(changed, null) ?? "", /stale/);
    }
  });

  test("is decided as by trying every order", () => {
    const seen = { true: 0, false: 0 };
    for (let seed = 1; seed <= 400; seed++) {
      const history = invent(new Random(seed));
      const expected = isLinearizableByForce(history, null);
      const found = findViolation(history, null) === undefined;
      assert.equal(found, expected, JSON.stringify(history));
      seen[`${expected}`]++;
    }
    assert.ok(seen.true > 50 && seen.false > 50, JSON.stringify(seen));
  });
});

/** Operations of clients on a register, each of which happens at a moment within its span. */
function simulate(
  random: Random,
  clients: number,
  perClient: number,
): Operation[] {
  const moments: { at: number; start: number; end: number }[] = [];
  for (let client = 0; client < clients; client++) {
    let time = random.next();
    for (let each = 0; each < perClient; each++) {
      const start = time + random.next();
      const at = start + random.next();
      const end = at + random.next();
      time = end;
      const isLost = random.chance(0.05);
      moments.push({ at, start, end: isLost ? Infinity : end });
    }
  }
  moments.sort((a, b) => a.at - b.at);
  let value: Value = null;
  return moments.map(({ start, end }, index) => {
    const kind = random.below(4);
    if (kind === 0) return read(value, [start, end]);
    const next = `v${index}`;
    if (kind === 1 && random.chance(0.5)) return refused("none", [start, end]);
    const happened = end < Infinity || random.chance(0.5);
    const made: Operation = kind === 2
      ? cas(value, next, [start, end])
      : write(next, [start, end]);
    if (happened) value = next;
    return made;
  });
}

/** A few operations without rhyme or reason. */
function invent(random: Random): Operation[] {
  const values = [null, "a", "b"];
  return Array.from({ length: 5 }, () => {
    const start = random.below(8);
    const end = random.chance(0.15) ? Infinity : start + 1 + random.below(5);
    const span: Span = [start + random.next() / 2, end];
    const [value, next] = [random.pick(values), random.pick(values)];
    const kinds = [
      read(value, span),
      read(value, span),
      write(next, span),
      cas(value, next, span),
      refused(value, span),
    ];
    return random.pick(kinds);
  });
}

/** Tries every order of the operations. */
function isLinearizableByForce(
  left: readonly Operation[],
  value: Value,
): boolean {
  if (left.every(({ end }) => end === Infinity)) return true;
  const firstEnd = Math.min(...left.map(({ end }) => end));
  return left.some((operation) => {
    const { start, requires, next } = operation;
    if (start > firstEnd) return false;
    if (requires && "is" in requires && requires.is !== value) return false;
    if (requires && "isNot" in requires && requires.isNot === value) {
      return false;
    }
    const others = left.filter((each) => each !== operation);
    return isLinearizableByForce(others, next === undefined ? value : next);
  });
}
