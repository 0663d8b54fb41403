// @ts-check
/** The documentation: how to use the API, what each role may do, and each resource, with examples that run; generated from the running API. */

import {
  a,
  b,
  code,
  dataTable,
  dd,
  div,
  dl,
  dt,
  h,
  h1,
  h2,
  h3,
  li,
  methodTag,
  nav,
  p,
  pre,
  section,
  ul,
} from "../base/dom.js";
import { meaningOf } from "../base/exchange.js";
import { nameOf, resources, root } from "../base/frame.js";
import {
  get,
  local,
  optionsOf,
  send,
  startPath,
  targetOf,
} from "../base/http.js";
import { format, link } from "../base/values.js";
import { fill, generation } from "../base/view.js";
import { rulesOf } from "../forms/controls.js";
import { showCourse } from "./course.js";
import { chaptersOf } from "./manual.js";

/** @typedef {import("../base/http.js").Json} Json */

/** A part of the documentation, with its title in the contents. */
function part(id, title, ...content) {
  return section.stack({ id, tabindex: "-1" }, h2(title), content);
}

/** A request that runs on a click, with its response below. */
function example(url) {
  const output = div({ "aria-live": "polite" });
  const run = async () => {
    const { status, exchange: { reason }, body } = await send("GET", url);
    output.replaceChildren(p(`${status} ${reason}`), format(body ?? null));
  };
  const path = targetOf(url);
  return div.example.near(
    div.row(
      methodTag("GET"),
      code(path),
      h("button", {
        type: "button",
        class: "push",
        onclick: run,
        "aria-label": `Run GET ${path}`,
      }, "Run"),
    ),
    output,
  );
}

/** A paragraph whose backticks mark code. */
function paragraph(text) {
  return p.prose(text.split("`").map((each, at) => at % 2 ? code(each) : each));
}

function partOf(part, collection, title) {
  if (typeof part !== "string") {
    const rows = part.map((
      [method, ...cells],
    ) => [methodTag(method), ...cells]);
    return dataTable(title, ["Method", "Status", "Meaning"], rows);
  }
  if (part.startsWith("$ ")) return pre(part.slice(2));
  if (part.startsWith("GET ")) return example(collection + part.slice(4));
  return paragraph(part);
}

/** The path of a URL in OpenAPI, which is below that of the root document. */
function keyOf(href) {
  const { pathname } = new URL(local(href) ?? href, location.href);
  return pathname.slice(startPath.length - 1);
}

/** Returns the OpenAPI document; an empty object if there is none. @returns {Promise<Json>} */
async function description() {
  const url = root.openapi_url;
  return url ? (await get(url)).body ?? {} : {};
}

/** Returns who may do something, by what its operation says. */
function roleOf({ security = [], description = "" } = {}) {
  const [, role] = /Requires the role ([\w-]+)/.exec(description) ?? [];
  return role ??
    (security.some((each) => !Object.keys(each)[0]) || !security[0]
      ? "anyone"
      : "whoever is signed in");
}

/** The table of who may do what with each resource. */
function roles(paths) {
  const methods = ["GET", "POST", "PUT", "PATCH", "DELETE"];
  const all = [...resources(true), ...resources(false)];
  const rows = all.map(([name, url]) => {
    const cells = methods.map((method) => {
      const key = method.toLowerCase();
      const at = keyOf(url);
      const operation = paths[at]?.[key] ?? paths[`${at}/{id}`]?.[key];
      return operation ? roleOf(operation) : "–";
    });
    return [nameOf(name), ...cells];
  });
  return part(
    "roles",
    "Who may do what",
    paragraph(
      "A role may do what those before it may. PUT, PATCH and DELETE are about one record.",
    ),
    dataTable("Who may do what", ["Resource", ...methods], rows),
  );
}

/** Returns a part of the OpenAPI document that may be a reference to another one. */
function resolve(part, all) {
  const path = part?.$ref?.split("/").slice(1);
  return path ? path.reduce((each, name) => each?.[name], all) : part;
}

/** A resource: what this user may do, its properties, and an example of a request and its response. */
async function resource([name, href], all) {
  const url = local(href) ?? "";
  const { methods, schema } = await optionsOf(url);
  const title = nameOf(name);
  const rows = Object.entries(schema.properties ?? {}).map((
    [property, each],
  ) => [property, rulesOf(each, schema.required?.includes(property))]);
  const { post } = all.paths?.[keyOf(href)] ?? {};
  const jsonOf = (part) => resolve(part, all)?.content?.["application/json"];
  const request = jsonOf(post?.requestBody)?.example;
  const schemaOf201 = resolve(jsonOf(post?.responses?.[201])?.schema, all);
  const response = schemaOf201?.examples?.[0];
  return part(
    `resource-${name.replace(/_url$/, "")}`,
    title,
    p(link(url, targetOf(url)), ` – you may: ${methods.join(", ")}`),
    rows.length > 0 &&
      dataTable(`Properties of ${title}`, ["Property", "Rules"], rows),
    request && div.pair(
      div(
        h3("Request"),
        pre(`POST ${targetOf(url)}\n\n${JSON.stringify(request, null, 2)}`),
      ),
      response &&
        div(h3("Response"), pre(`201\n\n${JSON.stringify(response, null, 2)}`)),
    ),
  );
}

/** All URLs. */
function urls(paths) {
  const rows = Object.entries(paths).map(([path, item]) => [
    dt(code(path)),
    Object.entries(item)
      .filter(([method]) => !/^(?:parameters|head|options)$/.test(method))
      .map(([method, { summary }]) =>
        dd(b(method.replace("x-", "").toUpperCase()), ` ${summary}`)
      ),
  ]);
  return part("urls", "All URLs and methods", dl(rows));
}

function errors(all) {
  const rows = Object.entries(all).map(([code, message]) => [
    dt({ id: code, tabindex: "-1" }, code),
    dd(
      `${message} ${
        meaningOf(Math.floor(Number(code) / 100), { errorCode: code })
      }`,
    ),
  ]);
  return part("errors", "All errors", dl(rows));
}

/** The contents, and a field that hides what does not have the words typed. */
function contentsOf(sections) {
  const status = p.soft({ role: "status" });
  const entries = sections.map((each) => {
    const { id, firstChild } = each;
    return li(a({ href: `#${id}` }, firstChild.textContent));
  });
  const search = ({ currentTarget }) => {
    const words = currentTarget.value.toLowerCase().split(/\s+/);
    let count = 0;
    sections.forEach((each, at) => {
      const text = each.textContent.toLowerCase();
      const isHidden = !words.every((word) => text.includes(word));
      each.hidden = entries[at].hidden = isHidden;
      if (!isHidden) count++;
    });
    status.textContent = words.join("")
      ? `${count} of ${sections.length} parts have it`
      : "";
  };
  const field = h("input", {
    type: "search",
    id: "docs-search",
    placeholder: "Search",
    "aria-label": "Search the documentation",
    oninput: search,
  });
  return nav.near(
    { "aria-label": "Contents" },
    field,
    status,
    ul.contents(entries),
  );
}

export async function showDocs() {
  if (location.hash.startsWith("#course")) {
    return showCourse();
  }
  const mine = generation;
  const own = resources(true);
  const [[, first = ""] = []] = own;
  const collection = local(first) ?? "";
  const [{ body }, all, { schema }] = await Promise.all([
    get(root.documentation_url ?? ""),
    description(),
    optionsOf(collection || location.href),
  ]);
  const { paths = {} } = all;
  const chapters = chaptersOf({
    root,
    properties: schema?.properties ?? {},
    operations: { ...paths[`${keyOf(first)}/{id}`], ...paths[keyOf(first)] },
  });
  const described = await Promise.all(
    [...own, ...resources(false)].map((each) => resource(each, all)),
  );
  if (mine !== generation) return;
  const sections = [
    ...chapters.map(([id, title, ...parts]) =>
      part(
        id,
        title,
        parts.map((each) => each && partOf(each, collection, title)),
      )
    ),
    all.paths && roles(paths),
    ...described,
    all.paths && urls(paths),
    errors(body?.errors ?? {}),
  ].filter(Boolean);
  fill(
    h1("Documentation"),
    p.prose(
      "Written by the running API about itself: sign in first, and it shows what you may do. New to HTTP? ",
      a({ href: "#course" }, "A course of twelve lessons"),
    ),
    div.docs(contentsOf(sections), div.stack(sections)),
  );
  const target = document.getElementById(location.hash.slice(1));
  target?.scrollIntoView();
  target?.focus();
}
