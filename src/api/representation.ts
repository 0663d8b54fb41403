/**
 * How a record looks to a client: its properties, then its addresses. The text
 * of a record is made when it is read, and kept beside it while few others are.
 */

import { crc32 } from "node:zlib";
import { formatHttpDate } from "../http/conditional.ts";
import type { Document, Row } from "../store/store.ts";
import {
  type Collection,
  type NamedProperty,
  readValue,
} from "./declaration/declaration.ts";
import type { Json, JsonSchema } from "./declaration/properties.ts";

/** The media type of records as lines. */
export const ndjsonType = "application/x-ndjson";

/** How long the parts of an export are, in characters. */
const partLength = 1 << 16;

/** One address property: the parts of the address around an id, and the property that the id is in. */
interface AddressForm {
  readonly name: string;
  readonly before: string;
  readonly property: string;
  readonly after: string;
}

/** How many texts are kept of a collection: some 20 MB of them. */
const mostKept = 50_000;

/** Writes the records of one collection. */
export class Representation {
  /** The collection's own address. */
  readonly address: string;
  readonly #readable: readonly NamedProperty[];
  readonly #addresses: readonly AddressForm[];
  readonly #name: string;
  readonly #link: string;
  readonly #form: string;
  /** The rows whose text is kept, in a ring. */
  readonly #kept: Row[] = [];
  #next = 0;
  #latest: { readonly at: string; readonly fields: readonly string[] } = {
    at: "",
    fields: [],
  };

  /** @param prefix what every address begins with: `/v1/`, or a whole address */
  constructor(collection: Collection, prefix: string) {
    this.address = prefix + collection.name;
    this.#readable = [...collection.visibleProperties.values()];
    const own = `${this.address}/`;
    this.#addresses = [
      { name: "url", before: own, property: "id", after: "" },
      ...collection.parents.map(({ property, target }) => ({
        name: property.replace(/_id$/, "_url"),
        before: `${prefix}${target.name}/`,
        property,
        after: "",
      })),
      ...collection.children.map(({ source }) => ({
        name: `${source.name}_url`,
        before: own,
        property: "id",
        after: `/${source.name}`,
      })),
    ];
    this.#name = collection.name;
    this.#link = collectionLink(collection.name, this.address);
    const form = JSON.stringify([this.#link, recordSchema(collection)]);
    this.#form = crc32(form).toString(36);
  }

  /** The address of a record. */
  url(id: number): string {
    return `${this.address}/${id}`;
  }

  /** A record as an element of a collection. */
  asListItem(row: Row): string {
    return row.text ?? this.#keep(row, this.serialize(row.document));
  }

  /** Keeps the text of a row, and drops the one that has been kept longest. */
  #keep(row: Row, text: string): string {
    const oldest = this.#kept[this.#next];
    if (oldest !== undefined) oldest.text = undefined;
    this.#kept[this.#next] = row;
    this.#next = (this.#next + 1) % mostKept;
    return row.text = text;
  }

  /** An element as an answer of its own: with the link to the collection that it was asked through. */
  asStandalone(element: string, address?: string): string {
    const link = address === undefined
      ? this.#link
      : collectionLink(this.#name, address);
    return `${element.slice(0, -1)},"link":${link}}`;
  }

  /**
   * The ETag and Last-Modified of a record (RFC 9110 section 8.8). The tag is
   * the time of the last change, which is later with every change, and the form
   * in which records are shown, which is another where the declaration is.
   */
  validators(row: Row): readonly string[] {
    return row.validators ??= this.validatorsOf(row.document);
  }

  /** Those of a record that is no row yet. */
  validatorsOf({ created_at, updated_at }: Document): readonly string[] {
    const at = String(updated_at ?? created_at);
    // Records that are written together often have one time, and share these.
    if (at !== this.#latest.at) {
      const time = Date.parse(at);
      const etag = `"${time.toString(36)}-${this.#form}"`;
      const fields = ["ETag", etag, "Last-Modified", formatHttpDate(time)];
      this.#latest = { at, fields };
    }
    return this.#latest.fields;
  }

  /**
   * Records as lines, to be exported: without their addresses, which depend on
   * where they are served. Yields parts of less than a millisecond's work, and
   * lets others through after each.
   */
  async *toNdjson(
    rows: Iterable<Row>,
    fields?: readonly string[],
  ): AsyncGenerator<string, undefined> {
    const names = fields ?? this.#readable.map(({ name }) => name);
    let text = "";
    for (const row of rows) {
      const { document } = row;
      text += fields === undefined && this.#isPlain(document)
        ? `${JSON.stringify(document)}\n`
        : `${this.serializeFields(row, names)}\n`;
      if (text.length < partLength) continue;
      yield text;
      text = "";
      await new Promise((resolve) => setImmediate(resolve));
    }
    if (text !== "") yield text;
  }

  /** A record reduced to some of its properties. */
  serializeFields({ document }: Row, fields: readonly string[]): string {
    const whole = this.#toObject(document);
    return JSON.stringify(
      Object.fromEntries(fields.map((name) => [name, whole[name]])),
    );
  }

  /** An element that is made anew: for what may never be read again. */
  serialize(document: Document): string {
    if (!this.#isPlain(document)) {
      return JSON.stringify(this.#toObject(document));
    }
    const parts = [JSON.stringify(document).slice(0, -1)];
    for (const { name, before, property, after } of this.#addresses) {
      parts.push(`,"${name}":"${before}${document[property]}${after}"`);
    }
    // Joined, as a sum of texts would keep all its parts beside it.
    parts.push("}");
    return parts.join("");
  }

  /** Whether a document holds just what a reader sees, in that order: then its text only lacks the addresses. */
  #isPlain(document: Document): boolean {
    let at = 0;
    for (const name in document) {
      const property = this.#readable[at++];
      if (property === undefined || name !== property.name) return false;
      if (document[name] === null && property.default !== null) return false;
    }
    return at === this.#readable.length;
  }

  #toObject(document: Document): Record<string, Json> {
    const object: Record<string, Json> = {};
    for (const property of this.#readable) {
      object[property.name] = readValue(document, property);
    }
    for (const { name, before, property, after } of this.#addresses) {
      object[name] = before + document[property] + after;
    }
    return object;
  }
}

/** The `link` of a single record: JSON text. */
function collectionLink(name: string, href: string): string {
  return JSON.stringify({
    rel: `collection ${href}`,
    href,
    title: `List of ${name}`,
    type: "application/json",
  });
}

/** The JSON Schema 2020-12 of a collection's records, as OPTIONS answers it. */
export function recordSchema(collection: Collection): JsonSchema {
  const address = { type: "string", format: "uri-reference", readOnly: true };
  const properties: Record<string, JsonSchema> = {};
  const { id, created_at, updated_at } = Object.fromEntries(
    Array.from(
      collection.visibleProperties,
      ([name, { schema }]) => [name, schema],
    ),
  );
  if (id) properties["id"] = id;
  for (const { name, schema } of collection.properties) {
    properties[name] = schema;
  }
  if (created_at) properties["created_at"] = created_at;
  if (updated_at) properties["updated_at"] = updated_at;
  for (const name of collection.urlProperties) properties[name] = address;
  properties["link"] = { type: "object", readOnly: true };
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: collection.singular,
    type: "object",
    properties,
    required: collection.properties
      .filter(({ required }) => required)
      .map(({ name }) => name),
  };
}
