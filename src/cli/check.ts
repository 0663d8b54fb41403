/** The command `check`. */

import { describeFault, print } from "../data-folder.ts";
import { readDataFolder } from "./read.ts";

/**
 * Reads the whole data folder, and prints the size of each collection and every
 * fault. Changes nothing.
 *
 * @returns the exit code: 0 if all is well, 1 if only the last write is torn
 * (the next start repairs that), 2 if there is damage
 */
export async function check(folder: string): Promise<number> {
  const { faults, generation, seq, tables, tornWrite } = await readDataFolder(
    folder,
  );
  for (const { lastId, name, size } of tables) {
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
