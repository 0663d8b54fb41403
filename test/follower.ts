/** A client of server-sent events (HTML standard section 9.2). */

import { type IncomingMessage, request } from "node:http";
import type { Body } from "./harness.ts";

/** A dispatched event. */
export interface Event {
  /** The last `id` up to and including this event. */
  readonly id: string;
  /** True if it had an `id` itself. */
  readonly own: boolean;
  readonly type: string;
  readonly data: Body;
}

/** An open stream. */
export class Follower {
  readonly answer: IncomingMessage;
  readonly events: Event[] = [];
  /** All text that was received. */
  text = "";
  lastEventId: string;
  /** Resolves when the stream closes: true if the server ended it properly. */
  readonly closed: Promise<boolean>;
  #rest = "";
  #taken = 0;
  #wake = () => {};

  constructor(answer: IncomingMessage, lastEventId: string) {
    this.answer = answer;
    this.lastEventId = lastEventId;
    answer.setEncoding("utf8").on("data", (text) => this.#receive(text));
    answer.on("error", () => {});
    this.closed = new Promise((resolve) => {
      answer.on("close", () => {
        this.#wake();
        resolve(answer.complete);
      });
    });
  }

  /** Returns the next event; throws if the stream ends before it. */
  async next(): Promise<Event> {
    const at = this.#taken++;
    await this.until(() => this.events.length > at);
    const event = this.events[at];
    if (event === undefined) throw new Error(`No event: ${this.text}`);
    return event;
  }

  /** Waits until a condition holds or the stream ends. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds() && !this.answer.closed) {
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }

  /** Disconnects. */
  cut(): void {
    this.answer.destroy();
  }

  #receive(text: string): void {
    this.text += text;
    const blocks = (this.#rest + text).split("\n\n");
    this.#rest = blocks.pop() ?? "";
    for (const block of blocks) this.#take(block);
    this.#wake();
  }

  #take(block: string): void {
    const fields = new Map(
      block.split("\n").map((line): [string, string] => {
        const [, name = "", value = ""] = /^([^:]*):? ?(.*)$/.exec(line) ?? [];
        return [name, value];
      }),
    );
    this.lastEventId = fields.get("id") ?? this.lastEventId;
    const data = fields.get("data");
    if (data === undefined) return;
    this.events.push({
      id: this.lastEventId,
      own: fields.has("id"),
      type: fields.get("event") ?? "message",
      data: JSON.parse(data),
    });
  }
}

/** Opens the stream; resolves with its header. */
export function follow(
  port: number,
  token: string,
  lastEventId?: string,
): Promise<Follower> {
  return new Promise((resolve, reject) => {
    const headers = {
      authorization: `Bearer ${token}`,
      accept: "text/event-stream",
      ...(lastEventId === undefined ? {} : { "last-event-id": lastEventId }),
    };
    const asked = request(
      { host: "127.0.0.1", port, path: "/v1/events", headers, agent: false },
      (answer) => resolve(new Follower(answer, lastEventId ?? "")),
    );
    asked.on("error", reject);
    asked.end();
  });
}
