/** Records as NDJSON: one JSON record per line. */

import type { Row } from "../../store/store.ts";
import type { ShowList } from "../records/reading.ts";
import type { Representation } from "../representation.ts";

/** The media type. */
export const ndjsonType = "application/x-ndjson";

/** The length at which a part is sent, in characters. */
const minPartLength = 1 << 16;

/**
 * Yields records as NDJSON, by default without their URLs, which depend on the server. Each
 * part is less than a millisecond's work, after which other requests are served.
 */
export async function* toNdjson(
  representation: Representation,
  rows: Iterable<Row>,
  fields = portableFields(representation),
): AsyncGenerator<string, undefined> {
  let text = "";
  for (const row of rows) {
    text += `${representation.serializeFields(row, fields)}\n`;
    if (text.length < minPartLength) continue;
    yield text;
    text = "";
    await new Promise((resolve) => setImmediate(resolve));
  }
  if (text !== "") yield text;
}

/** Returns the names of all properties but the URLs. */
export function portableFields(
  { collection }: Representation,
): readonly string[] {
  return [...collection.visibleProperties.keys()];
}

/** Returns a function that shows a list as NDJSON. */
export function showNdjson(representation: Representation): ShowList {
  return (response, { rows, fields, recheckAccess }) => ({
    ...response,
    type: ndjsonType,
    async *stream() {
      for await (const part of toNdjson(representation, rows, fields)) {
        recheckAccess();
        yield part;
      }
    },
  });
}
