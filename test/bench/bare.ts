/** A bare node:http server that answers every request with the same bytes: the ceiling. The bytes come from standard input. */

import { createServer } from "node:http";
import { text } from "node:stream/consumers";
import { Buffer } from "node:buffer";
import process from "node:process";

const body = await text(process.stdin);

const server = createServer((_request, response) => {
  response.writeHead(200, {
    "Content-Type": "application/json; charset=utf-8",
    "Content-Length": Buffer.byteLength(body),
  });
  response.end(body);
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  process.stdout.write(`listening on http://127.0.0.1:${port} \n`);
});
process.on("SIGTERM", () => process.exit(0));
