/** Requesters of work for the tests of queues. */

import { setMaxListeners } from "node:events";
import type { Requester } from "../src/admission.ts";

/** The requester of work that no client waits for. */
export const background: Requester = {
  client: "",
  signal: new AbortController().signal,
};

setMaxListeners(0, background.signal); // very many wait for it

/** Returns a client that can leave. */
export function visitor(client = "") {
  const controller = new AbortController();
  return {
    client,
    signal: controller.signal,
    leave: () => controller.abort(new Error(`${client} has left`)),
  };
}
