/** Clients that send CONNECT while earlier responses are pending: node:http then leaves the socket to the server. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { test } from "node:test";
import {
  type OutgoingResponse,
  type Response,
  send,
} from "../../src/http/connection.ts";
import { listen, type Listener } from "../../src/http/server.ts";
import { exchange } from "../harness.ts";

const bytes = "GET / HTTP/1.1\r\nHost: a\r\n\r\n" +
  "CONNECT a:1 HTTP/1.1\r\nHost: a:1\r\n\r\n";
const body = "x".repeat(8 << 20);

const longResponses: readonly [string, Partial<Response>][] = [
  ["a large response", { body }],
  ["a stream", {
    stream: async function* () {
      for (let at = 0; at < body.length; at += 1 << 16) {
        yield body.slice(at, at + (1 << 16));
      }
    },
  }],
];

/** Waits until a socket is closed, also by an error. */
function closeOf(socket: Socket): Promise<unknown> {
  return new Promise((resolve) => socket.once("close", resolve));
}

/**
 * A server of the test that starts it, which fails if the server throws: it
 * receives a GET and a CONNECT, and leaves the response to the GET to the test.
 */
async function receiveBoth(): Promise<
  { listener: Listener; client: Socket; outgoing: OutgoingResponse }
> {
  let resolve: (response: OutgoingResponse) => void;
  const received = new Promise<OutgoingResponse>((settle) => resolve = settle);
  const listener = await listen((response) => resolve(response), {
    host: "127.0.0.1",
    port: 0,
  });
  const client = connect(listener.port, "127.0.0.1");
  client.on("error", () => {}).write(bytes);
  return { listener, client, outgoing: await received };
}

for (const [name, response] of longResponses) {
  const full = { status: 200, headers: [], ...response };
  // Without an end to the time, a response that stops would stop the tests.
  const timeout = 30_000;

  test(`a client gets all of ${name} before its CONNECT, then 501`, {
    timeout,
  }, async () => {
    const listener = await listen((outgoing) => send(outgoing, full, []), {
      host: "127.0.0.1",
      port: 0,
    });
    const received = await exchange(listener.port, bytes);
    assert.deepEqual(received.match(/HTTP\/1\.1 \d+/g), [
      "HTTP/1.1 200",
      "HTTP/1.1 501",
    ]);
    assert.equal(received.match(/x{64}/g)?.length, body.length / 64);
    await listener.close(0);
  });

  test(
    `a client that leaves before ${name} and its CONNECT frees the connection`,
    {
      timeout,
    },
    async () => {
      const { listener, client, outgoing } = await receiveBoth();
      const closed = once(outgoing, "close");
      client.destroy();
      await once(client, "close");
      send(outgoing, full, []);
      await closed;
      assert.equal(outgoing.req.socket.destroyed, true);
      await listener.close(0);
    },
  );
}

test("a client that resets its connection while the response before its CONNECT is pending ends nothing else", async () => {
  const { listener, client, outgoing } = await receiveBoth();
  const closed = closeOf(outgoing.req.socket);
  client.resetAndDestroy();
  await closed;
  await listener.close(0);
});

test("a client that resets its connection in the middle of the response before its CONNECT ends nothing else", async () => {
  const { listener, client, outgoing } = await receiveBoth();
  const closed = closeOf(outgoing.req.socket);
  send(outgoing, { status: 200, headers: [], body }, []);
  await once(client, "readable");
  client.resetAndDestroy();
  await closed;
  await listener.close(0);
});
