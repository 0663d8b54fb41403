/** How long things take: counted in classes, as monitoring wants it. */

/** Counts durations. */
export class Histogram {
  /** The upper bounds of the classes, in seconds. */
  readonly bounds: readonly number[];
  /** How many fell into each class; the last is of all above the bounds. */
  readonly counts: number[];
  /** All durations together, in seconds. */
  sum = 0;

  constructor(bounds: readonly number[]) {
    this.bounds = bounds;
    this.counts = new Array(bounds.length + 1).fill(0);
  }

  observe(milliseconds: number): void {
    const seconds = milliseconds / 1000;
    const { bounds, counts } = this;
    let at = 0;
    while (at < bounds.length && seconds > (bounds[at] ?? 0)) at++;
    counts[at] = (counts[at] ?? 0) + 1;
    this.sum += seconds;
  }
}
