import assert from "node:assert/strict";
import { test, type TestContext } from "node:test";
import {
  setImmediate as nextTurn,
  setTimeout as delay,
} from "node:timers/promises";
import {
  type FileSystem,
  realFiles,
  type Store,
} from "../../../src/store/store.ts";
import { folderFor, openFor } from "../../store/support.ts";
import { commit } from "../../commit.ts";

/** Also while a test mocks it. */
const setRealTimeout = setTimeout;

/** Opens a store on a disk that takes a while for each write to the log, and counts these writes. */
async function openSlow(t: TestContext, slowMs: number) {
  const counted = { writes: 0 };
  const files: FileSystem = {
    ...realFiles,
    async open(path, mode) {
      const file = await realFiles.open(path, mode);
      if (!mode.endsWith("log")) return file;
      const write: typeof file.write = (bytes, position) => {
        counted.writes++;
        return file.write(bytes, position);
      };
      const datasync = async () => {
        await new Promise((resolve) => setRealTimeout(resolve, slowMs));
        await file.datasync();
      };
      return { ...file, write, datasync };
    },
  };
  const store = await openFor(t, await folderFor(t), { files });
  counted.writes = 0;
  return { store, counted };
}

/** Commits transactions one after another, each some turns of the event loop after the previous one. */
async function commitInTurn(
  store: Store,
  { id, count, turns }: { id: number; count: number; turns: number },
): Promise<void> {
  for (let time = 0; time < count; time++) {
    await commit(store, [["put", "zoos", { id, time }]], 0);
    for (let turn = 0; turn < turns; turn++) await delay(0);
  }
}

test("a batch waits for the writers that are about to write again", async (t) => {
  const { store, counted } = await openSlow(t, 100);
  await Promise.all(
    Array.from(
      { length: 8 },
      (_, index) =>
        commitInTurn(store, { id: index + 1, count: 10, turns: index }),
    ),
  );
  assert.equal(store.seq, 80);
  // Two groups that wait for each other's write would take 20.
  assert.ok(counted.writes <= 13, `${counted.writes} writes`);
});

test("a batch is written when the last returning writer comes, not later", async (t) => {
  const { store, counted } = await openSlow(t, 20);
  const commitZoo = (id: number) => commit(store, [["put", "zoos", { id }]], 0);
  await Promise.all([commitZoo(1), commitZoo(2)]);
  const before = counted.writes;
  t.mock.timers.enable({ apis: ["setTimeout"] }); // no time limit passes
  const first = commitZoo(1);
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  assert.equal(counted.writes, before);
  const second = commitZoo(2);
  for (let turn = 0; turn < 10; turn++) await nextTurn();
  assert.equal(counted.writes, before + 1);
  t.mock.timers.reset();
  await Promise.all([first, second]);
});

test("writers that stop coming are waited for once", async (t) => {
  const { store, counted } = await openSlow(t, 20);
  const many = Array.from(
    { length: 8 },
    (_, index) => commitInTurn(store, { id: index + 1, count: 3, turns: 0 }),
  );
  await Promise.all(many);
  const before = counted.writes;
  await commitInTurn(store, { id: 9, count: 5, turns: 0 });
  assert.equal(counted.writes - before, 5);
});
