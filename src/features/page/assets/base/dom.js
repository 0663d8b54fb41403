// @ts-check
/** Elements: how they are created, and the controls that several views share. */

/**
 * Creates an element. Attributes, if there are any, come first; a listener is
 * one by the name `onclick` and the like.
 *
 * @returns {any}
 */
export function h(tag, ...children) {
  return complete(document.createElement(tag), children);
}

/** Creates an element of a drawing. @returns {any} */
export function shape(tag, ...children) {
  const namespace = "http://www.w3.org/2000/svg";
  return complete(document.createElementNS(namespace, tag), children);
}

function complete(element, children) {
  const [first] = children;
  if (first?.constructor === Object) {
    children.shift();
    for (const [name, value] of Object.entries(first)) {
      if (typeof value === "function") {
        element.addEventListener(name.slice(2), value);
      } else if (value != null && value !== false) {
        element.setAttribute(name, value);
      }
    }
  }
  element.append(...children.flat(3).filter((child) => child || child === 0));
  return element;
}

/** Returns a function that creates an element; its properties add classes: `div.row.push(…)`. */
function creator(tag, ...classes) {
  const create = (...parts) => {
    const element = h(tag, ...parts);
    if (classes[0]) element.classList.add(...classes);
    return element;
  };
  return new Proxy(create, {
    get: (_, name) => creator(tag, ...classes, name),
  });
}

/** Such functions by the names of elements. @type {any} */
const elements = new Proxy({}, { get: (_, tag) => creator(tag) });
export const {
  a,
  aside,
  b,
  code,
  datalist,
  dd,
  div,
  dl,
  dt,
  fieldset,
  figcaption,
  figure,
  h1,
  h2,
  h3,
  header,
  label,
  legend,
  li,
  mark,
  nav,
  ol,
  option,
  p,
  pre,
  progress,
  section,
  small,
  span,
  table,
  tbody,
  td,
  textarea,
  th,
  thead,
  time,
  tr,
  ul,
} = elements;

/** Waits until the browser has drawn what is there; not in a hidden tab, where it draws nothing. @returns {Promise<void>} */
export function nextFrame() {
  return new Promise((resolve) => {
    if (document.hidden) resolve();
    else requestAnimationFrame(() => setTimeout(resolve));
  });
}

/** Lines of the icons, in a square of 24. */
const icons = {
  face:
    "M5 10.5 4 4.5l5 2.6a10 10 0 0 1 6 0l5-2.6-1 6c.6 1.1 1 2.2 1 3.4 0 4.1-3.6 6.6-8 6.6s-8-2.5-8-6.6c0-1.2.4-2.3 1-3.4ZM9 12.5v.6M15 12.5v.6M10.6 16.3c.9.8 1.9.8 2.8 0",
  close: "m6 6 12 12m0-12L6 18",
  paw:
    "M12 11c-3 0-5.5 3.5-5.5 6 0 2 1.5 3 3 3 1 0 1.5-.6 2.5-.6s1.5.6 2.5.6c1.5 0 3-1 3-3 0-2.5-2.5-6-5.5-6ZM4.5 9v2M9 4v2.5m6-2.5v2.5M19.5 9v2",
  wire: "M4 8h14l-4-4M20 16H6l4 4",
};

/** Creates an icon; its meaning must be said beside it. @param {keyof typeof icons} name */
export function icon(name, size = "16") {
  const box = { viewBox: "0 0 24 24", width: size, height: size };
  const path = shape("path", { d: icons[name] });
  return shape("svg", { ...box, "aria-hidden": "true" }, path);
}

/** The tag of a method, in its colour. */
export function methodTag(method) {
  return span({ class: `method ${method.toLowerCase()}` }, method);
}

/** The tag of a status, in the colour of its class. @param {string | number} [text] */
export function statusTag(status, text = status || "✗") {
  return span({ class: `status s${Math.floor(status / 100)}` }, text);
}

/** A part of a view that scrolls in itself. */
export function scroller(name, ...children) {
  const attributes = { class: "scroll", tabindex: "0", role: "region" };
  return div({ ...attributes, "aria-label": name }, ...children);
}

/** A table that scrolls in itself; each row begins with its heading. */
export function dataTable(name, heads, rows) {
  return scroller(
    name,
    table(
      thead(tr(heads.map((each) => th({ scope: "col" }, each)))),
      tbody(
        rows.map(([head, ...cells]) =>
          tr(th({ scope: "row" }, head), cells.map((each) => td(each)))
        ),
      ),
    ),
  );
}

/** A choice among values, each with the text that people read. */
export function select(attributes, choices, chosen) {
  return h(
    "select",
    attributes,
    choices.map(([value, text]) =>
      option({ value, selected: String(value) === chosen }, text)
    ),
  );
}

/** Wraps what an event starts so that it runs once at a time: its button shows that it runs, and ignores further clicks. */
function once(work) {
  let isRunning = false;
  return async (event) => {
    event.preventDefault();
    if (isRunning) return;
    isRunning = true;
    const { submitter, currentTarget } = event;
    const pressed = submitter ?? currentTarget?.querySelector?.(".primary") ??
      currentTarget;
    pressed?.setAttribute("aria-busy", "true");
    try {
      await work(event);
    } finally {
      isRunning = false;
      pressed?.removeAttribute("aria-busy");
    }
  };
}

/** Creates a button. @param {any} text @param {(event?: any) => any} onclick @param {string} [id] */
export function button(text, onclick, id, attributes = {}) {
  const all = { type: "button", onclick: once(onclick), id, ...attributes };
  return h("button", all, text);
}

/** Creates a form whose values are sent by a script, and not again before there is a response. */
export function formOf(attributes, submit, ...children) {
  return h("form", { ...attributes, onsubmit: once(submit) }, ...children);
}

/** Creates a disclosure whose content is created when it is first opened. */
export function disclosure(name, summary, create) {
  const details = h("details", { class: name }, h("summary", summary));
  const fill = async () => details.append(await create());
  details.addEventListener("toggle", fill, { once: true });
  return details;
}

/** Creates a disclosure whose content opens above the view, and is closed by Escape, which gives the focus back to its name. */
export function popup(name, create) {
  const details = disclosure("filters", name, create);
  details.addEventListener("keydown", ({ key }) => {
    if (key !== "Escape" || !details.open) return;
    details.open = false;
    details.firstChild.focus();
  });
  return details;
}
