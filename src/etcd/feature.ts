/**
 * How requests are judged if several servers share a store: against a state that
 * is no older than what anybody was shown before, and again if another server
 * changed it meanwhile.
 */

import { randomBytes } from "node:crypto";
import type { Feature } from "../api/feature.ts";
import type { RequestContext } from "../api/request-context.ts";
import { isReadMethod } from "../http/content.ts";
import { errorCode, StoreError } from "../store/error.ts";
import type { Store } from "../store/store.ts";
import { EtcdStore } from "./store.ts";
import type { Attempts } from "./turns.ts";

/** After so many attempts a request is refused. */
const maxLostAttempts = 10;

export const feature: Feature = {
  open({ store, routes, base: { path } }) {
    if (!(store instanceof EtcdStore)) return;
    /** The requests for which the state was confirmed: once is enough, even if they are judged again. */
    const confirmed = new WeakSet<RequestContext>();
    const attempts = new WeakMap<RequestContext, Attempts>();
    const attemptsOf = (request: RequestContext) => {
      const created = attempts.get(request) ?? store.attempts(request.signal);
      attempts.set(request, created);
      return created;
    };
    /** Waits until the state in memory is no older than what anybody was shown before the request; returns undefined if that is certain. */
    const confirm = (request: RequestContext) => {
      // These describe only this server.
      const isLocal = ["health", "metrics"]
        .some((name) => routes.get(path + name) === request.route);
      if (isLocal || confirmed.has(request)) return undefined;
      confirmed.add(request);
      return store.confirm(isReadMethod(request.method));
    };
    return {
      // A write can be confirmed later: its commit confirms what it was judged by.
      beforeJudging: (request) =>
        mustConfirmFirst(request)
          ? confirm(request)?.then(() => undefined)
          : undefined,
      async beforeSending(request, { seq, isCommitted }) {
        const { durableSeq } = store;
        // A write that was refused or changes nothing may have seen an old state.
        const confirming = !isCommitted && seq > 0 && confirm(request);
        try {
          if (!confirming) {
            if (seq > durableSeq) await store.attempt(attemptsOf(request), seq);
            return false;
          }
          await confirming;
          if (Math.max(seq, store.durableSeq) === durableSeq) return false;
        } catch (error) {
          if (errorCode(error) !== "overtaken") throw error;
        }
        const { lost = 0 } = attempts.get(request) ?? {};
        if (lost <= maxLostAttempts) return true;
        throw new StoreError("overloaded", "Other servers changed the state");
      },
    };
  },
};

/** Returns the secret that signs the tokens of all servers. */
export async function loadSharedSecret(
  store: Store,
): Promise<readonly string[]> {
  if (!(store instanceof EtcdStore)) return [];
  const proposed = randomBytes(32).toString("base64url");
  const isUsed = Number(store.tables.get("authorizations")?.lastId) > 0;
  return [await store.shareSecret(proposed, isUsed)];
}

/** Returns whether the state must be confirmed before a request is judged: it reads, signs in, or imports, whose body can be read only once. */
function mustConfirmFirst({ method, headers, route }: RequestContext): boolean {
  return isReadMethod(method) ||
    route?.operations.get(method)?.ignoresCredentials === true ||
    // Parameters may follow the type.
    /^application\/x-ndjson/i.test(headers["content-type"] ?? "");
}
