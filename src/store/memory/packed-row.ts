/** Rows for the commands, which need less memory than a server, and may take longer. */

import { Buffer } from "node:buffer";
import type { Document, Row } from "./row.ts";

/** The size of the buffers that hold the documents of {@linkcode PackedRow}. */
const slabBytes = 1 << 16;

let slab = Buffer.alloc(0);
let slabEnd = 0;

/** A row whose document is kept as JSON outside of V8's heap, and parsed each time it is read. */
export class PackedRow implements Row {
  readonly seq: number;
  readonly #slab: Buffer;
  readonly #start: number;
  readonly #end: number;

  constructor(document: Document, seq: number) {
    const json = JSON.stringify(document);
    const length = Buffer.byteLength(json);
    if (slabEnd + length > slab.length) {
      slab = Buffer.allocUnsafeSlow(Math.max(slabBytes, length));
      slabEnd = 0;
    }
    this.seq = seq;
    this.#slab = slab;
    this.#start = slabEnd;
    this.#end = slabEnd += slab.write(json, slabEnd);
  }

  get document(): Document {
    return JSON.parse(this.#slab.toString("utf8", this.#start, this.#end));
  }
}
