/** The descriptions of operations, for the features that show or extend them. */

import type { Collection } from "./declaration/declaration.ts";
import type { JsonSchema } from "./declaration/properties.ts";
import type { Methods, Operation } from "./operations.ts";

/** The parts of an operation's description that do not follow from its method. */
export interface OperationDocs {
  /** A short description. */
  readonly summary?: string;
  /** The heading of its URL, if it is not the name of a collection; empty if its URL is not described. */
  readonly tag?: string;
  /** Of a list that leaves some properties out: the collection as it shows it. */
  readonly listed?: Collection;
  /** Parameters of the query or, in a form, of the body. */
  readonly parameters?: readonly JsonSchema[];
  /** The schema of a JSON body. */
  readonly body?: JsonSchema;
  /** The successful responses by status: the schema of the content and the header fields. */
  readonly responses?: Readonly<
    Record<number, {
      readonly schema?: JsonSchema;
      /** Instead of a schema: a complete record of this collection. */
      readonly record?: Collection;
      readonly headers?: readonly string[];
    }>
  >;
  /** The statuses of errors that cannot be derived from the rest. */
  readonly errors?: readonly number[];
  /** Set by features: if preconditions are evaluated or required, and if a client may prefer other formats. */
  readonly conditional?: boolean;
  readonly requiresPrecondition?: boolean;
  readonly negotiable?: boolean;
}

/** Returns the methods of a URL with additional descriptions. */
export function withDocs(
  methods: Methods,
  docsOf: (operation: Operation, method: string) => OperationDocs,
): Methods {
  return Object.fromEntries(
    Object.entries(methods).map(([method, operation]) => {
      const docs = { ...operation.docs, ...docsOf(operation, method) };
      return [method, { ...operation, docs }];
    }),
  );
}
