// @ts-check
/**
 * The page that shows the resource in the address bar. All it knows of an API
 * is what the API says: the root document, `link` and `*_url` in records, the
 * `Link` field, and the response to OPTIONS. Text of records becomes text nodes
 * or attribute values, never HTML.
 *
 * These are the modules of the first view, each of which imports only those
 * before it. The server sends them as one file.
 */

/** @typedef {import("./first/http.js").Json} Json */
/** @typedef {import("./first/http.js").Options} Options */
/** @typedef {import("./first/http.js").Exchange} Exchange */
/** @typedef {import("./first/http.js").ApiResponse} ApiResponse */
/** @typedef {import("./first/http.js").View} View */

export * from "./first/dom.js";
export * from "./first/http.js";
export * from "./first/frame.js";
export * from "./first/values.js";
export * from "./first/session.js";
export * from "./first/exchange.js";
export * from "./first/start.js";
export * from "./first/view.js";
