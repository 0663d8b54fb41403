// @ts-check
/**
 * Creating, changing, deleting, importing and exporting: forms built from the
 * schema and the writable properties that OPTIONS returns.
 */

import { textOf, valueControl, withParameters } from "./collection.js";
import { showProblem } from "./exchange.js";
import {
  a,
  askPassword,
  button,
  div,
  format,
  formOf,
  get,
  h,
  h1,
  label,
  main,
  navigate,
  openDialog,
  option,
  optionsOf,
  p,
  pathOf,
  problemOf,
  say,
  send,
  show,
  start,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
  typesOf,
} from "./page.js";

/** @typedef {import("./page.js").View} View */
/** @typedef {import("./page.js").Json} Json */

/** The rules of a property in words. */
export function rulesOf(schema, isRequired) {
  const { minimum, exclusiveMinimum, maximum, maxLength, minLength, pattern } =
    schema;
  const isNumber = /integer|number/.test(String(schema.type));
  return [
    schema.readOnly
      ? "set by the server"
      : isRequired
      ? "required"
      : "optional",
    typesOf(schema).filter((type) => type !== "null").join(" or "),
    schema.description ?? schema.format,
    schema.enum?.join(", "),
    maxLength &&
    (minLength === maxLength
      ? `${maxLength} characters`
      : `${minLength ?? 0} to ${maxLength} characters`),
    !schema.description && pattern?.length < 40 && `as in ${pattern}`,
    isNumber && minimum !== undefined && `at least ${minimum}`,
    exclusiveMinimum !== undefined && `more than ${exclusiveMinimum}`,
    isNumber && maximum < Number.MAX_SAFE_INTEGER && `at most ${maximum}`,
    schema.default != null && `default: ${schema.default}`,
    schema.writeOnly && "write-only",
  ].filter(Boolean).join(", ");
}

/** A property with its control. */
function control(name, schema, value, isRequired) {
  const types = typesOf(schema);
  const text = String(value ?? "");
  const isNumber = /integer|number/.test(String(types));
  const attributes = {
    id: `field-${name}`,
    name,
    dir: "auto",
    "aria-describedby": `help-${name} error-${name}`,
    "aria-required": isRequired,
    ...(isNumber && { inputmode: "decimal" }),
    ...(schema.writeOnly && name.includes("password") &&
      { type: "password", autocomplete: "new-password" }),
  };
  const isLong = schema.maxLength > 300 && schema.format !== "iri";
  const input = isLong
    ? h("textarea", attributes, text)
    : valueControl(schema, text, attributes);
  const error = p({ id: `error-${name}`, class: "error" });
  const row = div(
    { class: "field" },
    label({ for: `field-${name}` }, name),
    input,
    p({ id: `help-${name}`, class: "help" }, rulesOf(schema, isRequired)),
    error,
  );
  /** Returns the JSON value of the text; anything that is not a number is sent unchanged, for the server to validate. */
  const read = () => {
    const value = textOf(input);
    if (value === "") return types.includes("null") ? null : undefined;
    if (types.includes("boolean")) return value === "true";
    return isNumber && Number.isFinite(Number(value)) ? Number(value) : value;
  };
  return { name, row, input, error, read, before: input.value };
}

/** An Idempotency-Key, so that sending a form again cannot create a second record. */
function newKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}

/** Shows each error beside its property, and moves the focus to the first. */
function showErrors(response, controls, summary) {
  const errors = new Map(
    (response.body?.errors ?? []).map((each) => [
      each.field,
      each.message,
    ]),
  );
  for (const { name, input, error } of controls) {
    error.textContent = errors.get(name) ?? "";
    input.setAttribute("aria-invalid", String(errors.has(name)));
    errors.delete(name);
  }
  showProblem(summary, response);
  summary.append(...[...errors].map((error) => p(error.join(": "))));
  (main.querySelector("[aria-invalid=true]") ?? summary).focus();
}

/** Lets a reference be chosen from the first records that it can name: those of the collection of one that is named already. */
async function offerChoices({ name, input, row }, record) {
  const target = record?.[name.replace(/(_id)?$/, "_url")];
  if (!target || input.list) return;
  const list = h("datalist", { id: `choices-${name}` });
  row.append(list);
  input.setAttribute("list", list.id);
  const { body } = await get(target.replace(/\/\d+$/, "?limit=100"));
  if (!Array.isArray(body)) return;
  list.append(...body.map((each) => {
    const [, text] = Object.entries(each).find(([, value]) =>
      typeof value === "string"
    ) ?? [];
    return option({ value: each.id }, text);
  }));
}

/** Returns the references that a new record has because of where it is created: animals of zoo 7 to zoo 7. */
async function referencesOf(url, writable) {
  const parent = url.replace(/\/[^/]*$/, "");
  const id = /\/(\d+)$/.exec(parent)?.[1];
  const { title } = id ? (await optionsOf(parent)).schema : {};
  const name = `${title}_id`;
  return writable.includes(name) ? { [name]: id } : {};
}

export async function showForm(view, kind) {
  const { options: { methods, writable }, url } = view;
  const back = url.replace(/#.*/, "");
  const cancel = a({ href: back }, "Cancel");
  const needed = kind === "edit" ? "PATCH" : "POST";
  if (!methods.includes(needed)) {
    return [
      h1("Not allowed"),
      p(
        { class: "error" },
        "You may not do this here: sign in as a user who may.",
      ),
      button("Sign in", askPassword),
      " ",
      cancel,
    ];
  }
  const to = back.replace(/\?.*/, "");
  if (kind === "import") return importForm(to, cancel);
  const initial = kind === "new" && await referencesOf(to, writable);
  return recordForm(view, { initial, back, to, cancel });
}

/** @param {View} view @param {{initial: false | Json, back: string, to: string, cancel: HTMLElement}} options `initial` has the first values of a new record */
function recordForm(view, { initial, back, to, cancel }) {
  const isNew = initial !== false;
  const { options: { writable, schema, methods }, response, properties } = view;
  const record = isNew ? {} : response.body;
  const required = new Set(schema.required);
  const controls = writable.map((name) => {
    const each = properties[name] ?? {};
    const value = isNew ? initial[name] ?? each.default : record[name];
    const field = control(
      name,
      each,
      value,
      required.has(name) && (isNew || !each.writeOnly),
    );
    const example = isNew ? response.body[0] : record;
    field.input.addEventListener(
      "focus",
      () => offerChoices(field, example),
    );
    return field;
  });
  const summary = div({ role: "alert", tabindex: "-1" });
  const key = newKey();
  let etag = response.headers.get("etag") ?? "";
  /** @param {boolean} isWhole */
  const bodyOf = (isWhole) => {
    /** @type {Json} */
    const body = {};
    for (const { name, input, read, before } of controls) {
      const value = read();
      const isChanged = isNew ? value != null : input.value !== before;
      if (isWhole ? value !== undefined : isChanged) {
        body[name] = value ?? (isNew ? undefined : null);
      }
    }
    return body;
  };
  /** @param {string} method */
  const submit = async (method) => {
    const body = bodyOf(method === "PUT");
    const response = await send(method, isNew ? to : record.url, {
      fields: isNew ? { "Idempotency-Key": key } : {
        "If-Match": etag,
        ...(method === "PATCH" &&
          { "Content-Type": "application/merge-patch+json" }),
      },
      body: JSON.stringify(body),
    });
    if (response.status === 412) return conflict(body, method);
    if (response.status >= 300 || response.status === 0) {
      return showErrors(response, controls, summary);
    }
    navigate(response.body?.url ?? back);
    say(isNew ? "Created." : "Changed.");
  };
  /** Shows both versions of a record that somebody else has changed meanwhile. @param {Json} mine @param {string} method */
  const conflict = async (mine, method) => {
    const theirs = await get(record.url);
    if (theirs.status !== 200) return showErrors(theirs, controls, summary);
    const versions = [record, theirs.body, { ...theirs.body, ...mine }];
    const rows = writable
      .filter((name) =>
        !properties[name]?.["writeOnly"] &&
        new Set(versions.map((version) => version[name])).size > 1
      )
      .map((name) =>
        tr([
          th({ scope: "row" }, name),
          ...versions.map((version) =>
            td(format(version[name] ?? null, properties[name]))
          ),
        ])
      );
    const dialog = openDialog(
      "Somebody else has changed this record",
      undefined,
      p("412: your If-Match names the version that you read, but the record has changed since. Nothing was changed. Without If-Match you would not have noticed."),
      table(
        { id: "versions" },
        thead(
          tr(
            [
              "property",
              "as you read it",
              "theirs (stored)",
              "with your change",
            ]
              .map((text) => th({ scope: "col" }, text)),
          ),
        ),
        tbody(rows),
      ),
      button(
        "Keep theirs",
        () => (dialog.close(), navigate(back)),
        "keep-theirs",
      ),
      button("Apply my change", () => {
        dialog.close();
        etag = theirs.headers.get("etag") ?? "";
        submit(method);
      }, "apply-mine"),
    );
  };
  return [
    h1(isNew ? `New ${schema.title}` : `Edit ${schema.title} ${record.id}`),
    formOf(
      { novalidate: true, id: "editing" },
      () => submit(isNew ? "POST" : "PATCH"),
      summary,
      controls.map(({ row }) => row),
      h("button", isNew ? "Create (POST)" : "Save the changes (PATCH)"),
      " ",
      !isNew && methods.includes("PUT") &&
        button("Replace the record (PUT)", () => submit("PUT"), "replace"),
      " ",
      cancel,
    ),
  ];
}

export function confirmDelete({ response: { body, headers } }) {
  const error = div({ role: "alert" });
  const cascade = h("input", { type: "checkbox", id: "cascade" });
  const more = label(
    { hidden: true, for: "cascade" },
    cascade,
    " Also delete the records that require it, and clear the other references (?cascade=true)",
  );
  const remove = async () => {
    const etag = headers.get("etag");
    const response = await send(
      "DELETE",
      body.url + (cascade.checked ? "?cascade=true" : ""),
      { fields: etag ? { "If-Match": etag } : {} },
    );
    if (response.status === 204) {
      dialog.close();
      navigate(body.link?.href ?? start.href);
      return say("Deleted.");
    }
    showProblem(error, response);
    more.hidden = response.body?.errorCode !== 40900;
    if (response.status === 412) {
      error.append(button("Show the current version", () => {
        dialog.close();
        show();
      }));
    }
  };
  const dialog = openDialog(
    "Delete this record permanently?",
    remove,
    p("After that, its URL returns 410 (Gone), or 404 if it is private."),
    error,
    more,
    h("button", { id: "delete" }, "Delete"),
  );
}

function importForm(url, cancel) {
  const file = h("input", { type: "file", id: "file" });
  const error = div({ role: "alert" });
  const submit = async () => {
    const [chosen] = file.files;
    if (!chosen) return error.replaceChildren("Choose a file first.");
    const response = await send("POST", url, {
      fields: {
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": newKey(),
      },
      body: chosen,
    });
    const task = response.headers.get("location");
    if (response.status === 202 && task) return navigate(task);
    showProblem(error, response);
  };
  return [
    h1("Import"),
    formOf(
      { id: "editing" },
      submit,
      p("An NDJSON file, one record per line, as Export creates it. Then you see the progress of the task."),
      label({ for: "file" }, "File "),
      file,
      error,
      h("button", "Import"),
      " ",
      cancel,
    ),
  ];
}

/** Saves all records that match, as an NDJSON file. */
export async function exportRecords(url) {
  const all = { limit: undefined, per_page: undefined };
  const response = await send("GET", withParameters(url, all), {
    fields: { Accept: "application/x-ndjson" },
  });
  if (response.status !== 200) return say(problemOf(response));
  const name = `${pathOf(url).replace(/.*\//, "")}.ndjson`;
  const href = URL.createObjectURL(new Blob([response.text]));
  a({ href, download: name }).click();
  URL.revokeObjectURL(href);
  say(`Saved as ${name}.`);
}
