// @ts-check
/** A collection: its records as a table that can be sorted, filtered and paged by the parameters of the URL. */

import {
  a,
  button,
  disclosure,
  div,
  formOf,
  h,
  h1,
  isLink,
  label,
  link,
  linksOf,
  local,
  navigate,
  option,
  p,
  pathOf,
  shownNames,
  span,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
  typesOf,
  valueOf,
} from "./page.js";

/** @typedef {import("./page.js").View} View */
/** @typedef {import("./page.js").Json} Json */

/** Parameters of a collection that are not filters. */
const listParameters = /^(?:limit|offset|page|per_page|sortby|order|fields)$/;

/** The filters of a URL: names of parameters and their values. @returns {[string, string][]} */
function filtersOf(url) {
  return [...new URL(url).searchParams]
    .filter(([name]) => !listParameters.test(name));
}

/** Returns a URL of the same collection with other parameters, on its first page. */
export function withParameters(url, changes) {
  const next = new URL(url.replace(/#.*/, ""));
  for (const name of ["offset", "page"]) next.searchParams.delete(name);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) next.searchParams.delete(name);
    else next.searchParams.set(name, value);
  }
  // In a query of this API a plus sign is a plus sign.
  return next.href.replaceAll("+", "%20");
}

/** The same URL without its filters. */
function withoutFilters(url) {
  const none = filtersOf(url).map(([name]) => [name, undefined]);
  return withParameters(url, Object.fromEntries(none));
}

export function collectionView(view) {
  const { options: { methods, accepts, schema }, url } = view;
  const mayCreate = methods.includes("POST");
  const exportAll = async () => {
    (await import("./forms.js")).exportRecords(url);
  };
  return [
    h1(pathOf(url).match(/(?:[^/]+\/\d+\/)?[^/]*$/)?.[0]),
    p(
      { class: "actions" },
      mayCreate && a({ href: "#new" }, `New ${schema.title ?? "record"}`),
      mayCreate && accepts.includes("x-ndjson") &&
        a({ href: "#import" }, "Import a file"),
      button("Export", exportAll),
    ),
    filterForm(view),
    div(
      {
        id: "records",
        class: "scroll",
        tabindex: "0",
        role: "region",
        "aria-label": "Records",
      },
      recordTable(view),
    ),
    pager(view),
  ];
}

/** The table of records, or why there is none. */
export function recordTable(view) {
  const { response: { body }, properties, url } = view;
  if (body.length === 0) return empty(view);
  const names = shownNames(view);
  const rows = body.map((record) =>
    tr(
      names.map((name) =>
        name === "id" && record.url
          ? th({ scope: "row" }, link(record.url, String(record.id)))
          : td(valueOf(record, name, properties))
      ),
      td(linksOf(record)),
    )
  );
  return table(
    thead(tr(headings(names, url), th({ scope: "col" }, "links"))),
    tbody(rows),
  );
}

function empty({ response: { headers }, url }) {
  if (Number(headers.get("x-total-count")) > 0) {
    return p(
      "There are no records on this page: it is after the last one. ",
      a({ href: withParameters(url, {}) }, "The first page"),
    );
  }
  return p(
    filtersOf(url).length > 0 ? "No record matches." : "No records yet.",
  );
}

/** The headings of the columns, each a link that sorts by it. No response says in which order the collection is sorted by default. */
function headings(names, url) {
  const { searchParams } = new URL(url);
  const orders = (searchParams.get("order") ?? "asc").split(",");
  const sorted = (searchParams.get("sortby") ?? "").split(",");
  return names.map((name) => {
    const at = sorted.indexOf(name);
    const isDown = (orders[at] ?? orders[0]) === "desc";
    const order = at === 0 && !isDown ? "desc" : "asc";
    return th(
      {
        scope: "col",
        "aria-sort": at === 0 && (isDown ? "descending" : "ascending"),
      },
      a(
        {
          href: withParameters(url, { sortby: name, order }),
          id: `by-${name}`,
        },
        name,
        at >= 0 && span({ "aria-hidden": "true" }, isDown ? " ▼" : " ▲"),
      ),
    );
  });
}

export function pager({ response: { headers, body }, url }) {
  const total = Number(headers.get("x-total-count") ?? body.length);
  const targets = [
    ...(headers.get("link") ?? "").matchAll(/<([^>]*)>; rel="(\w+)"/g),
  ];
  const { searchParams } = new URL(url);
  const byPage = searchParams.has("per_page") || searchParams.has("page");
  const size = searchParams.get(byPage ? "per_page" : "limit") ?? "20";
  const offset = byPage
    ? (Number(searchParams.get("page") ?? 1) - 1) * Number(size)
    : Number(searchParams.get("offset") ?? 0);
  const choose = (event) =>
    navigate(withParameters(url, {
      [byPage ? "per_page" : "limit"]: event.target.value,
    }));
  const sizes = [...new Set(["10", "20", "50", "100", size])];
  return div(
    { id: "pager" },
    span(
      { id: "count" },
      body.length > 0 && `${offset + 1} to ${offset + body.length} of `,
      `${total} ${total === 1 ? "record" : "records"}`,
    ),
    total > body.length && h(
      "nav",
      { "aria-label": "Pages" },
      targets.map(([, href = "", rel]) => [
        a({ href: local(href), rel, id: `page-${rel}` }, rel),
        " ",
      ]),
    ),
    label(
      "Records per page ",
      h(
        "select",
        { id: "page-size", onchange: choose },
        sizes.map((each) =>
          option({ value: each, selected: each === size }, each)
        ),
      ),
    ),
  );
}

// --- Filters

/**
 * The filters that the collection has for a property: the end of the
 * parameter's name, for null also its value, and what the filter is called.
 */
function operatorsOf(schema) {
  const types = typesOf(schema);
  const isOrdered = !schema.enum && !types.includes("boolean");
  const isText = types.includes("string") && isOrdered && !schema.format;
  return [
    ["", "is"],
    [":ne", "is not"],
    ...(isText ? [[":contains", "contains"], [":starts", "starts with"]] : []),
    ...(isOrdered
      ? [[":lt", "<"], [":lte", "≤"], [":gte", "≥"], [":gt", ">"]]
      : []),
    [":in", "is one of (separated by commas)"],
    ...(types.includes("null")
      ? [["=null", "is null"], [":ne=null", "is not null"]]
      : []),
  ];
}

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
  const choices = schema.enum ?? (isBoolean && [true, false]);
  if (choices) {
    return h(
      "select",
      attributes,
      ["", ...choices].map((each) =>
        option({ value: each, selected: String(each) === value }, `${each}`)
      ),
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
  return type === "datetime-local" && value
    ? new Date(value).toISOString()
    : value;
}

/** The control for the value of a filter. */
function filterControl(name, schema, suffix, value) {
  const { minimum, maximum } = schema;
  const types = typesOf(schema);
  const isList = suffix === ":in";
  const isNumber = /integer|number/.test(String(types)) && !isList;
  return valueControl(isList ? {} : schema, value, {
    "aria-label": `${name}: value`,
    ...(isNumber && {
      type: "number",
      min: minimum,
      max: maximum < Number.MAX_SAFE_INTEGER && maximum,
      step: types.includes("integer") ? 1 : "any",
    }),
  });
}

function filterForm(view) {
  const { url, properties } = view;
  const used = filtersOf(url);
  const create = () => {
    const rows = Object.entries(properties)
      .filter(([name, { writeOnly }]) => !isLink(name) && !writeOnly)
      .flatMap(([name, schema]) => {
        const ofProperty = used.filter(([each]) =>
          each.replace(/:.*/, "") === name
        );
        return [...ofProperty, [name, ""]].map(([parameter = "", value]) =>
          filterRow(name, schema, parameter.slice(name.length), value)
        );
      });
    const apply = () => {
      const filters = rows.map(({ read }) => read())
        .filter(([, value]) => value);
      navigate(
        withParameters(withoutFilters(url), Object.fromEntries(filters)),
      );
    };
    return formOf(
      {},
      apply,
      rows.map(({ row }) => row),
      h("button", "Apply"),
    );
  };
  const texts = used.map(([name, value]) => `${name}=${value}`);
  return [
    disclosure("filters", "Filter", create),
    texts.length > 0 &&
    p(
      { id: "filtered" },
      h("code", texts.join(" & ")),
      " ",
      a({ href: withoutFilters(url) }, "Clear"),
    ),
  ];
}

/** @returns {{row: HTMLElement, read: () => [string, string]}} */
function filterRow(name, schema, suffix, value) {
  const selected = value === "null" ? `${suffix}=null` : suffix;
  const operators = operatorsOf(schema);
  const operator = h(
    "select",
    { "aria-label": `${name}: comparison`, onchange: () => draw() },
    operators.map(([end, text]) =>
      option({ value: end, selected: end === selected }, text)
    ),
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
    row: div({ class: "filter" }, span(name), operator, place),
    read,
  };
}
