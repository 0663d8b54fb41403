// @ts-check
/** The numbers of a collection, computed by the server: the form that asks for them, and a drawing over time or by value. */

import {
  a,
  figcaption,
  figure,
  formOf,
  h,
  label,
  popup,
  select,
  shape,
} from "./base/dom.js";
import { parametersOf } from "./base/http.js";
import { isLink, isNumeric } from "./base/values.js";
import { navigate } from "./base/view.js";
import { withParameters } from "./forms/filters.js";

/** @typedef {import("./base/http.js").View} View */

/** The aggregates of a property: their names in the API, and for people. */
const values = {
  avg: "mean",
  sum: "sum",
  min: "least",
  max: "greatest",
};

/** A choice among texts that people read, by the values that are sent. */
function choice(name, title, choices, chosen) {
  return label(title, " ", select({ name }, choices, chosen));
}

/** Returns the aggregates and the groups that properties allow: parameters, and their names for people. */
function choicesOf(properties) {
  const what = [["count", "number of records"]];
  const groups = [];
  for (const [name, schema] of Object.entries(properties)) {
    if (name === "id" || isLink(name, schema) || schema.writeOnly) continue;
    const isTime = /^date/.test(schema.format ?? "");
    const isNumber = isNumeric(schema) && !schema["x-collection"];
    if (isNumber) {
      for (const [value, text] of Object.entries(values)) {
        what.push([`${value}(${name})`, `${text} of ${name}`]);
      }
    } else if (isTime) {
      const units = ["day", "month", "year"];
      if (schema.format === "date-time") units.unshift("hour");
      for (const unit of units) {
        groups.push([`${unit}(${name})`, `${unit} of ${name}`]);
      }
    } else groups.push([name, name]);
  }
  return { what, groups };
}

/** The form that asks for numbers of the records that the view shows, if no filter has the name of a parameter of them. @param {View} view */
export function numbersForm({ url, properties }) {
  if ("aggregate" in properties || "by" in properties) return undefined;
  const parameters = parametersOf(url);
  const records = withParameters(url, {
    aggregate: undefined,
    by: undefined,
    limit: undefined,
  });
  const submit = ({ target }) =>
    navigate(withParameters(url, {
      ...Object.fromEntries(new FormData(target)),
      limit: "100",
      sortby: undefined,
      order: undefined,
      fields: undefined,
    }));
  return [
    popup("Numbers", () => {
      const { what, groups } = choicesOf(properties);
      const chosen = parameters.get("aggregate") ?? "count";
      return formOf(
        { id: "numbers", class: "card row" },
        submit,
        choice("aggregate", "Show the", what, chosen),
        choice("by", "for each", groups, parameters.get("by")),
        h("button", { class: "primary" }, "Show"),
      );
    }),
    parameters.has("aggregate") && a({ href: records }, "Back to the records"),
  ];
}

const width = 640;
const height = 160;
const margin = 4;

/** Draws the numbers as a line over time, or as bars; undefined if there are too few. The table below has them all. @param {View} view */
export function chart({ url, response: { body } }) {
  const parameters = parametersOf(url);
  const by = parameters.get("by") ?? "";
  const [name = ""] = (parameters.get("aggregate") ?? "").split(",");
  const points = body.filter((each) =>
    typeof each[name] === "number" && (each[by] ?? null) !== null
  );
  if (!by || points.length < 2) return undefined;
  const isTime = /^(?:year|month|day|hour|minute)\(/.test(by);
  const numbers = points.map((each) => each[name]);
  const top = Math.max(0, ...numbers);
  const range = top - Math.min(0, ...numbers) || 1;
  const y = (value) => margin + (height - 2 * margin) * (top - value) / range;
  if (isTime) points.sort((one, other) => one[by] < other[by] ? -1 : 1);
  const first = String(points[0][by]);
  const last = String(points.at(-1)[by]);
  const start = Date.parse(first);
  const span = Date.parse(last) - start || 1;
  const step = width / points.length;
  const drawn = isTime
    ? shape("polyline", {
      points: points.map((each) =>
        `${(Date.parse(each[by]) - start) / span * width},${y(each[name])}`
      ).join(" "),
    })
    : shape(
      "g",
      points.map((each, at) =>
        shape(
          "rect",
          {
            x: at * step + step / 8,
            y: y(Math.max(0, each[name])),
            width: step * 3 / 4,
            height: Math.abs(y(each[name]) - y(0)),
          },
          shape("title", `${each[by]}: ${each[name]}`),
        )
      ),
    );
  const zero = { x1: 0, x2: width, y1: y(0), y2: y(0) };
  const text = `${name} by ${by}: ${numbers.length} values from ${
    Math.min(...numbers)
  } to ${Math.max(...numbers)}`;
  return figure.chart(
    shape(
      "svg",
      {
        viewBox: `0 0 ${width} ${height}`,
        preserveAspectRatio: "none",
        role: "img",
        "aria-label": text,
      },
      shape("line", zero),
      drawn,
    ),
    figcaption(`${first} to ${last}; ${text}`),
  );
}
