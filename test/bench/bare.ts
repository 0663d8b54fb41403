/**
 * The upper bounds. To a GET it always sends the same bytes, header and body,
 * as plain node:http does. It appends the body of any other request to a file
 * and responds when that is on the disk, with one fdatasync for all bodies that
 * arrived meanwhile. It routes nothing and checks nothing. The bytes come from
 * standard input.
 */

import { Buffer } from "node:buffer";
import { open } from "node:fs/promises";
import { createServer, type ServerResponse } from "node:http";
import process from "node:process";
import { text } from "node:stream/consumers";

const { file: path, read, written } = JSON.parse(await text(process.stdin));
const file = await open(path, "a");
let waiting: {
  readonly chunks: Buffer[];
  readonly response: ServerResponse;
}[] = [];
let running = false;

interface Fixed {
  readonly fields: Record<string, string>;
  readonly body: string;
}

function answer(
  response: ServerResponse,
  status: number,
  { fields, body }: Fixed,
): void {
  response.writeHead(status, fields);
  response.end(body);
}

async function append(): Promise<void> {
  running = true;
  while (waiting.length > 0) {
    const batch = waiting;
    waiting = [];
    await file.write(Buffer.concat(batch.flatMap(({ chunks }) => chunks)));
    await file.datasync();
    for (const { response } of batch) answer(response, 201, written);
  }
  running = false;
}

const server = createServer((request, response) => {
  if (request.method === "GET") return answer(response, 200, read ?? written);
  const chunks: Buffer[] = [];
  request.on("data", (chunk: Buffer) => chunks.push(chunk));
  request.on("end", () => {
    waiting.push({ chunks, response });
    if (!running) append();
  });
});
server.listen(0, "127.0.0.1", () => {
  const address = server.address();
  const port = typeof address === "object" ? address?.port : 0;
  process.stdout.write(`listening on http://127.0.0.1:${port} \n`);
});
process.on("SIGTERM", () => process.exit(0));
