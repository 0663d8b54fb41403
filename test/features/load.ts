/** Servers with small heaps, and the load that they must bear: CONTRACT sections 9 and 16. */

import assert from "node:assert/strict";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import {
  clientsOf,
  fileOf,
  serve,
  signIn,
  stop,
  temporaryFolder,
} from "../server.ts";

const folder = temporaryFolder();
const COLLECTIONS = fileOf(
  "notes.mjs",
  `export default ({ collection, text, optional, reference }) => ({ collections: [collection({
    name: "notes", singular: "note",
    access: { read: "anyone", write: "viewer", delete: "viewer" },
    properties: { text: text({ maxLength: 200000 }), note_id: optional(reference("notes")) },
  })] });`,
);
/** Returns the settings of a server with a heap of some MiB. */
export const start = (mebibytes: string, name = "store") => ({
  COLLECTIONS,
  DATA_DIR: join(folder, name),
  FEATURES: "all",
  NODE_OPTIONS: `--max-old-space-size=${mebibytes}`,
});

/** Starts a server, and returns what sends requests as admin. */
export async function open(...[mebibytes, name]: Parameters<typeof start>) {
  const server = await serve(start(mebibytes, name));
  const clients = clientsOf(() => server.origin);
  const { request } = clients;
  const create = (note_id: number | null = null) =>
    request("admin", "POST /notes", { text: "a".repeat(150_000), note_id });
  /** Creates records on eight connections until there is no room. */
  const fill = () =>
    Promise.all(Array.from({ length: 8 }, async () => {
      for (;;) {
        const { status, json } = await create(1);
        if (status === 201) continue;
        return assert.equal(json.errorCode, 50303);
      }
    }));
  const health = async () => (await request("admin", "GET //health")).json;
  return { server, ...clients, create, fill, health };
}

const paths = [
  "?expand=note&limit=100",
  "?text:contains=b",
  "?limit=100",
  "?aggregate=count&by=note_id",
];

/** Sends many requests on 64 connections that read nothing, from an address. */
export function besiege(origin: string, localAddress = "127.0.0.1") {
  return Array.from({ length: 64 }, (_, at) => {
    const kind = at % 3 === 0 ? "Accept: application/x-ndjson\r\n" : "";
    const head = `GET /v1/notes${
      paths[at % 4]
    } HTTP/1.1\r\nHost: a\r\n${kind}\r\n`;
    const { port, hostname: host } = new URL(origin);
    const socket = connect({ port: Number(port), host, localAddress })
      .on("error", () => {});
    socket.write(head.repeat(1000));
    return socket.pause();
  });
}

const several = (count: number, client: (at: number) => Promise<void>) =>
  Promise.all(Array.from({ length: count }, (_, at) => client(at)));

/** Besieges servers with several heaps again and again; ordinary clients must notice nothing. */
export async function siege(rounds: number) {
  const heaps = process.env["HEAPS"] ?? "64,100,700";
  for (const mebibytes of heaps.split(",")) {
    const { server, create, fill, expect } = await open(mebibytes, mebibytes);
    let round = 0;
    const work = async () => {
      await create();
      for (; round < rounds; round++) {
        await fill();
        // Clients take turns by address, so the ordinary ones have another.
        const sockets = besiege(server.origin, "127.0.0.2");
        await several(4, async (client) => {
          const path = `/notes/${client + 2}`;
          for (let count = 10; count < 35; count++) {
            // Nothing that waits for a turn, which takes long on a slow machine.
            await expect(200, "admin", "GET /notes?limit=3&fields=note_id");
            await expect(201, "admin", `PATCH ${path}`, { text: `${count}` });
            await expect(200, "admin", `GET ${path}`);
          }
          assert.equal((await signIn(server.origin)).status, 201);
          await expect(
            204,
            "admin",
            `DELETE /notes/${10 + 4 * round + client}`,
          );
          const { status, json } = await create(1);
          assert.equal(json.errorCode ?? status, status === 201 ? 201 : 50303);
        });
        for (const socket of sockets) socket.destroy();
      }
    };
    await work().catch(async (error) => {
      const code = await stop(server);
      const what = `${mebibytes} MiB, siege ${round}: ${error}; exit ${code}`;
      assert.fail(`${what}: ${server.output}`);
    });
    console.log(`${mebibytes} MiB: ${rounds} sieges`);
    await stop(server);
  }
}

/** Lets 256 clients work as they do every day; nobody is refused. */
export async function ordinary(rounds: number) {
  const { server, expect } = await open("700", "ordinary");
  await several(256, async (client) => {
    for (let round = 0; round < rounds; round++) {
      const text = `Note ${client}`;
      const { json } = await expect(201, "admin", "POST /notes", { text });
      await expect(200, "admin", `GET /${json.url}`);
      await expect(201, "admin", `PATCH /${json.url}`, {
        text: `${text} again`,
      });
      await expect(200, "admin", `GET /notes?text:contains=${client}&limit=5`);
      await expect(204, "admin", `DELETE /${json.url}`);
    }
  });
  await stop(server);
}
