// @ts-check
/** The documentation, generated from the running API: what OPTIONS returns for each collection, all URLs, all errors. */

import { meaningOf } from "./exchange.js";
import { rulesOf } from "./forms.js";
import {
  a,
  dd,
  div,
  dl,
  dt,
  fill,
  format,
  get,
  h,
  h1,
  h2,
  isLink,
  li,
  link,
  local,
  optionsOf,
  p,
  root,
  send,
  table,
  targetOf,
  tbody,
  td,
  th,
  tr,
  typesOf,
  ul,
} from "./page.js";

/** @typedef {import("./page.js").Json} Json */

/** Examples of parameters that the properties of a collection allow. */
function examplesOf(properties) {
  const names = Object.keys(properties).filter((name) => !isLink(name));
  const text = names.find((name) => {
    const { enum: choices, format, writeOnly, readOnly } = properties[name];
    return typesOf(properties[name]).includes("string") && !choices &&
      !format && !writeOnly && !readOnly;
  });
  const choice = names.find((name) => properties[name].enum);
  return [
    "?limit=2",
    "?page=2&per_page=5",
    "?sortby=updated_at&order=desc",
    "?fields=id,updated_at",
    "?id:in=1,2,3",
    text && `?${text}:contains=a`,
    choice && `?${choice}=${properties[choice].enum[0]}`,
  ].filter(Boolean);
}

/** A request that runs on a click, with its response below. */
function example(url) {
  const output = div({ "aria-live": "polite" });
  const run = async () => {
    const { status, exchange: { reason }, body } = await send("GET", url);
    output.replaceChildren(
      p(`${status} ${reason}`),
      format(body ?? null),
    );
  };
  const path = targetOf(url);
  return li(
    h("code", `GET ${path} `),
    h("button", {
      type: "button",
      onclick: run,
      "aria-label": `Run GET ${path}`,
    }, "Run"),
    output,
  );
}

async function section(name, href) {
  const url = local(href) ?? "";
  const { methods, schema } = await optionsOf(url);
  const properties = schema.properties ?? {};
  const rows = Object.entries(properties).map(([property, each]) =>
    tr(
      th({ scope: "row" }, property),
      td(rulesOf(each, schema.required?.includes(property))),
    )
  );
  return h(
    "section",
    h2({ id: name }, name.replace(/_url$/, "")),
    p(
      link(url, targetOf(url)),
      ` – you may: ${methods.join(", ")}`,
    ),
    rows.length > 0 &&
      div({
        class: "scroll",
        tabindex: "0",
        role: "region",
        "aria-label": `Properties of ${name}`,
      }, table(tbody(rows))),
    methods.includes("QUERY") &&
      ul(examplesOf(properties).map((each) => example(url + each))),
  );
}

/** All URLs, if the API describes itself. */
async function urls() {
  const description = root.openapi_url;
  if (!description) return undefined;
  const { body } = await get(description);
  const rows = Object.entries(body?.paths ?? {}).map(([path, item]) => [
    dt(h("code", path)),
    Object.entries(item)
      .filter(([method]) => !/^(?:parameters|head|options)$/.test(method))
      .map(([method, { summary }]) =>
        dd(h("b", method.replace("x-", "").toUpperCase()), ` ${summary}`)
      ),
  ]);
  return h(
    "section",
    h2({ id: "urls" }, "All URLs and methods"),
    dl(rows),
  );
}

export async function showDocs() {
  if (location.hash.startsWith("#course")) {
    return (await import("./course.js")).showCourse();
  }
  const { body } = await get(root.documentation_url ?? "");
  const resources = Object.entries(root).filter(([, url]) => local(url));
  const [all, ...sections] = await Promise.all([
    urls(),
    ...resources.map(([name, url]) => section(name, url)),
  ]);
  fill(
    h1("Documentation"),
    p(
      "Generated from the running API: it shows what you may do, so sign in first. New to HTTP? ",
      a({ href: "#course" }, "A course of ten lessons"),
    ),
    ...sections,
    all,
    h2({ id: "errors" }, "Errors"),
    dl(
      Object.entries(body?.errors ?? {}).map(([code, message]) => [
        dt({ id: code, tabindex: "-1" }, code),
        dd(`${message} ${meaningOf(Math.floor(Number(code) / 100))}`),
      ]),
    ),
  );
  const target = document.getElementById(location.hash.slice(1));
  target?.scrollIntoView();
  target?.focus();
}
