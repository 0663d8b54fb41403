/**
 * The cost model of indexes and searches: every threshold, with its reason.
 * The unit is the row: to read one, test it and sort it takes about 1 µs.
 */

/** The most indexes cached for one table. Each takes 10 to 13 MB at a million rows. */
export const maxCachedIndexes = 8;

/** The most rows that are searched or indexed at once, without a queue: less than about a millisecond. */
export const maxImmediateRows = 1000;

/** The cost of applying one change to an index, in rows: a delete and an insert. */
export const rowsPerChange = 4;

/**
 * The most changes that an index may lack, as a share of the table's rows, or
 * `minPendingChanges` in a small table. Beyond that, to build it anew takes
 * hardly longer than to apply them, and the list of changes would only grow.
 */
export const maxPendingShare = 1 / 8;
export const minPendingChanges = 1000;

/** The most rows that are scanned for want of an index. Beyond that (10 ms) the index is built at once. */
export const maxScannedRows = 10_000;

/**
 * The share of the table's rows, summed over repeated scans, from which the
 * index that would have saved them is built in the background. Building it
 * costs about as much as scanning all rows, so by then an eighth is lost.
 */
export const backgroundBuildShare = 1 / 8;

/** The share from which a query waits for that index: scans leave little time for building it. */
export const awaitedBuildShare = 1 / 4;

/** The most indexes not yet built whose scanned rows are counted, so that the counters stay small. */
export const maxScanCounters = 1000;

/** The longest time that a job runs before other requests are handled, in ms. A response can wait for two of them. */
export const sliceMs = 1.5;

/** The rows, or changes, that a job processes in one step, between two looks at the clock. */
export const rowsPerStep = 128;

/** The most jobs that wait in a queue: beyond that a wait would take seconds. */
export const maxWaitingJobs = 32;
