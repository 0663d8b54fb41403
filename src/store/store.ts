/**
 * The store: records that survive. All records in memory, and a snapshot and a
 * write-ahead log of them in a folder.
 *
 * Its promise: a write whose promise has resolved survives power loss at any
 * moment; a reader that waits for `durable` never sees a record that could
 * still vanish; damage is never ignored. Writes that were not
 * acknowledged may be lost; each of them is there completely or not at all.
 *
 * This file is the public interface of the store. Behind it,
 * file-store.ts opens a store and holds its transactions, disk-space.ts keeps
 * the log short and says what happens on a full disk. log/ writes the files,
 * recovery/ reads them at a start.
 */

export { type Fault, StoreError } from "./error.ts";
export { openStore, type Store } from "./file-store.ts";
export { rowsOf, type SortedIndex } from "./indexes/b-plus-tree.ts";
export { IndexCache, type RowSource } from "./indexes/index-cache.ts";
export {
  caseFold,
  type Column,
  compareValues,
} from "./indexes/row-comparator.ts";
export {
  type FileSystem,
  type OpenFile,
  type OpenMode,
  realFiles,
} from "./log/files.ts";
export { formatTime, type Mutation } from "./log/format.ts";
export type { Document, Json, Row } from "./memory/row.ts";
export type { Table, TableDeclaration } from "./memory/table.ts";
export type {
  CommitOptions,
  LogFields,
  Logger,
  StoreOptions,
} from "./options.ts";
