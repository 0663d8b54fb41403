// @ts-check
/** The place of the views: which one is shown, how one goes to another, and what several have in common. */

import { a, div, icon, methodTag, nav, p } from "./dom.js";
import { main, markCurrent, say } from "./frame.js";
import { apiTitle, hooks, local, pathOf, startPath } from "./http.js";
import { titles } from "./values.js";

/** @typedef {import("./http.js").View} View */

/** Counts the views: one that comes too late is not shown. */
export let generation = 0;

/** Goes to another view, and waits until it is shown. */
export function navigate(href) {
  history.pushState(null, "", local(href) ?? startPath);
  return show(true);
}

/**
 * Shows the resource in the address bar, where it was scrolled to.
 *
 * @param {boolean} [moved] whether it is another view, which then gets the focus
 * @param {import("./http.js").ApiResponse} [received] the response, if it was requested already
 */
export async function show(moved = false, received = undefined) {
  const mine = ++generation;
  const { y = 0, rows = 0 } = history.state ?? {};
  const active = document.activeElement;
  // Another order or size of the page keeps the focus where it is.
  const focusedId = moved && !active?.hasAttribute("rel") ? active?.id : "";
  main.setAttribute("aria-busy", "true");
  markCurrent();
  if (moved) {
    say("");
    titles.clear();
  }
  await hooks.load(location.href, mine, received);
  if (mine !== generation) return;
  main.removeAttribute("aria-busy");
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} – ${apiTitle}`;
  if (main.contains(document.activeElement)) return;
  const found = focusedId && main.querySelector(`#${CSS.escape(focusedId)}`);
  if (moved) (found || heading)?.focus({ preventScroll: true });
  if (found) return;
  main.scrollTo(0, y);
  main.querySelector("#records")?.scrollTo(0, rows);
}

/** The view, if changes by others show in it. @type {View | undefined} */
export let current;

/** @param {View | undefined} view */
export function setCurrent(view) {
  current = view;
}

/** Replaces the view. */
export function fill(...children) {
  main.replaceChildren(div.view(children));
  main.querySelector("h1")?.setAttribute("tabindex", "-1");
}

/** The way up from a view: its collection, and within another record that one. */
export function crumbs(url) {
  const path = pathOf(url).replace(/^\/$/, "");
  const steps = path.slice(startPath.length - 1).split("/").slice(1, -1);
  let href = startPath.slice(0, -1);
  const links = steps.map((step) => {
    href += `/${step}`;
    return [a({ href }, step), " / "];
  });
  return links.length > 1 &&
    nav.crumbs(
      { "aria-label": "Path" },
      links.slice(1),
      path.replace(/.*\//, ""),
    );
}

/** An empty list, and what to do first. */
export function emptyState(text, ...children) {
  return div.empty(icon("face", "56"), p(text), ...children);
}

/** A label of a button that sends a request. */
export function sends(text, method) {
  return [`${text} `, methodTag(method)];
}
