/**
 * A changed declaration: random declarations, changes of them, and writes and
 * crashes in between, compared with a model in which properties and collections
 * have an identity that does not depend on their names.
 */

import { strict as assert } from "node:assert";
import process from "node:process";
import { test } from "node:test";
import type { ApiDeclaration } from "../../../src/api/declaration/api.ts";
import {
  collection,
  readValue,
} from "../../../src/api/declaration/declaration.ts";
import { feature } from "../../../src/features/evolution/feature.ts";
import { RenameError } from "../../../src/features/evolution/renaming.ts";
import {
  boolean,
  choice,
  date,
  integer,
  type Json,
  type JsonSchema,
  number,
  optional,
  type Property,
  reference,
  string,
  timestamp,
  unique,
} from "../../../src/api/declaration/properties.ts";
import { deleteRecord } from "../../../src/api/records/deleting.ts";
import { writeRecord } from "../../../src/api/records/writing.ts";
import { operatorContext } from "../../operator.ts";
import { recordsOf } from "../../../src/api/records/local.ts";
import { CommandError } from "../../../src/usage.ts";
import { openDataFolder } from "../../../src/data-folder.ts";
import { ApiError } from "../../../src/http/errors.ts";
import type { Store } from "../../../src/store/store.ts";
import { apiOf } from "../../collections.ts";
import { removeFolder, temporaryFolder } from "../../harness.ts";
import { Disk } from "../../torture/disk.ts";
import { Random } from "../../torture/random.ts";

const { adaptRecords } = feature;

/** Each kind of property with values that fit it; many fit several. */
const kinds: readonly [() => Property, readonly Json[]][] = [
  [() => string({ maxLength: 12 }), ["a", "b", "cc", "2026-01-31", "true"]],
  [() => string({ maxLength: 2 }), ["a", "b", "cc"]],
  [() => string({ maxLength: 12, pattern: /^[a-c]+$/ }), ["a", "b", "cc"]],
  [() => choice("a", "b"), ["a", "b"]],
  [() => choice("a", "b", "cc"), ["a", "b", "cc"]],
  [() => integer(), [1, 2, 30, -4]],
  [() => integer({ minimum: 0, maximum: 9 }), [1, 2, 3]],
  [() => number({ exclusiveMinimum: 0 }), [1, 2.5, 30]],
  [() => boolean(), [true, false]],
  [() => date(), ["2026-01-31", "2027-02-28"]],
  [() => timestamp(), ["2026-01-31T12:00:00.000Z"]],
];

/** A small reserve saves time; a short log leads to snapshots. */
const limits = { reserveBytes: 4096, minLogBytes: 2000 };

/** A declared property; its identity stays when its name changes. */
interface Shape {
  readonly identity: number;
  readonly name: string;
  readonly renamed?: string | undefined;
}

interface PropertyShape extends Shape {
  readonly kind: number;
  /** The identity of the collection whose ids are the values. */
  readonly target?: number;
  readonly isOptional: boolean;
  readonly default: Json;
  readonly isUnique: boolean;
}

interface CollectionShape extends Shape {
  readonly properties: readonly PropertyShape[];
}

type ApiShape = readonly CollectionShape[];

/** Records by collection, id and property, as they were written. */
type Model = Map<number, Map<number, Map<number, Json>>>;

/** Declares a shape. */
function declare(shape: ApiShape): ApiDeclaration {
  return apiOf(shape.map(({ name, renamed, properties }) =>
    collection({
      name,
      singular: `${name} record`,
      ...(renamed && { renamed }),
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: Object.fromEntries(
        properties.map((each) => [each.name, propertyOf(each, shape)]),
      ),
    })
  ));
}

function propertyOf(
  { kind, target, isOptional, isUnique, renamed, ...rest }: PropertyShape,
  shape: ApiShape,
): Property {
  const referred = shape.find(({ identity }) => identity === target);
  const [make = () => string({ maxLength: 12 })] = kinds[kind] ?? [];
  let property: Property = referred
    ? reference(referred.name, { as: `r_${rest.name}` })
    : make();
  if (isOptional) property = optional(property, rest.default);
  if (isUnique) property = unique(property);
  return { ...property, ...(renamed && { renamed }) };
}

/** One sequence: a store that goes through declarations, writes and crashes. */
class Sequence {
  readonly random: Random;
  readonly disk: () => Disk;
  readonly model: Model = new Map();
  shape: ApiShape = [];
  readonly earlier: ApiShape[] = [];
  store: Store | undefined;
  #disk: Disk;
  #names = 0;
  refusals = 0;
  /** How often a rename took a name that something else had before. */
  taken = 0;
  starts = 0;

  constructor(seed: number, folder: string) {
    this.random = new Random(seed);
    this.#disk = new Disk({ folder });
    this.disk = () => this.#disk;
  }

  get opened(): Store {
    assert.ok(this.store);
    return this.store;
  }

  #newShape(prefix: string): { identity: number; name: string } {
    this.#names++;
    return { identity: this.#names, name: `${prefix}${this.#names}` };
  }

  #newProperty(collections: readonly CollectionShape[]): PropertyShape {
    const { random } = this;
    const isReference = collections.length > 0 && random.chance(0.2);
    const kind = random.below(kinds.length);
    const shape = this.#newShape("p");
    const isOptional = random.chance(0.8);
    const values = kinds[kind]?.[1] ?? [];
    const hasDefault = !isReference && random.chance(0.3);
    return {
      ...shape,
      ...(isReference && {
        name: `${shape.name}_id`,
        target: random.pick(collections).identity,
      }),
      kind,
      isOptional: isOptional || isReference,
      default: isOptional && hasDefault ? random.pick(values) : null,
      isUnique: !hasDefault && random.chance(0.1),
    };
  }

  #newCollection(): CollectionShape {
    const length = 1 + this.random.below(3);
    const properties = Array.from({ length }, () => this.#newProperty([]));
    return { ...this.#newShape("c"), properties };
  }

  /** Creates a first declaration, or the next one. */
  nextShape(): ApiShape {
    const { random } = this;
    if (this.shape.length === 0) {
      return [this.#newCollection(), this.#newCollection()];
    }
    if (random.chance(0.3)) {
      const earlier = random.pick(this.earlier);
      return this.isClear(earlier) ? earlier : this.shape;
    }
    let next = [...this.shape];
    for (let edits = 1 + random.below(3); edits > 0; edits--) {
      next = this.#edit(next);
    }
    next = [...withoutLostReferences(next)];
    if (!this.isClear(next)) {
      next = next.map((each) => ({
        ...this.#withoutAppliedHint(each),
        properties: each.properties.map((property) =>
          this.#withoutAppliedHint(property)
        ),
      }));
    }
    return this.isClear(next) ? next : this.shape;
  }

  /** Returns whether each name of a shape, or its hint, identifies its data. */
  isClear(shape: ApiShape): boolean {
    const isEachClear = (each: readonly Shape[], of?: number) =>
      each.every(({ identity, name, renamed }) => {
        const owner = this.#ownerOf(name, of) ?? identity;
        // Taken from something that has no other name here: no swap.
        const isHint = renamed !== undefined &&
          renamed === this.#lastName(identity) &&
          (this.#lastName(owner) !== name ||
            each.every((other) => other.identity !== owner));
        return (owner === identity || isHint) &&
          new Set(each.map(({ name }) => name)).size === each.length &&
          (renamed === undefined ||
            this.#ownerOf(renamed, of) === identity &&
              each.every(({ name }) => name !== renamed));
      });
    return isEachClear(shape) &&
      shape.every(({ identity, properties }) =>
        isEachClear(properties, identity)
      );
  }

  #withoutAppliedHint<Named extends Shape>(shape: Named): Named {
    const isApplied = shape.name === this.#lastName(shape.identity);
    return isApplied ? { ...shape, renamed: undefined } : shape;
  }

  /** The declared collections, or properties of a collection, the last ones at the end. */
  #history(of?: number): readonly Shape[] {
    const all = this.earlier.flat();
    return of === undefined ? all : all
      .filter(({ identity }) => identity === of)
      .flatMap(({ properties }) => properties);
  }

  /** The identity that last had a name. */
  #ownerOf(name: string, of?: number): number | undefined {
    return this.#history(of).findLast((each) => each.name === name)?.identity;
  }

  /** A name to rename to: a new one, or sometimes one that was used before. */
  #nextName(prefix: string, suffix: string, of?: number): string {
    const used = this.#history(of)
      .filter(({ identity, name }) => name !== this.#lastName(identity))
      .map(({ name }) => name)
      .filter((name) => name.endsWith("_id") === (suffix === "_id"));
    return used.length > 0 && this.random.chance(0.7)
      ? this.random.pick(used)
      : this.#newShape(prefix).name + suffix;
  }

  #edit(shape: readonly CollectionShape[]): CollectionShape[] {
    const { random } = this;
    const at = random.below(shape.length);
    const chosen = random.pick(shape);
    const change = (to: CollectionShape) =>
      shape.map((each) => each === chosen ? to : each);
    const known = this.earlier.flat();
    switch (random.below(9)) {
      case 0: {
        const more = random.chance(0.5) ? this.#newCollection() : known.find(
          ({ identity, name }) =>
            shape.every((each) => each.identity !== identity) &&
            name === this.#lastName(identity),
        );
        return more && shape.length < 4 ? [...shape, more] : [...shape];
      }
      case 1:
        return shape.length > 1
          ? shape.filter((_, each) => each !== at)
          : [...shape];
      case 2: {
        const name = this.#nextName("c", "");
        const renamed = this.#lastName(chosen.identity);
        return change({ ...chosen, name, renamed });
      }
    }
    const { properties } = chosen;
    const place = random.below(properties.length + 1);
    const old = properties[place];
    const replace = (to: readonly PropertyShape[]) =>
      change({ ...chosen, properties: properties.toSpliced(place, 1, ...to) });
    if (old === undefined || random.chance(0.15)) {
      const earlier = known.filter(({ identity }) =>
        identity === chosen.identity
      ).flatMap(({ properties }) => properties).filter((each) =>
        properties.every(({ identity }) => identity !== each.identity) &&
        each.name === this.#lastName(each.identity)
      );
      const added = earlier.length > 0 && random.chance(0.5)
        ? random.pick(earlier)
        : this.#newProperty(shape);
      return change({ ...chosen, properties: [...properties, added] });
    }
    switch (random.below(4)) {
      case 0:
        return replace([]);
      case 1: {
        const suffix = old.target === undefined ? "" : "_id";
        const name = this.#nextName("p", suffix, chosen.identity);
        const renamed = this.#lastName(old.identity);
        return replace([{ ...old, name, renamed }]);
      }
      case 2: {
        // The hint is needed only once.
        const { renamed, ...rest } = old;
        const isApplied = old.name === this.#lastName(old.identity);
        return replace([isApplied ? rest : { ...rest, renamed }]);
      }
    }
    const { kind, default: value, isOptional, isUnique } = this.#newProperty(
      [],
    );
    return replace([
      old.target === undefined
        ? { ...old, kind, default: value, isOptional, isUnique }
        : { ...old, isUnique },
    ]);
  }

  /** The name under which something was last declared with success. */
  #lastName(identity: number): string | undefined {
    const all = [...this.earlier, this.shape].flat();
    return [...all, ...all.flatMap(({ properties }) => properties)]
      .filter((each) => each.identity === identity)
      .at(-1)?.name;
  }

  /** Writes some records by the rules of the API. */
  async write(): Promise<void> {
    const api = declare(this.shape);
    for (let count = this.random.below(5); count > 0; count--) {
      const of = this.random.pick(this.shape);
      try {
        await this.#writeOne(api, of);
      } catch (error) {
        // A duplicate, or a record that others refer to.
        if (!(error instanceof ApiError)) throw error;
        assert.ok([42200, 40900].includes(error.code), error.message);
      }
    }
  }

  async #writeOne(api: ApiDeclaration, of: CollectionShape): Promise<void> {
    const { random, opened: store } = this;
    const records = recordsOf(store, api, of.name);
    const rows = this.model.get(of.identity) ?? new Map();
    this.model.set(of.identity, rows);
    const ids = [...rows.keys()];
    const how = ids.length === 0 ? 0 : random.below(4);
    const id = ids.length === 0 ? 0 : random.pick(ids);
    const method = ["POST", "PUT", "PATCH", "DELETE"][how] ?? "POST";
    const context = operatorContext({ ids: how === 0 ? [] : [id], method });
    if (how === 3) {
      const { seq } = deleteRecord(records, context, false);
      rows.delete(id);
      return await store.durable(seq);
    }
    const sent = of.properties.filter(({ isOptional }) =>
      how !== 2 && !isOptional || random.chance(0.5)
    );
    const body: Record<string, Json> = {};
    for (const property of sent) {
      const value = this.#valueFor(property);
      if (value !== undefined) body[property.name] = value;
    }
    const { seq } = await writeRecord(records, context, body);
    await store.durable(seq);
    const row = rows.get(id) ?? new Map();
    rows.set(
      how === 0 ? records.table.lastId : id,
      how === 0 ? new Map() : row,
    );
    const written = rows.get(how === 0 ? records.table.lastId : id);
    for (const { identity, name, default: value } of of.properties) {
      if (Object.hasOwn(body, name)) written?.set(identity, body[name] ?? null);
      else if (how !== 2 || (written?.get(identity) ?? null) === null) {
        // Also in place of a null from before there was a default.
        written?.set(identity, value);
      }
    }
  }

  #valueFor({ kind, target, isOptional, ...rest }: PropertyShape) {
    const { random } = this;
    const isNullable = isOptional && rest.default === null;
    if (isNullable && random.chance(0.2)) return null;
    if (target === undefined) return random.pick(kinds[kind]?.[1] ?? [null]);
    const ids = [...this.model.get(target)?.keys() ?? []];
    return ids.length === 0 ? undefined : random.pick(ids);
  }

  /** Restarts with a declaration, in one of several ways. */
  async restart(next: ApiShape): Promise<void> {
    const { random } = this;
    this.starts++;
    const { folder } = this.#disk;
    const how = this.store === undefined ? 0 : random.below(4);
    if (how === 1) this.#disk = this.#disk.copy(folder);
    else if (how === 2) this.#disk = this.#disk.crash(folder, random);
    await this.store?.close();
    const expected = this.misfits(next);
    if (how === 3) await this.#interrupt(next);
    try {
      this.store = await openDataFolder(folder, declare(next), {
        adaptRecords,
        files: this.#disk,
        limits,
      });
    } catch (error) {
      if (error instanceof RenameError) {
        const [, former = ""] = /^(\S+) cannot/.exec(error.message) ?? [];
        const hinted = [next, ...next.map(({ properties }) => properties)]
          .flat().map(({ renamed }) => renamed);
        assert.ok(hinted.includes(former.split(".").at(-1)), error.message);
      } else if (String(error).includes("nothing that is stored would be")) {
        assert.ok(error instanceof CommandError);
        assert.ok(
          next.every(({ identity }) => !this.model.get(identity)?.size),
        );
      } else {
        assert.ok(error instanceof CommandError, String(error));
        const named = new Map(
          Array.from(
            error.message.matchAll(/^(\S+): (\d+) records? do/gm),
            ([, name = "", count]) => [name, Number(count)],
          ),
        );
        assert.deepEqual(named, expected, error.message);
        assert.ok(expected.size > 0, error.message);
      }
      this.refusals++;
      // Nothing has changed.
      this.store = await openDataFolder(folder, declare(this.shape), {
        adaptRecords,
        files: this.#disk,
        limits,
      });
      return;
    }
    assert.deepEqual(expected, new Map(), "a declaration that does not fit");
    const isTaken = ({ identity, name }: Shape, of?: number) =>
      (this.#ownerOf(name, of) ?? identity) !== identity;
    for (const each of next) {
      if (isTaken(each)) this.taken++;
      for (const property of each.properties) {
        if (isTaken(property, each.identity)) this.taken++;
      }
    }
    this.earlier.push(next);
    this.shape = next;
  }

  /** Starts once and cuts the power at some step of the start; the next start begins with what is left. */
  async #interrupt(next: ApiShape): Promise<void> {
    const { random } = this;
    const { folder } = this.#disk;
    const at = this.#disk.steps + 1 + random.below(40);
    let left: Disk | undefined;
    this.#disk.fate = ({ number }) => {
      if (number === at) left = this.#disk.crash(folder, random);
      return undefined;
    };
    try {
      const store = await openDataFolder(folder, declare(next), {
        adaptRecords,
        files: this.#disk,
        limits,
      });
      await store.close();
    } catch (error) {
      const isRefusal = error instanceof CommandError ||
        error instanceof RenameError;
      if (!isRefusal) throw error;
    }
    this.#disk.fate = () => undefined;
    this.#disk = left ?? this.#disk;
  }

  /** The number of records that do not fit, for each property of a declaration, according to the model. */
  misfits(shape: ApiShape): Map<string, number> {
    const found = new Map<string, number>();
    for (const { identity, name, properties } of shape) {
      const rows = [...this.model.get(identity)?.values() ?? []];
      for (const property of properties) {
        const { schema, nullable } = propertyOf(property, shape);
        const values = rows.map((row) => this.shown(row, property));
        const bad = values.filter((value) => {
          if (value === null) return !nullable;
          const isDuplicate = property.isUnique &&
            values.filter((each) => each === value).length > 1;
          const { target } = property;
          const isDangling = target !== undefined &&
            !this.model.get(target)?.has(Number(value));
          return isDuplicate || isDangling || !fits(schema, value);
        });
        if (bad.length > 0) found.set(`${name}.${property.name}`, bad.length);
      }
    }
    return found;
  }

  shown(row: ReadonlyMap<number, Json>, property: PropertyShape): Json {
    return row.get(property.identity) ?? property.default;
  }

  /** Compares everything that can be read, and everything that is stored, with the model. */
  check(): void {
    const api = declare(this.shape);
    for (const of of this.shape) {
      const { table, representation, collection } = recordsOf(
        this.opened,
        api,
        of.name,
      );
      const rows = this.model.get(of.identity) ?? new Map();
      const ids = table.rows().map(({ document }) => document.id);
      assert.deepEqual(ids, [...rows.keys()].sort((a, b) => a - b), of.name);
      for (const { document } of table.rows()) {
        const row = rows.get(document.id) ?? new Map();
        const shown = JSON.parse(representation.serialize(document));
        for (const property of of.properties) {
          const { name } = property;
          const where = `${of.name}/${document.id}.${name}`;
          assert.deepEqual(shown[name], this.shown(row, property), where);
          const { schema } = collection.visibleProperties.get(name) ?? {};
          assert.ok(schema && fits(schema, shown[name]), where);
          const declared = collection.visibleProperties.get(name);
          assert.ok(declared);
          assert.equal(readValue(document, declared), shown[name]);
        }
        const stored = Object.values(document);
        for (const value of row.values()) {
          const index = stored.indexOf(value);
          assert.notEqual(index, -1, `${of.name}/${document.id} lost ${value}`);
          stored.splice(index, 1);
        }
      }
      for (const property of collection.properties) {
        if (!property.unique) continue;
        for (const { document } of table.rows()) {
          const value = readValue(document, property);
          if (value === null) continue;
          assert.equal(
            table.find(
              property.name,
              typeof value === "string" ? value.toLowerCase() : Number(value),
            ).length,
            1,
          );
        }
      }
    }
  }
}

/** Drops references to collections that a shape no longer has. */
function withoutLostReferences(shape: ApiShape): ApiShape {
  const identities = shape.map(({ identity }) => identity);
  return shape.map((each) => ({
    ...each,
    properties: each.properties.filter(({ target }) =>
      target === undefined || identities.includes(target)
    ),
  }));
}

/** Returns whether a value fits a schema, judged by the schema alone. */
function fits(schema: JsonSchema, value: Json): boolean {
  const { type, minimum, exclusiveMinimum, maximum } = schema;
  const { minLength = 0, maxLength = Infinity, pattern, format } = schema;
  const actual = value === null
    ? "null"
    : Number.isInteger(value)
    ? "integer"
    : typeof value;
  const types = [type].flat();
  if (
    !types.includes(actual) &&
    !(actual === "integer" && types.includes("number"))
  ) {
    return false;
  }
  if (value === null) return true;
  if (Array.isArray(schema["enum"]) && !schema["enum"].includes(value)) {
    return false;
  }
  if (typeof value === "number") {
    return value >= Number(minimum ?? -Infinity) &&
      value > Number(exclusiveMinimum ?? -Infinity) &&
      value <= Number(maximum ?? Infinity);
  }
  if (typeof value !== "string") return true;
  if (format === "date") return /^\d{4}-\d\d-\d\d$/.test(value);
  if (format === "date-time") return /^\d{4}-\d\d-\d\dT/.test(value);
  return value.length >= Number(minLength) &&
    value.length <= Number(maxLength) &&
    (pattern === undefined || new RegExp(String(pattern), "u").test(value));
}

/** Runs one sequence. */
async function runSequence(
  seed: number,
  folder: string,
): Promise<Sequence> {
  const sequence = new Sequence(seed, folder);
  try {
    await sequence.restart(sequence.nextShape());
    const first = sequence.shape;
    for (let changes = 1 + sequence.random.below(10); changes > 0; changes--) {
      await sequence.write();
      sequence.check();
      await sequence.restart(sequence.nextShape());
      sequence.check();
    }
    // Unless a value no longer fits, all values are back.
    if (sequence.isClear(first)) await sequence.restart(first);
    sequence.check();
  } finally {
    await sequence.store?.close();
  }
  return sequence;
}

const { SEQUENCES, WHOLE } = process.env;
const sequences = Number(SEQUENCES ?? (WHOLE === "1" ? 500 : 30));

test(`${sequences} sequences of declarations lose no value and contradict no schema`, async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  let refusals = 0;
  let taken = 0;
  for (let seed = Number(process.env["SEED"] ?? 1); seed <= sequences; seed++) {
    try {
      const sequence = await runSequence(seed, folder);
      refusals += sequence.refusals;
      taken += sequence.taken;
    } catch (error) {
      throw new Error(`sequence ${seed}: ${String(error)}`, { cause: error });
    }
  }
  t.diagnostic(`${refusals} refusals, ${taken} names taken`);
  assert.ok(refusals > sequences / 10, "some declarations did not fit");
  assert.ok(taken > sequences / 50, "some names were taken");
});
