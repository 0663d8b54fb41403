// @ts-check
/** Collections with their numbers of records: those of the API on its first view, and those of what refers to a record. */

import { a, b, h1, h2, li, p, section, span, ul } from "./base/dom.js";
import { nameOf, resourceLink, resources, root } from "./base/frame.js";
import { apiTitle, local, send } from "./base/http.js";
import { isLink, link } from "./base/values.js";

/** The collections of what refers to a record, with their numbers of records. */
export function collectionsOf({ response: { body }, properties }) {
  const rows = Object.entries(body)
    .filter(([name, url]) => isCollectionOf(body, name, properties) && url)
    .map(rowOf);
  return rows.length > 0 &&
    section.stack(h2("What refers to it"), ul.list(rows));
}

/** Returns whether a link of a record leads to the records that refer to it. */
export function isCollectionOf(record, name, properties) {
  const url = record[name];
  return isLink(name, properties[name]) && typeof url === "string" &&
    url !== record.url && url.startsWith(`${record.url}/`) &&
    local(url) !== undefined;
}

/** The collections of the API with their numbers of records, and then what every server has. */
export function startView() {
  const { documentation_url: docs } = root;
  const own = resources(true);
  return [
    h1(apiTitle),
    p.soft.prose(
      "Every click here sends an HTTP request. The drawer shows it, and says what each part of it means. ",
      docs && link(`${docs}#course`, "New to HTTP? Take the lessons."),
    ),
    section.stack(
      h2("Collections"),
      own.length > 0
        ? ul.list(own.map(rowOf))
        : p.soft("No collections that you may see. Sign in to see more."),
    ),
    section.stack(
      h2("Server"),
      p.row.links(resources(false).map(resourceLink)),
    ),
  ];
}

/** A collection with its number of records. */
function rowOf([name, url]) {
  const count = span.count();
  countRecords(url, count);
  const id = `to-${nameOf(name)}`;
  return li(a({ href: local(url), id }, b(nameOf(name)), count));
}

/** Shows how many records there are; nothing if that is not for this user. */
async function countRecords(url, place) {
  const { headers, status } = await send("HEAD", url, { isQuiet: true });
  const total = headers.get("x-total-count");
  if (status === 200 && total) {
    place.textContent = Number(total).toLocaleString();
  } else if (status === 401) place.textContent = "sign in";
}
