// @ts-check
/**
 * The page that shows the resource in the address bar. All it knows of an API
 * is what the API says: the root document, `link` and `*_url` in records, the
 * `Link` field, and the response to OPTIONS. Text of records becomes text nodes
 * or attribute values, never HTML.
 */

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{methods: string[], writable: string[], schema: Json, accepts: string}} Options
 * @typedef {{method: string, url: string, fields: [string, string][], body: string | File | undefined, status: number, reason: string, received: [string, string][], text: string, ms: number}} Exchange
 * @typedef {{status: number, headers: Headers, text: string, body: any, exchange: Exchange}} ApiResponse
 * @typedef {{url: string, response: ApiResponse, options: Options, properties: Record<string, Json>}} View
 */

export const start = new URL(
  /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=start]"))
    .href,
);
const startPath = start.pathname;
const apiTitle = document.title;

/**
 * Creates an element. Attributes, if there are any, come first; a listener is
 * one by the name `onclick` and the like.
 *
 * @returns {any}
 */
export function h(tag, ...children) {
  const element = document.createElement(tag);
  const [first] = children;
  if (first?.constructor === Object) {
    children.shift();
    for (const [name, value] of Object.entries(first)) {
      if (typeof value === "function") {
        element.addEventListener(name.slice(2), value);
      } else if (value != null && value !== false) {
        element.setAttribute(name, value);
      }
    }
  }
  element.append(...children.flat(3).filter((child) => child || child === 0));
  return element;
}

/** The same as functions by the names of elements. @type {any} */
const elements = new Proxy({}, {
  get: (_, tag) => (...parts) => h(tag, ...parts),
});
export const {
  a,
  dd,
  div,
  dl,
  dt,
  h1,
  h2,
  h3,
  label,
  li,
  ol,
  option,
  p,
  pre,
  span,
  table,
  tbody,
  td,
  th,
  thead,
  tr,
  ul,
} = elements;

/** Creates a button. @param {string} text @param {() => void} onclick @param {string} [id] */
export function button(text, onclick, id) {
  return h("button", { type: "button", onclick, id }, text);
}

/** Creates a form whose values are sent by a script. */
export function formOf(attributes, submit, ...children) {
  const onsubmit = (event) => {
    event.preventDefault();
    submit();
  };
  return h("form", { ...attributes, onsubmit }, ...children);
}

/** Creates a disclosure whose content is created when it is first opened. */
export function disclosure(name, summary, create) {
  const details = h("details", { class: name }, h("summary", summary));
  const fill = async () => details.append(await create());
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

// --- URLs, requests and the exchanges that are shown

/** Returns where this browser reaches a URL of the API; undefined for any other. */
export function local(href) {
  // A table has hundreds of plain paths, and to parse them would take a fifth of its time.
  const isPlain = /^(?:\/\w[\w-]*)+$/.test(href);
  if (isPlain) return isBelow(href) ? location.origin + href : undefined;
  if (!URL.canParse(href, location.href)) return undefined;
  const { origin, pathname, search, hash } = new URL(href, location.href);
  const isOurs = [start.origin, location.origin].includes(origin) &&
    isBelow(pathname);
  return isOurs ? location.origin + pathname + search + hash : undefined;
}

/** The target of a request for a URL of this server, as HTTP/1.1 sends it. */
export function targetOf(url) {
  return url.slice(location.origin.length);
}

function isBelow(path) {
  return `${path}/`.startsWith(startPath);
}

/** The keys in the storage of this tab, which another API of the same origin must not read. */
const storageKey = (name) => `${startPath} ${name}`;

export function stored(name) {
  return JSON.parse(sessionStorage.getItem(storageKey(name)) ?? "null");
}

export function store(name, value) {
  try {
    sessionStorage.setItem(storageKey(name), JSON.stringify(value));
  } catch { // full: what is not stored is requested again
    sessionStorage.removeItem(storageKey(name));
  }
}

/** The authorization of this tab. @type {{token: string, url: string} | null} */
export let authorization = stored("authorization");

/** Responses that a conditional request can refer to, by URL. @type {Map<string, {etag: string, headers: [string, string][], text: string}>} */
const copies = new Map();

/** How much of a response is stored to be shown. */
const maxShownLength = 100_000;

/** The results of OPTIONS, by path. @type {Map<string, Promise<Options>>} */
const described = new Map();

export function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Sends a request, and shows its exchange. Status 0: there was no response.
 * Throws if a browser sends no such request.
 *
 * @param {string} method
 * @param {string} href
 * @param {{fields?: Record<string, string>, body?: string | File}} [content]
 * @returns {Promise<ApiResponse>}
 */
export async function send(method, href, { fields = {}, body } = {}) {
  const url = local(href);
  if (url === undefined) throw new Error(`Not of this API: ${href}`);
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...fields };
  if (authorization) headers.Authorization = `Bearer ${authorization.token}`;
  if (typeof body === "string") headers["Content-Type"] ??= "application/json";
  const request = new Request(url, {
    method,
    headers,
    body: body ?? null,
    cache: "no-store", // so that conditional requests are ours, and shown
    credentials: "omit",
  });
  const began = performance.now();
  /** @type {Response | undefined} */
  let response;
  let text = "";
  try {
    response = await fetch(request);
    text = isStream(response)
      ? await beginningOf(response)
      : await response.text();
  } catch {
    response = undefined;
  }
  const exchange = {
    method,
    url,
    fields: Object.entries(headers),
    body,
    status: response?.status ?? 0,
    reason: response?.statusText ?? "no response",
    received: response ? [...response.headers] : [],
    text: text.slice(0, maxShownLength),
    ms: Math.round(performance.now() - began),
  };
  showExchange(exchange);
  if (exchange.status === 401 && headers.Authorization && method !== "POST") {
    endSession("Your sign-in has ended.");
  }
  return {
    status: exchange.status,
    headers: response?.headers ?? new Headers(),
    text,
    body: parse(text),
    exchange,
  };
}

/** Returns whether a response has no end: the changes of records, as they happen. */
function isStream({ headers }) {
  return /event-stream/.test(headers.get("content-type") ?? "");
}

/** Reads a stream up to its first pause. @param {any} response */
async function beginningOf({ body }) {
  const reader = body.pipeThrough(new TextDecoderStream()).getReader();
  const { value = "" } = await reader.read();
  reader.cancel();
  return value;
}

/**
 * Requests a resource; if there is a copy, only if it has changed (If-None-Match).
 *
 * @returns {Promise<ApiResponse>}
 */
export async function get(href) {
  const url = local(href) ?? "";
  const copy = copies.get(url);
  const response = await send("GET", url, {
    fields: {
      Accept: "application/json, */*;q=0.1", // JSON, or what there is
      ...(copy && { "If-None-Match": copy.etag }),
    },
  });
  if (response.status === 304 && copy) {
    const { headers, text } = copy;
    return {
      ...response,
      status: 200,
      headers: new Headers(headers),
      text,
      body: parse(text),
    };
  }
  const etag = response.headers.get("etag");
  if (response.status === 200 && etag) {
    const entry = { etag, headers: [...response.headers], text: response.text };
    copies.set(url, /** @type {any} */ (entry));
    if (copies.size > 50) copies.delete([...copies.keys()][0] ?? "");
  }
  return response;
}

/**
 * Requests OPTIONS: what the caller may do at a URL.
 *
 * @returns {Promise<Options>}
 */
export function optionsOf(href) {
  const path = href.replace(/[?#].*/, "");
  const options = described.get(path) ?? ask(path);
  described.set(path, options);
  return options;
}

/** @returns {Promise<Options>} */
async function ask(path) {
  const { status, body, headers } = await send("OPTIONS", path);
  if (status !== 200) described.delete(path);
  const { methods = [], writable = [], schema = {} } = body ?? {};
  return {
    methods,
    writable,
    schema,
    accepts: headers.get("accept-post") ?? "",
  };
}

function showExchange(exchange) {
  const { method, url, status, reason, ms } = exchange;
  const summary = [
    h("code", `${method} ${targetOf(url)}`),
    " → ",
    h("b", { class: `s${Math.floor(status / 100)}` }, status || "✗"),
    ` ${reason}, ${ms} ms`,
  ];
  exchangeList.prepend(disclosure(
    "exchange",
    summary,
    async () => (await import("./exchange.js")).explain(exchange),
  ));
  while (exchangeList.children.length > 20) exchangeList.lastChild?.remove();
}

// --- The frame around every view

const exchangeList = div({ id: "exchanges" });
export const main = h("main", { id: "main" }, p("Loading…"));
const nav = h("nav", { "aria-label": "Resources" });
const who = div({ id: "who" });
export const live = span({ id: "live", role: "status" });
const announcer = p({ id: "message", role: "status" });

/** Announces a message to screen readers too, until the next view. */
export function say(text) {
  announcer.textContent = text;
}

document.body.append(
  a({ href: "#main", class: "skip" }, "Skip to the content"),
  h(
    "header",
    a({ href: startPath, class: "title" }, apiTitle),
    live,
    who,
    nav,
  ),
  announcer,
  div({ class: "columns" }, main, panel()),
);

function panel() {
  return h(
    "aside",
    { "aria-labelledby": "exchange-title" },
    h2({ id: "exchange-title" }, "The HTTP behind this page"),
    p(
      "Each request, the latest first: what was sent, what the response means, and the same as a command.",
    ),
    exchangeList,
  );
}

/** The root document. @type {Record<string, string>} */
export let root = {};

async function loadRoot() {
  const response = await get(start.href);
  root = response.body ?? {};
  nav.replaceChildren(ul(
    Object.entries(root)
      .filter(([, url]) => local(url))
      .map(([name, url]) => li(a({ href: local(url) }, nameOf(name)))),
  ));
  return response;
}

function nameOf(name) {
  return name.replace(/_url$/, "").replaceAll("_", " ");
}

function markCurrent() {
  for (const link of nav.querySelectorAll("a")) {
    const isCurrent = new URL(link.href).pathname === location.pathname;
    if (isCurrent) {
      link.setAttribute("aria-current", "page");
      // On a phone not all of them fit.
      link.closest("ul")?.scrollTo(link.offsetLeft - 16, 0);
    } else link.removeAttribute("aria-current");
  }
}

// --- Signing in

async function showWho() {
  const url = root.current_user_url;
  if (!authorization || !url) {
    const { authorizations_url: to } = root;
    who.replaceChildren(...(to ? [button("Sign in", askPassword)] : []));
    return;
  }
  const { status, body } = await get(url);
  if (status !== 200) return;
  who.replaceChildren(
    "Signed in as ",
    a({ href: local(url) }, body.username),
    ` (${body.role}) `,
    button("Sign out", signOut),
  );
}

export function askPassword() {
  const error = p({ role: "alert", class: "error" });
  const username = field("Username", "text", "username");
  const password = field("Password", "password", "current-password");
  const signIn = async () => {
    const body = JSON.stringify({
      username: username.input.value,
      password: password.input.value,
    });
    const response = await send("POST", root.authorizations_url ?? "", {
      body,
    });
    if (response.status !== 201) {
      return void (error.textContent = problemOf(response));
    }
    dialog.close();
    const { token, url } = response.body;
    changeSession({ token, url });
  };
  const dialog = openDialog(
    "Sign in",
    signIn,
    p("At its first start the server shows the password of admin. The token is kept in this tab only, and lost when you close it."),
    username.label,
    password.label,
    error,
    h("button", "Sign in"),
  );
}

function field(name, type, autocomplete) {
  const input = h("input", { type, autocomplete, name: autocomplete });
  return { input, label: label(name, input) };
}

/** Returns why a request failed. @param {ApiResponse} response */
export function problemOf({ status, body, exchange: { reason } }) {
  return status
    ? `${status} ${reason}`.trim() + `: ${body?.error ?? ""}` // HTTP/2 has no reason
    : "The server does not respond.";
}

/** Opens a dialog with a form; it is closed by Escape or its button. */
export function openDialog(title, submit, ...children) {
  const close = button("Cancel", () => dialog.close());
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() },
    formOf(
      { novalidate: true },
      submit,
      h2({ id: "dialog-title" }, title),
      ...children,
      close,
    ),
  );
  document.body.append(dialog);
  dialog.showModal();
  return /** @type {HTMLDialogElement} */ (dialog);
}

async function signOut() {
  if (authorization) await send("DELETE", authorization.url);
  endSession("You are signed out.");
}

export function endSession(message) {
  changeSession(null);
  say(message);
}

function changeSession(changed) {
  authorization = changed;
  store("authorization", changed);
  store("copy", null);
  copies.clear();
  described.clear();
  showWho();
  follow();
  // The text in a form stays, to be sent again after the next sign-in.
  if (!main.querySelector("#editing")) show();
}

/** @type {typeof import("./live.js") | undefined} */
let changes;

/** Follows the changes by others, or stops following; then at once, because scripts stop on a page that is left. */
async function follow() {
  if (!authorization && !changes) return;
  changes ??= await import("./live.js");
  changes.follow();
}

// --- Views

/** Counts the views: one that comes too late is not shown. */
export let generation = 0;

/** Goes to another view. */
export function navigate(href) {
  history.pushState(null, "", local(href) ?? startPath);
  show(true);
}

/**
 * Shows the resource in the address bar, where it was scrolled to.
 *
 * @param {boolean} [moved] whether it is another view, which then gets the focus
 * @param {ApiResponse} [received] the response, if it was requested already
 */
export async function show(moved = false, received = undefined) {
  const mine = ++generation;
  const { y = 0 } = history.state ?? {};
  const active = document.activeElement;
  // Another order or size of the page keeps the focus where it is.
  const focusedId = moved && !active?.hasAttribute("rel") ? active?.id : "";
  clearInterval(watching);
  main.setAttribute("aria-busy", "true");
  markCurrent();
  if (moved) say("");
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
  const again = focusedId &&
    main.querySelector(`#${CSS.escape(focusedId)}`);
  heading?.setAttribute("tabindex", "-1");
  if (moved) (again || heading)?.focus({ preventScroll: true });
  if (!again) scrollTo(0, y);
}

/** Requests what is at a URL, and shows it unless another view has begun. */
async function load(url, mine, received) {
  const resource = url.replace(/#.*/, "");
  const docs = local(root.documentation_url ?? "");
  if (root.documentation_url && resource === docs) {
    current = undefined;
    const { showDocs } = await import("./docs.js");
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
  main.replaceChildren(div(children));
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
    const { showForm } = await import("./forms.js");
    const content = await showForm(view, sub);
    if (mine === generation) fill(...content);
    return;
  }
  if (isStream(response)) {
    const { showEvents } = await import("./live.js");
    if (mine === generation) showEvents();
    return;
  }
  current = view;
  if (Array.isArray(body)) {
    const { collectionView } = await import("./collection.js");
    if (mine === generation) fill(...collectionView(view));
  } else if (typeof body?.url === "string") {
    fill(...recordView(view));
  } else {
    const isRoot = url === local(start.href);
    fill(
      h1(isRoot ? apiTitle : pathOf(url)),
      isRoot && introduction(),
      body === undefined ? pre(response.text) : properties(view),
    );
  }
}

function introduction() {
  const { documentation_url: docs } = root;
  return p(
    "The resources of this API: follow a URL to see one, and what this page sends for it. ",
    docs &&
      ["New to HTTP? ", link(`${docs}#course`, "A course of ten lessons")],
  );
}

export function pathOf(url) {
  return decodeURI(new URL(url).pathname);
}

function errorView({ response, url }) {
  const { status, headers, body, exchange } = response;
  if (status === 0) return unreachable();
  const meaning = p({ id: "meaning" });
  import("./exchange.js").then(
    ({ meaningOf }) => meaning.append(meaningOf(status, headers)),
    () => {}, // the page says enough without it
  );
  const { pathname, search } = new URL(url);
  const parent = pathname.replace(/\/[^/]*$/, "") || "/";
  return [
    h1(`${status} ${exchange.reason}`),
    p(h("code", pathOf(url) + search)),
    p({ role: "alert", class: "error" }, body?.error ?? ""),
    meaning,
    p(explanationOf(body)),
    search && p(a({ href: pathname }, "This URL without parameters")),
    /404|410/.test(status) && p(a({ href: parent }, `Up to ${parent}`)),
    status === 401 && button("Sign in", askPassword),
  ];
}

/** A link to what the code of an error means. */
export function explanationOf(body) {
  const { errorCode, documentation_url: url } = body ?? {};
  return url && link(url, `What ${errorCode} means`);
}

function unreachable() {
  return [
    h1("No response"),
    p({ role: "alert", class: "error" }, "The server does not respond."),
    button("Retry", () => show(), "retry"),
  ];
}

/** A link to a URL of the API or, with a mark, to another website. */
export function link(href, text = href) {
  const ours = local(href);
  if (ours) return a({ href: ours }, text);
  if (!/^https?:/.test(href)) return text;
  return a({ href, rel: "noreferrer noopener" }, text, " ↗");
}

/** The properties of a record that are shown as values: all but its links. */
export function shownNames({ properties, response: { body } }) {
  const first = Array.isArray(body) ? body[0] : body;
  const names = Object.keys(first ?? properties);
  return names.filter((name) => !isLink(name) && !properties[name]?.writeOnly);
}

export function isLink(name) {
  return /^link$|(?:^|_)url$/.test(name);
}

/** Shows a value by its schema. */
export function format(value, schema = {}) {
  if (value === null) {
    return span({ class: "null" }, "null");
  }
  if (typeof value === "object") {
    return pre(JSON.stringify(value, null, 2));
  }
  const text = String(value);
  if (schema.format === "date-time") {
    const shown = dateTime.format(new Date(text));
    return h("time", { datetime: text, title: text }, shown);
  }
  if (schema.format === "iri") return link(text);
  return text;
}

/** Times are shown as they are where the reader is. To create it takes longer than all else in a cell. */
const dateTime = new Intl.DateTimeFormat([], {
  dateStyle: "medium",
  timeStyle: "long",
});

export function typesOf(schema) {
  return [schema.type].flat();
}

/** The value of a property; a reference leads to the record it names. */
export function valueOf(record, name, schemas) {
  const target = record[name.replace(/_id$/, "_url")];
  const value = format(record[name], schemas[name]);
  return name.endsWith("_id") && typeof target === "string"
    ? link(target, String(record[name]))
    : value;
}

/** Links below each other, named by their properties. */
export function linksOf(record) {
  return Object.entries(record)
    .filter(([name, value]) => name.endsWith("_url") && value)
    .map(([name, value]) => [link(value, nameOf(name)), " "]);
}

function properties(view) {
  const { response: { body }, properties } = view;
  const names = shownNames(view).map((name) => [
    dt(name),
    dd(valueOf(body, name, properties)),
  ]);
  const links = Object.entries(body)
    .filter(([name, value]) => isLink(name) && typeof value === "string")
    .map(([name, url]) => [dt(name), dd(link(url))]);
  return dl({ id: "record" }, names, links);
}

/** When a resource that is still being worked on is requested again. */
let watching = 0;

function recordView(view) {
  const { response: { body }, options: { methods, schema } } = view;
  const name = schema.title ?? "record";
  const remove = async () => {
    (await import("./forms.js")).confirmDelete(view);
  };
  if (/^(?:queued|running)$/.test(body.status)) {
    watching = setInterval(
      async () => (await import("./live.js")).refresh(),
      500,
    );
  }
  return [
    h1(`${name} ${body.id ?? ""}`),
    body.link && p(link(body.link.href, body.link.title)),
    p(
      { class: "actions" },
      methods.includes("PATCH") && a({ href: "#edit" }, "Edit"),
      methods.includes("DELETE") && button("Delete", remove),
    ),
    properties(view),
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
addEventListener("scrollend", () => history.replaceState({ y: scrollY }, ""));
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => {
  const url = location.href.replace(/#.*/, "");
  store("copy", [url, copies.get(url)]);
});

const [copiedUrl, copied] = stored("copy") ?? [];
if (copied) copies.set(copiedUrl, copied);
loadRoot().then((response) => {
  showWho();
  follow();
  show(false, location.href === local(start.href) ? response : undefined);
});
