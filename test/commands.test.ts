/** Settings, starts and stops: CONTRACT section 1, and what stops a start in 13. */

import assert from "node:assert/strict";
import { once } from "node:events";
import { existsSync, readdirSync, readFileSync, statSync } from "node:fs";
import { type AddressInfo, connect, createServer } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import {
  beside,
  type Environment,
  fileOf,
  launch,
  outputOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "./server.ts";

const folder = temporaryFolder();
const file = (name: string, text: string) => fileOf(name, text, folder);
const busy = createServer().listen(0, "127.0.0.1").unref();
await once(busy, "listening");

/** A command that ends: its exit code, and what its output says. */
type Command = [
  words: string[],
  environment: Environment,
  exit: number,
  output: RegExp,
];
const refused: Command[] = [
  [[], { PORT: "65536" }, 2, /^.*PORT.*65,?535.*\n$/],
  [
    ["serve", "--prot=1"],
    {},
    2,
    /^(?=.*--prot\b)(?=.*--port\b)(?=.*help).*\n$/,
  ],
  [["sevre"], {}, 2, /^.*sevre.*(serve|help).*\n$/],
  [[], { BASE_URL: "api" }, 2, /^.*BASE_URL.*path.*\n$/],
  [[], { LOG: "loud" }, 2, /^.*LOG.*silent.*\n$/],
  [
    [],
    { ADMIN_PASSWORD: "123456789" },
    2,
    /^(?!.*123456789).*ADMIN_PASSWORD.*10.*\n$/,
  ],
  [
    ["--jwt-secret-file", file("short", "x".repeat(31))],
    {},
    2,
    /^.*jwt-secret-file.*32.*\n$/,
  ],
  [
    [],
    {
      SEED: file(
        "seed.json",
        '{"zoos":[{"name":"a","city":"b","country":"nl"}]}',
      ),
    },
    1,
    /zoos\[0\].*country/,
  ],
  [
    ["--data-dir", "/proc/none/store"],
    {},
    1,
    /^zoo-api: .*\/proc\/none.*\n$/,
  ],
  [["--data-dir", "/proc"], {}, 1, /^zoo-api: other users.*chmod 700/],
  [["--data-dir", file("plain", "")], {}, 1, /^zoo-api: EEXIST.*plain'\n$/],
  [
    [],
    { REQUIRE_IF_MATCH: "toString" },
    2,
    /^.*REQUIRE_IF_MATCH.*0 or 1.*\n$/,
  ],
  [[], { COLLECTIONS: join(folder, "none.js") }, 2, /none\.js/],
  [
    [],
    {
      COLLECTIONS: file(
        "none-declared.mjs",
        "export default () => ({ collections: [] })",
      ),
    },
    2,
    /collection/,
  ],
  [
    ["--port", String((busy.address() as AddressInfo).port)],
    {},
    1,
    /port/,
  ],
];
/** The mistakes in mistakes.ts: collection, property, what is wrong. */
const found: RegExp[] = [
  /\busers\b/,
  /a\.one.*default/,
  /a\.two/,
  /a\.three.*minimum/,
  /\ba\b.*boss.*viewer/,
  /a\.four_id.*nowhere/,
  /a\.limit/,
  /a\.five.*strong/,
  /a\.six.*pattern/,
  /a\.seven.*size/,
  /\ba\b.*nothing/,
  /\ba\b.*sort.*long/,
  /b\.c_id|c\.b_id/,
  /\ba\b.*private.*boss/,
  /b: check .*not async/,
  /b\.keep: "weeks".*"days"/,
  /"colection".*"collection"/,
  /collections\[4\]: name/,
  /e: stored.*'b'/,
  /e\.two_id: .*a\.e_url.*as/,
  /e\.three: .*date\(\)/,
  /e\.four: "five"/,
  /e\.five: .*unique/,
  /title.*"best"/,
  /roles.*Boss/,
  /a\.keep: days is 0/,
  /a\.keep: by is 'one'/,
  /a\.eight: .*vocabulary/,
  /a\.nine: unique takes a property/,
  /a\.ten: choice takes texts and/,
  /a\.eleven: date takes options/,
  /a\.Twelve: .*lower case/,
  /a\.thirteen: .*_id/,
  /a\.fourteen: maxLength is 0/,
  /a\.fifteen: .*different/,
  /a\.sixteen_id: a reference has no default/,
  /collections\[4\]: properties/,
  /b\.keep: days is undefined/,
  /e: private.*keepers/,
  /e: unique.*different/,
  /e: sort.*different/,
  /e\.keep: .*36,500/,
  /c: singular/,
  /c\.access: read.*viewer/,
];
const signIn = (origin: string, path: string, password: string) =>
  send(origin, `${path}/authorizations`, {
    body: { username: "admin", password },
  });

describe("A start", { concurrency: 3 }, () => {
  test("A stop answers what is under way, and waits for nobody for long", async () => {
    const server = await serve({ FEATURES: "imports,events" });
    const { json } = await signIn(server.origin, "/v1", "admin-password");
    const { hostname, port } = new URL(server.origin);
    const head = `Host: a\r\nAuthorization: Bearer ${json.token}\r\n`;
    const start = async (text: string) => {
      const socket = connect(Number(port), hostname, () => socket.write(text));
      socket.on("error", () => {});
      await once(socket, "connect");
      return socket;
    };
    const post = (type: string) =>
      `POST /v1/zoos HTTP/1.1\r\n${head}Content-Type: ${type}\r\nContent-Length: `;
    const zoo = JSON.stringify({ name: "a", city: "b", country: "NL" });
    await start(`${post("application/x-ndjson")}9999\r\n\r\n{`);
    const follower = await start(`GET /v1/events HTTP/1.1\r\n${head}\r\n`);
    await once(follower, "data");
    const idle = await start(`GET /health HTTP/1.1\r\nHost: a\r\n\r\n`);
    await once(idle, "data");
    const writer = await start(
      `${
        post("application/json")
      }${zoo.length}\r\nExpect: 100-continue\r\n\r\n`,
    );
    await once(writer, "data"); // the server waits for the body
    server.child.kill("SIGTERM");
    while (!/stopping on SIGTERM/.test(server.output)) {
      await once(server.child.stdout, "data");
    }
    await Promise.all([once(follower, "close"), once(idle, "close")]);
    writer.write(zoo);
    const [answer] = await once(writer, "data");
    assert.match(String(answer), /^HTTP\/1\.1 201 [^]*Connection: close/);
    const timer = setTimeout(() => server.child.kill("SIGKILL"), 60_000);
    assert.equal(await server.exit, 0, server.output);
    clearTimeout(timer);
    assert.match(server.output, /waiting for \d connections and the disk/);
  });

  for (const [index, [words, environment, exit, output]] of refused.entries()) {
    const title = [...Object.keys(environment), ...words].join(" ").replace(
      folder,
      "",
    ).replace(/ \d+$/, "");
    test(`${title} ends with ${exit}, and creates nothing`, async () => {
      const DATA_DIR = join(folder, `store${index}`);
      const start = { DATA_DIR, ...environment };
      assert.match(await outputOf(words, start, exit), output);
      assert.ok(!existsSync(DATA_DIR), "the folder is there");
    });
  }

  test("A declaration's mistakes are reported together", async () => {
    const DATA_DIR = join(folder, "declared");
    const start = { COLLECTIONS: beside("mistakes"), DATA_DIR };
    const lines = (await outputOf([], start, 2)).split("\n");
    for (const each of found) {
      assert.ok(
        lines.some((line) => line.includes("mistakes.") && each.test(line)),
        `${each} in ${lines.join("\n")}`,
      );
    }
  });

  test("A check that returns no messages refuses the record", async () => {
    const run = await serve({
      COLLECTIONS: file(
        "check.mjs",
        `const returned = {
        good: () => undefined,
        bad: () => ({ name: "must be good." }),
        promise: () => Promise.reject(new Error("secret")),
        text: () => "wrong",
        no: () => false,
        map: () => new Map(),
        number: () => ({ name: 7 }),
      };
      export default ({ collection, string }) => ({ collections: [collection({
        name: "things", singular: "thing", check: ({ name }) => returned[name](),
        access: { read: "anyone", write: "anyone", delete: "anyone" },
        properties: { name: string({ maxLength: 9 }) },
      })] });`,
      ),
      DATA_DIR: join(folder, "checked"),
    });
    const judged: unknown[] = [];
    for (
      const name of ["bad", "promise", "text", "no", "map", "number", "good"]
    ) {
      const { status, json } = await send(run.origin, "/v1/things", {
        body: { name },
      });
      judged.push(json.errors?.[0].field ?? status);
      if (status !== 201) assert.equal(json.errors[0].code, "rule");
    }
    const check = "check";
    assert.deepEqual(judged, ["name", check, check, check, check, "name", 201]);
    assert.doesNotMatch(run.output, /secret/);
    await stop(run);
  });

  test("version and help end at once", async () => {
    const version = await outputOf(["version"]);
    const help = await outputOf(["help"]);
    assert.equal(await outputOf(["--version"]), version);
    assert.equal(await outputOf(["check", "-h"]), help);
    assert.match(version, /^\d+\.\d+\.\d+\n$/);
    for (const word of ["serve", "check", "backup", "user add", "--port"]) {
      assert.ok(help.includes(word), word);
    }
  });

  test("A restart keeps records, users and tokens", async () => {
    const DATA_DIR = join(folder, "kept", "store");
    const zoo = { name: "a", city: "b", country: "NL" };
    const first = await serve({
      DATA_DIR,
      SEED: file("good.json", JSON.stringify({ zoos: [zoo] })),
      JWT_SECRET: "",
    });
    assert.equal(statSync(DATA_DIR).mode & 0o777, 0o700);
    for (const name of readdirSync(DATA_DIR)) {
      assert.equal(statSync(join(DATA_DIR, name)).mode & 0o077, 0, name);
    }
    assert.match(first.output, /listening on http:\/\/127\.0\.0\.1:[1-9]/);
    assert.doesNotMatch(first.output, /admin-password(?!")/);
    const { json: { token } } = await signIn(
      first.origin,
      "/v1",
      "admin-password",
    );
    await outputOf(["serve"], { DATA_DIR }, 1); // two servers in one folder
    assert.equal(await stop(first, "SIGINT"), 0);

    const random = readFileSync(join(DATA_DIR, "secret"), "latin1").trim();
    const bytes = Buffer.from(random, "base64url");
    assert.equal(bytes.length, 32);
    assert.ok(new Set(bytes).size > 16, "most of it is the same");

    // Flags beat the environment, the first secret signs and all verify, and what is only for an empty store is ignored.
    const secrets = `${"y".repeat(32)}\n${
      readFileSync(join(DATA_DIR, "secret"), "utf8")
    }`;
    const base = "https://api.example.com/zoo/";
    const words = [
      "--port=0",
      "--host",
      "localhost",
      "--base-url",
      base,
      "--jwt-secret-file",
      file("secrets", secrets),
      "--admin-password-file",
      file("password", "other-password\n"),
      "--seed",
      file("more.json", JSON.stringify({ zoos: [zoo, zoo] })),
    ];
    const again = launch(words, {
      PORT: "x",
      BASE_URL: "/b/",
      JWT_SECRET: "short",
      LOG: "",
      DATA_DIR,
    });
    const { origin } = new URL(await again.ready);
    assert.match(again.output, /listening on http:\/\/localhost:\d/);
    const list = await send(origin, "/zoo/v1/zoos?limit=1", {
      headers: { Host: "evil.example", "X-Forwarded-Host": "evil.example" },
    });
    assert.equal(list.headers["x-total-count"], "1");
    assert.equal(
      list.headers["link"],
      `<${base}v1/zoos?limit=1&offset=0>; rel="first", <${base}v1/zoos?limit=1&offset=0>; rel="last"`,
    );
    assert.equal(list.json[0].animals_url, `${base}v1/zoos/1/animals`);
    assert.equal(
      (await send(origin, "/zoo/v1/zoos/1")).json.link.rel,
      `collection ${base}v1/zoos`,
    );
    assert.equal(
      (await send(origin, "/zoo/v1/zoos/", {
        headers: { Host: "evil.example" },
      }))
        .headers["location"],
      `${base}v1/zoos`,
    );
    assert.equal((await send(origin, "/zoo/")).json.zoos_url, `${base}v1/zoos`);
    assert.equal((await send(origin, "/v1/zoos")).status, 404);
    assert.equal((await send(origin, "/zoo/health")).json.status, "ok");
    assert.equal(
      (await signIn(origin, "/zoo/v1", "other-password")).status,
      401,
    );
    const { json, headers } = await signIn(origin, "/zoo/v1", "admin-password");
    assert.equal(headers["location"], `${base}v1/authorizations/2`);
    assert.notEqual(json.token.split(".")[0], token.split(".")[0]);
    for (const each of [token, json.token]) {
      assert.equal(
        (await send(origin, "/zoo/v1/user", {
          headers: { Authorization: `Bearer ${each}` },
        })).status,
        200,
      );
    }
    assert.equal(await stop(again), 0);
    await outputOf(["check"], { DATA_DIR });
  });

  test("A random password of admin is in a file that the log names", async () => {
    const DATA_DIR = join(folder, "random", "store");
    const run = await serve({ ADMIN_PASSWORD: "", DATA_DIR });
    const path = join(DATA_DIR, "admin-password");
    assert.ok(run.output.includes(path), run.output);
    assert.equal(statSync(path).mode & 0o777, 0o600);
    const password = readFileSync(path, "utf8").trim();
    assert.ok(!run.output.includes(password));
    assert.equal((await signIn(run.origin, "/v1", password)).status, 201);
  });

  test("A secret is read from a file that a variable names", async () => {
    const { origin } = await serve({
      ADMIN_PASSWORD: "",
      ADMIN_PASSWORD_FILE: file("secret-password", "of the-admin\r\n"),
    });
    assert.equal((await signIn(origin, "/v1", "of the-admin")).status, 201);
  });
});
