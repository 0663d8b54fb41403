/** A server with the sample records, and requests to it as its admin. */

import assert from "node:assert/strict";
import { join } from "node:path";
import process from "node:process";
import { authorize, type Environment, send, serve, stop } from "../server.ts";

export const password = "admin-password";

export async function startSite(environment: Environment = {}) {
  const server = await serve({
    FEATURES: "all",
    SEED: join(process.cwd(), "data/seed.json"),
    ...environment,
  });
  const { origin } = server;
  const admin = await authorize(origin);
  /** Sends a request as the admin, and returns the body of its success. */
  const request = async (
    method: string,
    path: string,
    body?: unknown,
    type = "application/json",
  ) => {
    const headers = {
      ...admin,
      ...(body !== undefined && { "Content-Type": type }),
    };
    const answer = await send(origin, `/v1/${path}`, { method, headers, body });
    assert.ok(answer.status < 300, answer.text);
    return answer.json;
  };
  return { origin, request, close: () => stop(server) };
}

export type Site = Awaited<ReturnType<typeof startSite>>;
