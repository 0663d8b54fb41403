/**
 * The representation of records: their properties, then the URLs derived from
 * them; as JSON, and as a JSON Schema.
 */

import type { Document, Row } from "../store/store.ts";
import { type Collection, readValue } from "./declaration/declaration.ts";
import type { Json, JsonSchema } from "./declaration/properties.ts";

/** Serializes the records of one collection. */
export class Representation {
  readonly collection: Collection;
  /** Returns a record as an element of a list. The feature indexes replaces it by one that keeps the texts. */
  asListItem: (row: Row) => string = ({ document }) => this.serialize(document);

  constructor(collection: Collection) {
    this.collection = collection;
  }

  /** Returns the URL of a record. */
  url(id: number): string {
    return `${this.collection.url}/${id}`;
  }

  /**
   * Returns a list item as a response of its own: with the link to its
   * collection, or to `collectionUrl`, a part of the collection.
   */
  asStandalone(item: string, collectionUrl = this.collection.url): string {
    const title = `List of ${this.collection.name}`;
    return `${
      item.slice(0, -1)
    },"link":{"rel":"collection ${collectionUrl}","href":"${collectionUrl}","title":"${title}","type":"application/json"}}`;
  }

  /** Returns records as a JSON array, or the given properties of them. */
  serializeList(rows: Iterable<Row>, fields?: readonly string[]): string {
    const items = Array.from(rows, (row) => this.serializeItem(row, fields));
    return `[${items.join(",")}]`;
  }

  /** Returns a record as an element of a list, or the given properties of it. */
  serializeItem(row: Row, fields?: readonly string[]): string {
    return fields ? this.serializeFields(row, fields) : this.asListItem(row);
  }

  /** Returns the given properties of a record, as JSON. */
  serializeFields({ document }: Row, fields: readonly string[]): string {
    const object = this.#toObject(document);
    const shown: Record<string, Json | undefined> = {};
    for (const name of fields) shown[name] = object[name];
    return JSON.stringify(shown);
  }

  /** Returns a record as JSON, without its link. */
  serialize(document: Document): string {
    return JSON.stringify(this.#toObject(document));
  }

  /** Returns what a reader may see of a document: the declared properties, never what else is stored, such as the hash of a password. */
  #toObject(document: Document): Record<string, Json> {
    const { visibleProperties, urlProperties } = this.collection;
    const object: Record<string, Json> = {};
    for (const property of visibleProperties.values()) {
      const value = readValue(document, property);
      if (value === null && property.omitsNull) continue;
      object[property.name] = value;
    }
    for (const { name, before, property, after } of urlProperties) {
      const id = object[property] ?? null;
      object[name] = id === null ? null : `${before}${id}${after}`;
    }
    return object;
  }
}

/** Returns the JSON Schema (2020-12) of a collection's records, as OPTIONS sends it. */
export function recordSchema(
  { singular, properties, visibleProperties, urlProperties }: Collection,
  writable?: readonly string[],
): JsonSchema {
  const isWritable = (name: string) => writable?.includes(name) ?? true;
  const schemas: Record<string, JsonSchema> = {};
  for (
    const { name, schema } of [...visibleProperties.values(), ...properties]
  ) {
    schemas[name] = isWritable(name) ? schema : { ...schema, readOnly: true };
  }
  for (const { name, nullable } of urlProperties) {
    const type = nullable ? ["string", "null"] : "string";
    schemas[name] = { type, format: "uri-reference", readOnly: true };
  }
  schemas["link"] = { type: "object", readOnly: true };
  return {
    $schema: "https://json-schema.org/draft/2020-12/schema",
    title: singular,
    type: "object",
    properties: schemas,
    required: properties
      .filter(({ name, required }) => required && isWritable(name))
      .map(({ name }) => name),
  };
}
