// @ts-check
/** Explains an exchange: its status, each of its header fields, and the same request as a command. */

import {
  b,
  button,
  dd,
  disclosure,
  div,
  dl,
  dt,
  h3,
  p,
  pre,
  section,
  span,
  statusTag,
  textarea,
} from "./dom.js";
import { say } from "./frame.js";
import { hooks, parse, problemOf, send, targetOf } from "./http.js";
import { explanationOf } from "./values.js";
import { show } from "./view.js";

/** @typedef {import("./http.js").Exchange} Exchange */

/** The meaning of each status, and of the error code that means something else. @type {Record<string, string>} */
const statuses = {
  0: "The network failed, or the server is down. Repeat a POST only with an Idempotency-Key.",
  200: "Success; the content is what you asked for.",
  201: "Success; the record is stored durably, and sent as it is now.",
  202: "Accepted: a task does it in the background. Follow Location.",
  204: "Success; the response has no content.",
  304: "Your stored copy is still current, so the content is not sent again.",
  400: "The syntax or a parameter is wrong. Correct what the message names.",
  401: "The request lacks valid credentials: sign in.",
  403: "Your role does not permit this: sign in as a user whose role does.",
  404: "There is nothing at this URL, or nothing that you may see.",
  405:
    "The resource does not support this method; Allow lists those that it does.",
  406:
    "The resource has none of the formats that Accept allows; the message lists those that it has.",
  408: "The request took too long to arrive; it may be repeated.",
  409:
    "The request conflicts with the current state; for example, other records still refer to this one.",
  410:
    "The record was deleted for good, and its id will never be reused. Remove your links to it.",
  412:
    "A precondition failed, for example because the record has changed since you read it. Nothing was changed: read it again, then decide.",
  413: "The content is larger than the server accepts here.",
  414: "Send the parameters as the content of a QUERY.",
  415:
    "The server does not read this type here; Accept-Post and Accept-Patch of OPTIONS list those that it does.",
  422:
    "The content breaks a rule, so nothing was changed. Correct what is listed.",
  42201:
    "What you sent before was stored: look for it in the list before you create another.",
  428:
    "This change needs a precondition: send If-Match with the ETag of the version that you read.",
  429: "Too many requests; Retry-After says when to try again.",
  500:
    "The server failed, possibly after the change: check before you repeat the request.",
  501: "The server does not support what this request needs.",
  503: "The server cannot do this now; try again later.",
};

/** One sentence for each field; § is a section of RFC 9110. @type {Record<string, string>} */
const fields = {
  accept: "The formats that the client can use, with weights (§12.5.1).",
  "accept-patch": "The formats of a PATCH here (RFC 5789 section 3.1).",
  "accept-post": "The formats of a POST here.",
  "accept-query": "The formats of a QUERY here (RFC 10008 section 3).",
  allow: "The methods that this resource supports (§10.2.1).",
  authorization:
    "Who sends the request: a token that works for anyone who has it (RFC 6750 section 2.1).",
  "cache-control":
    "Who may store a copy; no-cache: validate it before each use (RFC 9111 section 5.2).",
  connection: "Whether the connection stays open (§7.6.1).",
  "content-length": "The length of the content in bytes (§8.6).",
  "content-location": "The URL of what the content represents (§8.7).",
  "content-type": "The format of the content (§8.3).",
  date: "When the response was generated (§6.6.1).",
  etag:
    "The entity tag of this version; W/ marks one for equivalent, not identical, content (§8.8.3).",
  "idempotency-key":
    "Marks retries of one request, which takes effect once (IETF draft).",
  "if-match":
    "Do it only if the resource is still this version; otherwise 412 (§13.1.1).",
  "if-none-match":
    "Send the content only if it is another version; otherwise 304 (§13.1.2).",
  "keep-alive": "How long an idle connection stays open.",
  "last-modified": "When the resource was last changed (§8.8.2).",
  link: "Related URLs, such as the next page (RFC 8288 section 3).",
  location:
    "The URL of the new record (201) or of the task (202), or the one to use instead (308) (§10.2.2).",
  prefer: "What the client prefers (RFC 7240).",
  "preference-applied": "The preference that was applied (RFC 7240 section 3).",
  ratelimit: "How many requests are left, and for how long (IETF draft).",
  "ratelimit-policy": "How many requests a client may send (IETF draft).",
  "retry-after": "How many seconds to wait (§10.2.3).",
  "strict-transport-security": "Browsers must use HTTPS here (RFC 6797).",
  vary: "The request fields on which the response depends (§12.5.5).",
  "www-authenticate": "How to authenticate (§11.6.1).",
  "x-content-type-options":
    "Browsers must not guess another type (Fetch standard).",
  "x-request-id": "The id of this request in the server's log.",
  "x-total-count": "The number of matching records on all pages.",
};

/** The promise of each method. @type {Record<string, string>} */
export const promises = {
  GET: "GET is safe: it changes nothing, so it may be repeated and cached.",
  QUERY:
    "QUERY is safe: it is a GET whose parameters are its content (RFC 10008).",
  OPTIONS: "OPTIONS is safe: it asks what may be done here.",
  POST:
    "POST creates. It is not idempotent: sent twice, it takes effect twice, unless an Idempotency-Key marks the retry.",
  PUT:
    "PUT replaces the whole record; what is not sent gets its default. It is idempotent: twice has the same effect as once.",
  PATCH:
    "PATCH changes the properties that it names, and no others (RFC 7396). In general it is not idempotent (RFC 5789).",
  DELETE:
    "DELETE deletes for good: from then on the URL is 410. It is idempotent.",
};

/** Returns what a status means, and what to do next. */
export function meaningOf(status, body, headers) {
  const seconds = headers?.get("retry-after");
  return (statuses[body?.errorCode] ?? statuses[status] ??
    statuses[Math.floor(status / 100) * 100] ?? "") +
    (seconds ? ` Try again in ${seconds} s.` : "");
}

/** Shows why a request failed, and what to do next. */
export function showProblem(place, response) {
  const { status, headers, body } = response;
  place.replaceChildren(
    p.wrong(problemOf(response)),
    p(meaningOf(status, body, headers), " ", explanationOf(body)),
  );
}

/** Writes an argument for a POSIX shell. */
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The same request as a command, with the token in a variable that is not copied. */
function curlOf({ method, url, fields, body }) {
  return [
    method === "HEAD"
      ? `curl -gI ${quote(url)}`
      : `curl -gi -X ${method} ${quote(url)}`,
    ...fields.map(([name, value]) =>
      name === "Authorization"
        ? '-H "Authorization: Bearer $TOKEN"'
        : "-H " + quote(`${name}: ${value}`)
    ),
    ...(body === undefined ? [] : [
      body instanceof File
        ? "--data-binary " + quote(`@${body.name}`)
        : "--data-raw " + quote(body).replace(secrets, `$1"'"$PASSWORD"'"`),
    ]),
  ].join(" \\\n  ");
}

/** The header fields of a request as the members of an object, the token being a variable. */
function membersOf(fields, token, indent) {
  return fields.map(([name, value]) =>
    `${indent}${JSON.stringify(name)}: ${
      name === "Authorization" ? token : JSON.stringify(value)
    },\n`
  ).join("");
}

/** A body as a string of JavaScript or Python, without the password. */
function literalOf(body) {
  return JSON.stringify(body.replace(secrets, '$1"PASSWORD"'));
}

/** The same request in JavaScript. */
function fetchOf({ method, url, fields, body }) {
  const content = body instanceof File
    ? "  body: file, // a File or Blob\n"
    : body && `  body: ${literalOf(body)},\n`;
  return `const response = await fetch(${JSON.stringify(url)}, {
  method: ${JSON.stringify(method)},
  headers: {
${membersOf(fields, "`Bearer ${token}`", "    ")}  },
${content ?? ""}});
console.log(response.status, await response.text());
`;
}

/** The same request in Python, by its standard library. */
function pythonOf({ method, url, fields, body }) {
  const content = body instanceof File
    ? `    data=open(${JSON.stringify(body.name)}, "rb").read(),\n`
    : body && `    data=${literalOf(body)}.encode(),\n`;
  return `import os, urllib.request

request = urllib.request.Request(
    ${JSON.stringify(url)},
    method=${JSON.stringify(method)},
    headers={
${membersOf(fields, '"Bearer " + os.environ["TOKEN"]', "        ")}    },
${content ?? ""})
with urllib.request.urlopen(request) as response:
    print(response.status, response.read().decode())
`;
}

/** The passwords and tokens in a text, which are not shown. */
const secrets = /("(?:password|token)"\s*:\s*)"(?:[^"\\]|\\.)*"/g;

function hide(text) {
  return text.replace(secrets, '$1"…"');
}

function pretty(text) {
  const shown = hide(text);
  const value = parse(shown);
  return (value ? JSON.stringify(value, null, 2) : shown).slice(0, 5000);
}

function explained(list) {
  return dl.fields.near(list.map(([name, value]) => [
    dt(
      b(`${name}: `),
      name === "Authorization" ? "Bearer …" : value,
    ),
    dd((fields[name.toLowerCase()] ?? "").replace("§", "RFC 9110 section ")),
  ]));
}

/** The request as a text, which can be changed and sent again. */
function repetition({ method, url, fields, body }) {
  const text = [
    `${method} ${targetOf(url)}`,
    ...fields.filter(([name]) => name !== "Authorization")
      .map(([name, value]) => `${name}: ${value}`),
    ...(typeof body === "string" ? ["", hide(body)] : []),
  ].join("\n");
  const area = textarea.url({
    rows: text.split("\n").length + 1,
    "aria-label": "The request",
  });
  area.value = text;
  const error = p.wrong({ role: "alert" });
  const repeat = async () => {
    const [head = "", ...rest] = area.value.split("\n\n");
    const [first = "", ...lines] = head.split("\n");
    const [method = "", path = ""] = first.split(" ");
    const fields = lines.map((line) => line.split(/: ?(.*)/).slice(0, 2));
    error.textContent = "";
    try {
      await send(method, path, {
        fields: Object.fromEntries(fields),
        body: rest.join("\n\n") || undefined,
      });
    } catch (reason) { // such as GET with content
      return void (error.textContent = String(reason));
    }
    document.querySelector(".exchange:not(.background)")
      ?.setAttribute("open", "");
    if (/^P|^D/.test(method)) await show();
  };
  return div.near(area, error, button("Send", repeat));
}

/** A button that copies a text, which is shown. */
function copyAs(name, text, place) {
  return button(
    name,
    async ({ currentTarget }) => {
      place.textContent = text;
      place.hidden = false;
      // Without TLS, browsers offer the clipboard only to pages of this machine.
      try {
        await navigator.clipboard.writeText(text);
        say(`Copied as ${name}.`);
      } catch {
        getSelection()?.selectAllChildren(place);
        say("Selected: copy it with Ctrl+C.");
      }
      currentTarget?.focus();
    },
    undefined,
    { class: "quiet" },
  );
}

hooks.explain = explain;

function explain(exchange) {
  const { method, url, fields, body, status, reason, received, text } =
    exchange;
  const curl = curlOf(exchange);
  const copied = pre.curl({
    tabindex: "0",
    "aria-label": "The request as code",
  }, curl);
  return div.sides(
    section.near(
      h3("Request"),
      pre(`${method} ${targetOf(url)} HTTP/1.1\nHost: ${location.host}`),
      p.soft(promises[method] ?? ""),
      explained(fields),
      body !== undefined &&
        pre(
          body instanceof File
            ? `The file ${body.name}`
            : colored(pretty(body)),
        ),
      div.row(
        span.soft("Copy as"),
        copyAs("curl", curl, copied),
        copyAs("fetch", fetchOf(exchange), copied),
        copyAs("Python", pythonOf(exchange), copied),
      ),
      copied,
      body instanceof File || disclosure(
        "repetition",
        "Change and resend",
        () => repetition(exchange),
      ),
    ),
    section.near(
      h3("Response"),
      p(
        statusTag(status, `${status || "✗"} ${reason}`),
        " ",
        span.meaning.soft(meaningOf(status, parse(text))),
      ),
      explained(received),
      text && pre(colored(pretty(text))),
    ),
  );
}

/** JSON with its names, strings and numbers in colours. */
function colored(text) {
  const parts = text.split(/("(?:[^"\\]|\\.)*"(?:\s*:)?|-?\b\d[\d.eE+-]*)/);
  return parts.map((part, at) =>
    at % 2 === 0 ? part : span({
      class: /:$/.test(part) ? "k" : part.startsWith('"') ? "s" : "n",
    }, part)
  );
}
