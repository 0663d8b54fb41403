/** A server to compare ours with: it checks nothing, and everybody may do everything. */

import { createServer } from "node:http";
import { basename } from "node:path";
import { text } from "node:stream/consumers";

/** Serves records: one by its id, some of them, or a new one; each function returns JSON. */
export function listen(
  get: (id: string) => string,
  list: () => string,
  post: (body: string) => string,
): void {
  const server = createServer(async (message, response) => {
    const { method, url = "" } = message;
    response.setHeader("Content-Type", "application/json");
    if (method === "POST") {
      response.writeHead(201).end(post(await text(message)));
    } else response.end(url.includes("?") ? list() : get(basename(url)));
  }).listen(0, () => {
    const { port } = Object(server.address());
    console.log(`listening on http://127.0.0.1:${port}`);
  });
}
