/** The lanes of a run: each sends requests of one kind, one after the other. */

import { Buffer } from "node:buffer";
import { Random } from "../torture/random.ts";
import { checkResponse, type OpenApiDocument } from "../replay.ts";
import { Connection } from "./connection.ts";
import type { Operation } from "./document.ts";
import { type Message, MessageGenerator } from "./messages.ts";
import { Model } from "./model.ts";
import { insertField, mutate, split } from "./mutations.ts";
import { type Received, Violation } from "./responses.ts";
import type { Tokens } from "./sessions.ts";

/** The state that all lanes share. */
export interface Target {
  readonly port: number;
  readonly origin: string;
  readonly document: OpenApiDocument;
  readonly operations: readonly Operation[];
  readonly tokens: Readonly<Tokens>;
  /** The token of an admin whom no request of these lanes can reach. */
  readonly root: string;
  /** The number of responses by status. */
  readonly statuses: Map<number, number>;
}

/** A sequence of steps that a seed determines. */
export interface Lane {
  readonly name: string;
  /** Sends a few requests; throws a Violation. */
  step(): Promise<void>;
  /** All bytes that were sent on the present connection. */
  sentBytes(): Buffer;
  /** Starts again with a new connection. */
  reset(): void;
}

interface LaneOptions {
  readonly target: Target;
  readonly name: string;
  readonly random: Random;
}

/** How long to wait for a response that is not certain. */
const quietMs = 25;

/** The number of requests on a connection. */
const maxRequestsPerConnection = 200;

/** The base of the lanes: one connection at a time. */
abstract class ConnectionLane implements Lane {
  readonly name: string;
  protected readonly target: Target;
  protected readonly random: Random;
  #connection: Connection | undefined = undefined;
  #requests = 0;
  #addresses = 0;

  constructor({ target, name, random }: LaneOptions) {
    this.target = target;
    this.name = name;
    this.random = random;
  }

  abstract step(): Promise<void>;

  sentBytes(): Buffer {
    return Buffer.concat(this.#connection?.sent ?? []);
  }

  reset(): void {
    this.#connection?.close();
    this.#connection = undefined;
  }

  /** Returns an open connection, from one of many addresses, because a single one has too few ports. */
  protected connect(): Connection {
    this.reset();
    const last = this.#addresses++ % 250 + 1;
    const lane = this.name.charCodeAt(0) % 250;
    return this.#connection = new Connection(
      this.target.port,
      `127.1.${lane}.${last}`,
    );
  }

  protected note(responses: readonly Received[]): void {
    const { statuses } = this.target;
    for (const { status } of responses) {
      statuses.set(status, (statuses.get(status) ?? 0) + 1);
    }
  }

  /** Sends well-formed requests in one go, and returns a response for each that was handled. */
  protected async exchange(
    messages: readonly Message[],
  ): Promise<readonly Received[]> {
    this.#requests += messages.length;
    let connection = this.#connection;
    if (
      connection === undefined || connection.isClosed ||
      this.#requests > maxRequestsPerConnection
    ) {
      this.#requests = messages.length;
      connection = this.connect();
    }
    const bytes = Buffer.concat(messages.map((each) => each.bytes));
    const isSplit = this.random.chance(0.1);
    const pauseMs = this.random.chance(0.05) ? 1 + this.random.below(5) : 0;
    const segments = isSplit ? split(bytes, this.random) : [bytes];
    await connection.send(segments, pauseMs);
    const responses = await connection.receive(messages.length);
    this.note(responses);
    for (const [index, { fields }] of responses.entries()) {
      const id = fields.get("x-request-id");
      if (id !== messages[index]?.id) {
        throw new Violation(`Response ${index} has the X-Request-Id ${id}`);
      }
    }
    const last = responses.at(-1);
    const isComplete = responses.length === messages.length ||
      /close/i.test(last?.fields.get("connection") ?? "") ||
      (connection.isClosed && mayBeRefused(messages[responses.length], last)) ||
      (connection.isLive && responses.length === messages.length - 1);
    if (!isComplete) {
      throw new Violation(
        `${responses.length} responses to ${messages.length} requests`,
      );
    }
    return responses;
  }
}

/** Sends generated requests as they are. */
class GeneratedLane extends ConnectionLane {
  readonly #generator: MessageGenerator;

  constructor(options: LaneOptions) {
    super(options);
    this.#generator = generatorOf(options);
  }

  async step(): Promise<void> {
    const count = 1 + this.random.below(8);
    const messages: Message[] = [];
    while (messages.length < count && !isLive(messages.at(-1))) {
      messages.push(this.#generator.next());
    }
    const responses = await this.exchange(messages);
    for (const [index, response] of responses.entries()) {
      const sent = messages[index];
      if (sent !== undefined) this.#check(sent, response);
    }
  }

  #check(sent: Message, received: Received): void {
    learn(this.#generator, sent, received);
    const { method, url } = sent;
    const { status, fields, body } = received;
    // A full check of each response would take longer than the server.
    if (!this.random.chance(0.02) || /\/%2e/.test(url)) return;
    // An odd id, with which there is no such URL.
    if (method === "PROPFIND" && status === 404) return;
    const address = new URL(this.target.origin + url);
    const headers = new Headers([...fields]);
    const exchange = { method, address, status, headers, text: body };
    try {
      checkResponse(this.target.document, exchange);
    } catch (error) {
      throw new Violation(`${method} ${url} ${status}: ${error}: ${body}`);
    }
  }
}

/** Sends mutated requests, a few on each connection. */
class MutantLane extends ConnectionLane {
  readonly #generator: MessageGenerator;

  constructor(options: LaneOptions) {
    super(options);
    this.#generator = generatorOf(options);
  }

  async step(): Promise<void> {
    const { random } = this;
    const messages = Array.from(
      { length: 1 + random.below(4) },
      () => this.#generator.nextToMutate(),
    );
    const whole = Buffer.concat(messages.map(({ bytes }) => bytes));
    const { bytes, from } = random.chance(0.3)
      ? insertField(whole, random)
      : mutate(whole, random);
    const isSplit = random.chance(0.15);
    const pauseMs = random.chance(0.05) ? 1 + random.below(5) : 0;
    const connection = this.connect();
    await connection.send(isSplit ? split(bytes, random) : [bytes], pauseMs);
    const unchanged = countUnchanged(messages, from);
    const responses = [
      ...await connection.receive(unchanged),
      // The mutation can have joined requests, or made one incomplete.
      ...await connection.receive(messages.length - unchanged, quietMs),
    ];
    if (random.chance(0.05)) { // not always, because it can take seconds
      connection.finish();
      responses.push(...await connection.receive(Infinity));
    }
    this.note(responses);
    checkUnchanged(messages.slice(0, unchanged), responses);
    for (const [index, sent] of messages.slice(0, unchanged).entries()) {
      const received = responses[index];
      if (received) learn(this.#generator, sent, received);
    }
  }
}

/** Remembers the record of a response, for later requests. */
function learn(
  generator: MessageGenerator,
  { method, url, collection }: Message,
  { status, fields }: Received,
): void {
  const location = fields.get("location") ?? "";
  const [, id] = /\/(\d+)$/.exec(location) ?? [];
  if (id !== undefined && method === "POST" && status === 201) {
    generator.created(collection, id);
  } else if (id !== undefined && status === 202) {
    generator.created("tasks", id);
  }
  if (method === "DELETE" && status === 204) {
    generator.deleted(collection, /\/(\d+)(?:\?|$)/.exec(url)?.[1] ?? "");
  }
  const etag = fields.get("etag");
  if (etag !== undefined && status < 300) generator.tagged(url, etag);
}

/** The number of requests that end before the first changed byte. */
function countUnchanged(messages: readonly Message[], from: number): number {
  let end = 0;
  return messages.filter(({ bytes }) => (end += bytes.length) <= from).length;
}

/**
 * Checks that requests got their responses, in order, up to a response that
 * announces that the connection closes.
 */
function checkUnchanged(
  messages: readonly Message[],
  responses: readonly Received[],
): void {
  for (const [index, { id }] of messages.entries()) {
    const found = responses[index]?.fields.get("x-request-id");
    if (found === id) continue;
    const last = responses.at(-1)?.fields.get("connection") ?? "";
    if (found === undefined && /close/i.test(last)) return;
    if (
      found === undefined && mayBeRefused(messages[index], responses[index - 1])
    ) {
      return;
    }
    throw new Violation(
      `Request ${index}, before the mutation, got ${found ?? "no response"}`,
    );
  }
}

/** Returns whether the connection may end before a request: if it has a body and waited for the response to an earlier one, which may have begun before. */
function mayBeRefused(
  message: Message | undefined,
  previous: Received | undefined,
): boolean {
  return previous !== undefined && message?.hasBody === true;
}

/** Returns whether the response to a request lasts as long as the connection. */
function isLive(message: Message | undefined): boolean {
  return message?.method === "GET" && message.collection === "events";
}

/** Plays a shadow model. */
export class ModelLane extends ConnectionLane {
  readonly model: Model;

  constructor(options: LaneOptions) {
    super(options);
    this.model = new Model({
      random: options.random,
      token: options.target.root,
      prefix: options.name,
      exchange: (messages) => this.#exchangeAll(messages),
    });
  }

  async step(): Promise<void> {
    await this.model.step();
  }

  /** Sends requests so that none with a body waits for the response to another: it would be lost. */
  async #exchangeAll(
    messages: readonly Message[],
  ): Promise<readonly Received[]> {
    const responses: Received[] = [];
    for (let at = 0; at < messages.length;) {
      const next = messages.findIndex(({ hasBody }, to) => to > at && hasBody);
      const end = next < 0 ? messages.length : next;
      responses.push(...await this.exchange(messages.slice(at, end)));
      at = end;
    }
    return responses;
  }
}

function generatorOf({ target, name, random }: LaneOptions): MessageGenerator {
  const { operations, tokens } = target;
  return new MessageGenerator({ random, operations, tokens, prefix: name });
}

/** Returns the lanes of a run, each with its own random numbers. */
export function lanesOf(target: Target, seed: number): readonly Lane[] {
  const lane = (name: string, index: number) => ({
    target,
    name,
    random: new Random(seed * 100 + index),
  });
  return [
    ...["a", "b", "c", "d"].map((each, at) =>
      new GeneratedLane(lane(each, at))
    ),
    ...["e", "f", "g", "h", "i", "j"].map((each, at) =>
      new MutantLane(lane(each, at + 10))
    ),
    ...["k", "l"].map((each, at) => new ModelLane(lane(each, at + 20))),
  ];
}
