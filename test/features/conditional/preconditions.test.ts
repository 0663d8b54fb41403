import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  type ConditionalRequest,
  equalsStrongly,
  equalsWeakly,
  evaluatePreconditions,
  hasPrecondition,
  parseEntityTags,
  parseHttpDate,
} from "../../../src/features/conditional/preconditions.ts";

test("a list of entity tags is parsed (RFC 9110 section 8.8.3)", () => {
  const table: readonly [string, readonly string[] | undefined][] = [
    ['"a"', ['"a"']],
    ['W/"a"', ['W/"a"']],
    ['""', ['""']],
    ['"a", W/"b" ,"c"', ['"a"', 'W/"b"', '"c"']],
    ['"a,b", "c"', ['"a,b"', '"c"']],
    ['"a, b"', undefined], // an opaque tag cannot contain a space
    ['"a\\", "b"', ['"a\\"', '"b"']],
    ['"aW/", "b"', ['"aW/"', '"b"']],
    ['"!#~\x80\xff"', ['"!#~\x80\xff"']],
    [', ,"a",,\t"b", ', ['"a"', '"b"']],
    ["", []], // a recipient must accept an empty list (section 5.6.1.2)
    [" , ", []],
    ["a", undefined],
    ['"a', undefined],
    ['w/"a"', undefined],
    ['W/ "a"', undefined],
    ['"a" "b"', undefined],
    ['"a""b"', undefined],
    ['"a", b', undefined],
    ['"a", *', undefined],
    ['"a\x7f"', undefined],
    ['"a\u0100"', undefined],
  ];
  for (const [field, tags] of table) {
    assert.deepEqual(parseEntityTags(field), tags, field);
  }
});

test("a long list with a malformed end is rejected without backtracking", () => {
  assert.equal(parseEntityTags(`${'"a" , '.repeat(20_000)}b`), undefined);
  assert.equal(parseEntityTags(`${" ,".repeat(50_000)}b`), undefined);
  assert.equal(parseEntityTags(`"a"${" ".repeat(100_000)}b`), undefined);
});

test("entity tags are compared strongly or weakly (RFC 9110 section 8.8.3.2)", () => {
  const table: readonly [string, string, boolean, boolean][] = [
    ['W/"1"', 'W/"1"', false, true],
    ['W/"1"', 'W/"2"', false, false],
    ['W/"1"', '"1"', false, true],
    ['"1"', 'W/"1"', false, true],
    ['"1"', '"1"', true, true],
    ['"1"', '"2"', false, false],
  ];
  for (const [a, b, strongly, weakly] of table) {
    assert.equal(equalsStrongly(a, b), strongly, `${a} ${b}`);
    assert.equal(equalsWeakly(a, b), weakly, `${a} ${b}`);
  }
});

test("a date is parsed in each format of HTTP (RFC 9110 section 5.6.7)", () => {
  const example = Date.UTC(1994, 10, 6, 8, 49, 37);
  const table: readonly [string, number | undefined][] = [
    ["Sun, 06 Nov 1994 08:49:37 GMT", example],
    ["Sunday, 06-Nov-94 08:49:37 GMT", example],
    ["Sun Nov  6 08:49:37 1994", example],
    ["Wed Nov 16 08:49:37 1994", example + 10 * 86_400_000],
    ["Mon, 06 Nov 1994 08:49:37 GMT", example], // the wrong weekday
    ["Thu, 29 Feb 2024 00:00:00 GMT", Date.UTC(2024, 1, 29)],
    ["Sat, 31 Dec 2016 23:59:60 GMT", undefined], // leap second
    ["Sun, 06 Xxx 1994 08:49:37 GMT", undefined],
    ["Thu, 01 Jan 1970 00:00:00 GMT", 0],
    ["Wed, 29 Feb 2023 00:00:00 GMT", undefined],
    ["Sun, 31 Apr 2024 00:00:00 GMT", undefined],
    ["Sun, 00 Nov 1994 08:49:37 GMT", undefined],
    ["Sun, 06 Nov 1994 24:00:00 GMT", undefined],
    ["Sun, 06 Nov 1994 08:60:00 GMT", undefined],
    ["Sun, 06 Nov 1994 08:49:61 GMT", undefined],
    ["Sun, 6 Nov 1994 08:49:37 GMT", undefined],
    ["Sun, 06 nov 1994 08:49:37 GMT", undefined],
    ["Sun, 06 Nov 1994 08:49:37 UTC", undefined],
    ["Sun, 06 Nov 1994 08:49:37 +0000", undefined],
    ["Sun, 06 Nov 1994 08:49:37", undefined],
    ["Sun, 06 Nov 94 08:49:37 GMT", undefined],
    ["Sun, 06-Nov-94 08:49:37 GMT", undefined],
    ["Sun Nov 6 08:49:37 1994", undefined],
    ["1994-11-06T08:49:37Z", undefined],
    ["Sun, 06 Nov 1994 08:49:37 GMT, Sun, 06 Nov 1994 08:49:37 GMT", undefined],
    ["784111777", undefined],
    ["", undefined],
  ];
  for (const [text, time] of table) {
    assert.equal(parseHttpDate(text), time, text);
  }
});

test("a two-digit year is one of 1970 to 2069", () => {
  const table: readonly [string, string][] = [
    ["Thursday, 01-Jan-70 00:00:00 GMT", "1970-01-01T00:00:00.000Z"],
    ["Friday, 31-Dec-99 00:00:00 GMT", "1999-12-31T00:00:00.000Z"],
    ["Saturday, 01-Jan-00 00:00:00 GMT", "2000-01-01T00:00:00.000Z"],
    ["Tuesday, 31-Dec-69 00:00:00 GMT", "2069-12-31T00:00:00.000Z"],
  ];
  for (const [text, expected] of table) {
    const time = parseHttpDate(text) ?? 0;
    assert.equal(new Date(time).toISOString(), expected, text);
  }
});

const before = "Thu, 19 Nov 2026 00:00:00 GMT";
const at = "Thu, 19 Nov 2026 12:00:00 GMT";
const after = "Thu, 19 Nov 2026 13:00:00 GMT";
const strong = ["ETag", '"1"', "Last-Modified", at];
const weak = ["ETag", 'W/"1"'];

const m = (value: string) => ({ "if-match": value });
const nm = (value: string) => ({ "if-none-match": value });
const ms = (value: string) => ({ "if-modified-since": value });
const us = (value: string) => ({ "if-unmodified-since": value });

type Case = readonly [
  ConditionalRequest["headers"],
  validators: readonly string[],
  reads: ReturnType<typeof evaluatePreconditions>,
  writes?: ReturnType<typeof evaluatePreconditions>,
];

test("preconditions are evaluated in the order of RFC 9110 section 13.2.2", () => {
  const table: readonly Case[] = [
    [{}, strong, "proceed"],
    // If-Match: strong comparison.
    [m('"1"'), strong, "proceed"],
    [m('"0", "1"'), strong, "proceed"],
    [m('"2"'), strong, "failed"],
    [m('W/"1"'), strong, "failed"],
    [m('W/"1"'), weak, "failed"],
    [m('"1"'), weak, "failed"],
    [m("*"), strong, "proceed"],
    [m("1"), strong, "failed"],
    [m(""), strong, "failed"],
    [m('*, "1"'), strong, "failed"],
    // If-Unmodified-Since, only without If-Match.
    [us(before), strong, "failed"],
    [us(at), strong, "proceed"],
    [us(after), strong, "proceed"],
    [us("yesterday"), strong, "proceed"],
    [us(before), weak, "proceed"],
    [{ ...m('"1"'), ...us(before) }, strong, "proceed"],
    [{ ...m('"2"'), ...us(after) }, strong, "failed"],
    // If-None-Match: weak comparison.
    [nm('"1"'), strong, "not-modified", "failed"],
    [nm('W/"1"'), strong, "not-modified", "failed"],
    [nm('"1"'), weak, "not-modified", "failed"],
    [nm('"0", W/"1"'), weak, "not-modified", "failed"],
    [nm('"2"'), strong, "proceed"],
    [nm("*"), strong, "not-modified", "failed"],
    [nm("1"), strong, "proceed", "failed"],
    [nm('"2", 1'), strong, "proceed", "failed"],
    // If-Modified-Since, only for reads without If-None-Match.
    [ms(before), strong, "proceed"],
    [ms(at), strong, "not-modified", "proceed"],
    [ms(after), strong, "not-modified", "proceed"],
    [ms("yesterday"), strong, "proceed"],
    [ms(`${at}, ${at}`), strong, "proceed"],
    [ms(at), weak, "proceed"],
    [{ ...nm('"1"'), ...ms(before) }, strong, "not-modified", "failed"],
    [{ ...nm('"2"'), ...ms(after) }, strong, "proceed"],
    [{ ...nm("1"), ...ms(after) }, strong, "proceed", "failed"],
    // Both steps.
    [{ ...m('"1"'), ...nm('"1"') }, strong, "not-modified", "failed"],
    [{ ...m('"2"'), ...nm('"1"') }, strong, "failed"],
    [{ ...m('"1"'), ...ms(at) }, strong, "not-modified", "proceed"],
    [{ ...us(at), ...nm('"1"') }, strong, "not-modified", "failed"],
    [{ ...us(before), ...nm('"2"') }, strong, "failed"],
    [{ ...us(at), ...ms(at) }, strong, "not-modified", "proceed"],
  ];
  for (const [headers, validators, reads, writes = reads] of table) {
    const evaluate = (method: string) =>
      evaluatePreconditions({ method, headers }, () => validators);
    const text = JSON.stringify([headers, validators]);
    for (const method of ["GET", "HEAD", "QUERY"]) {
      assert.equal(evaluate(method), reads, `${method} ${text}`);
    }
    for (const method of ["PUT", "PATCH", "DELETE", "POST"]) {
      assert.equal(evaluate(method), writes, `${method} ${text}`);
    }
  }
});

test("the validators of an unconditional request are not asked for", () => {
  for (const method of ["GET", "PUT"]) {
    const request = { method, headers: {} };
    const result = evaluatePreconditions(request, () => assert.fail());
    assert.equal(result, "proceed");
  }
});

test("a write counts as conditional only if it cannot overwrite the change of another", () => {
  const table: readonly [ConditionalRequest["headers"], boolean][] = [
    [{}, false],
    [m('"1"'), true],
    [m("*"), true],
    [nm("*"), true],
    [us(at), true],
    [us("yesterday"), false],
    [ms(at), false],
  ];
  for (const [headers, conditional] of table) {
    const request = { method: "PUT", headers };
    assert.equal(hasPrecondition(request), conditional, `${headers}`);
  }
});
