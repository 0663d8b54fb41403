/**
 * Servers that break their promise in one way each, by a change of the built
 * code. The torture must catch every one of them; otherwise it proves nothing.
 */

import type { Patch } from "./cluster.ts";
import type { Fault } from "./faults.ts";

/** One way to break the promise. */
export interface Defect extends Patch {
  /** How a round fails that catches it: any other failure does not count. */
  readonly caught: RegExp;
  /** The faults without which it does not show. */
  readonly faults?: readonly Fault[];
}

const store = "etcd/store.js";
const replica = "etcd/replica.js";
const notLinearizable = /is not linearizable/;

/** The defects, by what they are. */
export const defects: Readonly<Record<string, Defect>> = {
  "reads without asking etcd": {
    file: store,
    from: "confirm(isRead) {",
    to: "confirm(isRead) { return undefined;",
    caught: notLinearizable,
  },
  "does not ask etcd before a sign-in": {
    file: "etcd/feature.js",
    from: "ignoresCredentials === true",
    to: "ignoresCredentials === false",
    caught: notLinearizable,
  },
  "acknowledges before the transaction": {
    file: "store/transactions.js",
    from: "durable(seq) {",
    to: "durable(seq) { return undefined;",
    caught: notLinearizable,
  },
  "takes what another server overtook for committed": {
    file: replica,
    from: "waiters.forEach(({ callback }) => callback(reason))",
    to: "waiters.forEach(({ callback }) => callback())",
    caught: notLinearizable,
  },
  "commits without comparing the head": {
    file: replica,
    from: '.transact(["head", loaded.head]',
    to: '.transact(["head?", ""]',
    caught: /is not linearizable|was created twice|do not agree on/,
  },
  "says that nothing was changed when it does not know": {
    file: "etcd/client.js",
    from: "throw etcdError(error, isRepeated ? undefined : kind);",
    to: "throw etcdError(error, kind);",
    caught: /is not linearizable|Nobody created/,
    faults: ["lose the quorum"],
  },
  "takes its own batch for another server's": {
    file: replica,
    from: "if (!isDone && !isOurs) {",
    to: "if (!isDone) {",
    caught: /is not linearizable|was created twice|is there twice/,
    faults: ["lose answers"],
  },
  "gives the id of a deleted record again": {
    file: "api/records/records.js",
    from: "const { lastId } = this.table;",
    to: "const lastId = this.table.rows().at(-1)?.document.id ?? 0;",
    caught: /was created twice/,
  },
};
