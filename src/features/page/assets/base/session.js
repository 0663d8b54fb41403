// @ts-check
/** Signing in and out, and dialogs. */

import { a, button, div, formOf, h, h2, label, p, small } from "./dom.js";
import { loadRoot, main, root, say, who } from "./frame.js";
import {
  authorization,
  authorize,
  forgetDrafts,
  get,
  hooks,
  local,
  problemOf,
  send,
} from "./http.js";
import { titles } from "./values.js";
import { show } from "./view.js";

export async function showWho() {
  const url = root.current_user_url;
  if (!authorization || !url) {
    const { authorizations_url: to } = root;
    const signIn = () => askPassword();
    who.replaceChildren(
      ...(to ? [button("Sign in", signIn, "sign-in")] : []),
    );
    return;
  }
  const { status, body } = await get(url, true);
  if (status !== 200 || !authorization) return;
  who.replaceChildren(
    a({ href: local(url) }, body.username, small(` ${body.role}`)),
    button("Sign out", signOut, "sign-out", { class: "quiet" }),
  );
}

export function askPassword() {
  const error = p.wrong({ role: "alert" });
  const username = field("Username", "text", "username");
  const password = field("Password", "password", "current-password");
  const signIn = async () => {
    error.textContent = "";
    const body = JSON.stringify({
      username: username.input.value,
      password: password.input.value,
    });
    const response = await send("POST", root.authorizations_url ?? "", {
      body,
    });
    if (response.status !== 201) {
      error.textContent = problemOf(response);
      return password.input.select();
    }
    const { token, url } = response.body;
    await changeSession({ token, url });
    dialog.close();
    // The pressed button is gone when somebody is signed in.
    const place = main.querySelector("#editing input, h1");
    place?.focus({ preventScroll: true });
    say("You are signed in.");
  };
  const dialog = openDialog(
    "Sign in",
    signIn,
    p.soft(
      "At its first start the server shows the password of admin. The token is kept in this tab only, and lost when you close it.",
    ),
    username.label,
    password.label,
    error,
    h("button", { class: "primary" }, "Sign in"),
  );
}

function field(name, type, autocomplete) {
  const input = h("input", { type, autocomplete, name: autocomplete });
  return { input, label: label.field(name, input) };
}

/** Opens a dialog with a form; it is closed by Escape or its button. The last child is its main button. */
export function openDialog(title, submit, ...children) {
  const last = children.pop();
  const close = button("Cancel", () => dialog.close(), undefined, {
    class: "quiet",
    autofocus: last.matches(".danger"),
  });
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() },
    formOf(
      { novalidate: true, class: "stack" },
      submit,
      h2({ id: "dialog-title" }, title),
      ...children,
      div.row(last, close),
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return /** @type {HTMLDialogElement} */ (dialog);
}

async function signOut() {
  if (authorization) await send("DELETE", authorization.url);
  forgetDrafts();
  endSession("You are signed out.");
}

export function endSession(message) {
  changeSession(null);
  say(message);
}

hooks.unauthorized = () => endSession("Your sign-in has ended.");

async function changeSession(changed) {
  authorize(changed);
  titles.clear();
  hooks.follow();
  await Promise.all([
    showWho(),
    // The text in a form stays, to be sent again after the next sign-in.
    loadRoot().then(() => main.querySelector("#editing") || show()),
  ]);
}
