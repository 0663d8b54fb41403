/**
 * The store: durable records. All of them are in memory, and a snapshot and a
 * write-ahead log are in a folder.
 *
 * It guarantees that a write whose promise has resolved survives a power cut at
 * any moment, that a reader who waits for `durable` never sees a record that
 * could still vanish, and that damage is never ignored. Writes that were not
 * acknowledged may be lost; each of them is applied completely or not at all.
 *
 * This file is the public interface of the store. Of the files that implement
 * it, file-store.ts opens a store and runs its transactions; checkpoints.ts
 * keeps the log short; log/ writes the files, and
 * recovery/ reads them at startup.
 */

export { type Fault, StoreError } from "./error.ts";
export { openStore, type StoreOptions } from "./file-store.ts";
export {
  type FileSystem,
  type OpenFile,
  type OpenMode,
  realFiles,
} from "./log/files.ts";
export { formatTime, type Mutation } from "./log/format.ts";
export type { Memory } from "./memory/limit.ts";
export {
  type Column,
  compareBy,
  compareValues,
  foldText,
  toCodePointOrder,
} from "./memory/order.ts";
export {
  type Document,
  type Json,
  lowerBound,
  type Row,
} from "./memory/row.ts";
export {
  type ChangeListener,
  countRecords,
  type Table,
  type TableDeclaration,
} from "./memory/table.ts";
export type { CommitOptions, LogFields, Logger } from "./options.ts";
export { Store } from "./transactions.ts";
