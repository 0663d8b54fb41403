/** A request of somebody who may do everything, for tests that call an operation directly. */

import { localOperator } from "../src/api/operator.ts";
import type {
  RequestContext,
  SharedState,
} from "../src/api/request-context.ts";

/** Returns such a request, with these differences, on a server with these hooks. */
export function operatorContext(
  changes: Partial<RequestContext> = {},
  hooks: SharedState["hooks"] = {},
): RequestContext {
  const shared: Partial<SharedState> = { hooks };
  const context: Partial<RequestContext> = {
    client: "",
    ids: [],
    caller: localOperator,
    url: "",
    method: "",
    headers: {},
    shared: shared as SharedState,
    scope: () => undefined,
    authenticate: () => context.caller,
    afterWaiting: async (promise, resume) => await resume(await promise),
    signal: new AbortController().signal,
    ...changes,
  };
  return context as RequestContext; // the operations need no more of it
}
