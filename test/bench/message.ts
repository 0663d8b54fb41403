/** Requests as the programs that measure send them. */

import { Buffer } from "node:buffer";

/** One request. */
export interface Message {
  readonly method: string;
  readonly path: string;
  readonly token?: string;
  /** JSON, if `headers` do not say otherwise. */
  readonly body?: string;
  readonly headers?: Readonly<Record<string, string>>;
}

/** Returns the header fields of a message, but Host and Content-Length. */
export function headersOf(
  { token, body, headers }: Message,
): Record<string, string> {
  return {
    ...(token && { Authorization: `Bearer ${token}` }),
    ...(body && { "Content-Type": "application/json" }),
    ...headers,
  };
}

/** Returns a message as it is sent. */
export function textOf(message: Message): string {
  const { method, path, body = "" } = message;
  const length = Buffer.byteLength(body);
  const lines = Object.entries({
    Host: "localhost",
    ...headersOf(message),
    ...(length > 0 && { "Content-Length": length }),
  }).map(([name, value]) => `${name}: ${value}\r\n`);
  return `${method} ${path} HTTP/1.1\r\n${lines.join("")}\r\n${body}`;
}
