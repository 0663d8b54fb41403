/** The texts that features serve, such as the description of the API. */

import { Buffer } from "node:buffer";
import { hash } from "node:crypto";
import { maxWriteBytes } from "../http/connection.ts";
import type { JsonSchema } from "./declaration/properties.ts";
import type { OperationDocs } from "./docs.ts";
import type { RouteParts } from "./operations.ts";
import type { Result } from "./request-context.ts";

/**
 * Returns the route of a text, JSON by default, that stays the same while the
 * server runs; it is created at the first request.
 */
export function textRoute({ make, schema, type, ...docs }:
  & Pick<OperationDocs, "summary" | "tag">
  & {
    readonly make: () => string | Promise<string>;
    readonly schema: JsonSchema;
    readonly type?: string;
  }): RouteParts {
  let cached:
    | Promise<{ digest: string; body: string | Uint8Array }>
    | undefined;
  return {
    methods: {
      GET: {
        ...(type && { produces: [type] }),
        access: "anyone",
        docs: { ...docs, responses: { 200: { schema, headers: ["ETag"] } } },
        run: (context) => {
          cached ??= Promise.resolve(make()).then((text) => ({
            digest: hash("sha256", text, "base64url").slice(0, 16),
            // Encoded once for all, it takes no memory while a client reads it.
            body: text.length > maxWriteBytes ? Buffer.from(text) : text,
          }));
          return context.afterWaiting(cached, ({ digest, body }): Result => {
            const headers = context.validators({ digest });
            return context.checkPreconditions({ digest })
              ? { status: 304, headers, seq: 0 }
              : { status: 200, headers, body, type, seq: 0 };
          });
        },
      },
    },
  };
}
