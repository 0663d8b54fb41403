// @ts-check
/** The dialogs about a record: a conflict with a change by somebody else, and deleting. */

import {
  button,
  code,
  dataTable,
  div,
  h,
  label,
  mark,
  p,
} from "../base/dom.js";
import { showProblem } from "../base/exchange.js";
import { say } from "../base/frame.js";
import { etagOf, send, start } from "../base/http.js";
import { openDialog } from "../base/session.js";
import { format, titleOf } from "../base/values.js";
import { navigate, sends, show } from "../base/view.js";

/** Shows both versions of a record that somebody else has changed meanwhile. */
export function showConflict(view, { theirs, mine }, { keep, apply }) {
  const { options: { writable }, response: { body: record }, properties } =
    view;
  const versions = [record, theirs, { ...theirs, ...mine }];
  const rows = writable
    .filter((name) =>
      !properties[name]?.writeOnly &&
      new Set(versions.map((version) => version[name])).size > 1
    )
    .map((name) => [
      code(name),
      ...versions.map((version) => {
        const shown = format(version[name], properties[name]) || "empty";
        return version[name] === record[name] ? shown : mark(shown);
      }),
    ]);
  const columns = [
    "property",
    "as you read it",
    "theirs, stored now",
    "with your change",
  ];
  const dialog = openDialog(
    "Somebody else has changed this record",
    undefined,
    p("412: your If-Match names the version that you read, but there is a newer one. Nothing was changed. Without If-Match you would not have noticed."),
    div({ id: "versions" }, dataTable("The versions", columns, rows)),
    div.row(
      button(
        sends("Apply my change", "PATCH"),
        () => {
          dialog.close();
          return apply();
        },
        "apply-mine",
        { class: "primary", autofocus: true },
      ),
      button("Keep theirs", () => {
        dialog.close();
        return keep();
      }, "keep-theirs"),
    ),
  );
}

export function confirmDelete({ response: { body, headers }, options }) {
  const error = div({ role: "alert" });
  const cascade = h("input", { type: "checkbox", id: "cascade" });
  const more = label.choice.row(
    { hidden: "", for: "cascade" },
    cascade,
    " Also delete the records that require it, and clear the other references (?cascade=true)",
  );
  const remove = async () => {
    const etag = etagOf({ headers });
    const response = await send(
      "DELETE",
      body.url + (cascade.checked ? "?cascade=true" : ""),
      { fields: etag ? { "If-Match": etag } : {} },
    );
    const task = response.headers.get("location");
    if (response.status === 204 || task) {
      dialog.close();
      await navigate(task ?? body.link?.href ?? start.href);
      return task ?? say("Deleted.");
    }
    showProblem(error, response);
    more.hidden = response.body?.errorCode !== 40900;
    if (response.status === 412) {
      error.append(button("Show the current version", () => {
        dialog.close();
        return show();
      }));
    }
  };
  const dialog = openDialog(
    `Delete ${titleOf(body, options.schema)}?`,
    remove,
    p("This cannot be undone. After that, its URL returns 410 (Gone), or 404 if it is private."),
    error,
    more,
    h(
      "button",
      { id: "delete", class: "danger primary" },
      sends("Delete", "DELETE"),
    ),
  );
}
