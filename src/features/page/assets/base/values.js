// @ts-check
/** How values, records and the references between them are shown. */

import { a, pre, span, time } from "./dom.js";
import { root } from "./frame.js";
import { get, local, optionsOf } from "./http.js";

/** A link to a URL of the API or, with a mark, to another website. */
export function link(href, text = href) {
  const ours = local(href);
  if (ours) return a({ href: ours }, text);
  if (!/^https?:/.test(href)) return text;
  return a({ href, rel: "noreferrer noopener" }, text, " ↗");
}

/** A link to what the code of an error means. */
export function explanationOf(body) {
  const { errorCode, documentation_url: url } = body ?? {};
  return url && link(url, `What ${errorCode} means`);
}

export function typesOf(schema) {
  return [schema.type].flat();
}

/** @param {import("./http.js").Json} schema */
export function isNumeric(schema) {
  return /integer|number/.test(String(schema.type));
}

/** Returns whether a property is a link that the server adds to a record. @param {import("./http.js").Json} [schema] */
export function isLink(name, schema) {
  return /^link$|(?:^|_)url$/.test(name) &&
    (!schema || (schema.readOnly && schema.format !== "iri"));
}

/** The properties of a record that are shown as values: its title first, and none of its links. */
export function shownNames({ properties, response: { body } }) {
  const first = Array.isArray(body) ? body[0] : body;
  const names = Object.keys(first ?? properties).filter((name) =>
    !isLink(name, properties[name]) && !properties[name]?.writeOnly
  );
  const title = titleNameOf(properties);
  return names.includes(title)
    ? [title, ...names.filter((name) => name !== title)]
    : names;
}

/** The name of the property that titles a record: the first one of text; an empty text if there is none. */
export function titleNameOf(properties) {
  const isTitle = ([, schema]) =>
    typesOf(schema).includes("string") && !schema.enum && !schema.readOnly &&
    !schema.writeOnly && /^(?:|email|multiline)$/.test(schema.format ?? "");
  return Object.entries(properties).find(isTitle)?.[0] ?? "";
}

/** How long a title can be. */
const maxTitleLength = 60;

/** The title of a record, such as "Zoo Berlin", or "zoo 2" for one without a text. */
export function titleOf(record, { title = "record", properties = {} }) {
  const text = String(record[titleNameOf(properties)] ?? "").trim();
  const [line = ""] = text.split("\n");
  const letters = [...line];
  if (letters.length > maxTitleLength) {
    return `${letters.slice(0, maxTitleLength).join("")}…`;
  }
  return line || `${title.replaceAll("_", " ")} ${record.id ?? ""}`.trim();
}

/** Requests the title of the record at a URL; undefined if there is none. */
export async function titleAt(url) {
  const [{ schema }, { body, status }] = await Promise.all([
    optionsOf(url.replace(/\/\d+$/, "")),
    get(url, true),
  ]);
  return status === 200 ? titleOf(body, schema) : undefined;
}

/** The formats of times by their length. To create one takes longer than a table of times, and not all views show any. @type {Record<string, Intl.DateTimeFormat>} */
const timeFormats = {};

/** Shows a time as it is where the reader is. @param {"short" | "long"} timeStyle */
function localTime(text, timeStyle) {
  timeFormats[timeStyle] ??= new Intl.DateTimeFormat([], {
    dateStyle: "medium",
    timeStyle,
  });
  return timeFormats[timeStyle].format(new Date(text));
}

/** Shows a value by its schema; null is nothing. */
export function format(value, schema = {}, isShort = false) {
  if (value == null) return "";
  if (typeof value === "object") return pre(JSON.stringify(value, null, 2));
  const text = String(value);
  if (schema.format === "date-time" && !Number.isNaN(Date.parse(text))) {
    const shown = localTime(text, isShort ? "short" : "long");
    return time({ datetime: text, title: text }, shown);
  }
  if (schema.format === "iri") {
    return link(
      text,
      isShort ? text.replace(/^https?:\/\/(.*?)\/?$/, "$1") : text,
    );
  }
  if (schema.format === "multiline" && !isShort) {
    return span.lines(text);
  }
  return text;
}

/** The value of a property; a reference leads to the record that it names. */
export function valueOf(record, name, schemas, isShort = false) {
  const value = record[name];
  const target = record[name.replace(/_id$/, "_url")];
  const isReference = name.endsWith("_id") && value != null &&
    typeof target === "string" && schemas[name]?.format !== "iri";
  if (!isReference) return format(value, schemas[name], isShort);
  const anchor = link(target, titles.get(target) ?? String(value));
  if (local(target)) anchor.dataset.reference = target;
  return anchor;
}

/** The titles of records that others refer to, by URL. @type {Map<string, string>} */
export const titles = new Map();

/** How many ids one request names, so that its URL stays short. */
const maxIds = 100;

/** Requests the titles of the records that a view refers to, each collection once, and shows them in place of their ids. */
export async function nameReferences(place) {
  /** @type {Map<string, Set<string>>} */
  const wanted = new Map();
  const anchors = [...place.querySelectorAll("[data-reference]")];
  for (const { dataset: { reference } } of anchors) {
    const [, collection = "", id = ""] = /^(.*)\/(\d+)$/.exec(reference) ?? [];
    if (!collection || titles.has(reference)) continue;
    const ids = wanted.get(collection) ?? new Set();
    wanted.set(collection, ids.add(id));
  }
  await Promise.all(
    [...wanted].map(async ([collection, all]) => {
      const ids = [...all].slice(0, maxIds);
      const query = ids.length > 1
        ? `:in=${ids.join()}&limit=100`
        : `=${ids[0]}`;
      const [{ schema }, { body }] = await Promise.all([
        optionsOf(local(collection) ?? ""),
        get(`${collection}?id${query}`, true),
      ]);
      if (!Array.isArray(body)) return;
      for (const each of body) titles.set(each.url, titleOf(each, schema));
    }),
  );
  for (const anchor of anchors) {
    const title = titles.get(anchor.dataset.reference);
    if (title) anchor.textContent = title;
  }
}

/** The URL of the collection to which a property refers, if this user sees one. */
export function targetCollection(schema = {}) {
  return local(root[`${schema["x-collection"]}_url`] ?? "");
}
