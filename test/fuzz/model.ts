/** The model: the records of `../library.ts`, and what CONTRACT says that a request gets. It leaves out URLs and times, for which ETags stand. */

import declare from "../library.ts";

/** A record, a request, a part of the declaration. */
// deno-lint-ignore no-explicit-any
export type Value = any;

const samples: Value = {
  string: Array.from({ length: 90 }, (_, at) => String(978e10 + at)),
  text: ["one"],
  number: [1, 2.5],
  integer: [1, 20],
  boolean: [true, false],
  date: ["2024-01-11", "2024-01-12"],
  timestamp: ["2024-01-11T00:00:00.000Z"],
};
/** A property is under all words that are said of it what they say. */
export const { roles, collections }: Value = declare(
  new Proxy({} as Value, {
    get: (_, word: string) => (...of: Value[]) => ({
      samples: samples[word] ?? of,
      ...of[0],
      [word]: of[1] ?? null,
    }),
  }),
);
for (const of of collections) {
  Object.assign(of, { rows: new Map(), lastId: 0, parents: [], children: [] });
  of.unique ??= [];
}
for (const source of collections) {
  for (const property in source.properties) {
    const said = source.properties[property];
    const { samples: [to], reference, optional, unique } = said;
    if (unique === null) source.unique.push([property]);
    const target = said.target = collections.find((of: Value) =>
      of.name === to
    );
    if (!target) continue;
    const segment = reference?.as ?? source.name;
    const relation = { source, target, property, segment, optional };
    source.parents.push(relation);
    target.children.push(relation);
  }
}

/** The tags of versions of records, as responses have shown them, and their versions. */
export const tags = new Map();
const keys = new Map();

function refuse(outcome: number): never {
  throw Object.assign(new Error(), { outcome });
}

/**
 * Returns the status, the tag, the count and the body that the response must
 * have, and changes the model as the request changes the server.
 *
 * @throws {Error} with the error code as its outcome
 */
export function respond(call: Value, etag?: unknown): Value {
  const { user, verb, method, of, scope, id, path, query, headers, body } =
    call;
  const may = (role: string) => roles.indexOf(user.role) >= roles.indexOf(role);
  const isRead = verb === "read";
  const isImport = "Content-Type" in headers;
  const waiting: Value[] = [];
  const mayRead = may(of.access.read);
  const isFiltered = method === "DELETE" && !id;
  if (!may(of.access[verb]) || isFiltered && !mayRead) {
    refuse(user.id ? 40300 : 40100);
  }
  const sees = (of: Value, row: Value) =>
    row && (!of.private || may("admin") || row.owner_id === user.id);
  const find = (of: Value, id: number): Value => {
    const row = of.rows.get(id);
    if (sees(of, row)) return row;
    refuse(!row && isRead && id <= of.lastId && sees(of, {}) ? 41000 : 40401);
  };
  const key = `${user.id} ${path} ${headers["Idempotency-Key"]}`;
  const used = keys.get(key);
  if (used && !isImport) return repeat();
  if (scope) {
    if (!may(scope.target.access.read)) refuse(40401);
    find(scope.target, scope.id);
  }
  if (used) return repeat();
  const isWithin = (row: Value) =>
    sees(of, row) && (!scope || row[scope.property] === scope.id);
  const row = id && find(of, id);
  if (row && !isWithin(row)) refuse(40401);
  if (isRead && !row) return list();
  if (isRead && !tags.has(row) && !tags.has(etag)) {
    tags.set(row, etag).set(etag, row);
  }
  const tag = tags.get(row) ?? "";
  const isCurrent = (sent: string) => sent === tag || sent === "*";
  const isKnown = isCurrent(headers["If-None-Match"]);
  if (!isCurrent(headers["If-Match"] ?? "*")) refuse(41200);
  if (isRead && isKnown) return { outcome: 304, tag };
  if (isRead) return { outcome: 200, tag, json: row };
  if (isKnown) refuse(41200);
  return verb === "delete" ? remove(row ? [row] : list().json) : write();

  function list(): Value {
    const { sortby = "id", order, offset = 0, limit, aggregate } = query;
    let rows = [...of.rows.values()]
      .filter((row) => isWithin(row) && call.test(row));
    if (aggregate) rows = groupsOf(rows, sortby);
    const sign = order === "desc" ? -1 : 1;
    rows.sort((one, other) => {
      const [a, b] = [one[sortby], other[sortby]];
      if (a === b) return sign * (one.id - other.id);
      return a === null ? 1 : b === null ? -1 : a < b ? -sign : sign;
    });
    const json = rows.slice(offset, offset + limit);
    return { outcome: 200, total: `${rows.length}`, json };
  }

  function groupsOf(rows: Value[], by: string): Value[] {
    const values = new Set(rows.map((row) => row[by]));
    return Array.from(values, (value) => {
      const ids = rows.filter((row) => row[by] === value).map(({ id }) => id);
      const sum = ids.reduce((one, other) => one + other);
      return { [by]: value, count: ids.length, "sum(id)": sum };
    });
  }

  function repeat(): Value {
    if (used.body !== body) refuse(42201);
    if (used.result) return used.result;
    const left = used.built.flatMap(({ id }: Value) => of.rows.get(id) ?? []);
    if (!left[0]) refuse(41000);
    const json = left.filter((row: Value) => mayRead && sees(of, row));
    return { outcome: 201, json: Array.isArray(body) ? json : json[0] };
  }

  /** Of lines each is judged by itself, and optional references may lead to later ones. */
  function write(): Value {
    const rows = new Map(of.rows);
    let { lastId } = of;
    const all = [body].flat();
    const built = all.flatMap((sent) => {
      try {
        const next = build(sent, sent.id ?? id ?? lastId + 1, rows);
        if (!id && next.id <= lastId) refuse(42200);
        rows.set(next.id, next);
        lastId = Math.max(lastId, next.id);
        return next;
      } catch (error) {
        if (isImport) return [];
        throw error;
      }
    });
    Object.assign(of, { rows, lastId });
    for (const [next, name, target, id] of waiting) {
      if (built.includes(next) && sees(target, target.rows.get(id))) {
        next[name] = id;
      }
    }
    const counts = [built.length, all.length - built.length];
    const result = isImport && { outcome: 202, json: counts };
    if (headers["Idempotency-Key"]) keys.set(key, { body, built, result });
    if (result) return result;
    if (row && !mayRead) return { outcome: 204 };
    return { outcome: 201, json: Array.isArray(body) ? built : built[0] };
  }

  function build(sent: Value, id: number, rows: Value): Value {
    const given: Value = scope ? { [scope.property]: scope.id } : {};
    const former = method === "PATCH" ? row : given;
    const next: Value = { id };
    for (const name in of.properties) {
      const { optional, target } = of.properties[name];
      const { [name]: value = former[name] ?? optional } = sent;
      const others = target === of ? rows : target?.rows;
      const isLost = target && sent[name] && value !== row?.[name] &&
        !sees(target, others.get(value));
      if (
        Array.isArray(value) ||
        (value ?? null) === null && optional !== null ||
        !row && value !== (given[name] ?? value) ||
        isLost && !(sent.id && optional === null)
      ) refuse(42200);
      next[name] = isLost ? null : value;
      if (isLost) waiting.push([next, name, target, value]);
    }
    if (of.private) next.owner_id = row?.owner_id ?? user.id;
    for (const group of of.unique) {
      const isSame = (other: Value) =>
        other !== row && other.owner_id === next.owner_id &&
        group.every((name: string) =>
          next[name] !== null && next[name] === other[name]
        );
      if ([...rows.values()].some(isSame)) refuse(42200);
    }
    const isSame = (name: string) => next[name] === row?.[name];
    if (Object.keys(next).every(isSame)) return row;
    if (of.check?.(next)) refuse(42200);
    return next;
  }

  function remove(rows: Value[]): Value {
    const gone = new Map(rows.map((row) => [row, of]));
    const emptied: Value[] = [];
    for (const [row, of] of gone) {
      for (const { source, property, optional } of of.children) {
        for (const child of source.rows.values()) {
          if (child[property] !== row.id || gone.has(child)) continue;
          if (!query.cascade) refuse(40900);
          const verb = optional === null ? "write" : "delete";
          if (!may(source.access[verb]) || !sees(source, child)) refuse(40300);
          if (verb === "delete") gone.set(child, source);
          else emptied.push([source, child.id, property]);
        }
      }
    }
    for (const [{ id }, { rows }] of gone) rows.delete(id);
    for (const [{ rows }, id, property] of emptied) {
      if (rows.has(id)) rows.set(id, { ...rows.get(id), [property]: null });
    }
    if (!isFiltered) return { outcome: 204 };
    const { length: deleted } = rows;
    const json = { deleted, cascaded: gone.size - deleted };
    return { outcome: 200, json };
  }
}
