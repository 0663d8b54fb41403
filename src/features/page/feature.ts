/**
 * A page for people: a browser that asks for any URL gets one HTML document,
 * whose scripts request that URL again as JSON and show the resource. The
 * document is the same for all URLs and contains no records: only the status of
 * the response depends on the request.
 */

import { createHash } from "node:crypto";
import { readFileSync } from "node:fs";
import type { Api, Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { textRoute } from "../../api/formats/text-route.ts";
import { negotiate } from "../../http/negotiate.ts";
import type { Response } from "../../http/connection.ts";
import { errorMessages } from "../../http/errors.ts";
import { shrink } from "./shrink.ts";

const folder = new URL("assets/", import.meta.url);

/** The files for browsers by name, read at startup so that they fit together; shrunk when the first one asks, as many servers never see a browser. */
const assets: ReadonlyMap<string, string> = new Map(
  ["page.html", "page.css", "page.js"]
    .map((
      name,
    ) => [name, name === "page.js" ? bundle(read(name)) : read(name)]),
);

function read(name: string): string {
  return readFileSync(new URL(name, folder), "utf8");
}

/**
 * Puts each module into the place of its import in `page.js`, where they are in
 * the order of their own imports: one request instead of twenty.
 */
function bundle(text: string): string {
  return text.replace(
    /^import "\.\/(.*)";\n/gm,
    (_, name) =>
      read(name).replace(/^import [^;]*;\n/gm, "").replace(/^export /gm, ""),
  );
}

/** The media types of the assets by file name extension. */
const assetTypes: Readonly<Record<string, string>> = {
  css: "text/css; charset=utf-8",
  js: "text/javascript; charset=utf-8",
};

function extensionOf(name: string): string {
  return name.replace(/.*\./, "");
}

const htmlType = "text/html; charset=utf-8";

/** Nothing is loaded from elsewhere, nothing inline runs, and no text becomes HTML in the browser. */
const securityFields: readonly string[] = [
  "Content-Security-Policy",
  "default-src 'none'; script-src 'self'; style-src 'self'; " +
  "connect-src 'self'; img-src data:; base-uri 'none'; form-action 'none'; " +
  "frame-ancestors 'none'; require-trusted-types-for 'script'; " +
  "trusted-types 'none'",
  "Referrer-Policy",
  "no-referrer",
  "X-Frame-Options",
  "DENY",
];

export const feature: Feature = {
  open(api) {
    const { base: { origin, path }, add } = api;
    for (const [name, text] of assets) {
      const extension = extensionOf(name);
      const type = assetTypes[extension];
      if (type === undefined) continue;
      const route = textRoute({
        tag: "", // Programs have no use for it, so no document describes it.
        schema: {},
        make: () => shrink(extension, text),
        type,
      });
      add(`${path}page/${name}`, route);
    }
    const docs = textRoute({
      summary: "All error codes; as HTML the documentation of the API",
      schema: { title: "documentation", type: "object" },
      make: () => JSON.stringify({ errors: errorMessages }),
    });
    add(`${path}docs`, docs, "documentation_url");
    const document = createDocument(api);
    const headers = ["ETag", `"${hash(document)}"`, ...securityFields];
    const page = { status: 200, headers, body: document, type: htmlType };
    return {
      documentationUrl: `${origin}${path}docs`,
      format: (request, response) =>
        prefersHtml(request) && isBelow(path, request.target)
          ? toPage(response, page, request)
          : undefined,
    };
  },
};

/** Returns whether a target is a URL of the API: others can be files of a front end. */
function isBelow(path: string, target: string): boolean {
  const [own = ""] = target.replace(/^https?:\/\/[^/]*/i, "").split("?");
  return `${own}/`.startsWith(path);
}

/** Fills in what the scripts cannot find out, such as the URL of the root document. */
function createDocument({ base, declaration }: Api): string {
  const values: Readonly<Record<string, string>> = {
    root: base.origin + base.path,
    path: base.path,
    title: declaration.title,
  };
  const template = assets.get("page.html") ?? "";
  return shrink("html", template).replace(
    /%(\w+)%/g,
    (_, name) => escapeHtml(values[name] ?? ""),
  );
}

function escapeHtml(text: string): string {
  return text.replace(/[&<>"']/g, (each) => `&#${each.charCodeAt(0)};`);
}

function hash(text: string): string {
  return createHash("sha256").update(text).digest("base64url").slice(0, 16);
}

/** Returns whether a client prefers HTML to all formats of a URL: browsers do; programs that accept anything do not. */
function prefersHtml({ method, headers, route }: RequestContext): boolean {
  const { accept } = headers;
  if (accept === undefined || !/text\/(?:html|\*)/i.test(accept)) return false;
  if (method !== "GET" && method !== "HEAD") return false;
  const { produces = ["application/json"] } = route?.operations.get("GET") ??
    {};
  return negotiate(accept, [...produces, "text/html"]) === "text/html";
}

/** Returns the page in place of a response. The page for an error keeps its status and fields. */
function toPage(
  response: Response,
  page: Response,
  { headers: { "if-none-match": listed } }: RequestContext,
): Response {
  const { status, headers } = response;
  if (status >= 400) {
    const fields = [...headers, ...securityFields];
    return { ...page, status, headers: fields };
  }
  if (status > 300 && status !== 304) return response;
  const [, etag = ""] = page.headers;
  return listed?.includes(etag)
    ? { ...page, status: 304, body: undefined }
    : page;
}
