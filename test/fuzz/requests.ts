/** Requests by a seed: most are valid, some have a wrong part. */

import { ndjson } from "../features/library.ts";
import { collections, tags, type Value } from "./model.ts";

const verbs: Value = {
  GET: "read",
  POST: "write",
  PUT: "write",
  PATCH: "write",
  DELETE: "delete",
};

/** Returns what draws the next request, from the state of the model alone. */
export function createRequests(seed: number, users: Value) {
  const draw = (count: number): number => {
    seed = (Math.imul(seed, 1_664_525) + 1_013_904_223) >>> 0;
    return (seed >>> 8) % count;
  };
  const pick = (list: Value): Value => list[draw(list.length)];
  const idOf = ({ rows, lastId }: Value): number =>
    pick(draw(30) ? [...rows.keys()] : [1 + draw(lastId + 1)]) ?? 1;
  const valueOf = ({ optional, target, samples }: Value): Value => {
    if (optional === null && !draw(4)) return null;
    return target ? idOf(target) : pick(samples);
  };

  function bodyOf({ of, method, scope }: Value): Value {
    const body: Value = {};
    for (const name in of.properties) {
      const property = of.properties[name];
      const isOptional = method === "PATCH" || name === scope?.property ||
        property.optional !== undefined;
      if (isOptional && draw(2)) continue;
      body[name] = draw(50) ? valueOf(property) : pick([null, []]);
    }
    return body;
  }

  /** Returns a filter and how many; of a list also a sort order and a page, perhaps of groups. */
  function search({ properties }: Value, verb: string): Value {
    const name = pick(Object.keys(properties));
    const property = properties[name];
    const operand = valueOf(property);
    const operator = draw(typeof operand === "number" ? 4 : 2);
    const test = ({ [name]: value }: Value) =>
      [
        value === operand,
        value !== operand,
        value !== null && value < operand,
        value !== null && value >= operand,
      ][operator];
    const query = {
      [name + ["", ":ne", ":lt", ":gte"][operator]]: operand,
      limit: 1 + draw(9),
    };
    if (verb === "delete") return { test, query };
    const sortby = "text" in property ? "id" : name;
    const order = pick(["asc", "desc"]);
    const groups = !draw(3) && { by: sortby, aggregate: "count,sum(id)" };
    Object.assign(query, { sortby, order, offset: draw(9), ...groups });
    return { test, query };
  }

  let former: Value;
  return (): Value => {
    if (former && !draw(20)) {
      return draw(4)
        ? former
        : { ...former, user: pick(users), body: bodyOf(former) };
    }
    const of = pick(collections);
    const method = of.rows.size > 40 ? "DELETE" : pick(Object.keys(verbs));
    const verb = verbs[method];
    const id = method === "POST" || /^(GET|DELETE)$/.test(method) && draw(2)
      ? undefined
      : idOf(of);
    const row = of.rows.get(id);
    const relation = !draw(3) && pick(of.parents);
    const scope = relation &&
      { ...relation, id: row?.[relation.property] ?? idOf(relation.target) };
    const list = scope
      ? `/${scope.target.name}/${scope.id}/${scope.segment}`
      : `/${of.name}`;
    const call: Value = {
      user: pick(users),
      verb,
      method,
      of,
      scope,
      id,
      path: id ? `${list}/${id}` : list,
      query: {},
      headers: {},
    };
    const conditions = [undefined, tags.get(row), '"x"', "*"];
    if (verb !== "write" && !id) Object.assign(call, search(of, verb));
    else if (!draw(4)) {
      call.headers["If-Match"] = pick(conditions);
      call.headers["If-None-Match"] = pick(conditions);
      former = call;
    }
    if (verb === "write") call.body = bodyOf(call);
    if (method === "POST" && !draw(3)) {
      call.headers["Idempotency-Key"] = `${draw(1e9)}`;
      if (draw(3)) call.body = [call.body, bodyOf(call)];
      former = call;
    }
    if (method === "POST" && !draw(3)) {
      Object.assign(call.headers, ndjson);
      const own = of.parents.find(({ target }: Value) => target === of);
      call.body = Array.from({ length: 1 + draw(5) }, () => ({
        ...bodyOf(call),
        ...(draw(3) && { id: of.lastId + draw(5) }),
        ...(own && draw(2) && { [own.property]: of.lastId + 1 + draw(5) }),
      }));
    }
    if (verb === "delete" && of.children[0] && draw(2)) {
      call.query.cascade = true;
    }
    return call;
  };
}
