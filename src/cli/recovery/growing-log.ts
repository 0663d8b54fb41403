/** Reads a log that a server may be writing meanwhile. */

import { type ReadableFile, readLines } from "../../store/log/files.ts";
import { type ApplyLine, LogScan, scanLines } from "../../store/log/format.ts";

/**
 * Reads a log as `scanLog` does. A line may be read half-written, and those that
 * follow whole. So the part from the first bad line on is read again until it
 * has no new good line.
 */
export async function scanGrowingLog(
  file: ReadableFile,
  name: string,
  apply: ApplyLine,
): Promise<LogScan> {
  const scan = new LogScan(name);
  let start: number;
  do {
    start = scan.end;
    const [bad] = scan.faults;
    const linesBefore = bad ? bad.line - 1 : 0;
    forgetBadPart(scan);
    for await (const lines of readLines(file, { start, linesBefore })) {
      scanLines(scan, lines, apply);
    }
    // A snapshot, which has parts, is complete when it gets its name.
  } while (scan.faults.length > 0 && scan.end > start && scan.parts === 0);
  return scan;
}

/** Forgets all that follows the good part. */
function forgetBadPart(scan: LogScan): void {
  scan.size = scan.end;
  scan.isPadded = false;
  scan.faults.length = 0;
  scan.isTorn = true;
  scan.provenSeq = 0;
  scan.highestSeq = scan.seq;
}
