/** Loaded into a program before its own code: half a minute passes in a second. */

const wait = globalThis.setTimeout;

globalThis.setTimeout = Object.assign(
  (work: () => void, ms = 0) => wait(work, ms === 30_000 ? 1000 : ms),
  wait,
) as typeof setTimeout;
