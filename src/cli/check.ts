/** The command `check`. */

import { print, readDataFolder } from "../data-folder.ts";
import type { Fault } from "../store/store.ts";

/**
 * Reads the whole data folder, and prints how many records there are and every
 * fault. Changes nothing.
 *
 * @returns the exit code: 0 where all is well, 1 where only the last write is
 * torn, which the next start mends, 2 where there is damage
 */
export async function check(folder: string): Promise<number> {
  const found = await readDataFolder(folder);
  for (const table of found.tables) {
    await print(
      `${table.name}: ${table.size} records, highest id ${table.lastId}\n`,
    );
  }
  await print(`log: generation ${found.generation}, sequence ${found.seq}\n`);
  const { torn, faults } = found;
  if (torn) {
    await print(
      `torn: ${
        describe(torn)
      }; it was never acknowledged, and the next start cuts it off\n`,
    );
  }
  for (const fault of faults) await print(`fault: ${describe(fault)}\n`);
  if (faults.length > 0) return 2;
  if (torn) return 1;
  await print("no fault\n");
  return 0;
}

function describe({ file, byte, line, message }: Fault): string {
  return `${file}, byte ${byte}, line ${line}: ${message}`;
}
