// @ts-check
/**
 * Creating, changing and deleting: forms built from the schema and the
 * writable properties that OPTIONS returns.
 */

import { a, b, button, div, formOf, h, h1, p, span } from "../base/dom.js";
import { showProblem } from "../base/exchange.js";
import { main, nameOf, root, say } from "../base/frame.js";
import {
  authorization,
  etagOf,
  get,
  local,
  newKey,
  pathOf,
  send,
  store,
  stored,
} from "../base/http.js";
import { askPassword } from "../base/session.js";
import { titleAt, titleOf } from "../base/values.js";
import { crumbs, navigate, sends, show } from "../base/view.js";
import { fieldOf } from "./controls.js";
import { showConflict } from "./dialogs.js";
import { importForm } from "./import.js";

/** @typedef {import("../base/http.js").View} View */
/** @typedef {import("../base/http.js").Json} Json */

/** Shows each error beside its property, and moves the focus to the first. */
function showErrors(response, controls, summary) {
  const errors = new Map(
    (response.body?.errors ?? []).map((each) => [
      each.field,
      each.message,
    ]),
  );
  for (const { name, mark } of controls) {
    mark(errors.get(name) ?? "");
    errors.delete(name);
  }
  showProblem(summary, response);
  summary.append(...[...errors].map((error) => p(error.join(": "))));
  (main.querySelector("[aria-invalid=true]") ?? summary).focus();
}

/** Marks the texts that are not sent because they are no values; returns whether there are any. */
function hasFaults(controls, summary) {
  const faults = controls.filter((field) => {
    const fault = field.isChanged() ? field.fault() : "";
    field.mark(fault);
    return fault;
  });
  summary.replaceChildren();
  if (faults.length === 0) return false;
  summary.append(p.wrong("Nothing was sent: correct what is marked first."));
  main.querySelector("[aria-invalid=true]")?.focus();
  return true;
}

/**
 * Returns the property that the URL of a new record fixes: the zoo of an
 * animal in /zoos/7/animals, and the title of that zoo.
 */
async function fixedBy(url, properties) {
  const path = /([^/]+)\/(\d+)\/([^/]+)$/.exec(url);
  if (!path) return undefined;
  const [, collection, , segment] = path;
  const named = Object.entries(properties)
    .filter(([, each]) => each["x-collection"] === collection);
  const [name] = named.find(([, each]) => each["x-as"] === segment) ??
    named.find(([, each]) => !each["x-as"]) ?? [];
  if (!name) return undefined;
  const title = await titleAt(url.replace(/\/[^/]*$/, ""));
  return { name, title: title ?? path[2] };
}

export async function showForm(view, kind) {
  const { options: { methods }, url, properties } = view;
  const back = url.replace(/#.*/, "");
  const needed = kind === "edit" ? "PATCH" : "POST";
  if (!methods.includes(needed)) {
    return [
      crumbs(url),
      h1("Not allowed"),
      p.wrong("You may not do this here: sign in as a user who may."),
      div.row(
        !authorization && button("Sign in", askPassword, undefined, {
          class: "primary",
        }),
        a.button.quiet({ href: back }, "Back"),
      ),
    ];
  }
  const to = back.replace(/\?.*/, "");
  if (kind === "import") {
    return importForm(to, back);
  }
  const fixed = kind === "new" ? await fixedBy(to, properties) : undefined;
  return recordForm(view, { isNew: kind === "new", fixed, back, to });
}

/**
 * The content of a form, stored until it is sent: it survives a reload, a
 * sign-in, and the way back. Passwords are not stored.
 */
function draftOf(name, controls, base) {
  const key = `draft ${name}`;
  const typed = controls.filter(({ input }) => input.type !== "password");
  const draft = stored(key);
  if (draft) {
    for (const { name, restore } of typed) {
      if (name in draft.values) restore(draft.values[name]);
    }
  }
  const kept = {
    ...base,
    ...draft,
    isRestored: draft != null,
    keep() {
      const values = Object.fromEntries(
        typed.filter((each) => each.isChanged())
          .map(({ name, draft }) => [name, draft()]),
      );
      const { key: idempotencyKey, etag } = kept;
      const isEmpty = Object.keys(values).length === 0;
      store(key, isEmpty ? null : { key: idempotencyKey, etag, values });
    },
    drop: () => store(key, null),
  };
  return kept;
}

/** @param {View} view @param {{isNew: boolean, fixed: {name: string, title: any} | undefined, back: string, to: string}} options `fixed` is the property that the URL fixes */
function recordForm(view, { isNew, fixed, back, to }) {
  const { options: { writable, schema, methods }, response, properties } = view;
  const record = isNew ? {} : response.body;
  // Any other record is where its own URL says: it can leave one through a parent.
  const isOwn = to === local(root.current_user_url ?? "");
  const target = isNew || isOwn ? to : record.url;
  const required = new Set(schema.required);
  const controls = writable.filter((name) => name !== fixed?.name)
    .map((name) => {
      const each = properties[name] ?? {};
      const value = isNew ? each.default : record[name];
      const isRequired = required.has(name) && (isNew || !each.writeOnly);
      return fieldOf(name, each, value, isRequired);
    });
  const summary = div.near({ role: "alert", tabindex: "-1" });
  const draft = draftOf(`${isNew ? "new" : "edit"} ${pathOf(to)}`, controls, {
    key: newKey(),
    etag: etagOf(response),
  });
  let { etag } = draft;
  const sending = span.soft.wide();
  const count = () => {
    const changed = controls.filter((each) => each.isChanged()).length;
    sending.textContent = isNew
      ? ""
      : `Sends ${changed} of ${controls.length} properties`;
  };
  const leave = () => {
    draft.drop();
    return navigate(back);
  };
  /** @param {boolean} isWhole */
  const bodyOf = (isWhole) => {
    /** @type {Json} */
    const body = {};
    for (const { name, read, isChanged } of controls) {
      const value = read();
      const isSent = isNew ? value != null : isChanged();
      if (isWhole ? value !== undefined : isSent) {
        body[name] = value ?? (isNew ? undefined : null);
      }
    }
    return body;
  };
  /** @param {string} method */
  const submit = async (method) => {
    await Promise.all(controls.map(({ settle }) => settle()));
    if (hasFaults(controls, summary)) return;
    const body = bodyOf(method === "PUT");
    const wasSignedIn = Boolean(authorization);
    const response = await send(method, target, {
      fields: isNew ? { "Idempotency-Key": draft.key } : {
        ...(etag && { "If-Match": etag }),
        ...(method === "PATCH" &&
          { "Content-Type": "application/merge-patch+json" }),
      },
      body: JSON.stringify(body),
    });
    if (response.status === 412) return conflict(body, method);
    if (response.status >= 300 || response.status === 0) {
      // A refused request has stored nothing; what is sent next is another one.
      if (response.status >= 400 && response.status < 500) {
        draft.key = newKey();
        draft.keep();
      }
      showErrors(response, controls, summary);
      if (response.body?.errorCode !== 42201) return;
      return summary.append(a({ href: to }, "Show the list"));
    }
    draft.drop();
    await navigate(isNew ? response.body?.url ?? back : target);
    // A changed password ends all sign-ins of its user.
    const isEnded = wasSignedIn && !authorization;
    say(isNew ? "Created." : `Changed${isEnded ? ": sign in again" : ""}.`);
  };
  /** @param {Json} mine @param {string} method */
  const conflict = async (mine, method) => {
    const theirs = await get(target);
    if (theirs.status !== 200) return showErrors(theirs, controls, summary);
    // It was one's own change, whose response was lost.
    if (
      Object.entries(mine).every(([name, value]) => theirs.body[name] === value)
    ) return leave();
    showConflict(view, { theirs: theirs.body, mine }, {
      keep: leave,
      apply: () => {
        etag = etagOf(theirs);
        return submit(method);
      },
    });
  };
  const discard = () => {
    draft.drop();
    return show();
  };
  const form = formOf(
    { novalidate: true, id: "editing", class: "stack" },
    ({ submitter }) => submit(submitter?.value || (isNew ? "POST" : "PATCH")),
    summary,
    draft.isRestored &&
      div.row.card(
        { id: "restored" },
        "What you had typed here is back.",
        button("Discard it", discard, "discard", { class: "quiet" }),
      ),
    fixed &&
      p.field(b(fixed.name.replace(/_id$/, "")), `${fixed.title}, by the URL`),
    controls.map(({ row }) => row),
    div.bar.row(
      h(
        "button",
        { class: "primary", id: "save" },
        isNew ? sends("Create", "POST") : sends("Save changes", "PATCH"),
      ),
      button("Cancel", leave, "cancel", { class: "quiet" }),
      sending,
      !isNew && methods.includes("PUT") &&
        h(
          "button",
          { class: "quiet push", id: "replace", value: "PUT" },
          sends("Replace the whole record", "PUT"),
        ),
    ),
  );
  form.addEventListener("input", () => {
    draft.keep();
    count();
  });
  count();
  return [
    crumbs(back),
    h1(
      isNew ? `New ${nameOf(schema.title)}` : `Edit ${titleOf(record, schema)}`,
    ),
    form,
  ];
}
