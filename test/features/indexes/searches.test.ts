/** Many searches at once: they wait, and nobody else does. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import { after, before, test } from "node:test";
import { openDataFolder } from "../../../src/data-folder.ts";
import { sample } from "../../collections.ts";
import {
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { commit } from "../../commit.ts";

const count = 20_000;
let parent: string;
let server: Server;

before(async () => {
  parent = await temporaryFolder();
  const folder = join(parent, "store");
  const store = await openDataFolder(folder, sample);
  const at = "2026-01-01T00:00:00.000Z";
  const times = { created_at: at, updated_at: at };
  const zoo = { name: "Tierpark", city: "Berlin", country: "DE" };
  await commit(store, [["put", "zoos", { id: 1, ...zoo, ...times }]], 0);
  await commit(
    store,
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

test("any number of searches at once are carried out, and other requests do not wait", async () => {
  const sockets = await open(256);
  let received = 0;
  const answers = sockets.map(async (socket) => {
    const answer = await receive(socket);
    received++;
    return answer;
  });
  search(sockets);
  const record = await server.request("GET", `/v1/animals/${count}`);
  assert.equal(record.status, 200);
  assert.equal(record.body.name, "Zora");
  assert.ok(received < 256, "the searches have not ended");
  for (const { status, head, body } of await Promise.all(answers)) {
    assert.equal(status, 200);
    assert.match(head, /^X-Total-Count: 1$/m);
    assert.equal(body[0].id, count);
  }
});

test("a client that searches much does not delay one that searches once", async () => {
  const crowd = await open(64);
  let received = 0;
  const answers = crowd.map(async (socket) => {
    await receive(socket);
    received++;
  });
  search(crowd);
  const other = connect({
    port: server.port,
    host: "127.0.0.1",
    localAddress: "127.0.0.9",
  });
  await once(other, "connect");
  search([other]);
  assert.equal((await receive(other)).status, 200);
  assert.ok(received < 32, `after ${received} of the others`);
  await Promise.all(answers);
});

test("a search stops when its client disconnects", async () => {
  const left = await open(256);
  search(left);
  for (const socket of left) socket.destroy();
  // By the last response, the server has read that the connections were closed.
  for (let round = 0; round < 3; round++) {
    const { status } = await server.request("GET", "/v1/zoos/1");
    assert.equal(status, 200);
  }
  const sockets = await open(16);
  search(sockets);
  for (const { status, body } of await Promise.all(sockets.map(receive))) {
    assert.equal(status, 200);
    assert.equal(body[0].id, count);
  }
  assert.doesNotMatch(server.output(), /error/i);
});
