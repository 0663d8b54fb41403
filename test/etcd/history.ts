/** The responses that clients got, so that they can be judged at the end. */

import { performance } from "node:perf_hooks";
import {
  type Condition,
  findViolation,
  type Operation,
  type Value,
} from "./linearizability.ts";

/** A statement of a response about a register. */
export interface Claim {
  readonly key: string;
  readonly requires?: Condition;
  readonly next?: Value;
}

/** A request, and what follows from each of its answers. */
export interface Attempt {
  readonly kind: string;
  readonly method: string;
  /** Where the server is, and how it is called in reports. */
  readonly server: { readonly name: string; readonly origin: string };
  readonly path: string;
  readonly token?: string | undefined;
  readonly headers?: Readonly<Record<string, string>>;
  readonly json?: unknown;
  /** Sent unchanged. */
  readonly raw?: string;
  /** How long the client waits, in ms. */
  readonly limitMs: number;
  /** The claims of a response; undefined if there must be no such answer. */
  readonly judge: (reply: Reply) => readonly Claim[] | undefined;
  /** The changes that may have happened if nobody knows the outcome. */
  readonly unknown?: readonly Claim[];
}

/** The parsed JSON of an answer: a record, or an array of them. */
export interface ReplyBody extends ReadonlyArray<ReplyBody> {
  readonly id: number;
  readonly token: string;
  readonly tag: string;
  readonly value: string;
}

/** An answer. */
export interface Reply {
  readonly status: number;
  readonly headers: Headers;
  readonly text: string;
  readonly body: ReplyBody;
}

/** Records what clients do and are told. */
export class History {
  readonly operations = new Map<string, Operation[]>();
  /** How often each kind of request ended in which way. */
  readonly counts = new Map<string, number>();
  /** The errors that no order of the operations explains. */
  readonly faults: string[] = [];
  /** The record that was created with an id, and the other way round. */
  readonly #created = new Map<string, string>();
  readonly #staleMs: number;
  longestMs = 0;

  /** @param staleMs how old a state may be that a GET shows */
  constructor(staleMs: number) {
    this.#staleMs = staleMs;
  }

  /** Sends a request, and records what follows from its outcome. Returns the answer if it was judged. */
  async attempt(attempt: Attempt): Promise<Reply | undefined> {
    const { kind, server, method, path, judge, unknown = [] } = attempt;
    const text = `${method} ${path} at ${server.name}`;
    const start = performance.now();
    const reply = await send(attempt);
    const end = performance.now();
    if (reply === "not sent") return this.#count(kind, reply);
    const isUnknown = reply === "unknown" || reply.status === 500;
    if (isUnknown) {
      for (const claim of unknown) {
        if (claim.next !== undefined) {
          this.claim(claim, { text, start, end: Infinity });
        }
      }
      return this.#count(kind, "unknown");
    }
    this.longestMs = Math.max(this.longestMs, end - start);
    // Nothing was changed: the operation is not in the history.
    if (reply.status === 503) return this.#count(kind, "503");
    const claims = judge(reply);
    this.#count(kind, String(reply.status));
    if (claims === undefined) {
      this.faults.push(`${text}: ${reply.status} ${reply.text}`);
      return undefined;
    }
    // A stale read is as good as one that began earlier.
    const shownFrom = method === "GET" ? start - this.#staleMs : start;
    for (const claim of claims) {
      const times = { start: shownFrom, end };
      this.claim(claim, { text: `${text} ${reply.status}`, ...times });
    }
    return reply;
  }

  claim(
    { key, requires, next }: Claim,
    times: Pick<Operation, "text" | "start" | "end">,
  ): void {
    const list = this.operations.get(key);
    const operation = {
      ...times,
      requires,
      ...next !== undefined && { next },
    };
    if (list) list.push(operation);
    else this.operations.set(key, [operation]);
  }

  /** Notes that a record was created: no other has its id, and it was created once. */
  created(collection: string, id: number, what: string): void {
    const record = `${collection}/${id}`;
    for (const [name, value] of [[record, what], [what, record]] as const) {
      const other = this.#created.get(name);
      if (other !== undefined && other !== value) {
        this.faults.push(`${name} was created twice: ${other} and ${value}`);
      }
      this.#created.set(name, value);
    }
  }

  /** Returns everything that is wrong. */
  judge(): string[] {
    const found = [...this.faults];
    for (const [key, operations] of this.operations) {
      const violation = findViolation(operations, null);
      if (violation) found.push(`${key} is not linearizable. ${violation}`);
    }
    return found;
  }

  #count(kind: string, outcome: string): undefined {
    const name = `${kind} ${outcome}`;
    this.counts.set(name, (this.counts.get(name) ?? 0) + 1);
  }
}

const unsent = /^(?:ECONNREFUSED)$/;

async function send(
  { method, server, path, token, headers, json, raw, limitMs }: Attempt,
): Promise<Reply | "not sent" | "unknown"> {
  const text = json === undefined ? raw : JSON.stringify(json);
  const body = text === undefined ? {} : { body: text };
  try {
    const response = await fetch(server.origin + path, {
      method,
      headers: {
        ...token && { authorization: `Bearer ${token}` },
        ...json !== undefined && { "content-type": "application/json" },
        ...headers,
      },
      ...body,
      signal: AbortSignal.timeout(limitMs),
    });
    const text = await response.text();
    const isJson = response.headers.get("content-type")?.includes("json");
    const { status } = response;
    return {
      status,
      headers: response.headers,
      text,
      body: isJson && text !== "" && !text.includes("}\n{")
        ? JSON.parse(text)
        : undefined,
    };
  } catch (error) {
    const { cause } = error as { cause?: { code?: string } };
    return unsent.test(cause?.code ?? "") ? "not sent" : "unknown";
  }
}
