/** Durable transactions for tests. */

import type { CommitOptions, Mutation, Store } from "../src/store/store.ts";

/**
 * Applies mutations in one transaction, and resolves once it is durable; rejects
 * with the error of the store if it is refused or rolled back.
 *
 * @param by the id of the user, 0 for the server itself
 */
export async function commit(
  store: Store,
  mutations: readonly Mutation[],
  by: number,
  options?: CommitOptions,
): Promise<void> {
  await store.settle(() => ({ seq: store.apply(mutations, by, options) }));
}
