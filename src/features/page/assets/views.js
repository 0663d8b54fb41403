// @ts-check
/** Which view shows what is in the address bar, and the views of a record and of an error. */

import { a, button, code, dd, div, dl, dt, h1, p, pre } from "./base/dom.js";
import { meaningOf } from "./base/exchange.js";
import { loadRoot, main, nameOf, root } from "./base/frame.js";
import {
  copies,
  get,
  hooks,
  isStream,
  local,
  optionsOf,
  pathOf,
  start,
  store,
  stored,
  targetOf,
} from "./base/http.js";
import { askPassword, showWho } from "./base/session.js";
import {
  explanationOf,
  isLink,
  link,
  nameReferences,
  shownNames,
  titleNameOf,
  titleOf,
  valueOf,
} from "./base/values.js";
import {
  crumbs,
  fill,
  generation,
  navigate,
  setCurrent,
  show,
} from "./base/view.js";
import { addRows, collectionView, watchColumns } from "./collection.js";
import { confirmDelete } from "./forms/dialogs.js";
import { showForm } from "./forms/forms.js";
import { taskView } from "./forms/import.js";
import { showDocs } from "./learn/docs.js";
import { refresh, showEvents } from "./live.js";
import { collectionsOf, isCollectionOf, startView } from "./start.js";

/** @typedef {import("./base/http.js").View} View */

/** Requests what is at a URL, and shows it unless another view has begun. */
hooks.load = async (url, mine, received) => {
  clearInterval(watching);
  const resource = url.replace(/#.*/, "");
  const docs = local(root.documentation_url ?? "");
  if (root.documentation_url && resource === docs) {
    setCurrent(undefined);
    return showDocs();
  }
  const [response, options] = await Promise.all([
    received ?? get(resource),
    optionsOf(url),
  ]);
  if (mine !== generation) return;
  const { properties = {} } = options.schema;
  await hooks.draw({ url, response, options, properties });
};

/** Shows a view. */
hooks.draw = async (view) => {
  const { response, url } = view;
  const { status, body } = response;
  const mine = generation;
  setCurrent(undefined);
  clearInterval(watching);
  if (status !== 200) return fill(...errorView(view));
  const sub = /#(new|edit|import)$/.exec(url)?.[1];
  if (sub) {
    const content = await showForm(view, sub);
    if (mine !== generation) return;
    fill(...content);
    return;
  }
  if (isStream(response)) return showEvents();
  if (Array.isArray(body)) {
    setCurrent(view);
    fill(...collectionView(view));
    watchColumns();
    view.complete = addRows(view);
    await view.complete;
    return nameReferences(main);
  }
  setCurrent(view);
  if (typeof body?.url === "string") {
    fill(...recordView(view));
    return nameReferences(main);
  }
  if (url.replace(/[?#].*/, "") === local(start.href)) {
    return fill(...startView());
  }
  fill(
    h1(pathOf(url)),
    body === undefined ? pre(response.text) : valuesOf(view),
  );
};

function errorView({ response, url }) {
  const { status, headers, body, exchange } = response;
  if (status === 0) return unreachable();
  const { pathname, search } = new URL(url);
  const parent = pathname.replace(/\/[^/]*$/, "") || "/";
  return [
    h1(`${status} ${exchange.reason}`),
    p(code(targetOf(url))),
    p.wrong({ role: "alert" }, body?.error ?? ""),
    p({ id: "meaning" }, meaningOf(status, body, headers)),
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
    p.wrong({ role: "alert" }, "The server does not respond."),
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
    ) => [dt.name(name), dd(valueOf(body, name, properties))]),
    links.map(([name, url]) => [
      dt.name(nameOf(name)),
      dd(link(url)),
    ]),
  );
}

/** When a task that is still being worked on is requested again. */
let watching = 0;

function recordView(view) {
  const { response: { body }, options: { methods, schema }, url } = view;
  const remove = () => confirmDelete(view);
  const isTask = pathOf(url)
    .startsWith(`${pathOf(local(root.tasks_url ?? "") ?? location.href)}/`);
  if (isTask && /^(?:queued|running)$/.test(body.status)) {
    watching = setInterval(refresh, 500);
  }
  return [
    crumbs(url),
    div.row(
      h1(titleOf(body, schema)),
      p.row.push.actions(
        methods.includes("PATCH") &&
          a.button({ href: "#edit" }, "Edit"),
        methods.includes("DELETE") &&
          button("Delete…", remove, undefined, { class: "danger" }),
      ),
    ),
    isTask && taskView(body),
    valuesOf(view),
    collectionsOf(view),
  ];
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
addEventListener("pagehide", () => {
  const url = location.href.replace(/#.*/, "");
  store("copy", [url, copies.get(url)]);
});

const [copiedUrl, copied] = stored("copy") ?? [];
if (copied) copies.set(copiedUrl, copied);
loadRoot().then((response) => {
  showWho();
  hooks.follow();
  show(false, location.href === local(start.href) ? response : undefined);
});
