/** Requesters of work for the tests of queues. */

import type { Requester } from "../src/admission.ts";

/** The requester of work that no client waits for. */
export const background: Requester = { client: "", throwIfAborted() {} };
