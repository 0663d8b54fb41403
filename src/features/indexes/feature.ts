/**
 * Sorted indexes, and the texts of records that were shown: pages of sorted and
 * filtered lists in a time that hardly grows with the number of records. They
 * decide only how fast rows are found and shown, never who may see them; they
 * are in memory, and gone after a restart.
 */

import type { Feature } from "../../api/feature.ts";
import type { Table } from "../../store/store.ts";
import { IndexCache } from "./index-cache.ts";
import { selectByIndex } from "./planner.ts";
import { keepTexts } from "./texts.ts";

export const feature: Feature = {
  open({ store, collections, records }) {
    for (const name of collections.keys()) {
      keepTexts(records(name).representation, store.memory);
    }
    const caches = new Map<Table, IndexCache>();
    return {
      select(query, selection) {
        const { table } = selection;
        let indexes = caches.get(table);
        if (indexes === undefined) {
          indexes = new IndexCache(table, store.memory);
          caches.set(table, indexes);
        }
        return selectByIndex(indexes, query, selection);
      },
    };
  },
};
