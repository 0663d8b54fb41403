// @ts-check
/** URLs, requests, and what this tab stores. */

/**
 * @typedef {Record<string, any>} Json
 * @typedef {{methods: string[], writable: string[], schema: Json, accepts: string}} Options
 * @typedef {{method: string, url: string, fields: [string, string][], body: string | File | undefined, status: number, reason: string, received: [string, string][], text: string, ms: number, isQuiet: boolean}} Exchange
 * @typedef {{status: number, headers: Headers, text: string, body: any, exchange: Exchange}} ApiResponse
 * @typedef {{url: string, response: ApiResponse, options: Options, properties: Record<string, Json>, complete?: Promise<void>}} View
 */

export const start = new URL(
  /** @type {HTMLLinkElement} */ (document.querySelector("link[rel=start]"))
    .href,
);
export const startPath = start.pathname;
export const apiTitle = document.title;

/**
 * The functions that earlier modules call and later ones define.
 *
 * @type {{
 *   exchanged: (exchange: Exchange) => void,
 *   explain: (exchange: Exchange) => any,
 *   unauthorized: () => void,
 *   follow: () => void,
 *   load: (url: string, generation: number, received?: ApiResponse) => any,
 *   draw: (view: View) => any,
 * }}
 */
export const hooks = /** @type {any} */ ({});

/** Returns where this browser reaches a URL of the API; undefined for any other. */
export function local(href) {
  // A table has hundreds of plain paths, and to parse them would take a fifth of its time.
  const isPlain = /^(?:\/\w[\w-]*)+$/.test(href);
  if (!href) return undefined;
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

export function pathOf(url) {
  return decodeURI(new URL(url).pathname);
}

/** The parameters of a URL. In a query of this API a plus sign is a plus sign. */
export function parametersOf(url) {
  return new URLSearchParams(new URL(url).search.replaceAll("+", "%2B"));
}

/** What the storages of the browser do not take: they are blocked, or full. @type {Map<string, string>} */
const memory = new Map();

/** The keys in the storage of this tab, which another API of the same origin must not read. */
const storageKey = (name) => `${startPath} ${name}`;

/** Does what throws where site data is blocked. */
function attempt(work, otherwise = /** @returns {any} */ () => undefined) {
  try {
    return work();
  } catch {
    return otherwise();
  }
}

/** Returns what is stored in this tab or, with `localStorage`, in this browser. @param {"sessionStorage" | "localStorage"} [where] */
export function stored(name, where = "sessionStorage") {
  const key = storageKey(name);
  const text = memory.get(key) ?? attempt(() => globalThis[where].getItem(key));
  return parse(text ?? "null");
}

/** @param {"sessionStorage" | "localStorage"} [where] */
export function store(name, value, where = "sessionStorage") {
  const key = storageKey(name);
  const text = JSON.stringify(value);
  memory.delete(key);
  attempt(
    () => globalThis[where].setItem(key, text),
    () => {
      memory.set(key, text);
      attempt(() => globalThis[where].removeItem(key)); // it is older
    },
  );
}

/** Forgets the drafts of forms, which the next user must not see. */
export function forgetDrafts() {
  const drafts = attempt(() => Object.keys(sessionStorage), () => [])
    .filter((key) => key.startsWith(storageKey("draft ")));
  for (const key of drafts) sessionStorage.removeItem(key);
  memory.clear();
}

/** The authorization of this tab. @type {{token: string, url: string} | null} */
export let authorization = stored("authorization");

/** Changes who this tab is: nothing that the former user has received stays. */
export function authorize(changed) {
  authorization = changed;
  store("authorization", changed);
  store("copy", null);
  copies.clear();
  described.clear();
}

/** Responses that a conditional request can refer to, by URL. @type {Map<string, {etag: string, headers: [string, string][], text: string}>} */
export const copies = new Map();

/** How much of a response is stored to be shown. */
const maxShownLength = 100_000;

/** The results of OPTIONS, by path. @type {Map<string, Promise<Options>>} */
const described = new Map();

export function parse(text) {
  return attempt(() => JSON.parse(text));
}

/**
 * Sends a request, and shows its exchange: a quiet one without opening it.
 * Status 0: there was no response. Throws if a browser sends no such request.
 *
 * @param {string} method
 * @param {string} href
 * @param {{fields?: Record<string, string>, body?: string | File, isQuiet?: boolean}} [content]
 * @returns {Promise<ApiResponse>}
 */
export async function send(
  method,
  href,
  { fields = {}, body, isQuiet = method === "OPTIONS" } = {},
) {
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
    isQuiet,
  };
  hooks.exchanged(exchange);
  const content = parse(text);
  const isEnded = exchange.status === 401 && headers.Authorization &&
    content?.errorCode !== 40101; // another password was wrong
  if (isEnded) hooks.unauthorized();
  return {
    status: exchange.status,
    headers: response?.headers ?? new Headers(),
    text,
    body: content,
    exchange,
  };
}

/** Returns whether a response has no end: the changes of records, as they happen. */
export function isStream({ headers }) {
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
export async function get(href, isQuiet = false) {
  const url = local(href) ?? "";
  const copy = copies.get(url);
  const response = await send("GET", url, {
    fields: {
      Accept: "application/json, */*;q=0.1", // JSON, or what there is
      ...(copy && { "If-None-Match": copy.etag }),
    },
    isQuiet,
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
 * The entity tag of a record, for If-Match. The tags of records are strong; a
 * proxy that compresses marks them as weak, and no weak tag matches there (RFC
 * 9110 section 13.1.1).
 */
export function etagOf({ headers }) {
  return (headers.get("etag") ?? "").replace(/^W\//, "");
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

/** An Idempotency-Key, so that sending a form again cannot create a second record. */
export function newKey() {
  return crypto.getRandomValues(new Uint32Array(4)).join("-");
}

/** Returns why a request failed. @param {ApiResponse} response */
export function problemOf({ status, body, exchange: { reason } }) {
  return status
    ? `${status} ${reason}`.trim() + `: ${body?.error ?? ""}` // HTTP/2 has no reason
    : "The server does not respond.";
}
