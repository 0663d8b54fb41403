/**
 * Long responses in parts, to distinguish a client that reads one slowly from one
 * that does not read; long lists take memory only as their clients read them.
 */

import { Buffer } from "node:buffer";
import type { Operation } from "../../api/operation.ts";
import type { ShowList } from "../../api/records/reading.ts";
import type { Representation } from "../../api/representation.ts";
import type { Response } from "../../http/connection.ts";
import type { Row } from "../../store/store.ts";

/** The length from which a response is sent in parts, and of these parts, in characters or bytes. */
const partLength = 1 << 16;

/** Returns the GET of a list so that it sends a long one in parts, unless it exports, which does so anyway. */
export function withParts(GET: Operation): Operation {
  const { list, resource, docs } = GET;
  if (!list || !resource || docs?.verb) return GET;
  const show = showInParts(resource.records.representation);
  return { ...GET, run: (context, query) => list(context, query, show) };
}

/** Returns a function that shows a list as a JSON array; a long one as a stream. */
function showInParts(representation: Representation): ShowList {
  return (response, { rows: found, fields }) => {
    const rows = [...found];
    const serialize = (row: Row) => representation.serializeItem(row, fields);
    let items = ""; // not an array to join, which would copy the texts twice
    for (const row of rows) {
      items += (items && ",") + serialize(row);
      if (items.length <= partLength) continue;
      let length = 1 + rows.length; // the brackets and commas
      for (const each of rows) length += Buffer.byteLength(serialize(each));
      const headers = [...response.headers, "Content-Length", String(length)];
      return { ...response, headers, stream: () => inParts(rows, serialize) };
    }
    return { ...response, body: `[${items}]` };
  };
}

/** Yields records as a JSON array, in parts outside of V8's heap. */
async function* inParts(
  rows: readonly Row[],
  serialize: (row: Row) => string,
): AsyncGenerator<Uint8Array, undefined> {
  let text = "[";
  for (const [index, row] of rows.entries()) {
    text += (index === 0 ? "" : ",") + serialize(row);
    if (text.length < partLength) continue;
    yield Buffer.from(text);
    text = "";
    await new Promise((resolve) => setImmediate(resolve));
  }
  yield Buffer.from(`${text}]`);
}

/** Returns a response whose content is sent in parts if it is long. */
export function toParts(response: Response): Response {
  const { body = "", stream } = response;
  return stream || body.length <= partLength
    ? response
    : { ...response, stream: () => partsOf(body) };
}

/** Yields the parts of some content. */
function* partsOf(body: string | Uint8Array): Generator<Uint8Array> {
  const bytes = typeof body === "string" ? Buffer.from(body) : body;
  for (let at = 0; at < bytes.length; at += partLength) {
    yield bytes.subarray(at, at + partLength);
  }
}
