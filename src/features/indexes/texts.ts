/**
 * Keeps the JSON texts of records that were shown, so that a page of a list is
 * joined instead of serialized, which takes half as long.
 */

import type { Representation } from "../../api/representation.ts";
import type { Memory, Row } from "../../store/store.ts";

/** How much of each collection is kept at most, in characters: 50,000 records of 400. */
const maxLength = 40_000_000;

/** The memory that a text takes at most besides its characters, also in characters. */
const overhead = 400;

/** Keeps texts as long as there is memory for them; drops all of them once they take too much. */
export function keepTexts(
  representation: Representation,
  memory?: Pick<Memory, "limit" | "isTight" | "onTight">,
): void {
  const serialize = representation.asListItem;
  const max = Math.min(maxLength, (memory?.limit ?? Infinity) / 16);
  let texts = new WeakMap<Row, string>();
  let length = 0;
  const drop = () => {
    texts = new WeakMap();
    length = 0;
  };
  memory?.onTight.add(drop);
  representation.asListItem = (row) => {
    const known = texts.get(row);
    if (known !== undefined) return known;
    const text = serialize(row);
    if (memory?.isTight) return text;
    if (length + text.length + overhead > max) drop();
    length += text.length + overhead;
    texts.set(row, text);
    return text;
  };
}
