/** Numbers that look random, and are the same in each run. */

/** Returns a number below a limit. */
export type Random = (limit: number) => number;

/** Returns a source of numbers, the same ones for the same seed. */
export function randomOf(seed: number): Random {
  let state = seed;
  return (limit) => {
    state = (state * 48271 + 11) % 2147483647;
    return Math.floor(state / 2147483647 * limit);
  };
}
