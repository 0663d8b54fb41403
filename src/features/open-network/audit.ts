/** What the log reports of users. */

import type {
  Collection,
  RecordChange,
} from "../../api/declaration/declaration.ts";
import type { RequestContext } from "../../api/request-context.ts";

/** Lets the log report a change of a user, with the names of the changed properties; their values could be secrets. */
export function auditUsers(
  context: RequestContext,
  { name, properties }: Collection,
  { previous, next }: RecordChange,
): void {
  const user = next ?? previous;
  if (name !== "users" || user === undefined) return;
  const verb = previous ? (next ? "changed" : "deleted") : "created";
  const { id, username, role } = user;
  const changed = properties.map(({ name }) => name)
    .filter((name) => previous?.[name] !== next?.[name]);
  context.auditEvent = {
    message: `${verb} a user`,
    fields: { user: { id, username, role }, changed },
  };
}
