// @ts-check
/**
 * Creating, changing, deleting, importing and exporting: forms made of the
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
/** @typedef {import("./page.js").Answer} Answer */
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
    schema.default != null && `by default ${schema.default}`,
    schema.writeOnly && "never shown",
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
  /** What JSON says for the text; what is no number is sent as it is, for the server to judge. */
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

/** Shows what is wrong beside each property, and moves the focus to the first. */
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
      "The server does not respond. Send it again: it is done once at most.",
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
        "You may not do this here: sign in as somebody who may.",
      ),
      button("Sign in", askPassword),
      " ",
      cancel,
    ];
  }
  const to = back.replace(/\?.*/, "");
  if (kind === "import") return importForm(to, cancel);
  const given = kind === "new" && await referencesOf(to, writable);
  return recordForm(view, { given, back, to, cancel });
}

/** @param {View} view @param {{given: false | Json, back: string, to: string, cancel: HTMLElement}} how `given` is what is known of a new record */
function recordForm(view, how) {
  const { given, back, to, cancel } = how;
  const isNew = given !== false;
  const { options: { writable, schema, methods }, answer, properties } = view;
  const record = isNew ? {} : answer.body;
  const required = new Set(schema.required);
  const controls = writable.map((name) => {
    const each = properties[name] ?? {};
    const value = isNew ? given[name] ?? each.default : record[name];
    const made = control(
      name,
      each,
      value,
      required.has(name) && (isNew || !each.writeOnly),
    );
    const example = isNew ? answer.body[0] : record;
    made.input.addEventListener("focus", () => offerChoices(made, example));
    return made;
  });
  const summary = p({ class: "error", role: "alert", tabindex: "-1" });
  const key = newKey();
  let etag = answer.headers.get("etag") ?? "";
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
    const answer = await send(method, isNew ? to : record.url, {
      fields: isNew ? { "Idempotency-Key": key } : {
        "If-Match": etag,
        ...(method === "PATCH" &&
          { "Content-Type": "application/merge-patch+json" }),
      },
      body: JSON.stringify(body),
    });
    if (answer.status === 412) return conflict(body, method);
    if (answer.status >= 300 || answer.status === 0) {
      return showErrors(answer, controls, summary);
    }
    navigate(answer.body?.url ?? back);
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
      p("Your If-Match named the version that you had read, and another is current: 412, nothing was changed. Without it you would have overwritten their change unseen."),
      table(
        { id: "versions" },
        thead(
          tr(["property", "as you read it", "theirs, stored now", "yours"].map((
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
      button("Save mine over it", () => {
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
        button("Replace the whole (PUT)", () => submit("PUT"), "replace"),
      " ",
      cancel,
    ),
  ];
}

export function confirmDelete({ answer: { body, headers }, url }) {
  const error = p({ class: "error", role: "alert" });
  const cascade = h("input", { type: "checkbox", id: "cascade" });
  const more = label(
    { hidden: true, for: "cascade" },
    cascade,
    " Delete them too, and empty the references that are optional (cascade)",
  );
  const dialog = openDialog(
    "Delete it for good?",
    p(`DELETE ${
      new URL(url).pathname
    }: its URL will be 410 (Gone) from then on.`),
    error,
    more,
    h("button", { id: "delete" }, "Delete"),
  );
  dialog.querySelector("form")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const etag = headers.get("etag");
    const answer = await send(
      "DELETE",
      body.url + (cascade.checked ? "?cascade=true" : ""),
      { fields: etag ? { "If-Match": etag } : {} },
    );
    if (answer.status === 204) {
      dialog.close();
      navigate(body.link?.href ?? start.href);
      return say("Deleted.");
    }
    error.textContent = problemOf(answer);
    more.hidden = answer.body?.errorCode !== 40900;
    if (answer.status === 412) {
      error.append(
        " ",
        button("Show it as it is now", () => {
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
    const answer = await send("POST", url, {
      fields: {
        "Content-Type": "application/x-ndjson",
        "Idempotency-Key": newKey(),
      },
      body: chosen,
    });
    const task = answer.headers.get("location");
    if (answer.status === 202 && task) return navigate(task);
    error.textContent = problemOf(answer);
  };
  return [
    h1("Import"),
    form(
      { onsubmit: submit, id: "editing" },
      p("A file of JSON lines, one record a line, as Export saves it. The response is 202: you see the progress of the task."),
      label({ for: "file" }, "File "),
      file,
      error,
      h("button", "Import"),
      " ",
      cancel,
    ),
  ];
}

/** Saves all records that match, as a file of JSON lines. */
export async function exportRecords(url) {
  const from = new URL(url.replace(/#.*/, ""));
  for (const name of ["limit", "offset", "page", "per_page"]) {
    from.searchParams.delete(name);
  }
  const answer = await send("GET", from.href, {
    fields: { Accept: "application/x-ndjson" },
  });
  if (answer.status !== 200) return say(problemOf(answer));
  const name = `${from.pathname.replace(/.*\//, "")}.ndjson`;
  const href = URL.createObjectURL(new Blob([answer.text]));
  a({ href, download: name }).click();
  URL.revokeObjectURL(href);
  say(`Saved as ${name}.`);
}
