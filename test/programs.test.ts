/** The programs of README and the guide do what they promise, on a line that loses responses, to a server that is killed. */

import assert from "node:assert/strict";
import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { writeFileSync } from "node:fs";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { blocksIn } from "./documents.ts";
import { clientsOf, send, serve, stop, temporaryFolder } from "./server.ts";

const folder = temporaryFolder();
const programs = ["README.md", "data/README.md"].flatMap(blocksIn)
  .filter(({ section }) => section === "Programs");
const kim = { username: "kim", password: "a long enough one" };
const environment = {
  DATA_DIR: join(folder, "store"),
  FEATURES: "all",
  SEED: "data/seed.json",
};
let server = await serve(environment);
let count = 0;

/** Passes connections on, and at first drops or cuts the responses of every third. */
const line = createServer((client) => {
  const { hostname, port } = new URL(server.origin);
  const upstream = connect(Number(port), hostname);
  client.pipe(upstream);
  if (++count % 3 || count > 20) upstream.pipe(client);
  else {
    upstream.once(
      "data",
      (part) => client.end(part.subarray(0, count % 2 && -20)),
    );
  }
  for (
    const [one, other] of [[client, upstream], [upstream, client]] as const
  ) {
    one.on("error", () => {}).on("close", () => other.destroy());
  }
}).listen(0, "127.0.0.1").unref();
await once(line, "listening");
const api = `http://127.0.0.1:${Object(line.address()).port}/v1`;

/** Writes the program that has some words, and returns its path. */
function write(words: string, name: string, last = "") {
  const [program, ...others] = programs.filter(({ text }) =>
    text.includes(words)
  );
  assert.ok(program && others.length === 0, words);
  const path = join(folder, name);
  const text = program.text.replace("http://localhost:3000/v1", api)
    .replace("sleep(5)", "sleep(0.1)");
  writeFileSync(path, text + last);
  return path;
}

async function signIn(body: object): Promise<string> {
  return (await send(server.origin, "/v1/authorizations", { body })).json.token;
}
const admin = await signIn({ username: "admin", password: "admin-password" });
await send(server.origin, "/v1/users", {
  headers: { Authorization: `Bearer ${admin}` },
  body: { ...kim, role: "keeper" },
});

async function until(isTrue: () => boolean) {
  while (!isTrue()) await new Promise((resolve) => setTimeout(resolve, 20));
}

test("A data provider gets a message for each field", async () => {
  const path = write("function send", "send.mjs");
  const { send } = await import(path);
  const url = `${server.origin}/v1/animals`;
  const { data, total } = await send("GET", url);
  assert.deepEqual([data.length, total], [20, 250]);
  const animal = { name: "", zoo_id: 1, animal_type_id: 12 };
  const refused = send("POST", url, animal, admin);
  await assert.rejects(refused, ({ status, body }) => {
    assert.deepEqual([status, Object.keys(body.errors)], [422, ["name"]]);
    return true;
  });
});

const skip = spawnSync("python3", ["--version"]).error && "needs Python";
test(
  "A device and a follower lose nothing, and repeat nothing",
  { skip },
  async (context) => {
    const { animals, follow } = await import(
      write("function follow", "follow.mjs", "export { animals, follow };")
    );
    context.mock.method(console, "error", () => {});
    let isDone = false;
    const next = () => isDone ? new Promise(() => {}) : signIn(kim);
    follow(api, next).catch(assert.fail);
    await until(() => animals.size === 250);
    const device = spawn("python3", [
      write(
        "def deliver",
        "device.py",
        `
for n in range(9):
    reading = {"name": "Reading", "zoo_id": 1, "animal_type_id": 12}
    deliver("/animals", reading, "key-%d" % n)
`,
      ),
    ], { stdio: ["ignore", "ignore", "inherit"] });
    process.once("exit", () => device.kill());
    const end = once(device, "exit");
    await until(() => animals.size > 252);
    await stop(server, "SIGKILL");
    server = await serve(environment);
    await until(() => animals.size > 254);
    await send(server.origin, "/v1/users/2", {
      method: "PATCH",
      headers: { Authorization: `Bearer ${admin}` },
      body: { password: kim.password },
    });
    assert.deepEqual(await end, [0, null]);
    await until(() => animals.size === 259);
    const { json } = await send(server.origin, "/v1/animals?name=Reading");
    for (const { id, name } of json) assert.equal(animals.get(id).name, name);
    assert.equal(json.length, 9);
    isDone = true;
    await stop(server);
  },
);

const [attic, bog, eleven] = [
  { name: "Attic", seats: 4 },
  { name: "Bog", latitude: 52.1, longitude: 8.5 },
  { room_id: 1, day: "2030-01-31", hour: 11, purpose: "Talk" },
];
const note = { site_id: 1, species: "Crane", seen_at: "2030-01-31T09:00:00Z" };
const examples = {
  rooms: [
    ["admin", "POST /rooms", 201, attic],
    ["member", "POST /bookings", 201, eleven],
    ["manager", "POST /bookings", 422, eleven],
    ["manager", "POST /bookings", 201, { ...eleven, hour: 12 }],
  ],
  notebook: [
    ["overseer", "POST /sites", 201, bog],
    ["observer", "POST /notes", 201, note],
    ["observer", "GET /notes/1", 200],
    ["observer2", "GET /notes/1", 404],
    ["overseer", "GET /notes/1", 200],
  ],
} as const;
for (const [name, requests] of Object.entries(examples)) {
  test(`The example ${name} keeps its promise`, async () => {
    const COLLECTIONS = `data/${name}/${name}.mjs`;
    const { origin } = await serve({ COLLECTIONS, FEATURES: "all" });
    const { expect } = clientsOf(() => origin);
    for (const [who, line, status, body] of requests) {
      await expect(status, who, line, body);
    }
  });
}
