// @ts-check
/**
 * Creating, changing, deleting, importing and exporting: forms built from the
 * schema and the writable properties that OPTIONS returns.
 */

import { textOf, valueControl } from "./collection.js";
import {
  a,
  askPassword,
  button,
  div,
  form,
  format,
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
  const { minimum, exclusiveMinimum, maximum, maxLength, minLength } = schema;
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
    maxLength && `${minLength ?? 0} to ${maxLength} characters`,
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
  const text = value === null || value === undefined ? "" : String(value);
  const help = { id: `help-${name}`, class: "help" };
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
  const isLong = schema.maxLength > 300 && schema.format !== "uri";
  const input = isLong
    ? h("textarea", attributes, text)
    : valueControl(schema, text, attributes);
  const error = p({ id: `error-${name}`, class: "error" });
  const row = div(
    { class: "field" },
    label({ for: `field-${name}` }, name),
    input,
    p(help, rulesOf(schema, isRequired)),
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
  const bytes = crypto.getRandomValues(new Uint8Array(16));
  return [...bytes].map((byte) => byte.toString(16).padStart(2, "0")).join("");
}

/** Shows each error beside its property, and moves the focus to the first. */
function showErrors({ body }, controls, summary) {
  const errors = new Map(
    (body?.errors ?? []).map((each) => [
      each.field,
      each.message,
    ]),
  );
  for (const { name, input, error } of controls) {
    error.textContent = errors.get(name) ?? "";
    input.setAttribute("aria-invalid", String(errors.has(name)));
    errors.delete(name);
  }
  summary.textContent = [
    body?.error ??
      "The server does not respond. Send it again: it takes effect at most once.",
    ...[...errors].map(([name, message]) => `${name}: ${message}`),
  ].join(" ");
  (main.querySelector("[aria-invalid=true]") ?? summary).focus();
}

/** Lets a reference be chosen from the first records that it can name: those of the collection of one that is named already. */
async function offerChoices({ name, input, row }, record) {
  const target = record?.[name.replace(/_id$/, "_url")];
  if (!target || input.list) return;
  const list = h("datalist", { id: `choices-${name}` });
  row.append(list);
  input.setAttribute("list", list.id);
  const { body } = await get(target);
  const all = body?.link && await get(`${body.link.href}?limit=100`);
  if (!Array.isArray(all?.body)) return;
  list.append(...all.body.map((each) => {
    const [, text] = Object.entries(each).find(([, value]) =>
      typeof value === "string"
    ) ?? [];
    return option({ value: each.id }, text);
  }));
}

/** What a new record refers to because of where it is created: animals of zoo 7 to zoo 7. */
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
    field.input.addEventListener("focus", () => offerChoices(field, example));
    return field;
  });
  const summary = p({ class: "error", role: "alert", tabindex: "-1" });
  const key = newKey();
  let etag = response.headers.get("etag") ?? "";
  /** @param {boolean} isWhole */
  const bodyOf = (isWhole) => {
    /** @type {Json} */
    const body = {};
    for (const { name, input, read, before } of controls) {
      const value = read();
      const isChanged = isNew
        ? value !== undefined && value !== null
        : input.value !== before;
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
    const names = Object.keys(mine).filter((name) =>
      !properties[name]?.["writeOnly"]
    );
    const rows = names.map((name) =>
      tr([
        th({ scope: "row" }, name),
        ...[record, theirs.body, mine].map((from) =>
          td(format(from[name] ?? null, properties[name]))
        ),
      ])
    );
    const dialog = openDialog(
      "Somebody else has changed this record",
      p("Your If-Match named the version that you had read, but the record has changed since: 412, nothing was changed. Without If-Match you would have overwritten their change without seeing it."),
      table(
        { id: "versions" },
        thead(
          tr(["property", "as you read it", "theirs (stored)", "yours"].map((
            text,
          ) => th({ scope: "col" }, text))),
        ),
        tbody(rows),
      ),
      button(
        "Keep theirs",
        () => (dialog.close(), navigate(back)),
        "keep-theirs",
      ),
      " ",
      button("Overwrite with mine", () => {
        dialog.close();
        etag = theirs.headers.get("etag") ?? "";
        submit(method);
      }, "apply-mine"),
    );
  };
  const save = (event) => {
    event.preventDefault();
    submit(isNew ? "POST" : "PATCH");
  };
  return [
    h1(isNew ? `New ${schema.title}` : `Edit ${schema.title} ${record.id}`),
    form(
      { onsubmit: save, novalidate: true, id: "editing" },
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

export function confirmDelete({ response: { body, headers }, url }) {
  const error = p({ class: "error", role: "alert" });
  const cascade = h("input", { type: "checkbox", id: "cascade" });
  const more = label(
    { hidden: true, for: "cascade" },
    cascade,
    " Also delete the records that require it, and clear the other references (cascade)",
  );
  const dialog = openDialog(
    "Delete this record permanently?",
    p(`DELETE ${
      new URL(url).pathname
    }: after that, its URL returns 410 (Gone), or 404 if it is private.`),
    error,
    more,
    h("button", { id: "delete" }, "Delete"),
  );
  dialog.querySelector("form")?.addEventListener("submit", async (event) => {
    event.preventDefault();
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
    error.textContent = problemOf(response);
    more.hidden = response.body?.errorCode !== 40900;
    if (response.status === 412) {
      error.append(
        " ",
        button("Show the current version", () => {
          dialog.close();
          show();
        }),
      );
    }
  });
}

function importForm(url, cancel) {
  const file = h("input", { type: "file", id: "file" });
  const error = p({ class: "error", role: "alert" });
  const submit = async (event) => {
    event.preventDefault();
    const [chosen] = file.files;
    if (!chosen) return void (error.textContent = "Choose a file first.");
    const response = await send("POST", url, {
      fields: {
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": newKey(),
      },
      body: chosen,
    });
    const task = response.headers.get("location");
    if (response.status === 202 && task) return navigate(task);
    error.textContent = problemOf(response);
  };
  return [
    h1("Import"),
    form(
      { onsubmit: submit, id: "editing" },
      p("An NDJSON file, one record per line, as Export creates it. The response is 202, and then you see the progress of the task."),
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
  const from = new URL(url.replace(/#.*/, ""));
  for (const name of ["limit", "offset", "page", "per_page"]) {
    from.searchParams.delete(name);
  }
  const response = await send("GET", from.href, {
    fields: { Accept: "application/x-ndjson" },
  });
  if (response.status !== 200) return say(problemOf(response));
  const name = `${from.pathname.replace(/.*\//, "")}.ndjson`;
  const href = URL.createObjectURL(new Blob([response.text]));
  a({ href, download: name }).click();
  URL.revokeObjectURL(href);
  say(`Saved as ${name}.`);
}
