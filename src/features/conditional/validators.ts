/** The validators of representations (RFC 9110 section 8.8): ETag and Last-Modified. */

import { crc32 } from "node:zlib";
import { mayAccess } from "../../auth/access.ts";
import { type Collection, seesAll } from "../../api/declaration/declaration.ts";
import type { Api } from "../../api/feature.ts";
import { ndjsonType } from "../../api/formats/ndjson.ts";
import { recordSchema } from "../../api/representation.ts";
import type {
  RequestContext,
  Scope,
  Subject,
} from "../../api/request-context.ts";
import { negotiate } from "../../http/negotiate.ts";
import { asShared } from "../../store/shared.ts";
import {
  type Document,
  formatTime,
  type Json,
  type Table,
} from "../../store/store.ts";

/** A folder may be a restored backup at each start, so that sequence numbers are given again. */
const processStart = Date.now().toString(36);

/** Returns the function that returns the validators of a representation as header fields. */
export function createValidators({ store, now }: Api) {
  const incarnation = asShared(store)?.incarnation ?? processStart;
  const shapes = new Map<Collection, string>();
  /** Returns a hash of the declaration, from which the shape of the JSON follows: with it every ETag changes. */
  const shapeOf = (collection: Collection) => {
    const known = shapes.get(collection);
    if (known !== undefined) return known;
    const { url } = collection;
    const shape = crc32(JSON.stringify([url, recordSchema(collection)]));
    shapes.set(collection, shape.toString(36));
    return shape.toString(36);
  };
  return (
    context: Pick<
      RequestContext,
      "headers" | "operation" | "related" | "caller"
    >,
    subject: Subject,
  ): readonly string[] => {
    const { headers, operation, related, caller } = context;
    const { collection } = subject;
    const shape = shapeOf(collection);
    const fields = "document" in subject
      ? ofRecord(collection, subject.document, {
        shape,
        now: now(),
      })
      : ofList(subject, store.table(collection.name), {
        state: `${incarnation}${shape}`,
        suffix: negotiate(headers.accept, operation?.produces ?? []) ===
            ndjsonType
          ? "-lines"
          : "",
      });
    if (related.length === 0) return fields;
    // Related records that it shows can change too, and depend on the caller.
    const [, etag = ""] = fields;
    const own = `${etag.replace(/^W\//, "").slice(1, -1)}-${incarnation}`;
    const versions = related.map((each) => {
      const { owner = "", access } = each;
      if (!mayAccess(caller?.grants, access.read)) return ""; // none is shown
      return versionOf(store.table(each.name), each, {
        conditions: seesAll(each, caller) ? {} : { [owner]: caller?.id ?? 0 },
      });
    });
    const by = caller ? `${caller.id}-${caller.role}` : "";
    return ["ETag", `W/"${[own, ...versions, by].join("-")}"`];
  };
}

/**
 * Returns the validators of a record. The ETag contains the time of the last
 * change, which grows with every change; and a checksum, as another history can
 * have a change of the same time: a restored backup, or an edited export.
 */
function ofRecord(
  { name, visibleProperties }: Collection,
  document: Document,
  { shape, now }: { readonly shape: string; readonly now: number },
): readonly string[] {
  const { id, created_at, updated_at = created_at } = document;
  const time = String(updated_at);
  const changedAt = Date.parse(time);
  // Date.parse accepts line ends, which would end the connection.
  if (Number.isNaN(changedAt) || !/^[\d:.TZ-]+$/.test(time)) {
    throw new Error(`The time of ${name}/${id} is malformed`);
  }
  // At `/user`, every user reads a different record.
  const own = name === "users" ? `-${id}` : "";
  let text = "";
  for (const name of visibleProperties.keys()) {
    text += `${document[name] ?? null}\n`;
  }
  const sum = crc32(text).toString(36);
  const etag = `"${time}${own}-${sum}-${shape}"`;
  // Not later than the response, if the clock was set back (section 8.8.2.1).
  const modified = changedAt > now ? formatTime(now) : time;
  return ["ETag", etag, "Last-Modified", httpDate(modified)];
}

/** The dates of days such as "2026-05-01", as HTTP writes them. */
const dates = new Map<string, string>();
const maxDates = 1000;

/** Formats a time of RFC 3339 in UTC as HTTP does, in whole seconds (RFC 9110 section 5.6.7). Kept by day, because it takes a twentieth of a GET otherwise. */
function httpDate(time: string): string {
  const day = time.slice(0, 10);
  let date = dates.get(day);
  if (date === undefined) {
    date = new Date(day).toUTCString().slice(0, -"00:00:00 GMT".length);
    if (dates.size >= maxDates) dates.clear();
    dates.set(day, date);
  }
  return `${date}${time.slice(11, 19)} GMT`;
}

/**
 * Returns the ETag of a list: weak, because all its pages share it (RFC 9110
 * section 8.8.1). Callers who see different records at one URL, such as their
 * own tasks, get different ETags, which tell nothing about the records of others.
 */
function ofList(
  { collection, scope = { conditions: {} } }: {
    readonly collection: Collection;
    readonly scope: Scope | undefined;
  },
  table: Table,
  { state, suffix }: { readonly state: string; readonly suffix: string },
): readonly string[] {
  const version = versionOf(table, collection, scope);
  const ids = Object.values(scope.conditions).map((id) => `-${id}`).join("");
  return ["ETag", `W/"${state}-${version}${ids}${suffix}"`];
}

/** Returns a text that changes with the records of a scope: of one owner only with that owner's. */
function versionOf(
  table: Table,
  { owner }: Collection,
  { conditions, where }: Pick<Scope, "conditions" | "where">,
): string {
  if (owner === undefined || !(owner in conditions)) {
    return table.lastSeq.toString(36);
  }
  // A new record has a higher number than any before, and with fewer records
  // the count is lower; records can expire without a new number.
  const id = conditions[owner] ?? 0;
  const count = where
    ? table.find(owner, id).filter(({ document }) => where(document)).length
    : table.count(owner, id);
  return `${lastSeqOf(table, owner, id).toString(36)}-${count}`;
}

/** The highest sequence number among the records of each owner that was asked for, by table. */
const lastSeqs = new WeakMap<Table, Map<Json | undefined, number>>();

/** Returns the highest sequence number among the records of an owner. It is kept, as a user may have very many, and counted again only after the newest was deleted. */
function lastSeqOf(table: Table, owner: string, id: number): number {
  const known = lastSeqs.get(table) ?? follow(table, owner);
  const last = known.get(id) ??
    table.find(owner, id).reduce((max, { seq }) => Math.max(max, seq), 0);
  known.set(id, last);
  return last;
}

function follow(table: Table, owner: string) {
  const known = new Map<Json | undefined, number>();
  lastSeqs.set(table, known);
  table.listeners.add((before, after) => {
    const last = known.get(after?.document[owner]);
    if (after && last !== undefined) {
      known.set(after.document[owner], Math.max(last, after.seq));
    }
    const former = before?.document[owner];
    if (known.get(former) === before?.seq) known.delete(former);
  });
  return known;
}
