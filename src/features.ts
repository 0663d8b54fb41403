/**
 * What the server can do beside the records themselves. Each line can go, with
 * its files: what is left is a whole server.
 */

import type { Declaration } from "./api/declaration/declaration.ts";
import { type Feature, tablesOf } from "./api/routes.ts";
import type { TableDeclaration } from "./store/store.ts";
import { cors } from "./http/cors.ts";
import { events } from "./features/events/events.ts";
import { idempotency } from "./features/idempotency/idempotency.ts";
import { metrics } from "./features/metrics/metrics.ts";
import { openapi } from "./features/openapi/openapi.ts";
import { imports } from "./features/imports/tasks.ts";

export const rooms: readonly Feature[] = [
  imports,
  events,
  idempotency,
  openapi,
  metrics,
  cors,
];

/** The tables that declarations and rooms need. */
export function tablesFor(
  declarations: readonly Declaration[],
): TableDeclaration[] {
  return tablesOf(declarations, rooms);
}
