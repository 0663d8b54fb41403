/**
 * Expansion: `expand=zoo` shows beside `zoo_id` the record that it refers to, as
 * the caller would get it from its own URL; null if the caller would not.
 */

import type { Api, Feature } from "../../api/feature.ts";
import type { Operation } from "../../api/operation.ts";
import { mayAccess } from "../../auth/access.ts";
import {
  isVisible,
  type Reference,
} from "../../api/declaration/declaration.ts";
import { ndjsonType, portableFields } from "../../api/formats/ndjson.ts";
import type { Parameters } from "../../api/query/parameters.ts";
import type { ShowList } from "../../api/records/reading.ts";
import type { Records } from "../../api/records/records.ts";
import type {
  Outcome,
  RequestContext,
  Result,
} from "../../api/request-context.ts";
import { ApiError } from "../../http/errors.ts";
import { excerpt } from "../../http/json.ts";
import type { Row } from "../../store/store.ts";

/** A reference that can be expanded, by the name of the property that shows its record. */
type References = ReadonlyMap<string, Reference>;

/** The parsed parameters of a request: if it expands, the query of a list or the fields of a record, and the references. */
interface Parsed {
  readonly references?: References;
  readonly fields?: unknown;
}

/** The other properties that a record may show: `link`, `url`, and URLs of others. */
const ofRecords = /^link$|(?:^|_)url$/;

/** Returns the references of a collection, by their names without `_id`. */
function referencesOf({ collection }: Records): References {
  const { parents, visibleProperties } = collection;
  const named = parents.filter(({ property }) =>
    visibleProperties.has(property)
  )
    .map((each) => [each.property.replace(/_id$/, ""), each] as const);
  if (visibleProperties.has("expand")) return new Map();
  return new Map(
    named.filter(([name]) =>
      !visibleProperties.has(name) && !ofRecords.test(name)
    ),
  );
}

/** @throws {ApiError} 40004 */
function parseExpand(text: string, all: References): References {
  const names = new Set(text.split(","));
  const chosen = [...all].filter(([name]) => names.has(name));
  if (chosen.length === names.size) return new Map(chosen);
  throw new ApiError(
    40004,
    `The parameter "expand" must be one or more of ${
      [...all.keys()].join(", ")
    }, separated by commas, not "${excerpt(text)}".`,
  );
}

/** Shows the records of one response with those that they refer to. */
class Expansion {
  readonly #context: RequestContext;
  readonly #references: readonly (readonly [string, Reference, Records])[];
  /** The texts of the records, by collection and id: each is looked up once. */
  readonly #texts = new Map<string, string>();

  constructor(api: Api, context: RequestContext, references: References) {
    this.#context = context;
    this.#references = Array.from(
      references,
      ([name, each]) => [name, each, api.records(each.target.name)],
    );
    context.related = this.#references.map(([, , { collection }]) =>
      collection
    );
  }

  /** The sequence number up to which all that can be shown must be durable. */
  get seq(): number {
    return Math.max(
      ...this.#references.map(([, , { table }]) => table.lastSeq),
    );
  }

  /** Adds the records to the text of the record that refers to them. */
  add(text: string, { document }: Row): string {
    let expanded = text.slice(0, -1);
    for (const [name, { property }, records] of this.#references) {
      const id = document[property];
      const shown = typeof id === "number" ? this.#show(records, id) : "null";
      expanded += `,${JSON.stringify(name)}:${shown}`;
    }
    return `${expanded}}`;
  }

  #show(records: Records, id: number): string {
    const { collection, representation, table } = records;
    const key = `${collection.name}/${id}`;
    const known = this.#texts.get(key);
    if (known !== undefined) return known;
    const { caller } = this.#context;
    const row = table.get(id);
    const isShown = row !== undefined &&
      mayAccess(caller?.grants, collection.access.read) &&
      isVisible(collection, row.document, caller);
    const text = isShown
      ? representation.asStandalone(representation.asListItem(row))
      : "null";
    this.#texts.set(key, text);
    return text;
  }
}

/** Returns how a page is shown as JSON, or a list as NDJSON. */
function showWith(
  { representation }: Records,
  expansion: Expansion,
  isLines: boolean,
): ShowList {
  return (response, { rows, fields, recheckAccess }) => {
    const names = fields ??
      (isLines ? portableFields(representation) : undefined);
    const show = (row: Row) =>
      expansion.add(representation.serializeItem(row, names), row);
    const seq = Math.max(response.seq, expansion.seq);
    if (!isLines) {
      return {
        ...response,
        body: `[${Array.from(rows, show).join(",")}]`,
        seq,
      };
    }
    return {
      ...response,
      seq,
      type: ndjsonType,
      async *stream() {
        let text = "";
        for (const row of rows) {
          text += `${show(row)}\n`;
          if (text.length < 1 << 16) continue;
          yield text;
          text = "";
          await new Promise((resolve) => setImmediate(resolve));
          recheckAccess();
        }
        yield text;
      },
    };
  };
}

/** Reads one record, and shows it with those that it refers to. */
function readOne(
  GET: Operation,
  records: Records,
  context: RequestContext,
  expansion: Expansion,
  parsed: unknown,
): Outcome {
  const add = (result: Result): Result => {
    if (typeof result.body !== "string") return result; // 304
    const row = records.find(context, context.scope());
    const seq = Math.max(result.seq, expansion.seq);
    return { ...result, body: expansion.add(result.body, row), seq };
  };
  const result = GET.run(context, parsed, {});
  return result instanceof Promise ? result.then(add) : add(result);
}

/** Adds the parameter `expand` to the GET of a list or of a record, unless a filter of the collection has that name. */
function withExpand(GET: Operation, api: Api): Operation {
  const { resource, parse, list, docs } = GET;
  const all = resource ? referencesOf(resource.records) : new Map();
  if (!resource || !parse || all.size === 0 || docs?.verb) return GET;
  const { records } = resource;
  const showLines: Operation["list"] = list && ((context, parsed, show) => {
    const { references }: Parsed = Object(parsed);
    if (references === undefined) return list(context, parsed, show);
    const expansion = new Expansion(api, context, references);
    return list(context, parsed, showWith(records, expansion, true));
  });
  const parameter = {
    name: "expand",
    in: "query",
    description: "Shows what is referred to, under these names",
    schema: {
      type: "array",
      items: { type: "string", enum: [...all.keys()] },
      minItems: 1,
    },
  };
  return {
    ...GET,
    docs: { ...docs, parameters: [...docs?.parameters ?? [], parameter] },
    parse(sent: Parameters) {
      const text = sent.get("expand");
      if (text === undefined) return parse(sent);
      const references = parseExpand(text, all);
      const others = new Map(sent);
      others.delete("expand");
      const parsed = parse(others);
      return list
        ? { ...Object(parsed), parameters: sent, references }
        : { fields: parsed, references };
    },
    ...(showLines && { list: showLines }),
    run(context, parsed, body) {
      const { references, fields }: Parsed = Object(parsed);
      if (references === undefined) return GET.run(context, parsed, body);
      const expansion = new Expansion(api, context, references);
      return list
        ? list(context, parsed, showWith(records, expansion, false))
        : readOne(GET, records, context, expansion, fields);
    },
  };
}

/** Records shown with those that they refer to. */
export const feature: Feature = {
  open: (api) => ({
    extend: ({ GET, ...others }) =>
      GET && { GET: withExpand(GET, api), ...others },
  }),
};
