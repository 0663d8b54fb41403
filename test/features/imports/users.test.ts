/** Users move to another data folder with the hashes of their passwords. */

import { strict as assert } from "node:assert";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { after, before, test } from "node:test";
import {
  adminPassword,
  assertError,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, startHere } from "../../in-process.ts";
import { fromLines, sendLines, toLines } from "../../lines.ts";

const password = "the password of kim";

let own: string;
let server: Server;
let token: string;
let exported: Record<string, unknown>[];
before(async () => {
  own = await temporaryFolder();
  server = await start();
  token = await server.signIn();
  // Gaps between the ids stay.
  for (const username of ["gone", "kim"]) {
    const json = { username, password, role: "keeper" };
    const answer = await server.request("POST", "/v1/users", { token, json });
    assert.equal(answer.status, 201, answer.text);
  }
  await server.request("DELETE", "/v1/users/2", { token });
  const result = await runHere([
    ...["export", "users", "--with-hashes"],
    ...["--data-dir", server.folder],
  ]);
  assert.equal(result.code, 0, result.stderr);
  exported = fromLines(result.stdout);
});
after(async () => {
  await server.stop();
  await removeFolder(own);
});

/** Imports users into a folder below that of the test. */
async function importUsers(folder: string, lines: readonly unknown[]) {
  const file = join(own, `${folder}.jsonl`);
  await writeFile(file, toLines(lines));
  const dataDir = join(own, folder);
  return await runHere(["import", "users", file, "--data-dir", dataDir]);
}

test("moved users keep their ids and times, and sign in with their old passwords", async (t) => {
  assert.deepEqual(exported.map(({ username }) => username), ["admin", "kim"]);
  const { code, stdout, stderr } = await importUsers("moved", exported);
  assert.equal(stdout, "imported 2 users, rejected 0\n", stderr);
  assert.equal(code, 0);
  const moved = await startHere({ folder: join(own, "moved") });
  t.after(() => moved.stop());
  const admin = await moved.signIn("admin", adminPassword);
  await moved.signIn("kim", password);
  const [before, after] = await Promise.all(
    [[server, token] as const, [moved, admin] as const].map(
      async ([at, token]) =>
        (await at.request("GET", "/v1/users", { token })).body,
    ),
  );
  assert.deepEqual(after, before);
  assert.deepEqual(after?.map(({ id }: { id: number }) => id), [1, 3]);
});

test("without the flag an export has no hashes, and other collections refuse it", async () => {
  const folder = ["--data-dir", server.folder];
  const { stdout } = await runHere(["export", "users", ...folder]);
  assert.deepEqual(
    fromLines(stdout),
    exported.map(({ password: _, ...user }) => user),
  );
  for (const command of [["export", "zoos"], ["user", "list"], ["check"]]) {
    const result = await runHere([...command, "--with-hashes", ...folder]);
    assert.equal(result.code, 2);
    assert.equal(result.stdout, "");
    assert.equal(
      result.stderr,
      "zoo-api: --with-hashes is only allowed with export users\n",
    );
  }
});

test("users are validated as by POST, and passwords must be hashes", async () => {
  const [admin = {}, kim = {}] = exported;
  const hash = String(kim["password"]);
  const [, , , , salt, key] = hash.split("$");
  const cases: [Record<string, unknown>, RegExp][] = [
    [{ ...kim, password }, /"password" is not the hash of a password/],
    [{ ...kim, password: 7 }, /"password" is not the hash/],
    [{ ...kim, password: `${hash}=` }, /"password" is not the hash/],
    [
      { ...kim, password: hash.replace(`$${salt}$`, `$${salt?.slice(1)}$`) },
      /"password" is not the hash/,
    ],
    ...["15$8$5", "16384$0$1", "16384$8$0", "32768$8$5", "16384$9$5", "2$8$99"]
      .map((cost): [Record<string, unknown>, RegExp] => [
        { ...kim, password: `scrypt$${cost}$${salt}$${key}` },
        /"password" is not the hash/,
      ]),
    [{ ...kim, password: undefined }, /"password" is missing/],
    [{ ...kim, username: "Kim" }, /"username"/],
    [{ ...kim, username: "admin" }, /"username" is already in use/],
    [{ ...kim, role: "boss" }, /"role" is not allowed/],
    [{ ...kim, id: 1 }, /"id" is 1: it must be/],
    [{ ...kim, tigers: 3 }, /"tigers" is not a property of a user/],
  ];
  const lines = [admin, ...cases.map(([line]) => line)];
  const { code, stdout, stderr } = await importUsers("refused", lines);
  assert.equal(code, 1);
  assert.equal(stdout, `imported 1 users, rejected ${cases.length}\n`);
  const errors = stderr.trim().split("\n");
  assert.equal(errors.length, cases.length);
  for (const [index, [, message]] of cases.entries()) {
    assert.match(errors[index] ?? "", message);
  }
  assert.ok(!stderr.includes(password), stderr);
  assert.ok(!stderr.includes(String(key)), stderr);
});

test("over HTTP a hash is only a password like any other text", async () => {
  const [, kim = {}] = exported;
  const line = { ...kim, id: undefined, username: "robin" };
  const lines = await sendLines(server, "/v1/users", {
    token,
    raw: toLines([line]),
  });
  assertError(lines, 41500);
  const json = await server.request("POST", "/v1/users", { token, json: line });
  assert.equal(json.status, 201, json.text);
  await assert.rejects(server.signIn("robin", password), /40101/);
});

test("private records without the file of the users in the same command have no owner, and the command says so", async () => {
  const place = (name: string) => join(own, name);
  await writeFile(
    place("private.mjs"),
    `export default ({ collection, string }) => ({
      collections: [collection({
        name: "notes", singular: "note", private: true,
        access: { read: "keeper", write: "keeper", delete: "keeper" },
        properties: { text: string({ maxLength: 20 }) },
      })],
    });`,
  );
  await writeFile(place("u.ndjson"), toLines(exported));
  const owner_id = exported.at(-1)?.["id"];
  const notes = place("n.ndjson");
  await writeFile(notes, toLines([{ id: 1, text: "mine", owner_id }]));
  const users = ["users", place("u.ndjson")];
  const importInto = async (store: string, words: readonly string[]) => {
    const api = ["--collections", place("private.mjs")];
    const at = ["--data-dir", place(store), ...api];
    const { code, stderr } = await runHere(["import", ...words, ...at]);
    assert.equal(code, 0, stderr);
    const { stdout } = await runHere(["export", "notes", ...at]);
    return { stderr, owners: fromLines(stdout).map((note) => note.owner_id) };
  };
  const warning =
    "zoo-api: private records of notes get no owner: owners come only with the file of the users in the same command, the output of export users --with-hashes\n";
  assert.equal((await importInto("in-turn", users)).stderr, "");
  assert.deepEqual(await importInto("in-turn", ["notes", notes]), {
    stderr: warning,
    owners: [null],
  });
  assert.deepEqual(await importInto("at-once", ["notes", notes, ...users]), {
    stderr: "",
    owners: [owner_id],
  });
});
