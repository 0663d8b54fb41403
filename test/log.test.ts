/** The command `log`: who changed what, as far back as a folder holds logs. */

import { strict as assert } from "node:assert";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { openStore } from "../src/store/store.ts";
import {
  removeFolder,
  start,
  storedAdmin,
  temporaryFolder,
} from "./harness.ts";
import { runHere } from "./in-process.ts";
import { commit } from "./commit.ts";

const time = /^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z /gm;
const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const animal = { zoo_id: 1, animal_type_id: 7, name: "Momo" };
const kim = { username: "kim", role: "keeper", password: "a long enough one" };

/** Prints the log of a folder without the times. */
async function logOf(folder: string, ...args: string[]): Promise<string> {
  const printed = await runHere(["log", ...args, "--data-dir", folder]);
  assert.equal(printed.code, 0, printed.stderr);
  const lines = printed.stdout.match(/\n/g)?.length ?? 0;
  assert.equal(printed.stdout.match(time)?.length ?? 0, lines, printed.stdout);
  return printed.stdout.replace(time, "");
}

async function folderOf(t: TestContext): Promise<string> {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  return join(folder, "store");
}

test("prints what users changed while the server runs, without secrets", async (t) => {
  const server = await start();
  t.after(() => server.stop());
  const { folder } = server;
  const admin = await server.signIn();
  const send = async (
    token: string,
    method: string,
    path: string,
    json?: unknown,
  ) => {
    const { status, text } = await server.request(method, path, {
      token,
      json,
      headers: { "idempotency-key": `${method} ${path}`.replace(" ", "-") },
    });
    assert.ok(status < 300, text);
  };
  await send(admin, "POST", "/v1/users", kim);
  const token = await server.signIn("kim", kim.password);
  await send(token, "POST", "/v1/zoos", zoo);
  await send(token, "POST", "/v1/animals", animal);
  await send(token, "PATCH", "/v1/animals/1", { name: "Bo", weight_kg: 5.5 });
  await send(admin, "PATCH", "/v1/users/2", { password: "another long one" });
  await send(admin, "DELETE", "/v1/users/2");
  await send(admin, "DELETE", "/v1/zoos/1?cascade=true");

  const created = [
    '- created users/1 username="admin" role="admin" password=(secret)\n',
    'admin created users/2 username="kim" role="keeper" password=(secret)\n',
    'kim created zoos/1 name="Artis" city="Amsterdam" country="NL" opened_on=null website=null\n',
    'kim created animals/1 zoo_id=1 animal_type_id=7 name="Momo" species=null sex="unknown" born_on=null weight_kg=null\n',
  ];
  const changed = 'kim changed animals/1 name="Bo" weight_kg=5.5\n';
  const deleted = "admin deleted animals/1\nadmin deleted zoos/1\n";
  const ends =
    "admin changed users/2 password=(secret)\nadmin deleted users/2\n";
  assert.equal(
    await logOf(folder),
    created.join("") + changed + ends + deleted,
  );
  assert.equal(
    await logOf(folder, "--user", "KIM "),
    created.slice(2).join("") + changed,
  );
  assert.equal(
    await logOf(folder, "animals/1", "--user", "kim"),
    created[3] + changed,
  );
  assert.equal(
    await logOf(folder, "users", "--user", "admin"),
    created[1] + ends,
  );
  assert.equal(await logOf(folder, "animals/11"), "");
  assert.equal(await logOf(folder, "--user", "ki"), "");
});

test("begins with the oldest log, and knows what the snapshot before it holds", async (t) => {
  const folder = await folderOf(t);
  const tables = ["users", "zoos", "visits", "authorizations"].map((name) => ({
    name,
  }));
  const store = await openStore({ folder, tables });
  const artis = { id: 1, ...zoo };
  await commit(store, [["put", "users", storedAdmin]], 0);
  await commit(store, [["put", "zoos", artis]], 1);
  for (const city of ["Berlin", "Bonn", "Basel"]) {
    await store.checkpoint();
    await commit(store, [["put", "zoos", { ...artis, city }]], 1);
  }
  // A deleted user, and data that is no longer declared.
  await commit(store, [["del", "zoos", 1]], 9);
  const visit = {
    ...{ id: 1, guide_name: "Kim", created_at: artis.name },
    _deletion: "7 2026-01-01",
  };
  await commit(store, [["put", "visits", visit]], 1);
  await commit(store, [["rename", "visits", "guide_name", "guide"]], 0);
  await commit(store, [["put", "authorizations", { id: 1, user_id: 1 }]], 1);
  await store.close();
  const latest = 'admin changed zoos/1 city="Bonn"\n' +
    'admin changed zoos/1 city="Basel"\n';
  const hidden = 'admin created visits/1 guide_name="Kim"\n' +
    "- renamed visits.guide_name to guide\n";
  assert.equal(await logOf(folder), `${latest}#9 deleted zoos/1\n${hidden}`);
  assert.equal(await logOf(folder, "--user", "#9"), "#9 deleted zoos/1\n");
  // Of the user 1, whatever the name is.
  const own = latest + hidden.split("- renamed")[0];
  assert.equal(await logOf(folder, "--user", "#1"), own);
});

test("prints all changes of a record whose collection was renamed, but none of those whose name it got", async (t) => {
  const folder = await folderOf(t);
  const tables = ["beasts", "zoos", "animals"].map((name) => ({ name }));
  const store = await openStore({ folder, tables });
  const put = (of: string, name: string) =>
    commit(store, [["put", of, { id: 1, name }]], 0);
  await put("zoos", "Artis");
  await put("animals", "Momo");
  await commit(store, [["rename", "animals", "beasts"]], 0);
  await commit(store, [["rename", "zoos", "animals"]], 0);
  await commit(store, [["rename", "beasts", "zoos"]], 0);
  await put("zoos", "Bo");
  await commit(store, [["rename", "zoos", "name", "title"]], 0);
  await store.close();
  const record =
    '- created animals/1 name="Momo"\n- changed zoos/1 name="Bo"\n';
  assert.equal(await logOf(folder, "zoos/1"), record);
  assert.equal(
    await logOf(folder, "zoos"),
    record.replace(
      "\n",
      "\n- renamed animals to beasts\n- renamed beasts to zoos\n",
    ) + "- renamed zoos.name to title\n",
  );
  assert.equal(
    await logOf(folder, "animals"),
    '- created zoos/1 name="Artis"\n- renamed zoos to animals\n',
  );
});

test("prints what precedes damage, and ignores a torn write", async (t) => {
  const folder = await folderOf(t);
  const store = await openStore({ folder, tables: [{ name: "zoos" }] });
  for (const city of ["Berlin", "Bonn", "Basel"]) {
    await commit(store, [["put", "zoos", { id: 1, city }]], 0);
  }
  await store.close();
  const file = join(folder, "wal-1.jsonl");
  const whole = await readFile(file, "utf8");
  await writeFile(file, `${whole}{"crc":"01234567","se`);
  const all = await logOf(folder, "zoos/1");
  assert.equal(all.match(/\n/g)?.length, 3);
  const none = await runHere(["log", "--user", "kim", "--data-dir", folder]);
  assert.deepEqual([none.code, none.stdout], [0, ""]);
  assert.equal(none.stderr, "log: there are no such changes\n");

  await writeFile(file, whole.replace("Bonn", "Born"));
  const damaged = await runHere(["log", "--data-dir", folder]);
  assert.equal(damaged.code, 1);
  assert.equal(
    damaged.stdout.replace(time, ""),
    '- created zoos/1 city="Berlin"\n',
  );
  assert.match(damaged.stderr, /^zoo-api: .* wal-1\.jsonl is damaged .*line 3/);
});

for (
  const [args, message] of [
    [
      ["log", "lions"],
      /^zoo-api: log: unknown collection "lions": one of zoos/,
    ],
    [["log", "zoos/07"], /log: "zoos\/07" names no record: use zoos\/7\n/],
    [["log", "zoos/"], /log: "zoos\/" names no record/],
    [["log", "zoos/1/2"], /log: "zoos\/1\/2" names no record/],
    [["log", "authorizations"], /unknown collection "authorizations"/],
    [["log", "zoos", "1"], /unexpected argument "1"/],
    [["export", "zoos", "--user", "kim"], /--user is only allowed with log/],
    [["log", "--role", "admin"], /--role is only allowed with user add/],
  ] as const
) {
  test(`refuses ${args.join(" ")}`, async () => {
    const { code, stderr } = await runHere(args);
    assert.equal(code, 2);
    assert.match(stderr, message);
  });
}
