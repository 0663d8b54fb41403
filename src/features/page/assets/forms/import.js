// @ts-check
/** Files: importing NDJSON and CSV with a preview, the progress of an import, and exporting. */

import {
  a,
  b,
  code,
  dataTable,
  dd,
  div,
  dl,
  dt,
  formOf,
  h,
  h1,
  h2,
  label,
  p,
  progress,
} from "../base/dom.js";
import { showProblem } from "../base/exchange.js";
import { say } from "../base/frame.js";
import {
  local,
  newKey,
  optionsOf,
  parse,
  pathOf,
  problemOf,
  send,
  store,
  stored,
} from "../base/http.js";
import { isNumeric, shownNames, typesOf } from "../base/values.js";
import { crumbs, navigate, sends } from "../base/view.js";
import { withParameters } from "./filters.js";

/** How many lines a preview shows. */
const maxShownLines = 5;

/** How much of a large NDJSON file is read for its preview; it is sent as a stream. */
const maxReadBytes = 5_000_000;

/** Returns bytes as text; undefined if they are not UTF-8 and must be. */
function decode(bytes, fatal) {
  try {
    return new TextDecoder("utf-8", { fatal }).decode(bytes);
  } catch {
    return undefined;
  }
}

/** Parses CSV (RFC 4180) with commas, semicolons or tabs: whichever the first line has most of; `misquotedRow` is the number of the first row whose quotation marks are not in pairs. */
function parseCsv(text) {
  const [head = ""] = text.split(/\r?\n/, 1);
  const count = (separator) => head.split(separator).length;
  const [separator] = [",", ";", "\t"]
    .toSorted((one, other) => count(other) - count(one));
  const cells = RegExp(
    `("[^"]*(?:""[^"]*)*"?)?([^${separator}\r\n]*)(${separator}|\r?\n|\r|$)`,
    "g",
  );
  /** @type {string[][]} */
  const rows = [[]];
  let misquotedRow = 0;
  for (const [, quoted = "", rest, end] of text.matchAll(cells)) {
    const isPair = /^(?:"[^"]*(?:""[^"]*)*")?$/.test(quoted);
    if (!isPair || (quoted && rest.trim())) misquotedRow ||= rows.length;
    const value = quoted.replace(/^"|"$/g, "").replaceAll('""', '"') + rest;
    rows.at(-1)?.push(value);
    if (end !== separator) rows.push([]);
  }
  return { rows, misquotedRow };
}

/** Why CSV cannot be turned into records, as a sentence; an empty text if it can. @param {ReturnType<typeof parseCsv>} table */
function faultOfCsv({ rows: [head = [], ...rows], misquotedRow }) {
  if (misquotedRow) {
    return `Row ${misquotedRow} has a quotation mark that does not end a text: write one within a text twice.`;
  }
  const names = head.map((each) => each.trim());
  const twice = names.find((name, at) => name && names.indexOf(name) < at);
  if (twice) return `The first row names ${twice} twice: remove a column.`;
  for (const [at, row] of rows.entries()) {
    const extra = row.find((text, column) => text && !names[column]);
    if (extra) {
      return `Row ${
        at + 2
      } has “${extra}” in a column that the first row does not name: name it, or put texts and numbers with a comma in quotation marks.`;
    }
  }
  return "";
}

/** What a text begins with that a spreadsheet would compute; an apostrophe before it, as {@linkcode cell} writes it, stays when that is read again. */
const computed = /^'*[=+\-@\t\r]/;

/** Returns whether a number has all digits of a text. */
function isExact(text, number) {
  const digitsOf = (each) =>
    each.replace(/e.*/i, "").replace(/\D/g, "").replace(/^0+/, "");
  const digits = digitsOf(text);
  if (digits === "") return true; // 0
  return digits.length <= 100 &&
    digitsOf(number.toPrecision(digits.length)) === digits;
}

/** Returns the value of a cell by the schema of its column; a text that is not one stays, for the server to refuse. */
function valueOfCell(text, schema = {}) {
  if (text === "") {
    const isText = schema.type === "string" && !schema.format && !schema.enum;
    const isEmptied = isText && !schema.minLength && schema.default == null;
    return isEmptied ? "" : undefined;
  }
  if (isNumeric(schema)) {
    const number = /^-?\d+(?:\.\d+)?(?:e[+-]?\d+)?$/i.test(text)
      ? Number(text)
      : NaN;
    return Number.isFinite(number) && isExact(text, number) ? number : text;
  }
  if (typesOf(schema).includes("boolean") && /^(?:true|false)$/i.test(text)) {
    return /^t/i.test(text);
  }
  const rest = text.slice(1);
  return text.startsWith("'") && computed.test(rest) ? rest : text;
}

/** The id of a row; rows without one come last, so that they get higher ids. */
function idOf({ record: { id } }) {
  return Number.isSafeInteger(id) ? id : Infinity;
}

/** Turns CSV, whose first row names properties, into records with the numbers of their rows, in ascending order of their ids if they have some, as an import demands. */
function recordsOf(rows, properties) {
  const names = rows[0]?.map((name) => name.trim()) ?? [];
  return rows.map((row, at) => {
    const values = row.map((text, column) => [
      names[column],
      valueOfCell(text, properties[names[column]]),
    ]).filter(([name, value]) => name && value !== undefined);
    return { row: at + 1, record: Object.fromEntries(values) };
  }).slice(1).filter(({ row }) => rows[row - 1].some(Boolean))
    .toSorted((one, other) => idOf(one) - idOf(other) || 0); // not NaN
}

function preview(records, properties) {
  const names = [
    ...new Set(records.flatMap((each) => Object.keys(each ?? {}))),
  ];
  const unknown = names.filter((name) => !Object.hasOwn(properties, name));
  return [
    unknown.length > 0 &&
    p.wrong(`Not properties of these records: ${unknown.join(", ")}.`),
    dataTable(
      "Preview",
      names.map((name) => code(name)),
      records.map((record) =>
        names.map((name) => JSON.stringify(record?.[name]) ?? "")
      ),
    ),
  ];
}

export async function importForm(url, back) {
  const { schema: { properties = {} } } = await optionsOf(url);
  const input = h("input", {
    type: "file",
    id: "file",
    accept: ".ndjson,.jsonl,.csv,.tsv,.txt",
    onchange: () => reading = read(),
  });
  const error = div.near({ role: "alert" });
  const shown = div.stack({ id: "preview", "aria-live": "polite" });
  /** @type {{file: File, key: string, lines: {total: number, rows?: number[]}} | undefined} */
  let chosen;
  let reading = Promise.resolve();
  const read = async () => {
    const [file] = input.files;
    chosen = undefined;
    error.replaceChildren();
    shown.replaceChildren();
    if (!file) return;
    const isCsv = /\.(?:csv|tsv)$/i.test(file.name);
    const isPart = !isCsv && file.size > maxReadBytes;
    const bytes = await (isPart ? file.slice(0, maxReadBytes) : file)
      .arrayBuffer();
    if (file !== input.files[0]) return; // another one was chosen meanwhile
    const text = decode(bytes, !isPart);
    const refuse = (fault) => error.replaceChildren(p.wrong(fault));
    if (text === undefined) {
      return refuse(
        "This file is not in UTF-8: save it as such. Excel calls that “CSV UTF-8”.",
      );
    }
    const table = parseCsv(isCsv ? text : "");
    const fault = faultOfCsv(table);
    if (fault) return refuse(fault);
    const records = recordsOf(table.rows, properties);
    const lines = isCsv
      ? records.map(({ record }) => JSON.stringify(record))
      : text.split("\n").filter((line) => line.trim());
    const first = lines.slice(0, maxShownLines)
      .map((each) => parse(each) ?? {});
    const body = isCsv
      ? new File([lines.join("\n")], file.name.replace(/\.\w+$/, ".ndjson"))
      : file;
    // The last line of a part is cut, and how many there are is not known.
    if (isPart) lines.pop();
    chosen = {
      file: body,
      key: newKey(),
      lines: {
        total: isPart ? 0 : lines.length,
        ...(isCsv && { rows: records.map(({ row }) => row) }),
      },
    };
    const count = (isPart ? "more than " : "") + lines.length.toLocaleString();
    shown.append(
      h2(`${count} ${lines.length === 1 ? "record" : "records"}`),
      ...preview(first, properties).filter(Boolean),
    );
  };
  const submit = async () => {
    await reading;
    if (!chosen) {
      error.replaceChildren(p.wrong("Choose a file first."));
      return input.focus();
    }
    const { file, key, lines } = chosen;
    const response = await send("POST", url, {
      fields: {
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": key,
      },
      body: file,
    });
    const task = response.headers.get("location");
    if (response.status === 202 && task) {
      store(`lines ${pathOf(local(task) ?? url)}`, lines);
      return navigate(task);
    }
    showProblem(error, response);
  };
  return [
    crumbs(back),
    h1("Import"),
    formOf(
      { id: "editing", class: "stack", novalidate: true },
      submit,
      p.soft.prose(
        "NDJSON, one record per line, as Export creates it; or CSV whose first line names the properties. A task imports it, and you see its progress.",
      ),
      div.field(label({ for: "file" }, "File"), input),
      error,
      shown,
      div.bar.row(
        h("button", { class: "primary" }, sends("Import", "POST")),
        a.button.quiet({ href: back }, "Cancel"),
      ),
    ),
  ];
}

/** The progress of an import, and the lines that were rejected. */
export function taskView(task) {
  const { status, lines = 0, errors = [], rejected = 0 } = task;
  const key = `lines ${pathOf(local(task.url) ?? location.href)}`;
  const { total = 0, rows } = stored(key) ?? {};
  const isDone = /^(?:succeeded|failed)$/.test(status);
  const words = task.type === "deletion"
    ? `${task.deleted} of ${task.matched ?? task.deleted} deleted`
    : total
    ? `${lines} of ${total} lines`
    : `${lines} lines`;
  return div.stack.card(
    p.row(b(status), words),
    !isDone &&
      progress({
        "aria-label": words,
        ...(total && { value: lines, max: total }),
      }),
    rejected > 0 && Array.isArray(errors) && errors.length > 0 &&
      div.near(
        h2(`Rejected ${rows ? "rows" : "lines"}`),
        dl.fields.near(errors.map(({ line, error, errors: all = [] }) => [
          dt(rows ? `Row ${rows[line - 1]}` : `Line ${line}`),
          dd(
            [error, ...all.map(({ field, message }) => `${field} ${message}`)]
              .filter(Boolean).join(" "),
          ),
        ])),
      ),
  );
}

/** Writes a cell of CSV; a text that a spreadsheet would compute begins with an apostrophe. */
function cell(value) {
  const text = value == null
    ? ""
    : typeof value === "object"
    ? JSON.stringify(value)
    : String(value);
  const safe = typeof value === "string" && computed.test(text)
    ? `'${text}`
    : text;
  return /[",\r\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
}

/** Saves the records of this page as CSV, or all that match as NDJSON, in the order in which they can be imported. */
export async function exportRecords(view, type) {
  const { url, response: { body } } = view;
  const base = pathOf(url).replace(/.*\//, "");
  if (type === "csv") {
    const names = shownNames(view);
    const rows = body.map((record) => names.map((name) => cell(record[name])));
    return save(
      `${base}.csv`,
      // With a byte-order mark, as Excel takes CSV without one for another encoding.
      "\ufeff" + [names, ...rows].map((row) => `${row.join(",")}\r\n`).join(""),
    );
  }
  const all = Object.fromEntries(
    ["limit", "per_page", "sortby", "order"].map((each) => [each, undefined]),
  );
  const response = await send("GET", withParameters(url, all), {
    fields: { Accept: "application/x-ndjson" },
  });
  if (response.status !== 200) return say(problemOf(response));
  save(`${base}.ndjson`, response.text);
}

function save(name, text) {
  const href = URL.createObjectURL(new Blob([text]));
  a({ href, download: name }).click();
  URL.revokeObjectURL(href);
  say(`Saved as ${name}.`);
}
