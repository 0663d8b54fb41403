// @ts-check
/** The view of what is in the address bar: which one it is, and those of the root document, a record and an error. */

import {
  a,
  button,
  dd,
  div,
  dl,
  dt,
  h,
  h1,
  icon,
  methodTag,
  p,
  pre,
} from "./dom.js";
import { loadRoot, main, markCurrent, nameOf, root, say } from "./frame.js";
import {
  apiTitle,
  copies,
  get,
  isStream,
  local,
  optionsOf,
  pathOf,
  start,
  startPath,
  store,
  stored,
} from "./http.js";
import { meaningOf } from "./exchange.js";
import { collectionsOf, isCollectionOf, startView } from "./start.js";
import { again, askPassword, follow, showWho } from "./session.js";
import {
  explanationOf,
  isLink,
  link,
  nameReferences,
  shownNames,
  titleNameOf,
  titleOf,
  titles,
  valueOf,
} from "./values.js";

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
  clearInterval(watching);
  main.setAttribute("aria-busy", "true");
  markCurrent();
  if (moved) {
    say("");
    titles.clear();
  }
  try {
    await load(location.href, mine, received);
  } catch { // a script could not be loaded
    if (mine === generation) fill(...unreachable());
  }
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

/** Requests what is at a URL, and shows it unless another view has begun. */
async function load(url, mine, received) {
  const resource = url.replace(/#.*/, "");
  const docs = local(root.documentation_url ?? "");
  if (root.documentation_url && resource === docs) {
    current = undefined;
    const { showDocs } = await import("../docs.js");
    if (mine === generation) await showDocs();
    return;
  }
  const [response, options] = await Promise.all([
    received ?? get(resource),
    optionsOf(url),
  ]);
  if (mine !== generation) return;
  const { properties = {} } = options.schema;
  await draw({ url, response, options, properties });
}

/** The view, if changes by others show in it. @type {View | undefined} */
export let current;

/** @param {View} view */
export function setCurrent(view) {
  current = view;
}

/** Replaces the view. */
export function fill(...children) {
  main.replaceChildren(div({ class: "view" }, children));
  main.querySelector("h1")?.setAttribute("tabindex", "-1");
}

/** Shows a view. @param {View} view */
export async function draw(view) {
  const { response, url } = view;
  const { status, body } = response;
  const mine = generation;
  current = undefined;
  clearInterval(watching);
  if (status !== 200) return fill(...errorView(view));
  const sub = /#(new|edit|import)$/.exec(url)?.[1];
  if (sub) {
    const { showForm } = await import("../forms.js");
    const content = await showForm(view, sub);
    if (mine !== generation) return;
    fill(...content);
    main.querySelector("#editing")?.dispatchEvent(new Event("shown"));
    return;
  }
  if (isStream(response)) {
    const { showEvents } = await import("../live.js");
    if (mine === generation) showEvents();
    return;
  }
  if (Array.isArray(body)) {
    const { addRows, collectionView, watchColumns } = await import(
      "../collection.js"
    );
    if (mine !== generation) return;
    current = view;
    fill(...collectionView(view));
    watchColumns();
    view.complete = addRows(view);
    await view.complete;
    return nameReferences(main);
  }
  current = view;
  if (typeof body?.url === "string") {
    fill(...await recordView(view));
    return nameReferences(main);
  }
  if (url.replace(/[?#].*/, "") === local(start.href)) {
    return fill(...startView());
  }
  fill(
    h1(pathOf(url)),
    body === undefined ? pre(response.text) : valuesOf(view),
  );
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
  return links.length > 1 && h(
    "nav",
    {
      class: "crumbs",
      "aria-label": "Path",
    },
    links.slice(1),
    path.replace(/.*\//, ""),
  );
}

function errorView({ response, url }) {
  const { status, headers, body, exchange } = response;
  if (status === 0) return unreachable();
  const { pathname, search } = new URL(url);
  const parent = pathname.replace(/\/[^/]*$/, "") || "/";
  return [
    h1(`${status} ${exchange.reason}`),
    p(h("code", pathOf(url) + search)),
    p({ role: "alert", class: "wrong" }, body?.error ?? ""),
    p({ id: "meaning" }, meaningOf(status, headers)),
    p(explanationOf(body)),
    search && p(a({ href: pathname }, "This URL without parameters")),
    /404|410/.test(status) && p(a({ href: parent }, `Up to ${parent}`)),
    status === 401 && button("Sign in", askPassword, undefined, {
      class: "primary",
    }),
  ];
}

function unreachable() {
  return [
    h1("No response"),
    p({ role: "alert", class: "wrong" }, "The server does not respond."),
    button("Retry", () => show(), "retry", { class: "primary" }),
  ];
}

/** The properties of a record, but the one that titles it. */
function valuesOf(view) {
  const { response: { body }, properties } = view;
  const names = shownNames(view).filter((name) =>
    name !== titleNameOf(properties) || properties[name].format
  );
  const links = Object.entries(body).filter(([name, value]) =>
    isLink(name, properties[name]) && typeof value === "string" &&
    !(name.replace(/_url$/, "_id") in body) && body.url !== value &&
    !isCollectionOf(body, name, properties)
  );
  return dl(
    { id: "record" },
    names.map((
      name,
    ) => [dt({ class: "name" }, name), dd(valueOf(body, name, properties))]),
    links.map(([name, url]) => [
      dt({ class: "name" }, nameOf(name)),
      dd(link(url)),
    ]),
  );
}

/** When a task that is still being worked on is requested again. */
let watching = 0;

async function recordView(view) {
  const { response: { body }, options: { methods, schema }, url } = view;
  const remove = async () => {
    (await import("../forms/dialogs.js")).confirmDelete(view);
  };
  const isTask = pathOf(url)
    .startsWith(`${pathOf(local(root.tasks_url ?? "") ?? location.href)}/`);
  if (isTask && /^(?:queued|running)$/.test(body.status)) {
    watching = setInterval(
      async () => (await import("../live.js")).refresh(),
      500,
    );
  }
  return [
    crumbs(url),
    div(
      { class: "row" },
      h1(titleOf(body, schema)),
      p(
        { class: "row push actions" },
        methods.includes("PATCH") &&
          a({ href: "#edit", class: "button" }, "Edit"),
        methods.includes("DELETE") &&
          button("Delete…", remove, undefined, { class: "danger" }),
      ),
    ),
    isTask && (await import("../forms/import.js")).taskView(body),
    valuesOf(view),
    collectionsOf(view),
  ];
}

/** An empty list, and what to do first. */
export function emptyState(text, ...children) {
  return div({ class: "empty" }, icon("cat", "56"), p(text), ...children);
}

/** A label of a button that sends a request. */
export function sends(text, method) {
  return [`${text} `, methodTag(method)];
}

// --- Begin

document.addEventListener("click", (event) => {
  const anchor = /** @type {Element} */ (event.target).closest("a");
  if (!anchor || !local(anchor.href) || anchor.matches(".skip, [download]")) {
    return;
  }
  const { button, ctrlKey, metaKey, shiftKey, altKey } = event;
  if (button || ctrlKey || metaKey || shiftKey || altKey) return;
  event.preventDefault();
  navigate(anchor.href);
});
addEventListener("popstate", () => show(true));
history.scrollRestoration = "manual"; // the content comes after the page
document.addEventListener("scrollend", () => {
  const rows = main.querySelector("#records")?.scrollTop;
  history.replaceState({ y: main.scrollTop, rows }, "");
}, { capture: true });
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => {
  const url = location.href.replace(/#.*/, "");
  store("copy", [url, copies.get(url)]);
});

again.show = async () => {
  await loadRoot();
  await show();
};
const [copiedUrl, copied] = stored("copy") ?? [];
if (copied) copies.set(copiedUrl, copied);
loadRoot().then((response) => {
  showWho();
  follow();
  show(false, location.href === local(start.href) ? response : undefined);
});
