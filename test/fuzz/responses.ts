/**
 * Reads the responses of one connection, strictly: every byte must belong to a
 * well-formed response (RFC 9112), and no byte may follow the last one.
 */

import { Buffer } from "node:buffer";

/** A complete response. */
export interface Received {
  readonly status: number;
  /** Field values by lower-case name. */
  readonly fields: ReadonlyMap<string, string>;
  readonly body: string;
}

/** Something that the server must never do. */
export class Violation extends Error {
  override readonly name = "Violation";
}

/** The X-Request-Id of every HEAD request begins with this, and no other one does. */
export const headPrefix = "HEAD-";

/** Fields that a response has at most once. */
const singletons =
  /^(?:content-length|content-type|content-location|date|etag|last-modified|location|retry-after|x-request-id)$/;

/** The header of a response whose content is still to come. */
interface Head {
  readonly status: number;
  readonly fields: ReadonlyMap<string, string>;
  /** How the content ends: after this many bytes, with the last chunk, or with the connection. */
  readonly framing: number | "chunked" | "close" | "live";
}

/** Parses what a server sends on one connection. */
export class ResponseReader {
  readonly responses: Received[] = [];
  /** True if the latest response lasts until the client disconnects. */
  isLive = false;
  /** True if the latest response announced that the connection closes. */
  isClosing = false;
  readonly #keepsChunks: boolean;
  #rest: Buffer = Buffer.alloc(0);
  #head: Head | undefined = undefined;
  #chunks: Buffer[] = [];

  /** Without `keepsChunks`, the body of a response in chunks is left empty. */
  constructor({ keepsChunks = true } = {}) {
    this.#keepsChunks = keepsChunks;
  }

  /** Parses the next bytes; throws a Violation if they are malformed. */
  push(bytes: Buffer): void {
    if (this.isLive) return;
    this.#rest = this.#rest.length === 0
      ? bytes
      : Buffer.concat([this.#rest, bytes]);
    while (this.#rest.length > 0 && this.#advance());
  }

  /** Checks at the end of the connection that nothing is incomplete. */
  end(): void {
    if (this.isLive) return;
    if (this.#head?.framing === "close") this.#complete();
    if (this.#head !== undefined || this.#rest.length > 0) {
      throw new Violation("The connection ended within a response");
    }
  }

  /** Parses one header, content or chunk; returns false if more bytes are needed. */
  #advance(): boolean {
    const head = this.#head;
    if (head === undefined) return this.#readHead();
    if (head.framing === "chunked") return this.#readChunk();
    if (typeof head.framing === "number") {
      return this.#readContent(head.framing);
    }
    this.#chunks.push(this.#rest);
    this.#rest = Buffer.alloc(0);
    return false;
  }

  #readHead(): boolean {
    if (this.isClosing) {
      throw new Violation("Bytes follow a response with Connection: close");
    }
    const end = this.#rest.indexOf("\r\n\r\n");
    if (end < 0) {
      if (this.#rest.length > 65_536) throw new Violation("An endless head");
      return false;
    }
    const text = this.#rest.toString("latin1", 0, end);
    this.#rest = this.#rest.subarray(end + 4);
    const head = parseHead(text);
    if (head.status < 200) return true; // an interim response has no content
    this.#head = head;
    if (head.framing === 0) this.#complete();
    else if (head.framing === "live") this.isLive = true;
    return !this.isLive;
  }

  #readContent(length: number): boolean {
    if (this.#rest.length < length) return false;
    this.#chunks.push(this.#rest.subarray(0, length));
    this.#rest = this.#rest.subarray(length);
    this.#complete();
    return true;
  }

  #readChunk(): boolean {
    const end = this.#rest.indexOf("\r\n");
    if (end < 0) return false;
    const text = this.#rest.toString("latin1", 0, end);
    if (!/^[\da-f]{1,8}$/i.test(text)) {
      throw new Violation(`A malformed chunk size: ${JSON.stringify(text)}`);
    }
    const length = parseInt(text, 16);
    const next = end + 2 + length + 2;
    if (this.#rest.length < next) return false;
    if (this.#rest.toString("latin1", next - 2, next) !== "\r\n") {
      throw new Violation("A chunk without an end");
    }
    const chunk = this.#rest.subarray(end + 2, next - 2);
    if (this.#keepsChunks) this.#chunks.push(chunk);
    this.#rest = this.#rest.subarray(next);
    if (length === 0) this.#complete();
    return true;
  }

  #complete(): void {
    if (this.#head === undefined) return;
    const { status, fields } = this.#head;
    const body = Buffer.concat(this.#chunks).toString();
    this.responses.push({ status, fields, body });
    this.isClosing = /\bclose\b/i.test(fields.get("connection") ?? "");
    this.#head = undefined;
    this.#chunks = [];
  }
}

function parseHead(text: string): Head {
  const [first = "", ...lines] = text.split("\r\n");
  const status = Number(/^HTTP\/1\.1 (\d{3}) [ -~]*$/.exec(first)?.[1]);
  if (!(status >= 100)) {
    const line = JSON.stringify(first.slice(0, 200));
    throw new Violation(`A malformed status line: ${line}`);
  }
  const fields = new Map<string, string>();
  for (const line of lines) {
    const match = /^([\w!#$%&'*+.^`|~-]+): ?([\t -~\x80-\xff]*)$/.exec(line);
    const [, key = "", value = ""] = match ?? [];
    const name = key.toLowerCase();
    if (name === "") {
      throw new Violation(`A malformed field: ${JSON.stringify(line)}`);
    }
    if (singletons.test(name) && fields.has(name)) {
      throw new Violation(`The field ${name} is there twice`);
    }
    fields.set(name, value);
  }
  if (status >= 200) {
    for (const name of ["date", "x-request-id"]) {
      if (!fields.has(name)) {
        throw new Violation(`A ${status} without the field ${name}`);
      }
    }
  }
  return { status, fields, framing: framingOf(status, fields) };
}

/** Returns how the content of a response ends (RFC 9112 section 6.3). */
function framingOf(
  status: number,
  fields: ReadonlyMap<string, string>,
): Head["framing"] {
  const length = fields.get("content-length");
  const coding = fields.get("transfer-encoding");
  if (length !== undefined && coding !== undefined) {
    throw new Violation("Both Content-Length and Transfer-Encoding");
  }
  if (length !== undefined && !/^\d{1,15}$/.test(length)) {
    throw new Violation(`A malformed Content-Length: ${length}`);
  }
  const hasNone = status < 200 || status === 204 || status === 304;
  if (hasNone && (coding !== undefined || (status === 204 && length))) {
    throw new Violation(`A ${status} that announces content`);
  }
  if (hasNone || fields.get("x-request-id")?.startsWith(headPrefix)) return 0;
  if (fields.get("content-type")?.startsWith("text/event-stream")) {
    return "live";
  }
  if (coding === "chunked") return "chunked";
  if (length !== undefined) return Number(length);
  if (/\bclose\b/i.test(fields.get("connection") ?? "")) return "close";
  throw new Violation("A response whose end cannot be told");
}

/** Checks what must be true of any response; throws a Violation. */
export function checkReceived({ status, fields, body }: Received): void {
  if (status < 400) return;
  if (status >= 500 && status !== 501 && status !== 503) {
    throw new Violation(`A ${status}: ${body.slice(0, 300)}`);
  }
  if (fields.get("x-request-id")?.startsWith(headPrefix)) return;
  const type = fields.get("content-type") ?? "";
  if (!/^application\/(?:problem\+)?json\b/.test(type)) {
    throw new Violation(`A ${status} of the type ${JSON.stringify(type)}`);
  }
  const error = parseError(body);
  if (error.status === "read-only") return; // the body of /health
  const { errorCode = 0, error: message, detail = message } = error;
  if (Math.floor(errorCode / 100) !== status || !detail) {
    throw new Violation(`A ${status} without an error: ${body.slice(0, 300)}`);
  }
}

interface ErrorBody {
  readonly errorCode?: number;
  readonly error?: string;
  readonly detail?: string;
  readonly status?: unknown;
}

function parseError(body: string): ErrorBody {
  try {
    return JSON.parse(body) as ErrorBody;
  } catch {
    throw new Violation(`An error that is not JSON: ${body.slice(0, 300)}`);
  }
}
