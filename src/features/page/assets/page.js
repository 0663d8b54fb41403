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
 * @typedef {{method: string, url: string, fields: [string, string][], body: string | undefined, status: number, reason: string, received: [string, string][], text: string, ms: number}} Exchange
 * @typedef {{status: number, headers: Headers, text: string, body: any, exchange: Exchange}} Answer
 * @typedef {{url: string, answer: Answer, options: Options, properties: Record<string, Json>}} View
 */

const start = new URL(
  /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=start]"))
    .href,
);
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
  if (first && Object.getPrototypeOf(first) === Object.prototype) {
    children.shift();
    for (const [name, value] of Object.entries(first)) {
      if (typeof value === "function") {
        element.addEventListener(name.slice(2), value);
      } else if (value !== false && value !== undefined && value !== null) {
        element.setAttribute(name, value === true ? "" : String(value));
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
  form,
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

/** Creates a button. */
export function button(text, onclick, id = "") {
  return h("button", { type: "button", onclick, id: id || null }, text);
}

// --- URLs, requests and the exchanges that are shown

/** Returns where this browser reaches a URL of the API; undefined for any other. */
export function local(href) {
  if (!URL.canParse(href, location.href)) return undefined;
  const { origin, pathname, search, hash } = new URL(href, location.href);
  const isOurs = [start.origin, location.origin].includes(origin) &&
    `${pathname}/`.startsWith(start.pathname);
  return isOurs ? location.origin + pathname + search + hash : undefined;
}

/** The keys in the storage of this tab, which another API of the same origin must not read. */
const storageKey = (name) => `${start.pathname} ${name}`;

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
let authorization = stored("authorization");

/** Responses that a conditional request can refer to, by URL. @type {Map<string, {etag: string, headers: [string, string][], text: string}>} */
const copies = new Map();

/** What OPTIONS said, by path. @type {Map<string, Promise<Options>>} */
const described = new Map();

/** @type {Set<(exchange: Exchange) => void>} */
export const onExchange = new Set();

function parse(text) {
  try {
    return JSON.parse(text);
  } catch {
    return undefined;
  }
}

/**
 * Sends a request, and shows its exchange. Status 0: there was no response.
 *
 * @param {string} method
 * @param {string} href
 * @param {{fields?: Record<string, string>, body?: string | File}} [content]
 * @returns {Promise<Answer>}
 */
export async function send(method, href, { fields = {}, body } = {}) {
  const url = local(href);
  if (url === undefined) throw new Error(`Not of this API: ${href}`);
  /** @type {Record<string, string>} */
  const headers = { Accept: "application/json", ...fields };
  if (authorization) headers.Authorization = `Bearer ${authorization.token}`;
  if (typeof body === "string") headers["Content-Type"] ??= "application/json";
  const began = performance.now();
  /** @type {Response | undefined} */
  let response;
  let text = "";
  try {
    response = await fetch(url, {
      method,
      headers,
      body: body ?? null,
      cache: "no-store", // so that conditional requests are ours, and shown
      credentials: "omit",
    });
    text = await response.text();
  } catch {
    response = undefined;
  }
  const exchange = {
    method,
    url,
    fields: Object.entries(headers),
    body: body instanceof File ? `(the file ${body.name})` : body,
    status: response?.status ?? 0,
    reason: response?.statusText ?? "no response",
    received: response ? [...response.headers] : [],
    text,
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

/**
 * Requests a resource; if there is a copy, only to hear whether it is current.
 *
 * @returns {Promise<Answer>}
 */
export async function get(href) {
  const url = local(href) ?? "";
  const copy = copies.get(url);
  const answer = await send("GET", url, {
    fields: copy ? { "If-None-Match": copy.etag } : {},
  });
  if (answer.status === 304 && copy) {
    const { headers, text } = copy;
    return {
      ...answer,
      status: 200,
      headers: new Headers(headers),
      text,
      body: parse(text),
    };
  }
  const etag = answer.headers.get("etag");
  if (answer.status === 200 && etag) {
    const entry = { etag, headers: [...answer.headers], text: answer.text };
    copies.set(url, /** @type {any} */ (entry));
    if (copies.size > 50) copies.delete([...copies.keys()][0] ?? "");
  }
  return answer;
}

/**
 * Asks what this caller may do at a URL.
 *
 * @returns {Promise<Options>}
 */
export function optionsOf(href) {
  const path = href.replace(/[?#].*/, "");
  const asking = described.get(path) ?? ask(path);
  described.set(path, asking);
  return asking;
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
  const path = url.slice(location.origin.length);
  const item = h(
    "details",
    {
      class: "exchange",
      ontoggle: async () => {
        if (!item.open || item.dataset.filled) return;
        item.dataset.filled = "yes";
        item.append((await import("./exchange.js")).explain(exchange));
      },
    },
    h(
      "summary",
      h("code", `${method} ${path}`),
      " → ",
      h("b", { class: `s${Math.floor(status / 100)}` }, status || "✗"),
      ` ${reason}, ${ms} ms`,
    ),
  );
  exchangeList.prepend(item);
  while (exchangeList.children.length > 20) exchangeList.lastChild?.remove();
  for (const listener of onExchange) listener(exchange);
}

// --- The frame around every view

const exchangeList = div({ id: "exchanges" });
export const main = h("main", { id: "main" });
const nav = h("nav", { "aria-label": "Resources" });
const who = div({ id: "who" });
const live = span({ id: "live" });
const announcer = p({ id: "message", role: "status" });

/** Says something to the reader, until the next view. */
export function say(text) {
  announcer.textContent = text;
}

document.body.append(
  a({ href: "#main", class: "skip" }, "Skip to the content"),
  h(
    "header",
    a({ href: start.pathname, class: "title" }, apiTitle),
    nav,
    live,
    who,
  ),
  announcer,
  div({ class: "columns" }, main, panel()),
);

function panel() {
  const clear = () => exchangeList.replaceChildren();
  return h(
    "aside",
    { "aria-labelledby": "exchange-title" },
    h2({ id: "exchange-title" }, "The HTTP behind it"),
    p(
      "Each request of this page, the latest first. Open one to see it as it was sent, what its answer means, and the same for a terminal. ",
      button("Clear", clear),
    ),
    exchangeList,
  );
}

/** The root document. @type {Record<string, string>} */
export let root = {};

async function loadRoot() {
  const { body } = await get(start.href);
  root = body ?? {};
  nav.replaceChildren(ul(
    Object.entries(root)
      .filter(([, url]) => local(url))
      .map(([name, url]) => li(a({ href: local(url) }, nameOf(name)))),
  ));
  markCurrent();
}

function nameOf(name) {
  return name.replace(/_url$/, "").replaceAll("_", " ");
}

function markCurrent() {
  for (const link of nav.querySelectorAll("a")) {
    const isCurrent = new URL(link.href).pathname === location.pathname;
    if (isCurrent) link.setAttribute("aria-current", "page");
    else link.removeAttribute("aria-current");
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
  const dialog = openDialog(
    "Sign in",
    p("The token stays in this tab and is gone when you close it."),
    username.label,
    password.label,
    error,
    h("button", "Sign in"),
  );
  dialog.querySelector("form")?.addEventListener("submit", async (event) => {
    event.preventDefault();
    const body = JSON.stringify({
      username: username.input.value,
      password: password.input.value,
    });
    const answer = await send("POST", root.authorizations_url ?? "", {
      body,
    });
    if (answer.status !== 201) {
      error.textContent = answer.body?.error ?? "The server does not respond.";
      return;
    }
    dialog.close();
    const { token, url } = answer.body;
    changeSession({ token, url });
  });
}

function field(name, type, autocomplete) {
  const input = h("input", { type, autocomplete, name: autocomplete });
  return { input, label: label(name, input) };
}

/** Opens a dialog with a form; it is closed by Escape or its button. */
export function openDialog(title, ...children) {
  const close = button("Cancel", () => dialog.close());
  const dialog = h(
    "dialog",
    { "aria-labelledby": "dialog-title", onclose: () => dialog.remove() },
    form(
      { novalidate: true },
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

function endSession(message) {
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
  show();
}

// --- Views

let generation = 0;

/** Goes to another view. */
export function navigate(href) {
  history.pushState(null, "", local(href) ?? href);
  show(true);
}

/**
 * Shows the resource in the address bar.
 *
 * @param {boolean} [moved] whether it is another view, which then gets the focus
 */
export async function show(moved = false) {
  const mine = ++generation;
  const url = location.href;
  clearTimeout(watching);
  main.setAttribute("aria-busy", "true");
  markCurrent();
  if (moved) say("");
  const isDocs = root.documentation_url !== undefined &&
    url.replace(/#.*/, "") === local(root.documentation_url);
  if (isDocs) {
    const { showDocs } = await import("./docs.js");
    if (mine === generation) await showDocs();
  } else {
    const [answer, options] = await Promise.all([
      get(url.replace(/#.*/, "")),
      optionsOf(url),
    ]);
    if (mine !== generation) return;
    const { properties = {} } = options.schema;
    await draw({ url, answer, options, properties });
  }
  if (mine !== generation) return;
  main.removeAttribute("aria-busy");
  const heading = main.querySelector("h1");
  document.title = `${heading?.textContent ?? ""} – ${apiTitle}`;
  if (moved && !main.contains(document.activeElement)) {
    heading?.setAttribute("tabindex", "-1");
    heading?.focus();
  }
}

/** @type {View | undefined} */
let current;

/** Replaces the view. */
export function fill(...children) {
  main.replaceChildren(div(children));
}

async function draw(view) {
  const { answer: { status, body }, url } = view;
  current = undefined;
  if (status !== 200) return fill(...errorView(view));
  const sub = /#(new|edit|import)$/.exec(url)?.[1];
  if (sub) {
    const { showForm } = await import("./forms.js");
    return fill(...showForm(view, sub));
  }
  current = view;
  if (Array.isArray(body)) {
    fill(...collectionView(view));
  } else if (typeof body?.url === "string") {
    fill(...recordView(view));
  } else {
    fill(
      h1(url === start.href ? apiTitle : pathOf(url)),
      url === start.href &&
        p("What this API has; every URL is a link:"),
      body === undefined ? pre(view.answer.text) : properties(view),
    );
  }
}

function pathOf(url) {
  return decodeURI(new URL(url).pathname);
}

function errorView({ answer: { status, body, exchange }, url }) {
  const retry = button("Retry", () => show());
  const known = body?.documentation_url;
  return [
    h1(status ? `${status} ${exchange.reason}` : "No response"),
    p(h("code", pathOf(url))),
    p(
      { role: "alert", class: "error" },
      body?.error ?? "The server cannot be reached.",
    ),
    known && p(link(known, `What ${body.errorCode} means`)),
    status === 401 ? button("Sign in", askPassword) : status < 400 && retry,
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
function shownNames({ properties, answer: { body } }) {
  const first = Array.isArray(body) ? body[0] : body;
  const names = Object.keys(first ?? properties);
  return names.filter((name) =>
    name !== "link" && !isLink(name) && !properties[name]?.writeOnly
  );
}

export function isLink(name) {
  return name === "url" || name.endsWith("_url");
}

/** Shows a value by its schema. */
export function format(value, schema = {}) {
  if (value === null) {
    return span({ class: "null", title: "null: no value" }, "null");
  }
  if (typeof value === "object") {
    return pre(JSON.stringify(value, null, 2));
  }
  const text = String(value);
  if (schema.format === "date-time") {
    const shown = new Date(text).toLocaleString();
    return h("time", { datetime: text, title: text }, shown);
  }
  if (schema.format === "uri") return link(text);
  return typeof value === "string" ? span({ dir: "auto" }, text) : text;
}

/** The value of a property; a reference leads to the record it names. */
function valueOf(record, name, schemas) {
  const target = record[name.replace(/_id$/, "_url")];
  const value = format(record[name], schemas[name]);
  return name.endsWith("_id") && typeof target === "string"
    ? link(target, String(record[name]))
    : value;
}

/** Links below each other, named by their properties. */
function linksOf(record) {
  return Object.entries(record)
    .filter(([name, value]) => name.endsWith("_url") && value && local(value))
    .map(([name, value]) => [link(value, nameOf(name)), " "]);
}

function properties(view) {
  const { answer: { body }, properties } = view;
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
  const { answer: { body }, options: { methods, schema }, url } = view;
  const own = local(body.url) ?? url;
  const name = schema.title ?? "record";
  const remove = async () => {
    (await import("./forms.js")).confirmDelete(view);
  };
  if (/^(?:queued|running)$/.test(body.status)) {
    watching = setTimeout(() => refresh(), 500);
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
    own !== url.replace(/#.*/, "") &&
    p("Its own URL: ", link(own)),
  ];
}

function collectionView(view) {
  const { options: { methods, accepts, schema }, url, answer } = view;
  const takesLines = methods.includes("POST") && accepts.includes("x-ndjson");
  const exportAll = async () => {
    (await import("./forms.js")).exportRecords(url);
  };
  const name = pathOf(url).replace(/.*\//, "");
  const isFiltered = [...new URL(url).searchParams.keys()].some(isFilter);
  return [
    h1(name),
    p(
      { class: "actions" },
      methods.includes("POST") &&
        a({ href: "#new" }, `New ${schema.title ?? "record"}`),
      takesLines && a({ href: "#import" }, "Import a file"),
      button("Export", exportAll),
    ),
    filterForm(view, isFiltered),
    div(
      { id: "records" },
      answer.body.length > 0
        ? recordTable(view)
        : p(isFiltered ? "No record matches." : "No records yet."),
    ),
    pager(view),
  ];
}

/** Parameters of a collection that are no filters. */
const listParameters = /^(?:limit|offset|page|per_page|sortby|order|fields)$/;

function isFilter(name) {
  return !listParameters.test(name);
}

/** Returns a URL of the same collection with other parameters, on its first page. */
function withParameters(url, changes) {
  const next = new URL(url.replace(/#.*/, ""));
  for (const name of ["offset", "page"]) next.searchParams.delete(name);
  for (const [name, value] of Object.entries(changes)) {
    if (value === undefined) next.searchParams.delete(name);
    else next.searchParams.set(name, value);
  }
  // In a query of this API a plus sign is a plus sign.
  return next.href.replaceAll("+", "%20");
}

function recordTable(view) {
  const { answer: { body }, properties, url } = view;
  const names = shownNames(view);
  const { searchParams } = new URL(url);
  const sorted = searchParams.get("sortby") ?? "id";
  const isDown = searchParams.get("order") === "desc";
  const headings = names.map((name) => {
    const isSorted = name === sorted;
    const order = isSorted && !isDown ? "desc" : "asc";
    const href = withParameters(url, { sortby: name, order });
    return th(
      {
        scope: "col",
        "aria-sort": isSorted && (isDown ? "descending" : "ascending"),
      },
      a(
        { href },
        name,
        isSorted && span({ "aria-hidden": "true" }, isDown ? " ▼" : " ▲"),
      ),
    );
  });
  const rows = body.map((record) =>
    tr(
      { "data-url": record.url, "data-content": JSON.stringify(record) },
      names.map((name) =>
        name === "id" && record.url
          ? th({ scope: "row" }, link(record.url, String(record.id)))
          : td(valueOf(record, name, properties))
      ),
      td(linksOf(record)),
    )
  );
  return div({
    class: "scroll",
    tabindex: "0",
    role: "region",
    "aria-label": "Records",
  }, table(thead(tr(headings, th({ scope: "col" }, "links"))), tbody(rows)));
}

function pager({ answer: { headers, body }, url }) {
  const total = Number(headers.get("x-total-count") ?? body.length);
  const targets = [
    ...(headers.get("link") ?? "").matchAll(/<([^>]*)>; rel="(\w+)"/g),
  ];
  const { searchParams } = new URL(url);
  const byPage = searchParams.has("per_page") || searchParams.has("page");
  const size = searchParams.get(byPage ? "per_page" : "limit") ?? "20";
  const offset = byPage
    ? (Number(searchParams.get("page") ?? 1) - 1) * Number(size)
    : Number(searchParams.get("offset") ?? 0);
  const choose = (event) =>
    navigate(withParameters(url, {
      [byPage ? "per_page" : "limit"]: event.target.value,
    }));
  const sizes = [...new Set(["10", "20", "50", "100", size])];
  return div(
    { id: "pager" },
    p(
      { id: "count" },
      body.length > 0 && `${offset + 1} to ${offset + body.length} of `,
      `${total} ${total === 1 ? "record" : "records"}`,
    ),
    targets.length > 0 && h(
      "nav",
      { "aria-label": "Pages" },
      targets.map(([, href = "", rel]) => [
        a({ href: local(href), rel, id: `page-${rel}` }, rel),
        " ",
      ]),
    ),
    label(
      "Records a page ",
      h(
        "select",
        { id: "page-size", onchange: choose },
        sizes.map((each) =>
          option({ value: each, selected: each === size }, each)
        ),
      ),
    ),
  );
}

export function typesOf(schema) {
  return [schema.type].flat();
}

/** The filters that the collection has for a property, with what they are called. */
function operatorsOf(schema) {
  const types = typesOf(schema);
  const isOrdered = !schema.enum && !types.includes("boolean");
  const isText = types.includes("string") && isOrdered && !schema.format;
  return [
    ["", "is"],
    [":ne", "is not"],
    ...(isText ? [[":contains", "contains"], [":starts", "starts with"]] : []),
    ...(isOrdered
      ? [[":lt", "less than"], [":lte", "at most"], [":gte", "at least"], [
        ":gt",
        "more than",
      ]]
      : []),
    [":in", "is one of (by commas)"],
  ];
}

function filterForm(view, isOpen) {
  const { url, properties } = view;
  const { searchParams } = new URL(url);
  const rows = Object.entries(properties)
    .filter(([name, { writeOnly }]) =>
      name !== "link" && !isLink(name) && !writeOnly
    )
    .map(([name, schema]) => filterRow(name, schema, searchParams));
  const apply = (event) => {
    event.preventDefault();
    /** @type {Record<string, string | undefined>} */
    const changes = {};
    for (const name of searchParams.keys()) {
      if (isFilter(name)) changes[name] = undefined;
    }
    for (const { name, operator, input } of rows) {
      if (input.value !== "") changes[name + operator.value] = input.value;
    }
    navigate(withParameters(url, changes));
  };
  const none = Object.fromEntries(
    [...searchParams.keys()].filter(isFilter).map((name) => [name, undefined]),
  );
  return h(
    "details",
    { open: isOpen, class: "filters" },
    h("summary", "Filter"),
    form(
      { onsubmit: apply },
      rows.map(({ row }) => row),
      h("button", "Apply"),
      " ",
      isOpen && a({ href: withParameters(url, none) }, "Clear"),
    ),
  );
}

function filterRow(name, schema, given) {
  const operators = operatorsOf(schema);
  const used = operators.find(([suffix]) => given.has(name + suffix));
  const value = used ? given.get(name + used[0]) : "";
  const operator = h(
    "select",
    { "aria-label": `${name}: comparison` },
    operators.map(([suffix, text]) =>
      option({ value: suffix, selected: suffix === used?.[0] }, text)
    ),
  );
  const list = `values-of-${name}`;
  const known = [
    ...(schema.enum ?? []),
    ...(typesOf(schema).includes("boolean") ? ["true", "false"] : []),
    ...(typesOf(schema).includes("null") ? ["null"] : []),
  ];
  const input = h("input", {
    value,
    list: known.length > 0 && list,
    "aria-label": `${name}: value`,
    inputmode: /integer|number/.test(String(schema.type)) && "decimal",
    placeholder: schema.format === "date" && "YYYY-MM-DD",
  });
  const row = div(
    { class: "filter" },
    span(name),
    operator,
    input,
    known.length > 0 && h(
      "datalist",
      { id: list },
      known.map((each) => option({ value: each })),
    ),
  );
  return { name, operator, input, row };
}

// --- Changes by others

/** Requests the current view again, and marks what has changed. */
async function refresh() {
  const view = current;
  const mine = generation;
  if (!view) return;
  const answer = await get(view.url.replace(/#.*/, ""));
  if (mine !== generation || current !== view) return;
  const next = { ...view, answer };
  if (answer.status !== 200 || !main.querySelector("#records")) {
    if (answer.text === view.answer.text) return;
    await draw(next);
    main.querySelector("#record")?.classList.add("changed");
    return say("This has changed.");
  }
  current = next;
  const before = new Map(
    [...main.querySelectorAll("tbody tr")].map((
      row,
    ) => /** @type {[string, string]} */ ([
      row.dataset.url,
      row.dataset.content,
    ])),
  );
  const focused = document.activeElement;
  const focus = focused?.id || focused?.getAttribute("href");
  main.querySelector("#records").replaceChildren(
    answer.body.length > 0 ? recordTable(next) : p("No records."),
  );
  main.querySelector("#pager").replaceWith(pager(next));
  for (const row of main.querySelectorAll("tbody tr")) {
    const isSame = before.get(row.dataset.url) === row.dataset.content;
    if (!isSame) row.classList.add("changed");
  }
  if (focus && !document.contains(focused)) {
    main.querySelector(`#${CSS.escape(focus)}, [href="${CSS.escape(focus)}"]`)
      ?.focus();
  }
  say("The records have changed.");
}

/** @type {AbortController | undefined} */
let stream;
let lastEventId = "";
let refreshTimer = 0;

/** Follows the event stream as long as the tab is visible and somebody is signed in. */
async function follow() {
  stream?.abort();
  stream = undefined;
  const url = local(root.events_url ?? "");
  const isOn = authorization && root.events_url && url;
  live.textContent = "";
  if (!isOn || document.visibilityState === "hidden") return;
  const controller = new AbortController();
  stream = controller;
  for (let pause = 1; stream === controller; pause = Math.min(pause * 2, 30)) {
    try {
      await readEvents(url, controller.signal, () => pause = 1);
    } catch { // the connection broke, or never came about
    }
    if (stream !== controller) return;
    live.textContent = "○ reconnecting";
    await new Promise((resolve) => setTimeout(resolve, pause * 1000));
  }
}

async function readEvents(url, signal, onOpen) {
  /** @type {Record<string, string>} */
  const headers = {
    Accept: "text/event-stream",
    Authorization: `Bearer ${authorization?.token}`,
  };
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  const response = await fetch(url, { headers, signal, cache: "no-store" });
  if (!response.ok || !response.body) throw new Error(response.statusText);
  onOpen();
  live.textContent = "● live";
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) handleEvent(event);
  }
}

function handleEvent(event) {
  const fields = new Map(
    event.split("\n").map((
      line,
    ) => /** @type {[string, string]} */ (line.split(/: ?(.*)/s))),
  );
  lastEventId = fields.get("id") ?? lastEventId;
  const [name] = (fields.get("event") ?? "").split(".");
  if (!name || !current || !concerns(name, current)) return;
  // Many changes at once are one request.
  clearTimeout(refreshTimer);
  refreshTimer = setTimeout(refresh, 150);
}

/** Returns whether a change of a collection can show in a view. */
function concerns(name, { answer: { body }, url }) {
  const home = local(root[`${name}_url`] ?? "") ?? "";
  const first = Array.isArray(body) ? body[0] : body;
  const own = local(first?.url ?? "") ?? url;
  return name === "reset" || own.startsWith(home) || pathOf(url).includes(name);
}

// --- Begin

document.addEventListener("click", (event) => {
  const { target } = event;
  const anchor = target instanceof Element ? target.closest("a") : null;
  if (!anchor || event.button || event.ctrlKey || event.metaKey) return;
  if (event.shiftKey || event.altKey || anchor.classList.contains("skip")) {
    return;
  }
  if (anchor.hasAttribute("download") || !local(anchor.href)) return;
  event.preventDefault();
  navigate(anchor.href);
});
addEventListener("popstate", () => show(true));
document.addEventListener("visibilitychange", follow);
addEventListener("pagehide", () => {
  const url = location.href.replace(/#.*/, "");
  store("copy", [url, copies.get(url)]);
});

const [copiedUrl, copied] = stored("copy") ?? [];
if (copied) copies.set(copiedUrl, copied);
loadRoot().then(() => {
  showWho();
  follow();
  show();
});
