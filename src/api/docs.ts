/** Additions of features to the descriptions of operations. */

import type { Methods, Operation, OperationDocs } from "./operation.ts";

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
