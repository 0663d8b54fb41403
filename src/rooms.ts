/**
 * What the server can do beside the records themselves. Each line can go, with
 * its files: what is left is a whole server.
 */

import type { Declaration } from "./api/declaration.ts";
import { type Room, tablesOf } from "./api/routes.ts";
import type { TableDeclaration } from "./store/store.ts";
import { cors } from "./rooms/cors.ts";
import { events } from "./rooms/events.ts";
import { idempotency } from "./rooms/idempotency.ts";
import { metrics } from "./rooms/metrics.ts";
import { openapi } from "./rooms/openapi.ts";
import { imports } from "./rooms/tasks.ts";

export const rooms: readonly Room[] = [
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
