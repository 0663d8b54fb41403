/** Requests with NDJSON, and the tasks of imports. */

import { setTimeout as wait } from "node:timers/promises";
import type { Answer, Body, RequestOptions } from "./harness.ts";

/** The media type of NDJSON. */
export const lines = "application/x-ndjson";

/** A server, or an application in this process. */
interface Target {
  request(
    method: string,
    path: string,
    options?: RequestOptions,
  ): Promise<Answer>;
}

/** Encodes records as NDJSON. */
export function toLines(records: readonly unknown[]): string {
  return records.map((record) => `${JSON.stringify(record)}\n`).join("");
}

/** Decodes NDJSON. */
export function fromLines(text: string): Body[] {
  return text.split("\n").slice(0, -1).map((line) => JSON.parse(line));
}

/** Sends NDJSON. */
export function sendLines(
  target: Target,
  path: string,
  { headers, ...options }: RequestOptions,
): Promise<Answer> {
  const type = { "content-type": lines };
  return target.request("POST", path, {
    ...options,
    headers: { ...type, ...headers },
  });
}

/** Requests a collection as NDJSON. */
export function fetchLines(
  target: Target,
  path: string,
  token?: string,
): Promise<Answer> {
  return target.request("GET", path, { token, headers: { accept: lines } });
}

/** Requests a task until it meets a condition. */
export async function taskWhen(
  target: Target,
  { url, token, until }: {
    readonly url: string;
    readonly token: string;
    readonly until: (task: Body) => boolean;
  },
): Promise<Body> {
  while (true) {
    const { status, text, body } = await target.request("GET", url, { token });
    if (status !== 200) throw new Error(text);
    if (until(body)) return body;
    await wait(2);
  }
}

/** Sends NDJSON, waits until its task ends, and returns the task. */
export async function importLines(
  target: Target,
  path: string,
  options: RequestOptions & { readonly token: string },
): Promise<Body> {
  const { status, text, body } = await sendLines(target, path, options);
  if (status !== 202) throw new Error(text);
  return await taskWhen(target, {
    url: body.url,
    token: options.token,
    until: ended,
  });
}

/** Returns whether a task has ended. */
export function ended({ status }: { readonly status: string }): boolean {
  return status === "succeeded" || status === "failed";
}
