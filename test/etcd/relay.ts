/**
 * A relay in front of a node of etcd, which can lose its answers: the node has
 * carried out a request, and whoever sent it sees only a broken connection.
 */

import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Server } from "node:net";
import { pipeline } from "node:stream/promises";

/** The share of packets from etcd that is lost while answers are. */
const lossRate = 0.3;

/** Passes connections on to a node. */
export class Relay {
  losesAnswers = false;
  readonly #server: Server;

  /** Starts a relay to a port of this machine. */
  static async start(port: number): Promise<Relay> {
    const relay = new Relay(port);
    relay.#server.listen(0, "127.0.0.1");
    await once(relay.#server, "listening");
    return relay;
  }

  constructor(port: number) {
    this.#server = createServer((client) => {
      const node = connect(port, "127.0.0.1");
      // When either breaks, pipeline() closes both.
      pipeline(client, node).catch(() => {});
      pipeline(node, (packets) => this.#pass(packets), client).catch(() => {});
    });
  }

  /** Its address, as in `127.0.0.1:2379`. */
  get host(): string {
    return `127.0.0.1:${(this.#server.address() as AddressInfo).port}`;
  }

  stop(): void {
    this.#server.close();
  }

  async *#pass(packets: AsyncIterable<Uint8Array>): AsyncGenerator<Uint8Array> {
    for await (const packet of packets) {
      if (this.losesAnswers && Math.random() < lossRate) {
        throw new Error("the answer is lost");
      }
      yield packet;
    }
  }
}
