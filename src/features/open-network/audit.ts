/** The log entries about users. */

import type {
  Collection,
  RecordChange,
} from "../../api/declaration/declaration.ts";
import type { RequestContext } from "../../api/request-context.ts";
import type { LimitSignIns } from "../../api/request-types.ts";
import type { Store } from "../../store/store.ts";

/** Lets the log report failed sign-ins, which `limit` counts by client. */
export function auditSignIns(
  store: Store,
  limit: LimitSignIns<string>,
): LimitSignIns<RequestContext> {
  return async (context, username, check) => {
    const user = await limit(context.client, username, check);
    if (user !== undefined) return user;
    // An unknown username is not logged: some type their password there.
    const [row] = store.table("users").find("username", username);
    context.auditEvent = {
      message: "failed sign-in",
      fields: { username: row?.document["username"] },
    };
    return undefined;
  };
}

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
