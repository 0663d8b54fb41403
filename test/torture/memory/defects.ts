/**
 * Servers that treat full memory wrongly in one way each, by a change of the
 * built code. The rounds must catch every one of them by the failure that it
 * causes; otherwise they prove nothing.
 */

import type { Patch } from "../../etcd/cluster.ts";

/** One way to treat full memory wrongly. */
export interface Defect extends Patch {
  /** The failure of a round that catches it: any other failure does not count. */
  readonly caught: RegExp;
}

/** The defects by description. */
export const defects: Readonly<Record<string, Defect>> = {
  "ignores its limit": {
    file: "store/transactions.js",
    from: "this.memory?.admit(",
    to: "void (",
    caught: /ended by itself with (?:SIGABRT|code 134)/,
  },
  "does not roll back what it refuses": {
    file: "store/transactions.js",
    from: "undo.push(undone);",
    to: "undo.push(() => {});",
    caught: /is there, but was refused/,
  },
  "stays full when there is room": {
    file: "store/memory/limit.js",
    from: "get isFull() {",
    to: "get isFull() { return this.#isFull;",
    caught: /No write succeeds after half of the records were deleted/,
  },
};
