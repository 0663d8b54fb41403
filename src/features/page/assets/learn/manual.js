// @ts-check
/**
 * The chapters of the documentation, for those who write a program for this API.
 * A chapter is an id, a title and parts: a paragraph, in which backticks mark
 * code; a request that runs on a click, `GET ?limit=2`, about a collection of
 * this very API; a command, `$ curl …`; or the rows of a table.
 */

import { local } from "../base/http.js";

/** @typedef {[id: string, title: string, ...parts: (string | string[][])[]]} Chapter */

/**
 * Returns the chapters about what this API has.
 *
 * @param {object} api
 * @param {Record<string, string>} api.root the root document
 * @param {Record<string, any>} api.properties those of the collection of the examples
 * @param {Record<string, any>} api.operations what OpenAPI says about that collection, by method
 * @returns {Chapter[]}
 */
export function chaptersOf({ root, properties, operations }) {
  const urlOf = (name) => local(root[name] ?? "") ?? "";
  const has = (method, text) =>
    JSON.stringify(operations[method] ?? "").includes(text);
  const names = Object.keys(properties);
  const find = (isIt) => names.find((name) => isIt(properties[name], name));
  const text = find(({ type, enum: choices, format, readOnly, writeOnly }) =>
    [type].flat().includes("string") && !choices && !format && !readOnly &&
    !writeOnly
  );
  const choice = find((each) => each.enum);
  const reference = find((each) => each["x-collection"])?.replace(/_id$/, "");
  const expandable = has("get", '"expand"') && reference;
  /** @type {(Chapter | false | undefined | "")[]} */
  const chapters = [
    [
      "signing-in",
      "Signing in",
      "Some things can be read by anyone; the rest needs a role. A user name and a password are exchanged for a token once, and every other request sends that token.",
      `$ curl ${
        urlOf("authorizations_url")
      } -H 'Content-Type: application/json' -d '{"username":"…","password":"…"}'`,
      `$ curl ${urlOf("current_user_url")} -H 'Authorization: Bearer <token>'`,
      `\`DELETE\` of the authorization ends its token at once. 401 means that the token is missing, wrong, expired or ended: sign in again. 403 means that the role does not permit it, which no other token of the same user changes.`,
    ],
    [
      "methods",
      "Methods and statuses",
      [
        ["GET", "200", "Reads. HEAD is the same without content."],
        ["POST", "201", "Creates a record; Location has its URL."],
        ["PUT", "201", "Replaces a record; what is not sent gets its default."],
        ["PATCH", "201", "Changes what is sent (JSON Merge Patch, RFC 7396)."],
        ["DELETE", "204", "Deletes for good: from then on the URL is 410."],
      ],
      "RFC 9110 has 200 or 204 for a PUT or PATCH of what exists, and keeps 201 for what is new (section 9.3.4). Here it has been 201 since the first version, whose clients must not break. A client that takes every 2xx for success (section 15) need not know it.",
    ],
    [
      "paging",
      "Pages",
      "A collection is sent in pages: `limit` and `offset`, or `page` and `per_page`. `X-Total-Count` is the number of all records that match, and `Link` has the URLs of the first, previous, next and last page (RFC 8288): follow these instead of computing your own.",
      "GET ?limit=2",
      "GET ?page=2&per_page=5",
    ],
    [
      "filters",
      "Filters and order",
      "A parameter with the name of a property keeps the records with that value; an operator follows a colon: `ne`, `lt`, `lte`, `gt`, `gte`, `in`, and for texts `contains` and `starts`, which ignore case. `sortby` and `order` sort. Nothing unknown is ignored: a wrong name is 400.",
      "GET ?id:in=1,2,3",
      text ? `GET ?${text}:contains=a` : "",
      choice ? `GET ?${choice}=${properties[choice]?.enum[0]}` : "",
      "GET ?sortby=updated_at&order=desc",
    ],
    [
      "fields",
      expandable ? "Some properties, or more" : "Some properties",
      "`fields` names the properties that are sent, besides the id.",
      "GET ?fields=id,updated_at",
      expandable
        ? "`expand` shows beside a reference the record that it leads to, as you would get it from its own URL."
        : "",
      expandable ? `GET ?expand=${reference}&limit=1` : "",
    ],
    has("get", '"aggregate"') && [
      "aggregates",
      "Numbers instead of records",
      "`aggregate` computes `count`, and `sum`, `avg`, `min` and `max` of a property, of all records that match; `by` makes groups, by properties or by `year`, `month`, `day`, `hour` or `minute` of a time in UTC.",
      "GET ?aggregate=count",
      "GET ?aggregate=count&by=month(created_at)",
    ],
    [
      "failures",
      "Errors",
      "An error has a number for programs, `errorCode`, and a sentence for people, `errorMsg`. Its first three digits are the status. A record that breaks rules is 422, with all of them at once in `errors`: `field`, `code`, `message`. The list of all numbers is below.",
      "GET ?colour=red",
    ],
    has("put", "If-Match") && [
      "conditional",
      "Conditional requests",
      "Each response has an `ETag`, the name of a version. With `If-None-Match` a GET is 304, without content, as long as your copy is current. With `If-Match` a PUT, PATCH or DELETE is done only if nobody has changed the record since you read it, and is 412 otherwise: read it again, and decide anew.",
    ],
    [
      "retries",
      "Retries",
      "If no response came, a GET, PUT or DELETE may simply be sent again: to do it twice has the same effect as once (RFC 9110 section 9.2.2).",
      has("post", "Idempotency-Key")
        ? "A POST or PATCH may be sent again with the same `Idempotency-Key`, a random text: the server does it once, and sends the same response again."
        : "",
      "429 and 503 say in `Retry-After` how many seconds to wait. After any other 4xx the same request fails again.",
    ],
    root.events_url && [
      "following",
      "Following changes",
      "One request gets all changes as they happen, in order (Server-Sent Events). After a break the client sends the last id that it saw, and misses nothing. An event `reset` says that the history is gone: read everything anew.",
      `$ curl -N ${
        urlOf("events_url")
      } -H 'Authorization: Bearer <token>' -H 'Last-Event-ID: 12'`,
    ],
    has("post", "An array") && [
      "batches",
      "Many at a time",
      "POST an array of up to 1,000 records: all are created or none, and each of `errors` has the `index` of its record.",
    ],
    operations.delete && [
      "deleting",
      "Deleting what matches",
      "DELETE a collection with a filter: 202 and a task, which does it in the background. `Prefer: wait=5` waits for its end.",
    ],
    root.tasks_url && [
      "files",
      "Files in and out",
      "With `Accept: application/x-ndjson` a collection is sent as a whole, one record per line. Such a file goes in again by POST with that Content-Type: 202 and a task, which says how many lines it has read and which it has rejected.",
      `$ curl ${urlOf("tasks_url")} -H 'Authorization: Bearer <token>'`,
    ],
  ];
  return /** @type {Chapter[]} */ (chapters.filter(Boolean));
}
