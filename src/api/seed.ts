/**
 * Loads sample records into an empty store. They are validated by the same
 * rules as a POST, but may refer to records that come later, and are committed
 * in one transaction: one invalid record rolls back all of them.
 */

import { Buffer } from "node:buffer";
import { ApiError } from "../http/errors.ts";
import { isObject, parseJsonObject } from "../http/json.ts";
import { errorCode } from "../store/error.ts";
import type { Document, Store } from "../store/store.ts";
import type { ApiDeclaration } from "./declaration/api.ts";
import type { NamedProperty } from "./declaration/declaration.ts";
import { reservedCollectionNames } from "./declaration/reserved-names.ts";
import type { ValidationContext } from "./declaration/validation.ts";
import { localOperator } from "./operator.ts";
import { recordsOf } from "./records/local.ts";
import { importedValues, ownerOfImported } from "./records/imported.ts";
import type { Records } from "./records/records.ts";
import { isUnfinished, type Task } from "./tasks/tasks.ts";

/** More names and arrays than fit into a string: an operator may load any seed. */
const maxNames = 1e9;

/**
 * Loads a seed, unless the store has or had records, also of what is not declared.
 *
 * @returns the sequence number that must be durable
 * @throws {ApiError} with nothing changed
 */
export function seedEmptyStore(
  store: Store,
  declaration: ApiDeclaration,
  text: string,
): { readonly seq: number } {
  const isUsed = [...store.tables.values()].some(({ name, lastId }) =>
    lastId > 0 && !name.startsWith("_") &&
    !reservedCollectionNames.includes(name)
  );
  const awaitsImport = store.tables.get("tasks")?.rows()
    .some(({ document }) =>
      document["type"] === "import" && isUnfinished(document as Task)
    );
  return isUsed || awaitsImport
    ? { seq: store.seq }
    : loadSeed(store, declaration, text);
}

/**
 * Loads `{"zoos":[…],"animals":[…],…}`.
 *
 * @returns the sequence number of the transaction
 * @throws {ApiError} that names the record and the property, with nothing changed
 */
export function loadSeed(
  store: Store,
  declaration: ApiDeclaration,
  text: string,
): { readonly seq: number } {
  const all = new Map(
    declaration.collections
      .map(({ name }) => [name, recordsOf(store, declaration, name)]),
  );
  const seed = parseJsonObject(Buffer.from(text), "seed", maxNames);
  for (const name in seed) {
    if (all.has(name)) continue;
    const allowed = [...all.keys()].join(", ");
    throw new ApiError(
      42200,
      `the seed has "${name}", which is not a collection; allowed: ${allowed}`,
    );
  }
  const fail = (name: string, index: number, reasons: string): never => {
    throw new ApiError(42200, `${name}[${index}] in the seed: ${reasons}`);
  };
  const users = store.table("users");
  const hasAdmin = users.count("username", "admin") +
      users.count("role", declaration.roles.highest) > 0;
  // The first admin is created after the seed.
  const isThere = (id: number) =>
    users.get(id) !== undefined || !hasAdmin && id === users.lastId + 1;
  const references: (() => void)[] = [];
  const seq = store.transact(0, (apply) => {
    for (const [name, records] of all) {
      const bodies = seed[name] ?? [];
      if (!Array.isArray(bodies)) {
        throw new ApiError(42200, `"${name}" in the seed is not an array`);
      }
      for (const [index, body] of bodies.entries()) {
        // A reference may lead to a record that comes later.
        const defersCheck = ({ name: of, target }: NamedProperty, id: number) =>
          references.push(() => {
            if (store.table(target?.name ?? "").get(id)) return;
            fail(name, index, `"${of}" is ${id}, which does not exist.`);
          }) > 0;
        try {
          const options = { defersCheck, isThere };
          const document = buildSeedRecord(records, body, options);
          apply(records.putMutation(document));
        } catch (error) {
          const isCheck = errorCode(error) === "rule"; // that throws
          if (!(error instanceof ApiError) && !isCheck) throw error;
          const { errors = [error] }: { errors?: readonly unknown[] } = Object(
            error,
          );
          const reasons = errors.map((each) => Object(each).message);
          fail(name, index, reasons.join(" "));
        }
      }
    }
    for (const check of references) check();
  });
  return { seq };
}

/** Builds a record, with the next id if the body has none; throws an ApiError if it is invalid. */
function buildSeedRecord(
  records: Records,
  body: unknown,
  { defersCheck, isThere }: Pick<ValidationContext, "defersCheck"> & {
    readonly isThere: (user: number) => boolean;
  },
): Document {
  if (!isObject(body)) throw new ApiError(42200, "It is not an object.");
  const id = body["id"] ?? records.nextId();
  if (typeof id !== "number" || !Number.isSafeInteger(id) || id < 1) {
    throw new ApiError(42200, '"id" must be a whole number from 1 to 2^53-1.');
  }
  if (records.table.get(id)) {
    throw new ApiError(42200, `"id" ${id} is already in use.`);
  }
  return records.buildRecord(body, {
    caller: localOperator,
    owner: ownerOfImported(records, body, localOperator, isThere),
    imported: { ...importedValues(body), id },
    defersCheck,
  });
}
