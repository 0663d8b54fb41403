/** The requests of the clients of a round, and the claims of each response. */

import { setTimeout as delay } from "node:timers/promises";
import { adminPassword } from "../harness.ts";
import type { Random } from "../torture/random.ts";
import type { Member } from "./cluster.ts";
import type { Claim, History, Reply } from "./history.ts";

/** The API of the torture. */
export const collections = `
const everyone = { read: "anyone", write: "keeper", delete: "keeper" };
export default ({ collection, string, integer, reference, unique }) => ({
  title: "torture",
  collections: [
    collection({ name: "registers", singular: "register", access: everyone,
      properties: { round: integer(), tag: string({ maxLength: 40 }), value: string({ maxLength: 40 }) } }),
    collection({ name: "names", singular: "name", access: everyone,
      properties: { name: unique(string({ maxLength: 40 })), tag: string({ maxLength: 40 }) } }),
    collection({ name: "children", singular: "child", access: everyone,
      properties: { name_id: reference("names"), tag: string({ maxLength: 40 }) } }),
    collection({ name: "orders", singular: "order", access: everyone,
      properties: { tag: string({ maxLength: 40 }) } }),
    collection({ name: "lines", singular: "line", access: everyone,
      properties: { tag: string({ maxLength: 40 }) } }),
  ],
});
`;

/** The collections whose exports must be the same everywhere. */
export const exported = [
  ...["registers", "names", "children", "orders", "lines", "users"],
];

/** A record that a client knows of. */
interface Known {
  readonly id: number;
  readonly tag: string;
}

/** The state that the clients of a round share. */
export interface Round {
  readonly number: number;
  readonly history: History;
  readonly members: readonly Member[];
  readonly admin: string;
  /** The registers, in places that are filled anew after a delete. */
  readonly registers: Known[];
  /** The last record seen of each unique name. */
  readonly names: Map<string, Known>;
  readonly children: { readonly id: number; readonly parent: Claim }[];
  /** The paths of the imports that were accepted. */
  readonly imports: string[];
}

const registersPerRound = 4;
const namesPerRound = 4;
/** An import has several batches. */
export const linesPerImport = 300;
/** A user can have 100 authorizations; more would end the first ones. */
const maxSignIns = 60;

/** A client of a round, with a user of its own. */
export class Client {
  readonly #round: Round;
  readonly #random: Random;
  readonly #name: string;
  #token = "";
  #serial = 0;
  #signIns = 0;
  /** The last version seen of each register. */
  readonly #versions = new Map<string, { etag: string; value: string }>();
  readonly #actions: readonly (readonly [number, () => Promise<void>])[] = [
    [24, () => this.#read()],
    [12, () => this.#write()],
    [20, () => this.#compareAndSet()],
    [6, () => this.#list()],
    [2, () => this.#replaceRegister()],
    [12, () => this.#takeName()],
    [8, () => this.#findName()],
    [8, () => this.#deleteName()],
    [8, () => this.#createChild()],
    [6, () => this.#readChild()],
    [5, () => this.#signInAndOut()],
    [8, () => this.#order()],
    [2, () => this.#import()],
  ];

  constructor(round: Round, random: Random, index: number) {
    this.#round = round;
    this.#random = random;
    this.#name = `r${round.number}c${index}`;
  }

  /** Creates the client's user and signs it in; creates a register if there are too few. */
  async prepare(): Promise<void> {
    const { admin, registers } = this.#round;
    const key = `user ${this.#name}`;
    const made = { key, next: "made" };
    const login = { username: this.#name, password: adminPassword };
    await this.#attempt("user", "POST", "/v1/users", {
      token: admin,
      json: { ...login, role: "keeper" },
      judge: ({ status }) => status === 201 ? [made] : undefined,
      unknown: [made],
    });
    for (let tries = 0; this.#token === "" && tries < 5; tries++) {
      const reply = await this.#attempt("login", "POST", "/v1/authorizations", {
        json: login,
        judge: ({ status }) => {
          if (status === 401) return [{ key, requires: { is: null } }];
          return status === 201
            ? [{ key, requires: { is: "made" } }]
            : undefined;
        },
      });
      this.#token = reply?.body.token ?? "";
    }
    const place = registers.length;
    if (place < registersPerRound) await this.#createRegister(place);
  }

  async run(signal: AbortSignal): Promise<void> {
    const total = this.#actions.reduce((sum, [weight]) => sum + weight, 0);
    while (!signal.aborted && this.#token !== "") {
      let chosen = this.#random.below(total);
      const [, action] = this.#actions.find(([weight]) =>
        (chosen -= weight) < 0
      ) ?? [];
      await action?.();
      await delay(this.#random.below(20));
    }
  }

  /** Sends a request to any server. */
  #attempt(
    kind: string,
    method: string,
    path: string,
    options: {
      readonly judge: (reply: Reply) => readonly Claim[] | undefined;
      readonly unknown?: readonly Claim[];
      readonly json?: unknown;
      readonly raw?: string;
      readonly token?: string;
      readonly headers?: Readonly<Record<string, string>>;
      readonly member?: Member;
    },
  ): Promise<Reply | undefined> {
    const { members, history } = this.#round;
    const { name, origin } = options.member ?? this.#random.pick(members);
    return history.attempt({
      token: this.#token,
      ...options,
      kind,
      method,
      server: { name, origin },
      path,
      limitMs: 1500 + this.#random.below(5000),
    });
  }

  #tag(): string {
    return `${this.#name}-${++this.#serial}`;
  }

  async #createRegister(place: number): Promise<void> {
    const { number: round, registers, history } = this.#round;
    const tag = this.#tag();
    const json = { round, tag, value: tag };
    const made = { key: `register ${tag}`, requires: { is: null }, next: tag };
    const reply = await this.#attempt("create", "POST", "/v1/registers", {
      json,
      judge: ({ status }) => status === 201 ? [made] : undefined,
      unknown: [made],
    });
    if (reply === undefined) return;
    history.created("registers", reply.body.id, tag);
    registers[place] = { id: reply.body.id, tag };
  }

  #register(): { key: string; path: string; tag: string } {
    const { id, tag } = this.#random.pick(this.#round.registers);
    return { key: `register ${tag}`, path: `/v1/registers/${id}`, tag };
  }

  async #read(): Promise<void> {
    const { key, path, tag } = this.#register();
    const version = this.#versions.get(key);
    const isConditional = version !== undefined && this.#random.chance(0.3);
    const reply = await this.#attempt("read", "GET", path, {
      headers: isConditional ? { "if-none-match": version.etag } : {},
      judge: ({ status, body }) => {
        if (isGone(status)) return [{ key, requires: { is: null } }];
        if (status === 304 && isConditional) {
          return [{ key, requires: { is: version.value } }];
        }
        if (status !== 200 || body.tag !== tag) return undefined;
        return [{ key, requires: { is: body.value } }];
      },
    });
    this.#remember(key, reply);
  }

  /** Remembers the version of a register. */
  #remember(key: string, reply: Reply | undefined): void {
    const etag = reply?.headers.get("etag");
    const value = reply?.body?.value;
    if (etag && value) this.#versions.set(key, { etag, value });
  }

  async #write(): Promise<void> {
    const { key, path } = this.#register();
    const next = this.#tag();
    const written = { key, requires: { isNot: null }, next };
    const reply = await this.#attempt("write", "PATCH", path, {
      json: { value: next },
      headers: { "content-type": "application/merge-patch+json" },
      judge: ({ status }) => {
        if (isGone(status)) return [{ key, requires: { is: null } }];
        return isSuccess(status) ? [written] : undefined;
      },
      unknown: [written],
    });
    this.#remember(key, reply);
  }

  async #compareAndSet(): Promise<void> {
    const { key, path } = this.#register();
    const version = this.#versions.get(key);
    if (version === undefined) return await this.#read();
    const next = this.#tag();
    const { value } = version;
    const written = { key, requires: { is: value }, next };
    const reply = await this.#attempt("cas", "PATCH", path, {
      json: { value: next },
      headers: {
        "content-type": "application/merge-patch+json",
        "if-match": version.etag,
      },
      judge: ({ status }) => {
        if (isGone(status)) return [{ key, requires: { is: null } }];
        if (status === 412) return [{ key, requires: { isNot: value } }];
        return isSuccess(status) ? [written] : undefined;
      },
      unknown: [written],
    });
    if (reply?.status === 412) this.#versions.delete(key);
    this.#remember(key, reply);
  }

  /** Reads all registers of the round at one moment. */
  async #list(): Promise<void> {
    const { number, registers } = this.#round;
    const known = [...registers];
    await this.#attempt("list", "GET", `/v1/registers?round=${number}`, {
      judge: ({ status, body }) => {
        if (status !== 200) return undefined;
        const found = new Map<string, string>();
        for (const { tag, value } of body) found.set(tag, value);
        return known.map(({ tag }) => ({
          key: `register ${tag}`,
          requires: { is: found.get(tag) ?? null },
        }));
      },
    });
  }

  async #replaceRegister(): Promise<void> {
    const place = this.#random.below(this.#round.registers.length);
    const { id, tag } = this.#round.registers[place] ?? { id: 0, tag: "" };
    const key = `register ${tag}`;
    const deleted = { key, requires: { isNot: null }, next: null };
    await this.#attempt("delete", "DELETE", `/v1/registers/${id}`, {
      judge: ({ status }) => {
        if (isGone(status)) return [{ key, requires: { is: null } }];
        return status === 204 ? [deleted] : undefined;
      },
      unknown: [deleted],
    });
    await this.#createRegister(place);
  }

  #uniqueName(): { key: string; name: string } {
    const { number } = this.#round;
    const name = `n${number}-${this.#random.below(namesPerRound)}`;
    return { key: `name ${name}`, name };
  }

  async #takeName(): Promise<void> {
    const { history, names } = this.#round;
    const { key, name } = this.#uniqueName();
    const tag = this.#tag();
    const taken = { key, requires: { is: null }, next: tag };
    const reply = await this.#attempt("take", "POST", "/v1/names", {
      json: { name, tag },
      judge: ({ status }) => {
        if (status === 422) return [{ key, requires: { isNot: null } }];
        return status === 201 ? [taken] : undefined;
      },
      unknown: [taken],
    });
    if (reply?.status !== 201) return;
    history.created("names", reply.body.id, tag);
    names.set(name, { id: reply.body.id, tag });
  }

  async #findName(): Promise<void> {
    const { names } = this.#round;
    const { key, name } = this.#uniqueName();
    const reply = await this.#attempt("find", "GET", `/v1/names?name=${name}`, {
      judge: ({ status, body }) => {
        if (status !== 200 || body.length > 1) return undefined;
        return [{ key, requires: { is: body[0]?.tag ?? null } }];
      },
    });
    const [found] = reply?.body ?? [];
    if (found) names.set(name, { id: found.id, tag: found.tag });
  }

  async #deleteName(): Promise<void> {
    const { key, name } = this.#uniqueName();
    const known = this.#round.names.get(name);
    if (known === undefined) return await this.#findName();
    const { id, tag } = known;
    const deleted = { key, requires: { is: tag }, next: null };
    const query = this.#random.chance(0.7) ? "?cascade=true" : "";
    await this.#attempt("untake", "DELETE", `/v1/names/${id}${query}`, {
      judge: ({ status }) => {
        if (isGone(status)) return [{ key, requires: { isNot: tag } }];
        // Others refer to it.
        if (status === 409) return [{ key, requires: { is: tag } }];
        return status === 204 ? [deleted] : undefined;
      },
      unknown: [deleted],
    });
  }

  async #createChild(): Promise<void> {
    const { history, names, children } = this.#round;
    const { key, name } = this.#uniqueName();
    const known = names.get(name);
    if (known === undefined) return await this.#findName();
    const tag = this.#tag();
    const parent = { key, requires: { is: known.tag } };
    const reply = await this.#attempt("child", "POST", "/v1/children", {
      json: { name_id: known.id, tag },
      judge: ({ status }) => {
        if (status === 422) return [{ key, requires: { isNot: known.tag } }];
        return status === 201 ? [parent] : undefined;
      },
    });
    if (reply?.status !== 201) return;
    history.created("children", reply.body.id, tag);
    children.push({ id: reply.body.id, parent });
  }

  /** A child is there exactly as long as its parent. */
  async #readChild(): Promise<void> {
    const { children } = this.#round;
    const child = children.at(-1 - this.#random.below(8));
    if (child === undefined) return;
    const { id, parent } = child;
    const { requires, key } = parent;
    const value = requires && "is" in requires ? requires.is : null;
    await this.#attempt("kin", "GET", `/v1/children/${id}`, {
      judge: ({ status }) => {
        if (isGone(status)) return [{ key, requires: { isNot: value } }];
        return status === 200 ? [parent] : undefined;
      },
    });
  }

  /** A token is refused everywhere as soon as one server said that it ended. */
  async #signInAndOut(): Promise<void> {
    if (++this.#signIns > maxSignIns) return;
    const key = `token ${this.#tag()}`;
    const reply = await this.#attempt("sign in", "POST", "/v1/authorizations", {
      json: { username: this.#name, password: adminPassword },
      judge: ({ status }) =>
        status === 201
          ? [{ key, requires: { is: null }, next: "in" }]
          : undefined,
    });
    if (reply === undefined) return;
    const { token, id } = reply.body;
    await this.#useToken(key, token);
    const ended = { key, requires: { is: "in" }, next: null };
    const path = `/v1/authorizations/${id}`;
    const out = this.#attempt("sign out", "DELETE", path, {
      token,
      judge: ({ status }) => {
        if (status === 401) return [{ key, requires: { is: null } }];
        return status === 204 ? [ended] : undefined;
      },
      unknown: [ended],
    });
    if (this.#random.chance(0.5)) await this.#useToken(key, token);
    await out;
    const uses = this.#round.members.map((member) =>
      this.#useToken(key, token, member)
    );
    await Promise.all(uses);
  }

  async #useToken(key: string, token: string, member?: Member): Promise<void> {
    await this.#attempt("token", "GET", "/v1/user", {
      token,
      ...member && { member },
      judge: ({ status }) => {
        if (status === 401) return [{ key, requires: { is: null } }];
        return status === 200 ? [{ key, requires: { is: "in" } }] : undefined;
      },
    });
  }

  /** Creates with an Idempotency-Key, and repeats it on other servers. */
  async #order(): Promise<void> {
    const tag = this.#tag();
    const post = () => this.#postOrder(tag);
    const first = post();
    if (this.#random.chance(0.3)) await post();
    await first;
    await this.#countOrders(tag);
    if (this.#random.chance(0.5)) await post();
    await this.#countOrders(tag);
  }

  async #postOrder(tag: string): Promise<void> {
    const made = { key: `order ${tag}`, next: "made" };
    const reply = await this.#attempt("order", "POST", "/v1/orders", {
      json: { tag },
      headers: { "idempotency-key": tag },
      judge: ({ status }) => {
        if (status === 409) return [];
        return status === 201 ? [made] : undefined;
      },
      unknown: [made],
    });
    if (reply?.status !== 201) return;
    this.#round.history.created("orders", reply.body.id, tag);
  }

  /** Sends an import, whose task is judged after the round. */
  async #import(): Promise<void> {
    const tag = this.#tag();
    const lines = Array.from(
      { length: linesPerImport },
      (_, index) => JSON.stringify({ tag: `${tag}.${index}` }),
    );
    const reply = await this.#attempt("import", "POST", "/v1/lines", {
      raw: lines.join("\n"),
      headers: { "content-type": "application/x-ndjson" },
      judge: ({ status }) => status === 202 ? [] : undefined,
    });
    const path = reply?.headers.get("location");
    if (path) this.#round.imports.push(path);
  }

  async #countOrders(tag: string): Promise<void> {
    const key = `order ${tag}`;
    await this.#attempt("orders", "GET", `/v1/orders?tag=${tag}`, {
      judge: ({ status, body }) => {
        if (status !== 200 || body.length > 1) return undefined;
        return [{ key, requires: { is: body.length === 1 ? "made" : null } }];
      },
    });
  }
}

function isSuccess(status: number): boolean {
  return status === 200 || status === 201 || status === 204;
}

function isGone(status: number): boolean {
  return status === 404 || status === 410;
}
