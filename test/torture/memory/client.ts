/** Clients of a server whose memory is full: each has one connection. */

import { Buffer } from "node:buffer";
import { Agent, type IncomingMessage, request } from "node:http";
import { createInterface } from "node:readline";
import type { Body } from "../../harness.ts";
import { lines as ndjson } from "../../lines.ts";

/** How long a response may take before the server counts as hanging. */
const patienceMs = 120_000;

/** A response; status 0 if the connection broke before it had come. */
export interface Reply {
  readonly status: number;
  readonly text: string;
  /** The parsed JSON; an empty object if there is none. */
  readonly body: Body;
}

/** The parts of a request besides its method and path. */
interface Message {
  readonly json?: unknown;
  /** NDJSON. */
  readonly lines?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

function lost(error: unknown): Reply {
  return { status: 0, text: String(error), body: JSON.parse("{}") };
}

export class Client {
  readonly #agent = new Agent({ keepAlive: true, maxSockets: 1 });
  readonly #port: number;
  readonly #token: string | undefined;

  constructor(port: number, token?: string) {
    this.#port = port;
    this.#token = token;
  }

  close(): void {
    this.#agent.destroy();
  }

  /** Sends a request; returns the error instead of the response if the connection broke. */
  #open(
    method: string,
    path: string,
    { json, lines, headers }: Message,
  ): Promise<IncomingMessage | Error> {
    const text = json === undefined ? lines : JSON.stringify(json);
    const type = json === undefined ? ndjson : "application/json";
    return new Promise((resolve, reject) => {
      const outgoing = request({
        ...{ method, path, agent: this.#agent },
        ...{ host: "127.0.0.1", port: this.#port, timeout: patienceMs },
        headers: {
          ...this.#token && { authorization: `Bearer ${this.#token}` },
          ...text !== undefined && {
            "content-type": type,
            "content-length": Buffer.byteLength(text),
          },
          ...headers,
        },
      });
      outgoing.on("response", resolve);
      outgoing.on("timeout", () => {
        reject(new Error(`No response to ${method} ${path} in two minutes`));
        outgoing.destroy();
      });
      outgoing.on("error", resolve);
      outgoing.end(text);
    });
  }

  /** Sends a request, and reads its response to the end. */
  async send(
    method: string,
    path: string,
    message: Message = {},
  ): Promise<Reply> {
    const response = await this.#open(method, path, message);
    if (response instanceof Error) return lost(response);
    let text = "";
    try {
      for await (const part of response.setEncoding("utf8")) text += part;
    } catch (error) {
      return lost(error);
    }
    const { statusCode: status = 0 } = response;
    const isJson = /json$|json;/.test(response.headers["content-type"] ?? "");
    const body = JSON.parse(isJson && text !== "" ? text : "{}");
    return { status, text, body };
  }

  /** Reads all records of a collection as NDJSON. */
  async *records(collection: string): AsyncIterable<Body> {
    const path = `/v1/${collection}`;
    const headers = { accept: ndjson };
    const response = await this.#open("GET", path, { headers });
    if (response instanceof Error) throw response;
    if (response.statusCode !== 200) {
      response.resume();
      throw new Error(`An export of ${collection}: ${response.statusCode}`);
    }
    response.on("error", () => {}); // then it is not complete
    let last = "";
    for await (const line of createInterface({ input: response })) {
      if (last !== "") yield JSON.parse(last);
      last = line;
    }
    if (!response.complete) {
      throw new Error(`An export of ${collection} was cut off`);
    }
    if (last !== "") yield JSON.parse(last);
  }
}
