/** Changes by others: the event stream, which is followed while somebody is signed in and the tab can be seen. */

const live = find("#live");
let stream = new AbortController();

/**
 * Follows the event stream, and no other one from before.
 *
 * @param {(collection: string) => void} listener
 */
export async function follow(listener) {
  stream.abort();
  const { signal } = stream = new AbortController();
  live.textContent = "";
  while (session && root.events_url && !document.hidden && !signal.aborted) {
    await readEvents(listener, signal).catch(() => {});
    live.textContent = "○ not live";
    await sleep(3000);
  }
}

/**
 * @param {(collection: string) => void} listener
 * @param {AbortSignal} signal
 */
async function readEvents(listener, signal) {
  const { status, reader } = await exchange("GET", root.events_url, {
    fields: { Accept: "text/event-stream" },
    signal,
    isQuiet: true,
  });
  if (status >= 400 && status < 500) stream.abort();
  live.textContent = "● live";
  /** @type {string | undefined} */
  let text = "";
  while (reader && text !== undefined) {
    // After a break nobody knows what has changed.
    const names = text.match(/(?<=^event: )\w+/gm) ?? [text || "reset"];
    names.forEach(listener);
    text = (await reader.read()).value;
  }
}

/** @param {number} ms */
export function sleep(ms) {
  return new Promise((resolve) => setTimeout(resolve, ms));
}
