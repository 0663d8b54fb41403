/** Durations, counted in buckets as Prometheus expects. */

/** A histogram of durations. */
export class Histogram {
  /** The upper bounds of the buckets, in seconds. */
  readonly bounds: readonly number[];
  /** The number of durations in each bucket; the last has all above the bounds. */
  readonly counts: number[];
  /** The sum of all durations, in seconds. */
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
