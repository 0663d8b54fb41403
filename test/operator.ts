/** A request of somebody who may do everything, for tests that call an operation directly. */

import { localOperator } from "../src/api/operator.ts";
import type { RequestContext } from "../src/api/request-context.ts";

export const operator: RequestContext = {
  client: "",
  ids: [],
  caller: localOperator,
  url: "",
  method: "",
  format: undefined,
  headers: {},
  checkPreconditions: () => false,
  validators: () => [],
  runOnce: ({ execute }) => execute(),
  scope: () => undefined,
  authenticate: () => localOperator,
  afterWaiting: async (promise, resume) => await resume(await promise),
  signal: new AbortController().signal,
};
