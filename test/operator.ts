/** A request of somebody who may do everything, for tests that call an operation directly. */

import { Socket } from "node:net";
import { IncomingRequest, OutgoingResponse } from "../src/http/connection.ts";
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
  response: new OutgoingResponse(new IncomingRequest(new Socket())),
  readBody: () => Promise.reject(new Error("there is no body")),
  checkPreconditions: () => false,
  validators: () => [],
  runOnce: ({ execute }) => execute(),
  scope: () => undefined,
  authenticate: () => localOperator,
  afterWaiting: async (promise, resume) => await resume(await promise),
  signal: new AbortController().signal,
};
