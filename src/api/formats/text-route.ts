/** The texts that features serve, such as the description of the API. */

import type { OperationDocs, RouteParts } from "../operation.ts";
import { Buffer } from "node:buffer";
import type { JsonSchema } from "../declaration/properties.ts";
import type { Result } from "../request-context.ts";

/** The longest text that is encoded for each response. */
const maxTextLength = 64 * 1024;

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
  let cached: Promise<string | Uint8Array> | undefined;
  return {
    methods: {
      GET: {
        ...(type && { produces: [type] }),
        access: "anyone",
        docs: {
          ...docs,
          isConstant: true,
          responses: { 200: { schema, headers: ["ETag"] } },
        },
        run: (context) => {
          cached ??= Promise.resolve(make()).then((text) =>
            // Encoded once for all, a long one takes no memory while a client reads it.
            text.length > maxTextLength ? Buffer.from(text) : text
          );
          return context.afterWaiting(
            cached,
            (body): Result => ({
              status: 200,
              headers: [],
              body,
              type,
              seq: 0,
            }),
          );
        },
      },
    },
  };
}
