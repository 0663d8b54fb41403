/**
 * What a server needs where strangers reach it: it limits how fast passwords can
 * be guessed, reports failed sign-ins and changes of users in the log, shares the
 * connections among its clients, and sends long lists only as they are read. Who
 * may do what is decided without it.
 */

import type { Feature } from "../../api/feature.ts";
import { auditSignIns, auditUsers } from "./audit.ts";
import { guardConnections } from "./connections.ts";
import { withParts } from "./lists.ts";
import { createSignInLimiter } from "./sign-ins.ts";

export const feature: Feature = {
  open: ({ now, store }) => ({
    extend: ({ GET, ...others }) => GET && { GET: withParts(GET), ...others },
    onChange: auditUsers,
    limitSignIns: auditSignIns(store, createSignInLimiter(now)),
    guardConnections: guardConnections(),
  }),
};
