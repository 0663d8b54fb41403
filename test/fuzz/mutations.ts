/** Changes of the bytes of requests: flipped bits, inserted, deleted, duplicated and cut off parts. */

import { Buffer } from "node:buffer";
import type { Random } from "../torture/random.ts";

/** Bytes on which parsers differ. */
const insertions = [
  "\r",
  "\n",
  "\r\n",
  "\r\n\r\n",
  "\0",
  " ",
  "\t",
  ":",
  ",",
  ";",
  "%",
  "%00",
  "%ff",
  "#",
  "?",
  "\x7f",
  "\xff",
  "\r\n ",
  "0\r\n\r\n",
  "Content-Length: 5\r\n",
  "Content-Length: -1\r\n",
  "Transfer-Encoding: chunked\r\n",
  "Transfer-Encoding: gzip, chunked\r\n",
  "Expect: 100-continue\r\n",
  "Expect: 200-ok\r\n",
  "Upgrade: websocket\r\nConnection: upgrade\r\n",
  "Connection: close\r\n",
  "Connection: keep-alive, X-Request-Id\r\n",
  "Host: other.example\r\n",
  "Accept: application/x-ndjson\r\n",
  "Accept: image/png\r\n",
  "Range: bytes=0-1\r\n",
  "Content-Encoding: gzip\r\n",
];

/** Where a mutation begins, and the bytes with it. */
export interface Mutant {
  readonly bytes: Buffer;
  /** Everything before it is unchanged. */
  readonly from: number;
}

/** Applies one to three mutations. */
export function mutate(bytes: Buffer, random: Random): Mutant {
  let mutant: Mutant = { bytes, from: bytes.length };
  for (let count = 1 + random.below(3); count > 0; count--) {
    const at = placeIn(mutant.bytes, random);
    const changed = mutateAt(mutant.bytes, at, random);
    mutant = { bytes: changed, from: Math.min(mutant.from, at) };
  }
  return mutant;
}

/** Returns where to mutate: rarely in a token, of which half of the bytes consist, and which would only be refused. */
function placeIn(bytes: Buffer, random: Random): number {
  for (;;) {
    const at = random.below(bytes.length);
    const line = bytes.lastIndexOf("\n", at) + 1;
    const isToken = bytes.subarray(line, at).includes("Bearer ");
    if (!isToken || random.chance(0.1)) return at;
  }
}

function mutateAt(bytes: Buffer, at: number, random: Random): Buffer {
  const before = bytes.subarray(0, at);
  const end = at + 1 + random.below(random.chance(0.8) ? 8 : 400);
  switch (random.below(6)) {
    case 0: {
      const flipped = Buffer.from(bytes);
      flipped[at] = (flipped[at] ?? 0) ^ (1 << random.below(8));
      return flipped;
    }
    case 1: {
      const replaced = Buffer.from(bytes);
      replaced[at] = random.below(256);
      return replaced;
    }
    case 2: {
      const inserted = Buffer.from(random.pick(insertions), "latin1");
      return Buffer.concat([before, inserted, bytes.subarray(at)]);
    }
    case 3: // deletes a part
      return Buffer.concat([before, bytes.subarray(end)]);
    case 4: // duplicates a part
      return Buffer.concat([bytes.subarray(0, end), bytes.subarray(at)]);
    default:
      return before;
  }
}

/** Inserts whole header lines at the start of a line, where they are parsed as such. */
export function insertField(bytes: Buffer, random: Random): Mutant {
  const line = bytes.indexOf("\r\n", random.below(bytes.length));
  if (line < 0) return mutate(bytes, random);
  const at = line + 2;
  const field = Buffer.from(random.pick(insertions), "latin1");
  const parts = [bytes.subarray(0, at), field, bytes.subarray(at)];
  return { bytes: Buffer.concat(parts), from: at };
}

/** Cuts bytes into segments at random places. */
export function split(bytes: Buffer, random: Random): Buffer[] {
  const segments: Buffer[] = [];
  for (let at = 0; at < bytes.length;) {
    const end = at + 1 + random.below(random.chance(0.5) ? 20 : 500);
    segments.push(bytes.subarray(at, end));
    at = end;
  }
  return segments;
}
