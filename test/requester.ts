/** Who asks for work in the tests of queues. */

import type { Requester } from "../src/admission.ts";

/** Requests work that no client waits for. */
export const background: Requester = { client: "", throwIfAborted() {} };
