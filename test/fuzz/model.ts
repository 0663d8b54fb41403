/**
 * The shadow model: a zoo and its employees, created, changed and deleted by
 * well-formed requests whose outcome is known. Every response must be the one
 * that the model predicts, whatever other requests the server gets meanwhile.
 */

import { strict as assert } from "node:assert";
import type { Random } from "../torture/random.ts";
import { type Message, message } from "./messages.ts";
import { type Received, Violation } from "./responses.ts";

type Body = Record<string, unknown>;

/** A record as the server last showed it. */
interface Shadow {
  readonly url: string;
  readonly text: string;
  readonly etag: string;
  readonly body: Body;
}

/** Sends pipelined requests and returns all their responses. */
export type Exchange = (
  messages: readonly Message[],
) => Promise<readonly Received[]>;

interface Outcome {
  readonly status: number;
  readonly body: Body;
  readonly text: string;
  readonly fields: ReadonlyMap<string, string>;
}

/** How the names of the zoos of all models begin. */
export const modelZooName = "Model ";

/** The largest number of employees of a zoo. */
const maxEmployees = 60;

/** One zoo with its employees. */
export class Model {
  readonly #random: Random;
  readonly #token: string;
  readonly #prefix: string;
  #exchange: Exchange;
  #count = 0;
  #zoo: Shadow | undefined = undefined;
  #employees: Shadow[] = [];
  /** URLs of deleted records, the latest ones. */
  #deleted: string[] = [];

  constructor(options: {
    readonly random: Random;
    readonly token: string;
    readonly prefix: string;
    readonly exchange: Exchange;
  }) {
    this.#random = options.random;
    this.#token = options.token;
    this.#prefix = options.prefix;
    this.#exchange = options.exchange;
  }

  /** Takes one random step; throws a Violation if a response is not as predicted. */
  async step(): Promise<void> {
    const zoo = this.#zoo ??= await this.#create("/v1/zoos", {
      name: modelZooName + this.#prefix,
      city: "Prag\u{1f43b}",
      country: "CZ",
      opened_on: null,
      website: null,
    });
    const [employee] = this.#employees.length > 0
      ? [this.#random.pick(this.#employees)]
      : [];
    const steps = [
      () => this.#hire(zoo),
      () => this.#list(zoo),
      () => this.#checkDeleted(),
      ...employee === undefined ? [] : [
        () => this.#read(employee),
        () => this.#change(employee, "PATCH"),
        () => this.#change(employee, "PUT"),
        () => this.#refuse(employee),
        () => this.#remove(employee),
      ],
      ...this.#employees.length < maxEmployees
        ? [() => this.#hire(zoo)]
        : [() => this.#close(zoo)],
    ];
    await this.#random.pick(steps)();
  }

  /** Checks that everything reads back as last seen, through another connection or server. */
  async checkAll(exchange: Exchange): Promise<number> {
    this.#exchange = exchange;
    for (const employee of this.#employees) await this.#read(employee);
    if (this.#zoo) await this.#list(this.#zoo);
    await this.#checkDeleted();
    return this.#employees.length;
  }

  async #send(
    ...requests: readonly {
      method: string;
      url: string;
      body?: Body;
      fields?: readonly string[];
    }[]
  ): Promise<Outcome[]> {
    const messages = requests.map(({ method, url, body, fields }) =>
      message({
        id: `m${this.#prefix}-${++this.#count}`,
        method,
        url,
        token: this.#token,
        fields,
        body: body && JSON.stringify(body),
        type: body && "application/json",
      })
    );
    const responses = await this.#exchange(messages);
    return responses.map(({ status, fields, body }) => ({
      status,
      fields,
      text: body,
      body: body.startsWith("{") ? JSON.parse(body) as Body : {},
    }));
  }

  /** Creates a record and reads it. */
  async #create(url: string, body: Body): Promise<Shadow> {
    const [created] = await this.#send({ method: "POST", url, body });
    expect(created, 201, body);
    const { location: at } = Object.fromEntries(created?.fields ?? []);
    const [read] = await this.#send({ method: "GET", url: String(at) });
    expect(read, 200, created?.body);
    const { fields, text = "", body: shown = {} } = read ?? {};
    return {
      url: String(at),
      text,
      etag: fields?.get("etag") ?? "",
      body: shown,
    };
  }

  async #hire(zoo: Shadow): Promise<void> {
    const isNested = this.#random.chance(0.5);
    const url = isNested ? `${zoo.url}/employees` : "/v1/employees";
    const body = { zoo_id: zoo.body["id"], ...this.#employee() };
    this.#employees.push(await this.#create(url, body));
  }

  #employee(): Body {
    const random = this.#random;
    const names = ["Ada", "Żaneta \u{1f98a}", "O\u2019Neil", '"', "\\u0041"];
    return {
      name: random.pick(names),
      job_title: random.pick(["keeper", "vet", "x".repeat(100)]),
      email: `m${this.#prefix}-${++this.#count}@example.com`,
      hired_on: random.chance(0.5) ? "2024-02-29" : null,
    };
  }

  async #read({ url, text, etag }: Shadow): Promise<void> {
    const [whole, unchanged, head] = await this.#send(
      { method: "GET", url },
      { method: "GET", url, fields: ["If-None-Match", etag] },
      { method: "GET", url, fields: ["If-Match", '"other"'] },
    );
    expect(whole, 200);
    assert.equal(whole?.text, text, "The record is not as it was written");
    assert.equal(whole?.fields.get("etag"), etag, "The ETag has changed");
    expect(unchanged, 304);
    expect(head, 412);
  }

  async #change(employee: Shadow, method: "PUT" | "PATCH"): Promise<void> {
    const all: Body = {
      zoo_id: employee.body["zoo_id"],
      ...this.#employee(),
    };
    const { name, hired_on } = all;
    const body = method === "PUT" ? all : { name, hired_on };
    const { url, etag } = employee;
    const fields = ["If-Match", etag];
    const [changed, read, stale] = await this.#send(
      { method, url, body, fields },
      { method: "GET", url },
      { method, url, body: all, fields: ["If-Match", '"other"'] },
    );
    expect(changed, 201, { ...employee.body, ...body, updated_at: undefined });
    expect(read, 200);
    expect(stale, 412);
    assert.equal(read?.text, changed?.text, "A change is not shown");
    const next = read?.fields.get("etag") ?? "";
    const isSame = changed?.text === employee.text;
    assert.equal(next === etag, isSame, "The ETag does not tell the change");
    this.#replace(employee, {
      url,
      text: read?.text ?? "",
      etag: next,
      body: read?.body ?? {},
    });
  }

  /** Sends changes that must be refused, and leave the record as it is. */
  async #refuse(employee: Shadow): Promise<void> {
    const { url } = employee;
    const [wrongType, unknown, taken] = await this.#send(
      { method: "PATCH", url, body: { name: 7 } },
      { method: "PATCH", url, body: { nme: "x" } },
      {
        method: "PATCH",
        url,
        body: { email: this.#random.pick(this.#employees).body["email"] },
      },
    );
    expect(wrongType, 422);
    expect(unknown, 422);
    // The employee's own e-mail address is not a duplicate, and changes
    // nothing.
    if (taken?.status !== 201) expect(taken, 422);
    await this.#read(employee);
  }

  async #remove(employee: Shadow): Promise<void> {
    const { url } = employee;
    const [deleted, read, again] = await this.#send(
      { method: "DELETE", url },
      { method: "GET", url },
      { method: "DELETE", url },
    );
    expect(deleted, 204);
    expect(read, 410);
    expect(again, 404);
    this.#replace(employee, undefined);
    this.#bury(url);
  }

  async #list(zoo: Shadow): Promise<void> {
    const isNested = this.#random.chance(0.5);
    const base = isNested
      ? `${zoo.url}/employees?`
      : `/v1/employees?zoo_id=${zoo.body["id"]}&`;
    const order = this.#random.pick(["asc", "desc"]);
    const [page] = await this.#send({
      method: "GET",
      url: `${base}limit=100&sortby=id&order=${order}`,
    });
    expect(page, 200);
    const shown = (JSON.parse(page?.text ?? "") as Body[]).map((each) =>
      each["id"]
    );
    const known = this.#employees.map(({ body }) => Number(body["id"]));
    known.sort((a, b) => order === "asc" ? a - b : b - a);
    assert.deepEqual(shown, known, "A list is not what was written");
    const total = Number(page?.fields.get("x-total-count"));
    assert.equal(total, known.length, "The count is not what was written");
  }

  /** Deletes the zoo with all its employees, and starts again without one. */
  async #close(zoo: Shadow): Promise<void> {
    const [refused, cascade, read] = await this.#send(
      { method: "DELETE", url: zoo.url },
      { method: "DELETE", url: `${zoo.url}?cascade=true` },
      { method: "GET", url: `${zoo.url}/employees` },
    );
    expect(refused, 409);
    expect(cascade, 204);
    expect(read, 410);
    for (const { url } of this.#employees) this.#bury(url);
    this.#employees = [];
    this.#zoo = undefined;
  }

  async #checkDeleted(): Promise<void> {
    if (this.#deleted.length === 0) return;
    const url = this.#random.pick(this.#deleted);
    const [read] = await this.#send({ method: "GET", url });
    expect(read, 410);
  }

  #replace(old: Shadow, shadow: Shadow | undefined): void {
    const at = this.#employees.indexOf(old);
    this.#employees.splice(at, 1, ...shadow ? [shadow] : []);
  }

  #bury(url: string): void {
    this.#deleted.push(url);
    if (this.#deleted.length > 50) this.#deleted.shift();
  }
}

/** Checks a status, and the values of properties; `undefined` is any value. */
function expect(
  outcome: Outcome | undefined,
  status: number,
  properties: Body = {},
): void {
  if (outcome?.status !== status) {
    const { status: found, text } = outcome ?? {};
    throw new Violation(`Expected ${status}, got ${found}: ${text}`);
  }
  for (const [name, value] of Object.entries(properties)) {
    if (value === undefined || name === "link") continue;
    assert.deepEqual(outcome.body[name], value, `The property ${name}`);
  }
}
