// @ts-check
/** The frame around every view: the header, the messages, and the drawer with the exchanges. */

import {
  a,
  aside,
  button,
  code,
  disclosure,
  div,
  h,
  h2,
  header,
  icon,
  li,
  methodTag,
  nav,
  p,
  span,
  statusTag,
  ul,
} from "./dom.js";
import {
  apiTitle,
  get,
  hooks,
  local,
  start,
  startPath,
  store,
  stored,
  targetOf,
} from "./http.js";

export const main = h("main", { id: "main" }, p("Loading…"));
const links = nav({ "aria-label": "Resources" });
export const who = div.row({ id: "who" });
export const live = span.push({ id: "live", role: "status" });
const announcer = div({ id: "message", role: "status" });
let hiding = 0;

/** Says what was done, to screen readers too, for some seconds or until the next view. */
export function say(text) {
  clearTimeout(hiding);
  announcer.textContent = text;
  if (text) hiding = setTimeout(() => announcer.textContent = "", 8000);
}

// --- The drawer

const exchangeList = div({ id: "exchanges" });
const minWidth = 300;
const grip = div.grip({
  role: "separator",
  tabindex: "0",
  "aria-orientation": "vertical",
  "aria-label": "Width of the drawer",
  "aria-valuemin": minWidth,
});
const latest = span.wide();
const opener = button([icon("wire"), latest], () => open(true), "wire-open", {
  class: "quiet",
  "aria-label": "Show the HTTP behind this page",
  "aria-expanded": "false",
});
const drawer = aside.wire(
  { id: "wire", "aria-labelledby": "exchange-title" },
  grip,
  header.row(
    h2({ id: "exchange-title" }, "The HTTP behind this page"),
    button("Clear", () => exchangeList.replaceChildren(), "wire-clear", {
      class: "quiet push",
    }),
    button(icon("close"), () => open(false), "wire-close", {
      class: "quiet",
      "aria-label": "Close the drawer",
    }),
  ),
  exchangeList,
);
/** On a narrow screen the drawer would cover the view, so that there it is closed at first. */
const isWide = matchMedia("(min-width: 60rem)");
const layout = {
  width: 0,
  isClosed: false,
  ...stored("drawer", "localStorage"),
};

function open(isOpen) {
  if (isWide.matches) {
    layout.isClosed = !isOpen;
    store("drawer", layout, "localStorage");
  }
  showDrawer(isOpen);
  (isOpen ? drawer.querySelector("#wire-close") : opener).focus();
}

function showDrawer(isOpen) {
  drawer.hidden = !isOpen;
  opener.hidden = isOpen && isWide.matches;
  opener.setAttribute("aria-expanded", String(isOpen));
  if (isOpen) openLatest();
}

/** Changes the width; what is dragged or moved by arrow keys is stored. */
function resize(width) {
  const limit = innerWidth - 320;
  const fitting = Math.max(minWidth, Math.min(limit, Math.round(width)));
  drawer.style.setProperty("--wire", `${fitting}px`);
  grip.setAttribute("aria-valuenow", fitting);
  grip.setAttribute("aria-valuemax", limit);
}

function keepWidth() {
  layout.width = drawer.offsetWidth;
  store("drawer", layout, "localStorage");
}

grip.addEventListener("keydown", ({ key }) => {
  const step = { ArrowLeft: 16, ArrowRight: -16 }[key];
  if (!step) return;
  resize(drawer.offsetWidth + step);
  keepWidth();
});
grip.addEventListener("pointerdown", (event) => {
  event.preventDefault();
  grip.setPointerCapture(event.pointerId);
  grip.onpointermove = ({ clientX }) => resize(innerWidth - clientX);
  grip.onpointerup = grip.onpointercancel = () => {
    grip.onpointermove = null;
    keepWidth();
  };
});

/** The exchange that is open because it is the latest. @type {HTMLDetailsElement | null} */
let automatic = null;

/** Opens the latest exchange that a click has caused, unless another one is being read. */
function openLatest() {
  /** @type {HTMLDetailsElement | null} */
  const next = exchangeList.querySelector(".exchange:not(.background)");
  if (!next || drawer.hidden || next === automatic) return;
  if (automatic) automatic.open = false;
  automatic = null;
  if (exchangeList.querySelector(".exchange[open]")) return;
  next.open = true;
  automatic = next;
}

hooks.exchanged = (exchange) => {
  const { method, url, status, reason, ms, isQuiet } = exchange;
  const tag = statusTag(status);
  tag.title = reason;
  const summary = [
    methodTag(method),
    code(targetOf(url)),
    tag,
    span.number(`${ms} ms`),
  ];
  const details = disclosure(
    isQuiet ? "exchange background" : "exchange",
    summary,
    () => hooks.explain(exchange),
  );
  // A click on it is the reader's choice, which stays.
  details.firstChild.addEventListener(
    "click",
    () => {
      if (automatic === details) automatic = null;
    },
  );
  exchangeList.prepend(details);
  while (exchangeList.children.length > 30) exchangeList.lastChild?.remove();
  latest.textContent = `${method} ${status || "✗"}`;
  if (!isQuiet) openLatest();
};

// --- The header

/** The root document. @type {Record<string, string>} */
export let root = {};

/** The resources that every server has; no declared collection can have their names. */
const ofServer =
  /^(?:current_user|authorizations|users|tasks|events|openapi|documentation|answers|health|metrics)_url$/;

/** The resources of the root document: the declared collections, or the others. @returns {[string, string][]} */
export function resources(isOwn) {
  return Object.entries(root)
    .filter(([name, url]) => local(url) && ofServer.test(name) !== isOwn);
}

export function nameOf(name) {
  return name.replace(/_url$/, "").replaceAll("_", " ");
}

/** A link to a resource of the root document. */
export function resourceLink([name, url]) {
  return a({ href: local(url) }, nameOf(name));
}

export async function loadRoot() {
  const response = await get(start.href);
  root = response.body ?? {};
  const { documentation_url: docs } = root;
  links.replaceChildren(ul(
    resources(true).map((each) => li(resourceLink(each))),
    docs && li(a({ href: local(docs) }, "Docs")),
    docs && li(a({ href: `${local(docs)}#course` }, "Lessons")),
  ));
  return response;
}

function isCourse(hash) {
  return hash.startsWith("#course");
}

export function markCurrent() {
  /** @type {NodeListOf<HTMLAnchorElement>} */
  const links = document.querySelectorAll("body > header a");
  for (const link of links) {
    const { pathname } = new URL(link.href);
    const isWithin = `${location.pathname}/`.startsWith(`${pathname}/`) &&
      pathname !== startPath && isCourse(link.hash) === isCourse(location.hash);
    if (isWithin) {
      const isHere = pathname === location.pathname;
      link.setAttribute("aria-current", isHere ? "page" : "true");
      link.closest("nav")?.scrollTo(link.offsetLeft - 16, 0);
    } else link.removeAttribute("aria-current");
  }
}

document.body.append(
  a.skip({ href: "#main" }, "Skip to the content"),
  header.top(
    a.brand({ href: startPath }, icon("face", "22"), apiTitle),
    links,
    live,
    who,
    opener,
  ),
  div.sheet(main, drawer),
  announcer,
);
// On a wide screen both sides of an exchange fit beside each other.
resize(layout.width || (innerWidth < 1700 ? 432 : 736));
showDrawer(isWide.matches && !layout.isClosed);
isWide.addEventListener(
  "change",
  ({ matches }) => showDrawer(matches && !layout.isClosed),
);
