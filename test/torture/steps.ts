/**
 * Fixed scripts that are run once for each of their steps: there the process
 * dies, the power is cut, or that one operation fails.
 */

import { openStore, type Store, StoreError } from "../../src/store/store.ts";
import type { Disk, Fate, Step } from "./disk.ts";
import { look, verify, write } from "./oracle.ts";
import {
  limits,
  Scene,
  type Simulation,
  type SimulationReport,
  tablesOf,
} from "./scene.ts";

/** The options of a script; for each end, `states` crash states are opened. */
export type Script = Omit<Simulation, "lives" | "faults">;

/**
 * Kills the process before, during and after every step of a short life with
 * three rotations, and then before and during every step of the recovery; for
 * each death some crash states are opened and verified.
 */
export async function everyStep(
  options: Script,
): Promise<SimulationReport> {
  const scene = new Scene(options);
  for (let number = 1;; number++) {
    for (const half of [false, true]) {
      const what = `${half ? "within" : "before"} step ${number}`;
      const ended = await scene.explain(what, async () => {
        await scene.begin();
        const { disk } = scene;
        disk.fate = (step) => dieAt(disk, step, { number, half });
        const generation = await rotateThrice(scene).catch(() => 0);
        if (disk.steps < number) {
          if (generation < 4) throw new Error("there were too few rotations");
          return true;
        }
        scene.report.lives++;
        disk.kill();
        for (let state = 0; state < options.states; state++) {
          await scene.check(await scene.crash());
        }
        await dieInRecovery(scene, half);
        return false;
      });
      if (ended) return scene.report;
    }
  }
}

async function rotateThrice(scene: Scene): Promise<number> {
  const large = { ...limits, minLogBytes: 1 << 20 };
  const store = await openStore({ ...scene.options(), limits: large });
  try {
    for (let round = 0; round < 4; round++) {
      const turn = round > 0 ? store.checkpoint() : undefined;
      await Promise.all([
        turn,
        ...[1, 2, 3].map((key) => write(store, scene.history, key)),
      ]);
      await look(store, scene.history, 1);
    }
    return store.log.generation;
  } finally {
    await store.close();
  }
}

/** Dies at each step of the start, and verifies what a power cut then leaves. */
async function dieInRecovery(scene: Scene, half: boolean): Promise<void> {
  const { disk } = scene;
  for (let number = 1, ended = false; !ended; number++) {
    const next = scene.disk = disk.copy(await scene.folder());
    next.fate = (step) => dieAt(next, step, { number, half });
    const opened = await scene.open().catch(() => undefined);
    ended = next.steps < number;
    next.kill();
    await opened?.close().catch(() => {});
    await scene.check(await scene.crash());
  }
}

/**
 * Starts on a full disk, where older generations must be removed, after a death
 * that left the newest snapshot's name only in the page cache; cuts the power
 * at every step of that start.
 */
export async function fullStarts(
  options: Script,
): Promise<SimulationReport> {
  const scene = new Scene(options);
  await scene.begin();
  const { disk } = scene;
  const large = { ...limits, minLogBytes: 1 << 20 };
  const store = await openStore({ ...scene.options(), limits: large });
  const round = () =>
    Promise.all([1, 2, 3, 4].map((key) => write(store, scene.history, key)));
  await round();
  await store.checkpoint();
  await round();
  let renamed = false;
  disk.fate = ({ kind, name }) => {
    if (renamed) disk.kill();
    renamed ||= kind === "rename" && name === "snapshot-3.jsonl.tmp";
    return undefined;
  };
  await Promise.all([store.checkpoint().catch(() => {}), round()]);
  await store.close().catch(() => {});
  let used = 0;
  for (const bytes of disk.contents().values()) used += bytes.length;
  for (let number = 1, ended = false; !ended; number++) {
    await scene.explain(`full start, step ${number}`, async () => {
      const next = scene.disk = disk.copy(await scene.folder());
      next.capacity = used;
      next.fate = (step) => dieAt(next, step, { number, half: false });
      const files = options.defect?.files?.(next) ?? next;
      const opened = await scene.open(files).catch((error) => {
        if (next.steps < number) throw error;
      });
      ended = next.steps < number;
      const names = [...next.contents().keys()];
      if (ended && names.includes("snapshot-2.jsonl")) {
        throw new Error("nothing had to give way");
      }
      next.kill();
      await opened?.close().catch(() => {});
      for (let state = 0; state < options.states; state++) {
        await scene.check(await scene.crash());
      }
    });
  }
  return scene.report;
}

function dieAt(
  disk: Disk,
  step: Step,
  place: { readonly number: number; readonly half: boolean },
): Fate {
  if (step.number < place.number) return undefined;
  // After this step the next one finds the disk dead.
  if (step.number > place.number || !place.half) disk.kill();
  return place.half ? { error: "EIO", half: true } : undefined;
}

/** The possible outcomes of an operation other than success. */
const failures: readonly NonNullable<Fate>[] = [
  { error: "EIO" },
  { error: "ENOSPC", half: true },
  { error: "EDQUOT" },
  { error: "EROFS" },
  { error: "EIO", half: true },
  { short: 20 },
];

/**
 * Makes each operation of a script fail once, while the process continues: in a
 * new store with three rotations, in the start after a crash, in a clean stop,
 * and in the start after that. Each operation fails in every way; or, if `each`
 * is false, only every `stride`th operation fails, in a different way each
 * time.
 */
export async function everyOperation(
  options: Script & { readonly each: boolean; readonly stride?: number },
): Promise<SimulationReport> {
  const scene = new Scene(options);
  const { stride = 1 } = options;
  for (let number = 1;; number += stride) {
    const turn = (Math.floor(number / stride) + options.seed) % failures.length;
    const chosen = options.each ? failures : failures.slice(turn, turn + 1);
    for (const fate of chosen) {
      const what = `operation ${number} comes to ${JSON.stringify(fate)}`;
      const ended = await scene.explain(what, async () => {
        const failing = new Failing(scene, number, fate);
        await failing.play();
        if (failing.step === undefined) return !failing.passed;
        scene.report.faults++;
        for (let state = 0; state < options.states; state++) {
          await scene.check(await scene.crash());
        }
        await scene.check(scene.disk);
        return false;
      });
      if (ended) return scene.report;
    }
  }
}

/** The script in which one operation fails. */
class Failing {
  /** The operation that failed. */
  step: Step | undefined;
  /** True if it was one that cannot fail in this way. */
  passed = false;
  readonly #scene: Scene;
  readonly #number: number;
  readonly #fate: NonNullable<Fate>;
  #count = 0;

  constructor(scene: Scene, number: number, fate: NonNullable<Fate>) {
    this.#scene = scene;
    this.#number = number;
    this.#fate = fate;
  }

  async play(): Promise<void> {
    const scene = this.#scene;
    await scene.begin();
    const first = await this.#open();
    await this.#work(first, 3);
    const last = write(first, scene.history, 1);
    for (let turn = 0; turn < 4; turn++) await new Promise(setImmediate);
    scene.disk.kill();
    await last;
    await first.close().catch(() => {});
    for (const rotations of [1, 0]) {
      scene.disk = scene.disk.survivor(await scene.folder());
      const store = await this.#open();
      await this.#work(store, rotations);
      await this.#goOn(store);
      await store.close();
    }
    scene.disk = scene.disk.survivor(await scene.folder());
  }

  #decide(step: Step): Fate {
    if (++this.#count !== this.#number) return undefined;
    this.passed = this.#fate.short !== undefined && step.kind !== "write";
    if (this.passed) return undefined;
    this.step = step;
    return this.#fate;
  }

  /** Opens the store, a second time if the first attempt fails. */
  async #open(): Promise<Store> {
    const { disk } = this.#scene;
    const before = disk.contents();
    const failedBefore = this.step;
    disk.fate = (step) => this.#decide(step);
    // No marker by timer, because the steps must be the same each time.
    const large = { ...limits, minLogBytes: 1 << 20, markerDelayMs: 60_000 };
    const options = { ...this.#scene.options(), limits: large };
    try {
      return await openStore(options);
    } catch (error) {
      const { step } = this;
      if (step === failedBefore || !(error instanceof StoreError)) throw error;
      if (!isHonest(error, step)) throw error;
      const after = [...disk.contents()];
      // A missing file was created, and then could not be read.
      const same = before.size === 0 || after.length === before.size &&
          after.every(([name, bytes]) => before.get(name)?.equals(bytes));
      if (error.code === "damaged" && !same) {
        throw new Error("a refusal changed a file");
      }
      return await openStore(options);
    }
  }

  async #work(store: Store, rotations: number): Promise<void> {
    const { history } = this.#scene;
    for (let round = 0; round <= rotations; round++) {
      const turn = round > 0 ? store.checkpoint().catch(() => {}) : undefined;
      const keys = store.isWritable ? [1, 2, 3] : [];
      await Promise.all([
        turn,
        ...keys.map((key) => write(store, history, key)),
      ]);
      await look(store, history, 1);
    }
    verify(tablesOf(store), history);
  }

  /** The failure must have the expected consequences, and no others. */
  async #goOn(store: Store): Promise<void> {
    const failedBefore = this.step;
    try {
      await this.#writeAgain(store);
    } catch (error) {
      // The failure may occur here, once.
      if (this.step === failedBefore) throw error;
      await this.#writeAgain(store);
    }
  }

  async #writeAgain(store: Store): Promise<void> {
    if (this.#mayStop() && !store.isWritable) return;
    if (!store.isWritable) throw new Error("the store is read-only");
    for (let waited = 0; store.fullDisk?.isFull; waited++) {
      if (waited > 5000) throw new Error("the disk stays full");
      await new Promise((resolve) => setTimeout(resolve, 1));
    }
    if (await write(store, this.#scene.history, 4) !== "acknowledged") {
      throw new Error("a write was refused when all was well again");
    }
    await store.checkpoint();
  }

  /** Returns whether the failure may make the store read-only. */
  #mayStop(): boolean {
    const { kind = "", name = "" } = this.step ?? {};
    const isLog = /^wal-\d+\.jsonl$/.test(name);
    if (kind === "write") return isLog && this.#fate.error !== "ENOSPC";
    if (kind === "syncFolder") return true;
    if (kind === "rename") return /^wal-\d+\.jsonl\.tmp$/.test(name);
    return isLog && ["sync", "stat", "truncate"].includes(kind);
  }
}

/** Returns whether this is a possible message of a start in which an operation failed. */
function isHonest(
  { code, fault }: StoreError,
  { kind, name }: Pick<Step, "kind" | "name"> = { kind: "list", name: "" },
): boolean {
  if (code === "damaged") {
    return (kind === "read" || kind === "open") && fault?.file === name;
  }
  // A file that cannot be read counts as damaged, and the marker is never
  // needed. A log is read a second time when it is copied.
  if (kind === "read" && !name.startsWith("wal-")) return false;
  return code === "unusable" || code === "disk-full";
}
