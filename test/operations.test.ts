/** The commands beside `serve`, step by step on a store that is served, stopped, copied, damaged and mended. */

import assert from "node:assert/strict";
import {
  appendFileSync,
  existsSync,
  readdirSync,
  readFileSync,
  rmSync,
  statSync,
  writeFileSync,
} from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import {
  type Environment,
  fileOf,
  outputOf,
  send,
  serve,
  signIn,
  stop,
  temporaryFolder,
} from "./server.ts";

const folder = temporaryFolder();
const at = (...names: string[]) => join(folder, ...names);
const file = (name: string, text: string) => fileOf(name, text, folder);

/** A command: its words, its exit code, what it prints, and what it reads. */
type Step = [
  words: string,
  exit: number,
  output: RegExp | string,
  input?: string,
];

/** Runs commands one after the other. */
async function run(
  environment: Environment,
  steps: Step[],
) {
  for (const [words, exit, expected, input] of steps) {
    const output = await outputOf(words.split(" "), environment, exit, input);
    if (typeof expected === "string") assert.equal(output, expected, words);
    else assert.match(output, expected, words);
  }
}

const seed = file(
  "seed.json",
  JSON.stringify({
    zoos: ["a", "b"].map((name) => ({ name, city: "c", country: "NL" })),
    animals: [{ zoo_id: 2, animal_type_id: 1, name: "d" }],
  }),
);

describe("Commands", { concurrency: 2 }, () => {
  test("Commands read a store that is served, and change one that is not", async () => {
    const DATA_DIR = at("one", "store");
    const environment = { DATA_DIR };
    await run(environment, [
      ["check", 1, /no such|no store/],
      ["user add robin", 1, /no store/, "password-of-robin\n"],
      ["repair", 1, /no such|no store/],
    ]);
    assert.ok(!existsSync(at("one")));
    const server = await serve({ DATA_DIR, SEED: seed, JWT_SECRET: "" });
    const { json: { token } } = await signIn(server.origin);
    const { status } = await send(server.origin, "/v1/zoos", {
      body: { name: "e", city: "f", country: "BE" },
      headers: { Authorization: `Bearer ${token}` },
    });
    assert.equal(status, 201);
    await run(environment, [
      [
        "check",
        0,
        /^zoos: 3 records, highest id 3\nanimals: 1 .*\n.*\nusers: 1 [^]*sequence \d+\n$/,
      ],
      ["user list", 0, /^1\tadmin\tadmin\t\d{4}-\S+Z\n$/],
      [
        "export zoos",
        0,
        /^(\{"id":\d,"name":"[abe]",[^\n]*"updated_at":"[^"]+Z"\}\n){3}$/,
      ],
      ["export nothing", 2, /nothing.*zoos/],
      ["export", 2, /--to/],
      ["log zoos/3", 0, /^\S+Z admin created zoos\/3\n$/],
      ["log", 0, /- created zoos\/1\n[^]*- created users\/1\n/],
      ["log animals --role x", 2, /--role/],
      ["log nothing", 2, /nothing.*zoos/],
      [`backup ${at("copy")}`, 0, /copy up to sequence \d+/],
      [`backup ${at("copy")}`, 1, /not empty/],
      ["copy http://me:password@a/b", 2, /^(?!.*password).*name a folder/],
      ["user add robin", 1, /another process/, "password-of-robin\n"],
      ["repair", 1, /another process/],
      [`import zoos ${file("none", "")}`, 1, /another process/],
    ]);
    assert.equal(await stop(server), 0);
    await run(environment, [
      [
        "user add robin --role keeper",
        0,
        /robin, keeper/,
        "password-of-robin\n",
      ],
      [
        "user add robin --role boss",
        1,
        /role.*password.*10.*username/,
        "short\n",
      ],
      ["user password admin", 0, /admin/, "password-of-admin\n"],
      ["user password nobody", 1, /nobody/, "password-of-admin\n"],
      ["user list", 0, /\n2\trobin\tkeeper\t/],
      ["user remove robin", 2, /user/],
      ["prune zoos", 2, /declared/],
      ["prune nothing", 2, /nothing/],
      ["log users", 0, /changed password\S* of users\/1\n/],
    ]);
    const again = await serve({ DATA_DIR, JWT_SECRET: "" });
    const headers = { Authorization: `Bearer ${token}` };
    assert.deepEqual(
      await Promise.all([
        signIn(again.origin),
        signIn(again.origin, "admin", "password-of-admin"),
        signIn(again.origin, "robin", "password-of-robin"),
        send(again.origin, "/v1/user", { headers }),
      ]).then((answers) => answers.map(({ status }) => status)),
      [401, 201, 201, 401],
    );
    const copy = await serve({ DATA_DIR: at("copy"), JWT_SECRET: "" });
    assert.equal((await send(copy.origin, "/v1/zoos/3")).status, 200);
    assert.equal(
      (await send(copy.origin, "/v1/user", { headers })).status,
      200,
      "the token is valid in the copy",
    );
    for (const name of readdirSync(at("copy"))) {
      assert.equal(statSync(at("copy", name)).mode & 0o077, 0, name);
    }
    await Promise.all([stop(again), stop(copy)]);
  });

  test("An export goes into another store, line by line", async () => {
    const [one, other] = [at("from", "store"), at("into", "store")];
    await stop(await serve({ DATA_DIR: one, SEED: seed }));
    await run({ DATA_DIR: one }, [[`export --to ${at("files")}`, 0, ""]]);
    assert.deepEqual(readdirSync(at("files")), [
      "animals.ndjson",
      "employees.ndjson",
      "zoos.ndjson",
    ]);
    const lines = '{"id":7,"name":"x","city":"y","country":"FR"}\n{"name":1}\n';
    const text = (name: string) =>
      readFileSync(at(name, "zoos.ndjson"), "utf8") +
      readFileSync(at(name, "animals.ndjson"), "utf8");
    await run({ DATA_DIR: other }, [
      [`import zoos ${at("missing")}`, 1, /missing/],
      [`import zoo ${seed}`, 2, /zoos, animals/],
      ["import", 2, /--from/],
      [`import --from ${at("nowhere")}`, 1, /nowhere/],
    ]);
    assert.ok(!existsSync(at("into")), "a store was created");
    await run({ DATA_DIR: other }, [
      [`import --from ${at("files")}`, 0, /imported 3, rejected 0/],
      [`export --to ${at("again")}`, 0, ""],
      [
        `import zoos ${file("zoos.jsonl", lines)}`,
        1,
        /zoos\.jsonl:2: .*name[^]*imported 1, rejected 1/,
      ],
      ["export zoos", 0, /"id":7,"name":"x"/],
    ]);
    assert.equal(text("again"), text("files"));
  });

  test("What is no longer declared is hidden until it is pruned", async () => {
    const declaration = (properties: string, more = "") =>
      `export default ({ collection, string, optional }) => ({ collections: [
      collection({ name: "teas", singular: "tea", access: { read: "anyone", write: "anyone", delete: "admin" },
        properties: { name: string({ maxLength: 9 })${properties} } }), ${more}] });`;
    const cups =
      `collection({ name: "cups", singular: "cup", access: { read: "anyone", write: "anyone", delete: "admin" }, properties: { size: string({ maxLength: 9 }) } })`;
    const whole = file(
      "whole.mjs",
      declaration(", note: optional(string({ maxLength: 9 }))", cups),
    );
    const environment = {
      DATA_DIR: at("teas", "store"),
      COLLECTIONS: file("less.mjs", declaration("")),
      FEATURES: "evolution",
    };
    const server = await serve({ ...environment, COLLECTIONS: whole });
    for (
      const [name, body] of [
        ["teas", { name: "green", note: "hot" }],
        ["cups", { size: "big" }],
      ] as const
    ) {
      assert.equal(
        (await send(server.origin, `/v1/${name}`, { body })).status,
        201,
      );
    }
    await stop(server);
    await run({ ...environment, COLLECTIONS: whole }, [
      ["prune teas.note", 2, /declared/],
    ]);
    await run(environment, [
      ["check", 0, /cups: 1 records, highest id 1; not declared/],
      ["prune teas.note", 0, /1 values of teas\.note/],
      ["prune cups", 0, /1 records of cups/],
    ]);
    await run({ ...environment, COLLECTIONS: whole }, [
      ["export teas", 0, /"note":null/],
      ["export cups", 0, ""],
      ["check --features none", 2, /evolution/],
    ]);
  });

  test("Damage is told by its place, and repaired on demand", async () => {
    const DATA_DIR = at("damaged", "store");
    const environment = { DATA_DIR, PORT: "0" };
    await stop(await serve({ DATA_DIR, SEED: seed, JWT_SECRET: "" }));
    const log = join(DATA_DIR, "wal-1.jsonl");
    appendFileSync(log, '{"crc":"00000000","seq":');
    await run(environment, [[
      "check",
      1,
      /wal-1.*byte \d+, line \d+.*torn|cut/,
    ]]);
    const server = await serve({ DATA_DIR });
    assert.match(server.output, /byte \d+.*interrupted/);
    await stop(server);
    const bytes = readFileSync(log);
    bytes[bytes.indexOf('"city"') + 2] = 0x58;
    writeFileSync(log, bytes);
    await run(environment, [
      ["serve", 1, /wal-1.*byte \d+, line \d+.*repair/],
      ["check", 2, /wal-1.*byte \d+, line \d+/],
      ["export zoos", 1, /wal-1.*repair/],
      ["repair --dry-run", 2, /wal-1.*byte \d+[^]*zoos\/1/],
    ]);
    assert.deepEqual(readFileSync(log), bytes, "a dry run changes nothing");
    await run(environment, [
      ["repair", 0, /repaired[^]*damaged-\d+/],
      ["check", 0, /sequence \d/],
    ]);
    await stop(await serve({ DATA_DIR, JWT_SECRET: "" }));
    writeFileSync(join(DATA_DIR, "snapshot-2.jsonl"), "x", { flag: "r+" });
    await run(environment, [
      ["repair", 0, /line 1:/],
      ["check", 0, /users: 1 records/],
    ]);
    for (const name of readdirSync(DATA_DIR)) {
      if (/-\d+\./.test(name)) rmSync(join(DATA_DIR, name));
    }
    await run(environment, [
      ["serve", 1, /missing.*repair/],
      ["repair", 0, /repaired/],
      ["check", 0, /zoos: 0 records, highest id \d{9}/],
    ]);
  });

  test("init writes a declaration that serves", async () => {
    const COLLECTIONS = at("plants.mjs");
    await run({}, [
      [`init ${at("plants.ts")}`, 2, /\.js or \.mjs/],
      [`init ${at("no", "plants.js")}`, 1, /no such.*plants\.js/],
      [`init ${COLLECTIONS}`, 0, /--collections/],
      [`init ${COLLECTIONS}`, 1, /exist/],
      ["init", 2, /FILE/],
    ]);
    assert.ok(existsSync(at("zoo-api.d.ts")));
    const { origin } = await serve({ COLLECTIONS });
    assert.equal((await send(origin, "/v1/plants/1/waterings")).status, 404);
    assert.equal((await send(origin, "/v1/plants")).text, "[]");
  });

  test("A pipe gets all that a command prints", async () => {
    const lines = 4000;
    const line = JSON.stringify({
      name: "x".repeat(90),
      city: "c",
      country: "NL",
    });
    await run({ DATA_DIR: at("many", "store") }, [
      [`import zoos ${file("lines", `${line}\n`.repeat(lines))}`, 0, /4000/],
      ["export zoos", 0, new RegExp(`^(.+\\n){${lines}}$`)],
      ["log zoos", 0, new RegExp(`^(.+\\n){${lines}}$`)],
    ]);
  });
});
