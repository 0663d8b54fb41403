/** A client of the event stream, as the HTML standard (section 9.2) has it. */

import { type IncomingMessage, request } from "node:http";

/** An event as it was dispatched. */
export interface Event {
  /** The last `id` so far, its own included. */
  readonly id: string;
  /** Whether it had an `id` itself. */
  readonly own: boolean;
  readonly type: string;
  // deno-lint-ignore no-explicit-any -- a test looks into any record
  readonly data: any;
}

/** An open stream. */
export class Follower {
  readonly answer: IncomingMessage;
  readonly events: Event[] = [];
  /** All that came, as it came. */
  text = "";
  lastEventId: string;
  /** Resolves when it is over: whether the server ended it, or else broke it off. */
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

  /** The next event; throws where the stream ends before it. */
  async next(): Promise<Event> {
    const at = this.#taken++;
    await this.until(() => this.events.length > at);
    const event = this.events[at];
    if (event === undefined) throw new Error(`No event: ${this.text}`);
    return event;
  }

  /** Waits until a condition holds, or the stream is over. */
  async until(holds: () => boolean): Promise<void> {
    while (!holds() && !this.answer.closed) {
      await new Promise<void>((resolve) => this.#wake = resolve);
    }
  }

  /** Hangs up. */
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

/** Opens the stream; resolves when its header is here. */
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
