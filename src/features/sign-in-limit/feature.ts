/** Limits how fast passwords can be guessed. Who gives the right password is authenticated without it. */

import type { Feature } from "../../api/feature.ts";
import { createSignInLimiter } from "./limiter.ts";

export const feature: Feature = {
  open: ({ now }) => ({ limitSignIns: createSignInLimiter(now) }),
};
