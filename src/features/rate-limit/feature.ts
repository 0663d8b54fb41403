/**
 * Limits how many requests a client may send in a minute, and tells it how much
 * of its quota is left (IETF draft-ietf-httpapi-ratelimit-headers). It is on if
 * `RATE_LIMIT` is not 0.
 */

import type { Feature } from "../../api/feature.ts";
import { numberUpTo } from "../../api/settings/setting.ts";
import { networkOf } from "../../http/client-address.ts";
import { RateLimiter, windowMs } from "../../api/accounts/rate-limit.ts";

const settings = {
  /** How many requests a client may send in a minute. */
  RATE_LIMIT: {
    description: "requests per minute for each client; 0 for no limit",
    default: 0,
    ...numberUpTo(1_000_000),
  },
};

export const feature: Feature = {
  settings,
  open({ settings: { read }, base: { path }, now }) {
    const limit = read(settings).RATE_LIMIT;
    if (limit === 0) return;
    const limiter = new RateLimiter(limit, now);
    /** How much was used with each request in progress, which is counted once. */
    const counts = new WeakMap<object, number>();
    return {
      findClient: networkOf,
      checkQuota(request) {
        if (counts.has(request)) return; // it is judged again
        const { headers, method, target } = request;
        const [url] = target.split("?", 1);
        const isUnlimited = url === `${path}health` ||
          // Signing in has a limit of its own.
          method === "POST" && url === `${path}v1/authorizations` ||
          // A page could not read that its preflight was refused.
          method === "OPTIONS" && headers.origin &&
            headers["access-control-request-method"];
        if (isUnlimited) return;
        const used = limiter.count(request.client);
        counts.set(request, used);
        const problem = "There are too many requests";
        if (used > limit) limiter.check(request.client, problem);
      },
      onResponse(request, { fields }) {
        const used = counts.get(request);
        if (used === undefined) return; // of an operation without a limit
        const left = Math.max(0, limit - used);
        fields.push(
          "RateLimit-Policy",
          `"default";q=${limit};w=${windowMs / 1000}`,
          "RateLimit",
          `"default";r=${left};t=${limiter.secondsLeft()}`,
        );
      },
    };
  },
};
