/**
 * Protects a server that strangers can reach: it refuses messages that a proxy
 * could interpret differently, limits how fast passwords can be guessed, logs
 * sign-ins and changes of users, sends long responses in parts, and shares the
 * connections and the turns of long work among its clients. The kernel decides
 * who may do what without it.
 */

import { Turns } from "../../admission.ts";
import type { Feature } from "../../api/feature.ts";
import { networkOf } from "../../http/client-address.ts";
import { auditSignIns, auditUsers } from "./audit.ts";
import { guardConnections } from "./connections.ts";
import { toParts, withParts } from "./lists.ts";
import { logResponse } from "./log.ts";
import { checkMessage } from "./message.ts";
import { createSignInLimiter } from "./sign-ins.ts";

/** The turns of what takes long. */
export const turns = {
  /** As many as are computed at a time. */
  hash: new Turns(2),
  /** The large bodies that are received, so that they do not fill the memory; at most half of them are of one client. */
  body: new Turns(16, 8),
};

export const feature: Feature = {
  open: ({ now, store }) => ({
    extend: ({ GET, ...others }) => GET && { GET: withParts(GET), ...others },
    findClient: networkOf,
    checkMessage,
    toParts,
    turns,
    onChange: auditUsers,
    limitSignIns: auditSignIns(store, createSignInLimiter(now)),
    guardConnections: guardConnections(),
    onResponse: logResponse,
  }),
};
