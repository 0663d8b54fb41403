import { strict as assert } from "node:assert";
import { test } from "node:test";
import { compareValues } from "../../src/store/memory/order.ts";

test("values have one order, with null last", () => {
  const orders = [
    [false, true, null],
    [-1, 0, 2.5, null],
    ["", "a", "\uFFFD", "\u{1F993}", null],
  ];
  for (const values of orders) {
    for (const [at, value] of values.entries()) {
      for (const [place, other] of values.entries()) {
        const order = Math.sign(compareValues(value, other));
        assert.equal(order, Math.sign(at - place), `${value} and ${other}`);
      }
    }
  }
});
