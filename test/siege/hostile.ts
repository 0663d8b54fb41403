/**
 * The process of the hostile clients, so that they do not slow down the
 * well-behaved one. Started by `run.ts`; ends with it.
 */

import process from "node:process";
import { kinds, writer } from "./kinds.ts";
import { Load } from "./load.ts";

/** The instructions for the process. */
export interface Orders {
  readonly kind: string;
  readonly port: number;
  readonly connections: number;
  readonly token: string;
}

const maxWriters = 2;

process.once("disconnect", () => process.exit());
process.once("message", (message) => {
  const { kind: name, port, connections, token } = message as Orders;
  const kind = kinds[name];
  if (kind === undefined) throw new Error(`No kind ${name}`);
  const load = new Load(port);
  const writers = new Load(port);
  const { maxConnections = connections, hasWriters } = kind;
  load.start(Math.min(connections, maxConnections), kind.conduct({ token }));
  if (hasWriters) writers.start(maxWriters, writer({ token }));
  process.once("message", () => {
    load.stop();
    writers.stop();
    process.send?.(load.counts, () => process.exit());
  });
});
