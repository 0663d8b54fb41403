/** The command `check`. */

import { tablesOf } from "../api/routes.ts";
import { collections } from "../collections.ts";
import { describeFault, print } from "./output.ts";
import { readStore } from "./read.ts";

/**
 * Reads the whole data folder, and prints the size of each collection and every
 * fault. Changes nothing.
 *
 * @returns the exit code: 0 if all is well, 1 if only the last write is torn
 * (the next start repairs that), 2 if there is damage
 */
export async function check(folder: string): Promise<number> {
  const declared = { tables: tablesOf(collections, []) };
  const scan = await readStore(folder, declared);
  const { faults, generation, seq, tables, tornWrite } = scan;
  for (const { lastId, name, size } of tables.values()) {
    await print(`${name}: ${size} records, highest id ${lastId}\n`);
  }
  await print(`log: generation ${generation}, sequence ${seq}\n`);
  if (tornWrite) {
    await print(
      `torn: ${describeFault(tornWrite)}; it was never acknowledged, and the ` +
        "next start cuts it off\n",
    );
  }
  for (const fault of faults) await print(`fault: ${describeFault(fault)}\n`);
  if (faults.length > 0) return 2;
  if (tornWrite) return 1;
  await print("no fault\n");
  return 0;
}
