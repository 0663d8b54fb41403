// @ts-check
/** What an exchange says: its status, each of its header fields, and the same request for a terminal. */

import { button, dd, div, dl, dt, h, h3, p, pre, send, show } from "./page.js";

/** @typedef {import("./page.js").Exchange} Exchange */

/** What a status means, by status and method: `*` is any. @type {Record<string, string>} */
const statuses = {
  "0":
    "The network failed, or the server is down. Send a safe or idempotent request again, a POST only with an Idempotency-Key.",
  "200": "Success, and the content is what you asked for.",
  "201":
    "Success: the record is stored, durably; the content is the record as it is now.",
  "202":
    "Accepted: the work goes on in the background; Location is where to watch it.",
  "204": "Success, and there is nothing to say.",
  "304":
    "Not modified: the copy named in If-None-Match is still current, so its content is not sent again.",
  "308": "The resource is at another URL for good; repeat the request there.",
  "400":
    "The syntax or a parameter of the request is wrong. Sending it again as it is cannot help.",
  "401":
    "The server does not know who you are: no token, or an invalid one. Sign in.",
  "403": "The server knows who you are, and your role may not do this.",
  "404": "There is nothing at this URL, or nothing that you may see.",
  "405": "The URL exists but has no such method; Allow lists those it has.",
  "406": "The resource has none of the formats that Accept allows.",
  "409":
    "The request conflicts with other records: something still refers to this one.",
  "410":
    "Gone: the record was deleted for good, and its id will never be used again.",
  "412":
    "A precondition failed: the record is no longer the version that If-Match names. Nothing was changed.",
  "413": "The content is larger than the server accepts here.",
  "415": "The server does not read content of this type here.",
  "422":
    "The syntax is right, but values break a rule. All that is wrong is listed; nothing was changed.",
  "428": "A change must say which version it is about: send If-Match.",
  "429": "Too many requests; Retry-After says when to go on.",
  "500":
    "The server failed, perhaps after the change: look before you repeat it.",
  "503": "The server cannot do this now; Retry-After says when to try again.",
};

/** One sentence for each field; § is a section of RFC 9110. @type {Record<string, string>} */
const fields = {
  accept: "The formats that the client can use, with weights (§12.5.1).",
  "accept-patch":
    "The formats in which a PATCH may be sent here (RFC 5789 section 3.1).",
  "accept-post": "The formats in which a POST may be sent here.",
  "accept-query":
    "The formats in which a QUERY may be sent here (RFC 10008 section 3).",
  allow: "The methods that this URL has (§10.2.1).",
  authorization:
    `Who is asking: a token that whoever has it can use (RFC 6750 section 2.1).`,
  "cache-control":
    `Who may store a copy; no-cache: validated at each use (RFC 9111 section 5.2).`,
  connection: "What becomes of the connection afterwards (§7.6.1).",
  "content-length": "How many bytes the content has (§8.6).",
  "content-location": "The URL of what the content shows (§8.7).",
  "content-type": "The format of the content (§8.3).",
  date: "When the response was made (§6.6.1).",
  etag:
    "The name of this version; W/ marks one that is equivalent, not byte for byte the same (§8.8.3).",
  "idempotency-key":
    "Marks repetitions of one POST, so that it is done once (IETF draft).",
  "if-match":
    "Do it only if the resource is still this version; otherwise 412 (§13.1.1).",
  "if-none-match":
    "Send the content only if it is no longer this version; otherwise 304 (§13.1.2).",
  "keep-alive": "How long an idle connection stays open.",
  "last-modified":
    "When the resource was changed last, in whole seconds (§8.8.2).",
  link:
    "URLs that belong to this one, such as the next page (RFC 8288 section 3).",
  location: "Where the new resource is (§10.2.2).",
  prefer: "What the client would like (RFC 7240).",
  "preference-applied": "The wish that was followed (RFC 7240 section 3).",
  ratelimit: "How many requests are left, and for how long (IETF draft).",
  "ratelimit-policy": "How many requests a client may send (IETF draft).",
  "retry-after": "How many seconds to wait (§10.2.3).",
  "strict-transport-security":
    "Browsers must use HTTPS here from now on (RFC 6797).",
  vary: "The request fields on which the response depends (§12.5.5).",
  "www-authenticate": "How to say who you are (§11.6.1).",
  "x-content-type-options":
    "Browsers must believe the Content-Type (Fetch standard).",
  "x-request-id": "The name of this request in the log of the server.",
  "x-total-count": "How many records match in all, on all pages.",
};

/** What a method promises. @type {Record<string, string>} */
const methods = {
  GET:
    "GET is safe: it changes nothing, so it may be repeated, and its response stored.",
  OPTIONS: "OPTIONS is safe: it asks what may be done here.",
  POST:
    "POST is neither safe nor idempotent: sent twice, it is done twice, unless an Idempotency-Key marks the repetition.",
  PUT:
    "PUT is idempotent: it replaces the whole record, and twice has the same effect as once.",
  PATCH:
    "PATCH changes the properties that it names, and no others (RFC 7396).",
  DELETE:
    "DELETE is idempotent: after the second one the record is as gone as before, though its response is a 404.",
};

export function meaningOf(status) {
  return statuses[status] ?? statuses[Math.floor(status / 100) * 100] ?? "";
}

/** Writes an argument for a POSIX shell. */
function quote(text) {
  return `'${text.replaceAll("'", "'\\''")}'`;
}

/** The same request as a command, with the token in a variable that is not copied. */
export function curlOf({ method, url, fields, body }) {
  return [
    `curl -gi -X ${method} ${quote(url)}`,
    ...fields.map(([name, value]) =>
      name === "Authorization"
        ? '-H "Authorization: Bearer $TOKEN"'
        : `-H ${quote(`${name}: ${value}`)}`
    ),
    ...(body === undefined ? [] : [
      body instanceof File
        ? `--data-binary ${quote(`@${body.name}`)}`
        : `--data-raw ${quote(body).replace(password, `$1"'"$PASSWORD"'"`)}`,
    ]),
  ].join(" \\\n  ");
}

const password = /("password":\s*)"(?:[^"\\]|\\.)*"/;

/** Leaves passwords and tokens out of what is shown. */
function hide(text) {
  return text.replace(/("(?:password|token)":\s*)"(?:[^"\\]|\\.)*"/g, '$1"…"');
}

function pretty(text) {
  try {
    return JSON.stringify(JSON.parse(hide(text)), null, 2).slice(0, 5000);
  } catch {
    return text.slice(0, 5000);
  }
}

function explained(list) {
  return dl(list.map(([name, value]) => [
    dt(h(
      "code",
      `${name}: ${name === "Authorization" ? "Bearer …" : value}`,
    )),
    dd((fields[name.toLowerCase()] ?? "").replace("§", "RFC 9110 section ")),
  ]));
}

/** The request as a text, which can be changed and sent again. */
function repetition({ method, url, fields, body }) {
  const text = [
    `${method} ${url.slice(location.origin.length)}`,
    ...fields.filter(([name]) => name !== "Authorization")
      .map(([name, value]) => `${name}: ${value}`),
    ...(typeof body === "string" ? ["", hide(body)] : []),
  ].join("\n");
  const area = h("textarea", {
    rows: text.split("\n").length + 1,
    "aria-label": "The request",
  });
  area.value = text;
  const error = p({ class: "error", role: "alert" });
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
    document.querySelector(".exchange")?.setAttribute("open", "");
    if (/^P|^D/.test(method)) show();
  };
  return h(
    "details",
    { class: "repetition" },
    h("summary", "Change it and send it again"),
    area,
    error,
    button("Send", repeat),
  );
}

export function explain(exchange) {
  const { method, url, fields, body, status, reason, received, text } =
    exchange;
  const curl = curlOf(exchange);
  const copy = h("button", {
    type: "button",
    onclick: async () => {
      // Browsers have no clipboard without TLS, but on this machine.
      if (navigator.clipboard) await navigator.clipboard.writeText(curl);
      else getSelection()?.selectAllChildren(copy.previousSibling);
      copy.textContent = navigator.clipboard ? "Copied" : "Selected";
    },
  }, "Copy");
  return div(
    h3("Request"),
    pre(
      `${method} ${
        url.slice(location.origin.length)
      } HTTP/1.1\nHost: ${location.host}`,
    ),
    p(methods[method] ?? ""),
    explained(fields),
    body !== undefined &&
      pre(body instanceof File ? `The file ${body.name}` : pretty(body)),
    body instanceof File || repetition(exchange),
    h3("Response"),
    pre(`HTTP/1.1 ${status} ${reason}`),
    p({ class: "meaning" }, meaningOf(status)),
    explained(received),
    text && pre(pretty(text)),
    h3("In a terminal"),
    pre({ class: "curl" }, curl),
    copy,
  );
}
