/**
 * What a server needs where strangers reach it: it limits how fast passwords can
 * be guessed, and shares the connections among its clients. Who may do what is
 * decided without it.
 */

import type { Feature } from "../../api/feature.ts";
import { guardConnections } from "./connections.ts";
import { createSignInLimiter } from "./sign-ins.ts";

export const feature: Feature = {
  open: ({ now }) => ({
    limitSignIns: createSignInLimiter(now),
    guardConnections: guardConnections(),
  }),
};
