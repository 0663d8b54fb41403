// @ts-check
/** The filters of a collection: parameters of its URL, shown as chips and set in a form. */

import {
  a,
  code,
  div,
  formOf,
  h,
  icon,
  popup,
  select,
  span,
} from "../base/dom.js";
import { parametersOf } from "../base/http.js";
import { isLink, isNumeric, typesOf } from "../base/values.js";
import { navigate } from "../base/view.js";
import { textOf, valueControl } from "./controls.js";

/** Parameters of a collection that are not filters, unless it has a property of that name. */
const listParameters =
  /^(?:limit|offset|page|per_page|sortby|order|fields|aggregate|by|expand)$/;

/** The filters of a view: names of parameters and their values. @returns {[string, string][]} */
export function filtersOf({ url, properties }) {
  return [...parametersOf(url)].filter(([name]) =>
    !listParameters.test(name) || name in properties
  );
}

/** Returns a URL of the same collection with other parameters, on its first page. */
export function withParameters(url, changes) {
  const next = new URL(url.replace(/#.*/, ""));
  const parameters = parametersOf(url);
  for (const name of ["offset", "page"]) parameters.delete(name);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) parameters.delete(name);
    else parameters.set(name, value);
  }
  // In a query of this API a plus sign is a plus sign; these need no escape.
  next.search = String(parameters).replaceAll("+", "%20")
    .replace(/%(?:28|29|3A)/g, decodeURIComponent);
  return next.href;
}

/** The URL of a view without its filters or, if one is named, without that. */
function withoutFilters(view, only = -1) {
  const none = filtersOf(view).filter((_, at) => only < 0 || at === only)
    .map(([name]) => [name, undefined]);
  return withParameters(view.url, Object.fromEntries(none));
}

/**
 * What a filter is called, by the end of its parameter's name and, for null,
 * its value. @type {Record<string, string>}
 */
const operators = {
  "": "is",
  ":ne": "is not",
  ":contains": "contains",
  ":starts": "starts with",
  ":lt": "less than",
  ":lte": "at most",
  ":gte": "at least",
  ":gt": "more than",
  ":in": "is one of",
  "=null": "is empty",
  ":ne=null": "is not empty",
};

/** Returns the filters that the collection has for a property. */
function operatorsOf(schema) {
  const types = typesOf(schema);
  const isOrdered = !schema.enum && !types.includes("boolean");
  const isText = types.includes("string") && isOrdered &&
    /^(?:|multiline|email|iri)$/.test(schema.format ?? "");
  return Object.entries(operators).filter(([end]) =>
    /null/.test(end)
      ? types.includes("null")
      : /^:[cs]/.test(end)
      ? isText
      : isOrdered || !/^:[lg]/.test(end)
  );
}

/** The control for the value of a filter. */
function filterControl(name, schema, suffix, value) {
  const { minimum, maximum } = schema;
  const types = typesOf(schema);
  const isList = suffix === ":in";
  const isNumber = isNumeric(schema) && !isList;
  return valueControl(isList ? {} : schema, value, {
    "aria-label": `${name}: value`,
    placeholder: isList && "a,b",
    ...(isNumber && {
      type: "number",
      min: minimum,
      max: maximum < Number.MAX_SAFE_INTEGER && maximum,
      step: types.includes("integer") ? 1 : "any",
    }),
  });
}

/** The filters in use as chips, and the button that opens the form with all of them. */
export function filterForm(view) {
  const chips = filtersOf(view).map(([parameter, value], at) => {
    const name = parameter.replace(/:.*/, "");
    const end = parameter.slice(name.length);
    const said = value === "null"
      ? operators[`${end}=null`]
      : `${operators[end] ?? end} ${value}`;
    return span.chip(
      span(code(name), ` ${said}`),
      a({
        href: withoutFilters(view, at),
        "aria-label": `Remove the filter ${parameter}`,
      }, icon("close", "14")),
    );
  });
  return div.row(
    { id: chips.length > 0 && "filtered" },
    chips,
    popup("Filter", () => allFilters(view)),
    chips.length > 0 && a({ href: withoutFilters(view) }, "Clear"),
  );
}

function allFilters(view) {
  const used = filtersOf(view);
  const rows = Object.entries(view.properties)
    .filter(([name, schema]) => !isLink(name, schema) && !schema.writeOnly)
    .flatMap(([name, schema]) => {
      const ofProperty = used.filter(([each]) =>
        each.replace(/:.*/, "") === name
      );
      return [...ofProperty, [name, ""]].map(([parameter = "", value]) =>
        filterRow(name, schema, parameter.slice(name.length), value)
      );
    });
  const apply = () => {
    const half = rows.find(({ isHalf }) => isHalf());
    if (half) return half.row.querySelector("input")?.reportValidity();
    const filters = rows.map(({ read }) => read()).filter(([, value]) => value);
    return navigate(
      withParameters(withoutFilters(view), Object.fromEntries(filters)),
    );
  };
  return formOf(
    { class: "card", novalidate: true },
    apply,
    rows.map(({ row }) => row),
    div.bar(h("button", { class: "primary" }, "Apply")),
  );
}

/** @returns {{row: HTMLElement, read: () => [string, string], isHalf: () => boolean}} */
function filterRow(name, schema, suffix, value) {
  const selected = value === "null" ? `${suffix}=null` : suffix;
  const operator = select(
    { "aria-label": `${name}: comparison`, onchange: () => draw() },
    operatorsOf(schema),
    selected,
  );
  let control;
  const place = span();
  const draw = (value = "") => {
    const text = control ? textOf(control) : value;
    control = filterControl(name, schema, operator.value, text);
    place.replaceChildren(operator.value.includes("=") ? "" : control);
  };
  draw(value);
  /** @returns {[string, string]} */
  const read = () => {
    const [end, fixed] = operator.value.split("=");
    return [name + end, fixed ?? textOf(control)];
  };
  return {
    row: div.filter(span.name(name), operator, place),
    read,
    isHalf: () => place.contains(control) && control.validity.badInput,
  };
}
