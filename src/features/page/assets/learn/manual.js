// @ts-check
/**
 * The chapters of the documentation, for those who write a program for this API.
 * A chapter is an id, a title and parts: a paragraph, in which backticks mark
 * code; a request that runs on a click, `GET ?limit=2`, about a collection of
 * this very API; a command, `$ curl …`; or the rows of a table.
 */

import { promises } from "../base/exchange.js";
import { local } from "../base/http.js";
import { titleNameOf } from "../base/values.js";

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
  const text = titleNameOf(properties);
  const choice = find((each) => each.enum);
  const reference = find((each) => each["x-collection"])?.replace(/_id$/, "");
  const expandable = has("get", '"expand"') && reference;
  /** @type {(Chapter | false | undefined | "")[]} */
  const chapters = [
    [
      "signing-in",
      "Signing in",
      "Exchange a user name and a password for a token once, and send it with every other request that needs a role.",
      `$ curl ${
        urlOf("authorizations_url")
      } -H 'Content-Type: application/json' -d '{"username":"…","password":"…"}'`,
      `$ curl ${urlOf("current_user_url")} -H 'Authorization: Bearer <token>'`,
      "`DELETE` of the authorization ends its token. 401 means that the token is missing, wrong, expired or ended: sign in again. 403 means that the role does not permit the request.",
    ],
    [
      "methods",
      "Methods and statuses",
      Object.entries({ GET: 200, POST: 201, PUT: 201, PATCH: 201, DELETE: 204 })
        .map((
          [method, status],
        ) => [method, `${status}`, promises[method] ?? ""]),
      "RFC 9110 has 200 or 204 for a PUT or PATCH of what exists, and 201 for what is new (section 9.3.4). Here it is 201 since the first version, whose clients must not break; to a client that takes every 2xx for success (section 15) it makes no difference.",
    ],
    [
      "paging",
      "Pages",
      "`limit` and `offset`, or `page` and `per_page`, choose a page. `X-Total-Count` is the number of all records that match, and `Link` has the URLs of the first, previous, next and last page (RFC 8288): follow these.",
      "GET ?limit=2",
      "GET ?page=2&per_page=5",
    ],
    [
      "filters",
      "Filters and order",
      "The name of a property selects the records with that value. An operator may follow a colon: `ne`, `lt`, `lte`, `gt`, `gte`, `in`, and for texts `contains` and `starts`, which ignore case. `sortby` and `order` sort. An unknown name is 400.",
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
      expandable ? "`expand` adds the record that a reference names." : "",
      expandable ? `GET ?expand=${reference}&limit=1` : "",
    ],
    has("get", '"aggregate"') && [
      "aggregates",
      "Numbers instead of records",
      "`aggregate` computes `count`, and `sum`, `avg`, `min` and `max` of a property, of all records that match; `by` groups them by properties, or by `year`, `month`, `day`, `hour` or `minute` of a time in UTC.",
      "GET ?aggregate=count",
      "GET ?aggregate=count&by=month(created_at)",
    ],
    [
      "failures",
      "Errors",
      "An error has a number for programs, `errorCode`, which begins with the status, and a sentence for people, `errorMsg`. A record that breaks rules is 422, with all of them in `errors`: `field`, `code`, `message`. All numbers are listed below.",
      "GET ?colour=red",
    ],
    has("put", "If-Match") && [
      "conditional",
      "Conditional requests",
      "The `ETag` of a response names a version. With `If-None-Match` a GET is 304, without content, as long as your copy is current. With `If-Match` a PUT, PATCH or DELETE is 412 if somebody has changed the record since you read it: read it again, and decide anew.",
    ],
    [
      "retries",
      "Retries",
      "If no response came, send a GET, PUT or DELETE again: twice has the same effect as once (RFC 9110 section 9.2.2).",
      has("post", "Idempotency-Key")
        ? "Send a POST again with the same `Idempotency-Key`, a random text: it is done once, and the response is the same."
        : "",
      "429 and 503 say in `Retry-After` how many seconds to wait. After any other 4xx the same request fails again.",
    ],
    root.events_url && [
      "following",
      "Following changes",
      "One request gets all changes as they happen (server-sent events). After a break the client sends the last id that it saw, and misses nothing. After an event `reset` it reads everything anew.",
      `$ curl -N ${
        urlOf("events_url")
      } -H 'Authorization: Bearer <token>' -H 'Last-Event-ID: 12'`,
    ],
    has("post", "An array") && [
      "batches",
      "Many at a time",
      "POST an array of up to 1,000 records: all are created or none, and `errors` have the `index` of their record.",
    ],
    operations.delete && [
      "deleting",
      "Deleting what matches",
      "DELETE a collection with a filter: 202, and a task does it in the background. `Prefer: wait=5` waits for its end.",
    ],
    root.tasks_url && [
      "files",
      "Files in and out",
      "With `Accept: application/x-ndjson` a collection is sent as a whole, one record per line. POST such a file with that Content-Type: 202, and a task says how many lines were read and which were rejected.",
      `$ curl ${urlOf("tasks_url")} -H 'Authorization: Bearer <token>'`,
    ],
  ];
  return /** @type {Chapter[]} */ (chapters.filter(Boolean));
}
