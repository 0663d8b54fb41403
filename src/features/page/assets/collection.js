// @ts-check
/** A collection: its records as a table that can be sorted, filtered and paged by the parameters of the URL. */

import {
  a,
  button,
  div,
  h,
  h1,
  label,
  nav,
  nextFrame,
  scroller,
  select,
  span,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
} from "./base/dom.js";
import { main, nameOf } from "./base/frame.js";
import { local, parametersOf, pathOf } from "./base/http.js";
import {
  isNumeric,
  link,
  shownNames,
  titleNameOf,
  titleOf,
  valueOf,
} from "./base/values.js";
import { crumbs, emptyState, navigate } from "./base/view.js";
import { filterForm, filtersOf, withParameters } from "./forms/filters.js";
import { exportRecords } from "./forms/import.js";
import { chart, numbersForm } from "./numbers.js";

/** @typedef {import("./base/http.js").View} View */
/** @typedef {import("./base/http.js").Json} Json */

export function collectionView(view) {
  const { options: { methods, accepts, schema }, url } = view;
  const mayCreate = methods.includes("POST");
  const save = (type) => () => exportRecords(view, type);
  const records = scroller("Records", recordTable(view));
  records.id = "records";
  return [
    crumbs(url),
    div.row(
      h1(nameOf(pathOf(url).replace(/.*\//, ""))),
      div.row.push.actions(
        mayCreate && accepts.includes("x-ndjson") &&
          a.button.quiet({ href: "#import" }, "Import…"),
        button("Export", save("ndjson"), "export", { class: "quiet" }),
        button("CSV", save("csv"), "export-csv", {
          class: "quiet",
          title: "Save what this page shows as CSV",
        }),
        mayCreate &&
          a.button.primary({ href: "#new" }, `New ${nameOf(schema.title)}`),
      ),
    ),
    div.row(filterForm(view), numbersForm(view)),
    chart(view),
    div.table(records),
    pager(view),
  ];
}

/** Says how many columns are hidden at the right, when it is scrolled and when its size changes. */
export function watchColumns() {
  const scroll = main.querySelector("#records");
  const more = main.querySelector("#more");
  const count = () => {
    const { right } = scroll.getBoundingClientRect();
    const hidden = [...scroll.querySelectorAll("thead th")]
      .filter((each) => each.getBoundingClientRect().right > right + 2).length;
    if (scroll.parentElement.dataset.more === String(hidden)) return;
    scroll.parentElement.dataset.more = String(hidden);
    more.hidden = hidden === 0;
    more.textContent = `${hidden} more ${
      hidden === 1 ? "column" : "columns"
    } →`;
  };
  more.onclick = () => scroll.scrollBy({ left: scroll.clientWidth / 2 });
  scroll.addEventListener("scroll", count, { passive: true });
  const observer = new ResizeObserver(count);
  for (const each of [scroll, ...scroll.querySelectorAll("thead")]) {
    observer.observe(each);
  }
}

/** How many rows one frame adds: more would take so long that a key or a click has to wait. */
const rowsPerFrame = 25;

/** The table of the first records, or why there is none. */
function recordTable(view, count = rowsPerFrame) {
  if (view.response.body.length === 0) return empty(view);
  return table(
    thead(tr(headings(shownNames(view), view))),
    tbody(rowsOf(view, 0, count)),
  );
}

/** Adds the other records to the table of a view, some in each frame. */
export async function addRows(view) {
  const body = main.querySelector("#records tbody");
  const count = view.response.body.length;
  while (body?.isConnected && body.children.length < count) {
    await nextFrame();
    body.append(...rowsOf(view, body.children.length, rowsPerFrame));
  }
}

function rowsOf(view, from, count) {
  const { response: { body }, properties, options: { schema } } = view;
  const names = shownNames(view);
  const title = titleNameOf(properties);
  const first = names[0] ?? "";
  return body.slice(from, from + count).map((record) => {
    const row = tr(
      names.map((name) =>
        name === first && record.url
          ? th.text(
            { scope: "row" },
            link(
              record.url,
              name === title
                ? titleOf(record, schema)
                : String(record[name] ?? ""),
            ),
          )
          : td(
            { class: classOf(properties[name], record[name]) },
            valueOf(record, name, properties, true),
          )
      ),
    );
    row.dataset.id = record.id ?? JSON.stringify(record); // or a group
    return row;
  });
}

/** Returns how the cells of a column look: numbers end in line, and texts are cut. */
function classOf(schema, value) {
  // An aggregate has no schema.
  if (!schema) return typeof value === "number" && "number";
  if (schema["x-collection"]) return "text"; // the title of a record
  if (isNumeric(schema)) return "number";
  return !/^date/.test(schema.format ?? "") && !schema.enum && "text";
}

/** Shows other records in a table: rows and cells that are the same stay, and with them what is selected and focused. Returns the rows that have changed. */
export function updateTable(place, view) {
  const next = recordTable(view, Infinity);
  const old = place.querySelector("table");
  const isSame = old && next.tHead &&
    old.tHead.textContent === next.tHead.textContent;
  if (!isSame) {
    place.replaceChildren(next);
    return [...place.querySelectorAll("tbody tr")];
  }
  const [body] = old.tBodies;
  const rows = new Map([...body.rows].map((row) => [row.dataset.id, row]));
  const changed = [];
  [...next.tBodies[0].rows].forEach((row, at) => {
    let kept = rows.get(row.dataset.id);
    rows.delete(row.dataset.id);
    const differing = [...row.cells].filter((cell) =>
      !kept?.cells[cell.cellIndex].isEqualNode(cell)
    );
    // The last one first, as each that leaves its row changes the index of those after it.
    for (const cell of kept ? differing.toReversed() : []) {
      kept.cells[cell.cellIndex].replaceWith(cell);
    }
    kept ??= row;
    if (differing[0]) changed.push(kept);
    if (body.rows[at] !== kept) body.insertBefore(kept, body.rows[at] ?? null);
  });
  for (const row of rows.values()) row.remove();
  return changed;
}

function empty(view) {
  const { response: { headers }, url, options: { methods, schema } } = view;
  if (Number(headers.get("x-total-count")) > 0) {
    return emptyState(
      "There are no records on this page: it is after the last one. ",
      a({ href: withParameters(url, {}) }, "The first page"),
    );
  }
  if (filtersOf(view).length > 0) return emptyState("No record matches.");
  return emptyState(
    "No records yet.",
    methods.includes("POST") &&
      a.button({ href: "#new" }, `Add the first ${nameOf(schema.title)}`),
  );
}

/** The headings of the columns, each a link that sorts by it. No response says in which order the collection is sorted by default. */
function headings(names, { url, properties, response: { body } }) {
  const parameters = parametersOf(url);
  const orders = (parameters.get("order") ?? "asc").split(",");
  const sorted = (parameters.get("sortby") ?? "").split(",");
  return names.map((name) => {
    const at = sorted.indexOf(name);
    const isDown = (orders[at] ?? orders[0]) === "desc";
    const order = at === 0 && !isDown ? "desc" : "asc";
    return th(
      {
        scope: "col",
        class: classOf(properties[name], body[0]?.[name]),
        "aria-sort": at === 0 && (isDown ? "descending" : "ascending"),
      },
      a(
        {
          href: withParameters(url, { sortby: name, order }),
          id: `by-${name}`,
          class: "name",
        },
        name,
        at >= 0 && span({ "aria-hidden": "true" }, isDown ? " ↓" : " ↑"),
      ),
    );
  });
}

export function pager({ response: { headers, body }, url }) {
  const total = Number(headers.get("x-total-count") ?? body.length);
  const targets = [
    ...(headers.get("link") ?? "").matchAll(/<([^>]*)>; rel="(\w+)"/g),
  ];
  const searchParams = parametersOf(url);
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
  return div.row(
    { id: "pager" },
    span(
      { id: "count" },
      body.length > 0 && `${offset + 1} to ${offset + body.length} of `,
      `${total} ${total === 1 ? "record" : "records"}`,
    ),
    total > body.length &&
      nav(
        { "aria-label": "Pages" },
        targets.map(([, href, rel]) =>
          a({
            href: local(href),
            rel,
            id: `page-${rel}`,
            class: "button quiet",
          }, rel.charAt(0).toUpperCase() + rel.slice(1))
        ),
      ),
    div.row.push(
      h("button", { type: "button", id: "more", class: "quiet", hidden: "" }),
      label.row(
        "Rows per page ",
        select(
          { id: "page-size", onchange: choose },
          sizes.map((each) => [each, each]),
          size,
        ),
      ),
    ),
  );
}
