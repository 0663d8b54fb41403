// @ts-check
/** Changes by others: follows the event stream, and shows what has changed. */

import { div, h1, p, pre } from "./base/dom.js";
import { live, main, root, say } from "./base/frame.js";
import { authorization, get, hooks, local, pathOf } from "./base/http.js";
import { endSession } from "./base/session.js";
import { nameReferences } from "./base/values.js";
import { current, fill, generation, setCurrent } from "./base/view.js";
import { pager, updateTable, watchColumns } from "./collection.js";
import { chart } from "./numbers.js";

/** How long after an event the view is requested again: many changes are one request. */
const collectMs = 200;
const maxPauseMs = 30_000;

/** How many events are shown. */
const maxEvents = 50;

/** @type {AbortController | undefined} */
let stream;
let lastEventId = "";

function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}

/** Follows the event stream as long as the tab is visible and a user is signed in. */
hooks.follow = async () => {
  stream?.abort();
  stream = undefined;
  live.textContent = "";
  delete live.dataset.on;
  const url = local(root.events_url ?? "");
  if (!authorization || !root.events_url || !url) return;
  if (document.visibilityState === "hidden") return;
  const controller = new AbortController();
  stream = controller;
  let pauseMs = 1000;
  while (stream === controller) {
    try {
      await readEvents(url, controller.signal, () => pauseMs = 1000);
    } catch { // the connection broke or could not be opened
    }
    if (stream !== controller) return;
    live.textContent = "not live: reconnecting…";
    delete live.dataset.on;
    await Promise.race([
      sleep(pauseMs),
      new Promise((resolve) =>
        addEventListener("online", resolve, { once: true })
      ),
    ]);
    pauseMs = Math.min(pauseMs * 2, maxPauseMs);
  }
};
document.addEventListener("visibilitychange", () => hooks.follow());

async function readEvents(url, signal, onOpen) {
  /** @type {Record<string, string>} */
  const headers = {
    Accept: "text/event-stream",
    Authorization: `Bearer ${authorization?.token}`,
  };
  if (lastEventId) headers["Last-Event-ID"] = lastEventId;
  const response = await fetch(url, { headers, signal, cache: "no-store" });
  if (response.status === 401) endSession("Your sign-in has ended.");
  if (response.status === 403 || response.status === 404) {
    stream = undefined; // a retry will not help
    live.textContent = "not live";
  }
  if (!response.ok || !response.body) throw new Error(response.statusText);
  onOpen();
  live.textContent = "live";
  live.dataset.on = "";
  main.querySelector("#retry")?.click(); // the server is back
  refreshSoon(); // what changed before
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const events = (rest + value).split("\n\n");
    rest = events.pop() ?? "";
    for (const event of events) handleEvent(event);
  }
}

function handleEvent(event) {
  const fields = new Map(
    event.split("\n").map((
      line,
    ) => /** @type {[string, string]} */ (line.split(/: ?(.*)/s))),
  );
  lastEventId = fields.get("id") ?? lastEventId;
  const [name] = (fields.get("event") ?? "").split(".");
  const shown = main.querySelector("#events");
  if (name) shown?.prepend(pre.changed(event));
  if ((shown?.children.length ?? 0) > maxEvents) shown?.lastChild?.remove();
  if (name && current && concerns(name, current)) refreshSoon();
}

/** Returns whether a change of a collection can show in a view. */
function concerns(name, { response: { body }, url }) {
  const home = local(root[`${name}_url`] ?? "") ?? "";
  const first = Array.isArray(body) ? body[0] : body;
  const own = local(first?.url ?? "") ?? url;
  return name === "reset" || own.startsWith(home) || pathOf(url).includes(name);
}

/** Shows what the stream is, and its events from now on. */
export function showEvents() {
  fill(
    h1("events"),
    p(
      "This response does not end: each change of a record that you may read is an event. A client that was cut off sends the last id as Last-Event-ID, and misses nothing; after an event reset it reads everything again. Change a record in another tab, and its event appears here:",
    ),
    div({ id: "events", role: "log", "aria-label": "Events" }),
  );
}

let isQueued = false;
let refreshing = Promise.resolve();

/** Refreshes the view after the next pause, if that is not about to happen. */
function refreshSoon() {
  if (isQueued) return;
  isQueued = true;
  refreshing = refreshing.then(() => sleep(collectMs)).then(() => {
    isQueued = false;
    return refresh();
  });
}

/** Requests the current view again, and marks what has changed. */
export async function refresh() {
  const view = current;
  const mine = generation;
  if (!view) return;
  const response = await get(view.url.replace(/#.*/, ""), true);
  await view.complete;
  if (mine !== generation || current !== view || response.status === 0) return;
  const before = view.response;
  const isSame = response.text === before.text &&
    response.status === before.status;
  const total = "x-total-count";
  if (isSame && response.headers.get(total) === before.headers.get(total)) {
    return;
  }
  const next = { ...view, response };
  const records = main.querySelector("#records");
  if (response.status !== 200 || !records) {
    await hooks.draw(next);
    main.querySelector("#record")?.classList.add("changed");
    return say("This record has changed.");
  }
  setCurrent(next);
  main.querySelector(".chart")?.replaceWith(chart(next) ?? "");
  const focusedId = document.activeElement?.id;
  const changed = updateTable(records, next);
  for (const row of changed) {
    row.classList.remove("changed");
    row.classList.add("changed");
  }
  if (response.headers.get(total) !== before.headers.get(total)) {
    main.querySelector("#pager")?.replaceWith(pager(next));
    watchColumns();
    if (focusedId) document.getElementById(focusedId)?.focus();
  }
  nameReferences(records);
  say("The records have changed.");
}
