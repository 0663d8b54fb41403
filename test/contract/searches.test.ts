/** Overload: more searches than the server can queue. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openDataFolder } from "../../src/data-folder.ts";
import { sample } from "../collections.ts";
import {
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";

// One search runs and at most 32 wait.
const maxSearches = 33;

const count = 75_000;
let parent: string;
let server: Server;

before(async () => {
  parent = await temporaryFolder();
  const folder = join(parent, "store");
  const store = await openDataFolder(folder, sample);
  const at = "2026-01-01T00:00:00.000Z";
  const times = { created_at: at, updated_at: at };
  const zoo = { name: "Tierpark", city: "Berlin", country: "DE" };
  await store.commit([["put", "zoos", { id: 1, ...zoo, ...times }]], 0);
  await store.commit(
    Array.from({ length: count }, (_, place) => {
      const id = place + 1;
      const name = id === count ? "Zora" : `Animal ${id}`;
      const own = { zoo_id: 1, animal_type_id: 1, name };
      return ["put", "animals", { id, ...own, ...times }];
    }),
    0,
  );
  await store.close();
  server = await start({ folder });
});

after(async () => {
  await server.stop();
  await removeFolder(parent);
});

/** Opens connections. */
function open(number: number): Promise<Socket[]> {
  return Promise.all(
    Array.from({ length: number }, async () => {
      const socket = connect(server.port, "127.0.0.1");
      await once(socket, "connect");
      return socket;
    }),
  );
}

/** Sends a search on each connection. */
function search(sockets: readonly Socket[]): void {
  for (const socket of sockets) {
    socket.write(
      "GET /v1/animals?name:contains=ZORA HTTP/1.1\r\n" +
        "Host: a.example\r\nConnection: close\r\n\r\n",
    );
  }
}

/** Receives the response until the server closes the connection. */
async function receive(socket: Socket) {
  let text = "";
  for await (const part of socket.setEncoding("utf8")) text += part;
  const [head = "", body = ""] = text.split("\r\n\r\n");
  return { status: Number(head.slice(9, 12)), head, body: JSON.parse(body) };
}

test("too many searches at once are refused, other requests are not", async () => {
  const sockets = await open(80);
  const answers = sockets.map(receive);
  search(sockets);
  const record = await server.request("GET", `/v1/animals/${count}`);
  assert.equal(record.status, 200);
  assert.equal(record.body.name, "Zora");
  let found = 0;
  let refused = 0;
  for (const { status, head, body } of await Promise.all(answers)) {
    if (status === 200) {
      found++;
      assert.match(head, /^X-Total-Count: 1$/m);
      assert.equal(body[0].id, count);
      continue;
    }
    refused++;
    assert.equal(status, 503);
    assert.equal(body.errorCode, 50302);
    assert.match(body.errorMsg, /^Too many searches are waiting/);
    assert.match(head, /^Retry-After: \d+$/m);
  }
  assert.ok(found >= maxSearches, `${found}`);
  assert.ok(refused > 0);
  const path = "/v1/animals?name:contains=ZORA";
  const again = await server.request("GET", path);
  assert.equal(again.headers.get("x-total-count"), "1");
});

test("a search stops when its client disconnects", async () => {
  const left = await open(80);
  const sockets = await open(maxSearches);
  const refused = left.map(async (socket) => {
    assert.equal((await receive(socket)).status, 503);
  });
  search(left);
  await Promise.any(refused); // no more fit in the queue
  for (const socket of left) socket.destroy();
  // By the last response, the server has read that the connections were closed.
  for (let round = 0; round < 3; round++) {
    const { status } = await server.request("GET", "/v1/zoos/1");
    assert.equal(status, 200);
  }
  search(sockets);
  for (const { status, body } of await Promise.all(sockets.map(receive))) {
    assert.equal(status, 200);
    assert.equal(body[0].id, count);
  }
  assert.doesNotMatch(server.output(), /error/i);
});
