// @ts-check
/** Controls: how a value of each kind of property is typed and read, so that what is typed is what is sent. */

import {
  datalist,
  div,
  h,
  label,
  option,
  p,
  select,
  span,
  textarea,
} from "../base/dom.js";
import { get, optionsOf } from "../base/http.js";
import {
  isNumeric,
  targetCollection,
  titleAt,
  titleNameOf,
  titleOf,
  typesOf,
} from "../base/values.js";

/** @typedef {import("../base/http.js").Json} Json */

/** A point in time as a control for local times holds it; empty if the text is not one. */
function toLocalTime(text) {
  const ms = Date.parse(text);
  if (Number.isNaN(ms)) return "";
  const offsetMs = new Date(ms).getTimezoneOffset() * 60_000;
  const local = new Date(ms - offsetMs).toISOString().slice(0, -1);
  // In autumn an hour comes twice, and the local time names the first one.
  return Date.parse(local) === ms ? local : "";
}

/**
 * A control for a value of a property, and a text field for anything that is not such a value.
 *
 * @param {Json} schema
 * @param {string} value
 * @param {Json} attributes
 * @returns {any}
 */
export function valueControl(schema, value, attributes) {
  const { format } = schema;
  const isBoolean = typesOf(schema).includes("boolean");
  const choices = schema.enum?.filter((each) => each !== null) ??
    (isBoolean && [true, false]);
  if (choices) {
    return select(
      attributes,
      ["", ...choices].map((each) => [each, String(each)]),
      value,
    );
  }
  const isInstant = format === "date-time";
  const input = h("input", {
    ...(format === "date" && { type: "date" }),
    ...(isInstant && { type: "datetime-local", step: "0.001" }),
    ...attributes,
  });
  input.value = isInstant ? toLocalTime(value) : value;
  if (!input.value && value) {
    input.type = "text";
    input.value = value;
  }
  return input;
}

/** Returns the value of a control, as the API writes it. */
export function textOf({ type, value }) {
  const isTime = type === "datetime-local" && !Number.isNaN(Date.parse(value));
  return isTime ? new Date(value).toISOString() : value;
}

/** Describes the allowed values: the description of its property, or else how long it can be; and the limits of a number. */
function boundsOf(
  { type, description, maxLength, minLength = 0, ...limits },
) {
  const { minimum, exclusiveMinimum, maximum } = limits;
  const isLimit = (limit) =>
    isNumeric({ type }) && Math.abs(limit) < Number.MAX_SAFE_INTEGER;
  const length = minLength === maxLength
    ? `${maxLength}`
    : `${minLength} to ${maxLength?.toLocaleString()}`;
  return [
    description ?? (maxLength && `${length} characters`),
    isLimit(minimum) && `at least ${minimum.toLocaleString()}`,
    isLimit(exclusiveMinimum) && `more than ${exclusiveMinimum}`,
    isLimit(maximum) && `at most ${maximum.toLocaleString()}`,
  ];
}

/** The rules of a property in words. */
export function rulesOf(schema, isRequired) {
  const { description, pattern, format } = schema;
  return [
    schema.readOnly
      ? "set by the server"
      : isRequired
      ? "required"
      : "optional",
    typesOf(schema).filter((type) => type !== "null").join(" or "),
    !description && format,
    schema.enum?.join(", "),
    ...boundsOf(schema),
    !description && pattern?.length < 40 && `as in ${pattern}`,
    schema.default != null && `default: ${schema.default}`,
    schema.writeOnly && "write-only",
  ].filter(Boolean).join(", ");
}

/** The rules of a property in a sentence for who fills it in. */
function hintOf(schema) {
  const parts = schema["x-collection"] ? [] : boundsOf(schema);
  if (schema.format === "multiline") parts.push("several lines");
  const text = parts.filter(Boolean).join(", ");
  return text && `${text.charAt(0).toUpperCase()}${text.slice(1)}.`;
}

/** Why a text is not sent, as a sentence; an empty text if it is. */
function faultOf(input, schema) {
  const { value, validity, type } = input;
  if (validity.badInput) {
    return `This ${
      /^date/.test(type)
        ? "date is incomplete or does not exist"
        : "is no value"
    }: complete it, or empty the field.`;
  }
  if (value === "") return "";
  if (
    type === "datetime-local" && !toLocalTime(textOf(input)).startsWith(value)
  ) {
    return "Clocks skip this time where you are: choose an earlier or a later one.";
  }
  if (!isNumeric(schema)) return "";
  const isNumber = /^[+-]?(?:\d+\.?\d*|\.\d+)(?:e[+-]?\d+)?$/i.test(
    value.trim(),
  );
  if (!isNumber || !Number.isFinite(Number(value))) {
    return `“${value}” is not a number: write it as ${
      typesOf(schema).includes("integer") ? "12" : "12.5"
    }.`;
  }
  return /^[+-]?\d+$/.test(value.trim()) && !Number.isSafeInteger(Number(value))
    ? "This number has more digits than can be stored exactly."
    : "";
}

/** How long a text must rest before it is searched for. */
const pauseMs = 150;

/**
 * Lets a record be chosen by its title: the browser suggests those of the
 * collection that have what is typed, and the text of a choice stands for its id.
 */
function referenceControl(input, collection, name) {
  const list = datalist({ id: `choices-${name}` });
  input.setAttribute("list", list.id);
  input.autocomplete = "off"; // what was typed into other forms
  /** @type {Map<string, number>} */
  const ids = new Map();
  const remember = (id, title, isTyped = false) => {
    // Two records can have one title; then the id tells them apart.
    const isTaken = (ids.get(title) ?? id) !== id;
    const text = isTyped || isTaken ? `${title} (${id})` : title;
    ids.set(text, id);
    return text;
  };
  let asked = "";
  const search = async (typed) => {
    asked = typed;
    const { schema } = await optionsOf(collection);
    const title = titleNameOf(schema.properties ?? {});
    const where = (name) => `&${name}=${encodeURIComponent(typed)}`;
    const queries = [title && `&sortby=${title}`];
    if (typed && !ids.has(typed)) {
      if (title) {
        queries[0] += where(`${title}:contains`);
        queries.unshift(where(title)); // hundreds can contain it
      }
      if (/^\d+$/.test(typed)) queries.push(where("id"));
    }
    const found = await Promise.all(queries.map(async (query) => {
      const { body } = await get(`${collection}?limit=20${query}`, true);
      return Array.isArray(body) ? body : [];
    }));
    if (asked !== typed) return;
    const records = found.flat();
    const exact = records.find((each) =>
      String(each[title] ?? each.id) === typed
    );
    if (exact && !ids.has(typed)) ids.set(typed, exact.id);
    const texts = records.map((each) =>
      remember(each.id, titleOf(each, schema), String(each.id) === typed)
    );
    list.replaceChildren(
      ...[...new Set(texts)].map((value) => option({ value })),
    );
  };
  let timer = 0;
  input.addEventListener("input", ({ isTrusted }) => {
    clearTimeout(timer);
    if (!isTrusted) return;
    timer = setTimeout(() => search(input.value.trim()), pauseMs);
  });
  input.addEventListener("focus", () => {
    input.select();
    search(input.value.trim());
  });
  /** Shows the title of the record that has an id; until it is received, the id. */
  const show = async (id) => {
    const text = String(id);
    ids.set(text, id);
    input.value = text;
    const title = await titleAt(`${collection}/${id}`);
    if (!title || ids.get(text) !== id) return;
    ids.delete(text); // from now on it would be a title
    if (input.value === text) input.value = remember(id, title);
  };
  return {
    list,
    ids,
    show,
    /** Searches for what was typed, unless it is known which record it names. */
    settle: () => input.value && !ids.has(input.value) && search(input.value),
  };
}

/**
 * A property with its control.
 *
 * @param {string} name
 * @param {Json} schema
 * @param {any} value
 * @param {boolean} isRequired
 */
export function fieldOf(name, schema, value, isRequired) {
  const types = typesOf(schema);
  const isNullable = types.includes("null");
  const isNumber = isNumeric(schema);
  const collection = targetCollection(schema);
  const text = String(value ?? "");
  const attributes = {
    id: `field-${name}`,
    name,
    dir: "auto",
    "aria-describedby": `help-${name} error-${name}`,
    "aria-required": isRequired,
    ...(isNumber && !collection && { inputmode: "decimal" }),
    ...(schema.writeOnly && name.includes("password") &&
      { type: "password", autocomplete: "new-password" }),
  };
  const input = schema.format === "multiline"
    ? textarea({ ...attributes, rows: 5 }, text)
    : valueControl(schema, text, attributes);
  const choice = collection
    ? referenceControl(input, collection, name)
    : undefined;
  const error = p({ id: `error-${name}`, class: "wrong" });
  const title = name.replace(/_id$/, "").replaceAll("_", " ");
  // Of a string that can be empty, an empty field says either; this says which.
  const isEither = isNullable && schema.minLength === 0;
  const isNull = h("input", { type: "checkbox", id: `null-${name}` });
  isNull.checked = value == null;
  const row = div.field(
    label(
      { for: `field-${name}` },
      title.charAt(0).toUpperCase() + title.slice(1),
      span.name(name),
      !isRequired && isNullable && span.soft(" optional"),
    ),
    input,
    choice?.list,
    isEither &&
      label(
        { class: "row", for: `null-${name}` },
        isNull,
        "No value, if empty",
      ),
    error,
    p({ id: `help-${name}`, class: "hint" }, hintOf(schema)),
  );
  if (value != null) choice?.show(value);
  /** The text as it is stored, of a reference the id: a number, unlike a text that names no record yet. */
  const current = () => choice?.ids.get(input.value) ?? input.value;
  const before = current();
  return {
    name,
    row,
    input,
    isChanged: () =>
      current() !== before || input.validity.badInput ||
      (isEither && input.value === "" && isNull.checked !== (value == null)),
    draft: () => isEither && isNull.checked && !input.value ? null : current(),
    restore(stored) {
      choice?.ids.clear(); // of the value before
      input.value = stored;
      if (typeof stored === "number") choice?.show(stored);
      if (!input.value) isNull.checked = stored === null;
    },
    settle: () => choice?.settle(),
    /** @param {string} text */
    mark(text) {
      error.textContent = text;
      input.setAttribute("aria-invalid", text !== "");
    },
    /** Returns why the text is not sent. */
    fault() {
      const { value } = input;
      if (choice) {
        return value === "" || choice.ids.has(value)
          ? ""
          : "Choose one of the list: nothing there has exactly this title.";
      }
      if (
        value === "" && schema.default != null && !input.validity.badInput &&
        schema.minLength !== 0
      ) {
        return `Enter a value; by default it is ${schema.default}.`;
      }
      return faultOf(input, schema);
    },
    /** Returns the JSON value of the text; undefined for a field that is left empty. */
    read() {
      const value = choice ? current() : textOf(input);
      if (value === "") {
        if (schema.minLength === 0 && !(isEither && isNull.checked)) return "";
        return isNullable ? null : undefined;
      }
      if (types.includes("boolean")) return value === "true";
      return isNumber && Number.isFinite(Number(value)) ? Number(value) : value;
    },
  };
}
