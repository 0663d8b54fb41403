/**
 * Reads transactions back from the logs. Only the earlier log and the current
 * one exist; a reader that needs an older one fails with ENOENT.
 */

import { join } from "node:path";
import { crc32 } from "node:zlib";
import type { LogPosition } from "../../store/file-store.ts";
import {
  type Line,
  type OpenFile,
  readLines,
  withFile,
} from "../../store/log/files.ts";
import {
  checkLine,
  type LogHeader,
  type Mutation,
} from "../../store/log/format.ts";
import { names, type StoreFolder } from "../../store/log/folder.ts";

/** A committed transaction. */
export interface Transaction {
  readonly seq: number;
  readonly operations: readonly Mutation[];
  /** The length of its line in the log. */
  readonly bytes: number;
  /** The position after it. */
  readonly end: LogPosition;
}

/** Any line of a log. */
type ParsedLine =
  | LogHeader
  | { readonly seq: number; readonly tx: Mutation[] }
  | { readonly seal: number };

/** The logs up to the end of what is durable. */
export interface DurableLogs {
  readonly folder: StoreFolder;
  head: LogPosition;
}

/**
 * Reads the transaction at a position and those in the same part of the file.
 *
 * @throws an ENOENT error if the log is gone; an Error if it is damaged
 */
export async function readTransactions(
  logs: DurableLogs,
  start: LogPosition,
): Promise<Transaction[]> {
  const found: Transaction[] = [];
  let { generation, seed, offset, seq } = start;
  const parse = ({ bytes: line, byte, end: next }: Line) => {
    const name = names.log(generation);
    if (!checkLine(line, byte === 0 ? 0 : seed)) {
      throw new Error(`${name} is damaged at byte ${byte}`);
    }
    const parsed = JSON.parse(line.toString()) as ParsedLine;
    if ("seal" in parsed) return;
    const isHeader = "salt" in parsed;
    if (parsed.seq !== (isHeader ? seq : seq + 1)) {
      throw new Error(`${name} does not continue sequence ${seq}`);
    }
    seq = parsed.seq;
    offset = next;
    if (isHeader) {
      seed = crc32(parsed.salt);
      return;
    }
    const end = { generation, seed, offset, seq };
    found.push({ seq, operations: parsed.tx, bytes: line.length, end });
  };
  while (true) {
    await withLog(logs, generation, async (file, end) => {
      for await (const lines of readLines(file, { start: offset, end })) {
        lines.forEach(parse);
        if (found.length > 0) return;
      }
    });
    if (found.length > 0) return found;
    // The log is sealed: the next one continues it.
    generation++;
    offset = 0;
  }
}

/**
 * Returns the position after a transaction.
 *
 * @throws an ENOENT error if no log has it any more
 */
export async function findPosition(
  logs: DurableLogs,
  seq: number,
): Promise<LogPosition> {
  for (let { generation } = logs.head;; generation--) {
    const found = await withLog(
      logs,
      generation,
      (file, end) => searchLog(file, end, seq),
    );
    if (found !== undefined) return { generation, ...found, seq };
  }
}

/** Finds the first line after a sequence number by binary search. */
async function searchLog(
  file: OpenFile,
  end: number,
  seq: number,
): Promise<Pick<LogPosition, "seed" | "offset"> | undefined> {
  const [first] = await readPart(file, 0, end);
  if (first === undefined) return undefined;
  const header = JSON.parse(first.bytes.toString()) as LogHeader;
  if (header.seq > seq) return undefined;
  // The line at `low` is the first one or at most `seq`, and the first line
  // that begins after `high` is later than `seq`, or there is none.
  let low = first.end;
  for (let high = end; low < high;) {
    const middle = Math.floor((low + high) / 2);
    // What is left of the line at `middle` comes before the next one.
    const [, next] = await readPart(file, middle, end);
    if (next === undefined || seqOf(next) > seq) high = middle;
    else low = next.byte;
  }
  const lines = await readPart(file, low, end);
  const next = lines.find((line) => seqOf(line) > seq);
  return next && { seed: crc32(header.salt), offset: next.byte };
}

/** Reads lines from an offset on: at least two, if there are that many. */
async function readPart(
  file: OpenFile,
  start: number,
  end: number,
): Promise<Line[]> {
  const found: Line[] = [];
  for await (const lines of readLines(file, { start, end })) {
    found.push(...lines);
    if (found.length > 1) break;
  }
  return found;
}

/** Returns the sequence number of a transaction; a seal is after all of them. */
function seqOf({ bytes }: Line): number {
  const begin = bytes.toString("latin1", 0, 64);
  return Number(/^\{"crc":"\w{8}","seq":(\d+),/.exec(begin)?.[1] ?? Infinity);
}

/** Opens a log with the offset at which its durable part ends. */
function withLog<Result>(
  { folder: { files, folder }, head }: DurableLogs,
  generation: number,
  use: (file: OpenFile, end: number) => Promise<Result>,
): Promise<Result> {
  return withFile(files, join(folder, names.log(generation)), async (file) => {
    const isCurrent = generation === head.generation;
    return use(file, isCurrent ? head.offset : (await file.stat()).size);
  });
}
