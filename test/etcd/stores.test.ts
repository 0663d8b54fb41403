/** Stores that share their records through etcd, without the API. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { cp, mkdir, readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test, type TestContext } from "node:test";
import { setTimeout as wait } from "node:timers/promises";
import { crc32 } from "node:zlib";
import { EtcdClient, Lease } from "../../src/etcd/client.ts";
import { loadSharedSecret } from "../../src/etcd/feature.ts";
import { copyToEtcd, openEtcdStore, scanEtcd } from "../../src/etcd/open.ts";
import type { StoreOptions } from "../../src/store/file-store.ts";
import type { EtcdOptions } from "../../src/store/shared.ts";
import type { EtcdStore } from "../../src/etcd/store.ts";
import { type Document, openStore, type Store } from "../../src/store/store.ts";
import { errorCode } from "../../src/store/error.ts";
import { realFiles } from "../../src/store/log/files.ts";
import { encodeLine } from "../../src/store/log/format.ts";
import { getOrCreateTable, Tables } from "../../src/store/memory/table.ts";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { type Fault, Gateway } from "./gateway.ts";

/** The length of the beginning of a line, which has its CRC. */
const crcLength = 18;

const key = ({ name = "" }: Document) => String(name);

/** Opens a store with a folder of its own, and closes it when the test ends. */
async function open(
  t: TestContext,
  etcd: EtcdOptions,
  options: Partial<StoreOptions> = {},
): Promise<EtcdStore> {
  const folder = await temporaryFolder();
  const store = await openEtcdStore({
    folder: join(folder, "store"),
    tables: [{ name: "zoos", indexes: { name: key } }],
    ...options,
  }, etcd);
  t.after(async () => {
    await store.close();
    await removeFolder(folder);
  });
  return store;
}

const add = (store: Store, name: string) =>
  store.settle(() => {
    const id = store.table("zoos").lastId + 1;
    return { seq: store.apply([["put", "zoos", { id, name }]], 0) };
  });

/** Returns a file as a newer version would write it. */
function ofNewerVersion(text: string): string {
  const [header = "", ...lines] = text.split("\n");
  const rest = header.slice(crcLength).replace('"format":3', '"format":4');
  return [encodeLine(rest).toString().trim(), ...lines].join("\n");
}

/** Returns a file of one transaction with other mutations. */
function withTransaction(text: string, tx: string): string {
  const [header = "", line = ""] = text.split("\n");
  const { salt } = JSON.parse(header);
  const rest = line.slice(crcLength).replace(/"tx":.*/, `"tx":${tx}}`);
  return `${header}\n${encodeLine(rest, crc32(salt))}`;
}

const namesIn = (store: Store) =>
  store.table("zoos").rows().map(({ document }) => document["name"]);

test("what one store has committed another one has after it has confirmed", async (t) => {
  const gateway = new Gateway();
  gateway.isWatchSilent = true;
  const etcd = await gateway.listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  await add(one, "Berlin");
  await other.confirm(true);
  assert.deepEqual(namesIn(other), ["Berlin"]);
  await add(other, "Vienna");
  await one.confirm(true);
  assert.deepEqual(namesIn(one), ["Berlin", "Vienna"]);
  const joined = await open(t, etcd);
  assert.deepEqual(namesIn(joined), ["Berlin", "Vienna"]);
  assert.equal(joined.seq, 2);
});

test("a store that was overtaken rolls back, and judges anew", async (t) => {
  const etcd = await new Gateway().listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  await Promise.all([
    ...Array.from({ length: 20 }, (_, at) => add(one, `one ${at}`)),
    ...Array.from({ length: 20 }, (_, at) => add(other, `other ${at}`)),
  ]);
  await Promise.all([one.confirm(true), other.confirm(true)]);
  assert.equal(one.table("zoos").size, 40);
  assert.equal(one.table("zoos").lastId, 40);
  assert.deepEqual(namesIn(one), namesIn(other));
});

for (const fault of ["lost", "canceled"] as const) {
  test(`a commit whose answer was ${fault} is found, and not repeated`, async (t) => {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    let lost = 0;
    gateway.faultOf = (path) =>
      path === "kv/txn" && lost++ === 0 ? fault : undefined;
    await add(store, "Berlin");
    assert.ok(lost > 1);
    assert.deepEqual(namesIn(store), ["Berlin"]);
    assert.equal(
      gateway.keys.filter((each) => each.startsWith("log/")).length,
      1,
    );
  });
}

test("a copy whose answer was lost is complete", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  let lost = 0;
  gateway.faultOf = (path) =>
    path === "kv/txn" && lost++ === 0 ? "lost" : undefined;
  const source = await scanEtcd(etcd, { files: realFiles, tables: [] });
  source.tables = new Tables([{ name: "zoos" }]);
  getOrCreateTable(source.tables, "zoos").load({ id: 1, name: "Berlin" }, 1);
  source.seq = 1;
  await copyToEtcd(source, undefined, etcd);
  assert.equal(lost, 2);
  assert.deepEqual(namesIn(await open(t, etcd)), ["Berlin"]);
  await assert.rejects(copyToEtcd(source, undefined, etcd), {
    code: "not-empty",
  });
});

const faults = [
  ["no leader", "unreachable"],
  ["broken", "outcome-unknown"],
  ["html", "outcome-unknown"],
  ["silent", "outcome-unknown"],
  ["full", "disk-full"],
] as const;

test("a write that etcd does not carry out is rejected, and nothing is changed here; then it goes on", async (t) => {
  await Promise.all(faults.map(async ([fault, code]) => {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, { ...etcd, timeoutMs: 1000 });
    await add(store, "Berlin");
    gateway.faultOf = (path) => path === "kv/txn" ? fault : undefined;
    await assert.rejects(add(store, "Vienna"), { code }, fault);
    assert.deepEqual(namesIn(store), ["Berlin"]);
    gateway.faultOf = () => undefined;
    while (!store.isWritable) await wait(2);
    await add(store, "Prague");
    assert.deepEqual(namesIn(store), ["Berlin", "Prague"]);
  }));
});

test("writes that were never sent are known not to be carried out, although the outcome of one before is unknown", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, { ...etcd, timeoutMs: 1000 });
  let attempts = 0;
  gateway.faultOf = (path) =>
    path === "kv/txn" && ++attempts > 0 ? "silent" : undefined;
  const sent = assert.rejects(add(store, "Berlin"), {
    code: "outcome-unknown",
  });
  while (attempts === 0) await wait(2);
  const waiting = ["Vienna", "Prague"].map((name) =>
    assert.rejects(add(store, name), { code: "unreachable" })
  );
  await Promise.all([sent, ...waiting]);
  assert.deepEqual(namesIn(store), []);
});

test("an etcd that was set back to an older state is neither served nor overwritten until a restart", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  await add(one, "Berlin");
  const setBack = gateway.save();
  await add(one, "Vienna");
  await other.confirm(true);
  const refusal = { code: "unreachable", message: /set back to an older/ };
  const refuse = async (store: EtcdStore) => {
    const { head } = gateway;
    await assert.rejects(add(store, "Rome"), refusal);
    await assert.rejects(store.confirm(true) ?? Promise.resolve(), refusal);
    assert.match(store.notices.join(), refusal.message);
    assert.equal(gateway.head, head);
    assert.deepEqual(namesIn(store), ["Berlin", "Vienna"]);
  };
  setBack();
  await refuse(one);
  await refuse(other);
  const restarted = await open(t, etcd);
  assert.deepEqual(namesIn(restarted), ["Berlin"]);
  // The head gets the same number again, and then a higher one.
  for (const name of ["Prague", "Warsaw"]) {
    await add(restarted, name);
    await refuse(one);
  }
  await refuse(other);
  assert.deepEqual(namesIn(restarted), ["Berlin", "Prague", "Warsaw"]);
});

test("a batch of a newer version is refused, and nothing is changed", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  await add(await open(t, etcd), "Berlin");
  const { head } = gateway;
  gateway.replace("log", ofNewerVersion);
  const refusal = { code: "format", message: /does not know format 4/ };
  await assert.rejects(open(t, etcd), refusal);
  assert.equal(gateway.head, head);
});

test("a batch of what no server writes is named, and nothing is changed", async (t) => {
  for (const tx of ["5", "[5]", "[null]"]) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    await add(await open(t, etcd), "Berlin");
    const { head } = gateway;
    gateway.replace("log", (text) => withTransaction(text, tx));
    const refusal = {
      code: "damaged",
      message: /The key "log\/0+1" .* no server/,
    };
    await assert.rejects(open(t, etcd), refusal);
    assert.equal(gateway.head, head);
  }
});

test("a snapshot with counters that no server writes is named, and nothing is changed", async (t) => {
  for (
    const last of [
      "null",
      '{"zoos":null}',
      '{"zoos":5}',
      '{"zoos":[]}',
      '{"zoos":["x","y"]}',
      '{"zoos":[9007199254740992,1]}',
    ]
  ) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    await add(store, "Berlin");
    await store.checkpoint();
    const { head } = gateway;
    gateway.replace("snapshot", (text) => {
      const [header = "", ...lines] = text.split("\n");
      const rest = header.slice(crcLength)
        .replace(/"last":\{[^}]*\}/, `"last":${last}`);
      return [encodeLine(rest).toString().trim(), ...lines].join("\n");
    });
    const message = /The key "snapshot\/0+1" .* no server has written/;
    await assert.rejects(open(t, etcd), { code: "damaged", message }, last);
    assert.equal(gateway.head, head);
  }
});

test("a snapshot in parts, written by one, lets others join; what is older is deleted, and who fell behind loads anew", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const one = await open(t, etcd);
  const behind = await open(t, etcd);
  const large = "x".repeat(1_300_000);
  await add(one, "first");
  await behind.confirm(true);
  const seqBehind = behind.seq;
  for (const name of [large, "second"]) await add(one, name);
  await one.checkpoint();
  await add(one, "third");
  await one.checkpoint();
  assert.deepEqual(
    gateway.keys.filter((each) => each.startsWith("snapshot/")).length,
    2,
  );
  assert.ok(!gateway.keys.includes("snapshot-lock"));
  const joined = await open(t, etcd);
  assert.deepEqual(namesIn(joined), ["first", large, "second", "third"]);
  await behind.confirm(true);
  assert.deepEqual(namesIn(behind), namesIn(joined));
  assert.ok(seqBehind < joined.seq);
});

test("a transaction that is too long for one value is kept in parts", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "x".repeat(3_000_000));
  assert.equal(
    gateway.keys.filter((each) => each.startsWith("parts/")).length,
    2,
  );
  const joined = await open(t, etcd);
  assert.equal(String(namesIn(joined)[0]).length, 3_000_000);
});

test("transactions are read again from any of them on, unless snapshots have deleted them", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await Promise.all(["a", "b", "c", "d"].map((name) => add(store, name)));
  const lines = await store.transactionsAfter(2);
  assert.deepEqual(lines?.map(({ seq }) => seq), [3, 4]);
  await assert.rejects(store.transactionsAfter(9) ?? Promise.resolve(), {
    code: "damaged",
  });
  await store.checkpoint();
  await add(store, "e");
  await store.checkpoint();
  assert.deepEqual(await store.transactionsAfter(3), []);
  assert.deepEqual((await store.transactionsAfter(4)).length, 1);
  gateway.forget("log");
  await assert.rejects(store.transactionsAfter(4), { code: "damaged" });
});

test("to find one transaction, etcd does not read a long log", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const source = await scanEtcd(etcd, { files: realFiles, tables: [] });
  source.tables = new Tables([{ name: "zoos" }]);
  source.seq = 100_000;
  await copyToEtcd(source, undefined, etcd);
  const store = await open(t, etcd);
  for (const name of ["a", "b"]) await add(store, name);
  let first = "";
  gateway.faultOf = (path, { key = "", limit }) => {
    if (path === "kv/range" && limit !== undefined) {
      first = Buffer.from(key, "base64").toString();
    }
    return undefined;
  };
  const lines = await store.transactionsAfter(100_001);
  assert.deepEqual(lines?.map(({ seq }) => seq), [100_002]);
  assert.match(first, /^zoo\/log\/0{11}8\d{4}$/);
});

/** Returns how many batches each read asks for from now on. */
function limitsOf(gateway: Gateway): readonly number[] {
  const limits: number[] = [];
  gateway.faultOf = (_path, { key = "", limit = 0 }) => {
    const isOfLog = /^zoo\/log/.test(Buffer.from(key, "base64").toString());
    if (isOfLog && Number(limit) > 1) limits.push(Number(limit));
    return undefined;
  };
  return limits;
}

test("a log of many short batches is read in a few calls, and one of long batches in parts", async (t) => {
  const logs = [[200, 1, 4], [12, 900_000, 2]] as const;
  for (const [count, length, maxReads] of logs) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    for (let each = 0; each < count; each++) {
      await add(store, "x".repeat(length));
    }
    await store.close();
    const limits = limitsOf(gateway);
    const joined = await open(t, etcd);
    assert.equal(joined.table("zoos").size, count);
    await joined.close();
    assert.ok(limits.length <= maxReads, `${limits}`);
    const bytes = Math.max(...limits) * length;
    assert.ok(bytes <= 10 * (1 << 20), `${limits}`);
  }
});

test("long batches after short ones are read in parts, as an answer that is too long is refused", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  for (let each = 0; each < 9; each++) await add(store, "short");
  for (let each = 0; each < 18; each++) await add(store, "x".repeat(900_000));
  await store.close();
  const limits = limitsOf(gateway);
  const joined = await open(t, etcd);
  assert.equal(joined.table("zoos").size, 27);
  const long = limits.findIndex((limit) => limit > 8);
  assert.equal(limits[long + 1], 8, `${limits}`);
  assert.ok(limits.length <= 7, `${limits}`);
});

test("a token of etcd that has expired is renewed; a wrong password is told", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  gateway.user = { name: "zoo", password: "secret" };
  const store = await open(t, { ...etcd, user: "zoo", password: "secret" });
  await add(store, "Berlin");
  gateway.forgetTokens();
  await add(store, "Vienna");
  assert.deepEqual(namesIn(store), ["Berlin", "Vienna"]);
  await assert.rejects(
    open(t, { ...etcd, user: "zoo", password: "wrong" }),
    (error) => errorCode(error) === "unreachable",
  );
});

test("a token that is older than a change of etcd's users is renewed", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  gateway.user = { name: "zoo", password: "secret" };
  const store = await open(t, { ...etcd, user: "zoo", password: "secret" });
  await add(store, "Berlin");
  gateway.outdateTokens();
  await add(store, "Vienna");
  assert.deepEqual(namesIn(store), ["Berlin", "Vienna"]);
});

test("a watch whose token was forgotten is begun again with another", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  gateway.user = { name: "zoo", password: "secret" };
  const store = await open(t, { ...etcd, user: "zoo", password: "secret" });
  while (gateway.watchCount === 0) await wait(2);
  // Only the watch has to find out.
  gateway.faultOf = (path) => path === "watch" ? undefined : "silent";
  gateway.forgetTokens();
  const { length } = gateway.calls;
  gateway.cutWatches();
  while (!gateway.calls.includes("watch", length)) await wait(2);
  gateway.faultOf = () => undefined;
  while (gateway.watchCount === 0) await wait(2);
  await add(store, "Berlin");
});

test("a read that a node cancels because it stops goes on at the next endpoint", async (t) => {
  const stopping = new Gateway();
  stopping.faultOf = () => "canceled";
  const gateway = new Gateway();
  const [first, etcd] = [await stopping.listen(t), await gateway.listen(t)];
  const endpoints = [...first.endpoints, ...etcd.endpoints];
  await new EtcdClient({ ...etcd, endpoints }).get(["head"]);
  assert.deepEqual([stopping.calls.length, gateway.calls.length], [1, 1]);
});

test("calls that fail together at one endpoint all go on at the next", async (t) => {
  const dead = new Gateway();
  dead.faultOf = () => "silent";
  const gateway = new Gateway();
  const [first, etcd] = [await dead.listen(t), await gateway.listen(t)];
  const endpoints = [...first.endpoints, ...etcd.endpoints];
  const client = new EtcdClient({ ...etcd, endpoints });
  await Promise.all([1, 2, 3, 4].map(() => client.get(["head"])));
  assert.equal(dead.calls.length, 4);
  assert.equal(gateway.calls.length, 4);
});

test("the secret is the first that was proposed", async (t) => {
  const etcd = await new Gateway().listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  const secret = "x".repeat(32);
  assert.equal(await one.shareSecret(secret), secret);
  assert.equal(await other.shareSecret("y".repeat(32)), secret);
});

test("a secret that is missing beside a store is created, and the log says what to do", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const logged: unknown[][] = [];
  const log = (...line: unknown[]) => void logged.push(line);
  const first = await open(t, etcd, { log });
  await first.shareSecret("x".repeat(32));
  await add(first, "Berlin");
  assert.deepEqual(logged, []);
  gateway.remove("secret");
  const second = await open(t, etcd, { log });
  await second.shareSecret("y".repeat(32), true);
  assert.match(String(logged), /^error,The key "secret" .* Restart the other/);
});

/** What no server has put under the keys that all servers share. */
const unusable = {
  head: ["", "abc", "\n", "1 x", "5 0123456789abcdef\n"],
  incarnation: ["", 'a"b', "a\nb", "\u20ac"],
  secret: ["", "x", " ".repeat(40), `\n${"x".repeat(31)}\n`, "\0".repeat(40)],
};

test("a head, an incarnation or a secret that servers cannot use is named at the start and by a check, with what to do", async (t) => {
  for (const [name, texts] of Object.entries(unusable)) {
    for (const text of texts) {
      const gateway = new Gateway();
      const etcd = await gateway.listen(t);
      await add(await open(t, etcd), "Berlin");
      gateway.set(name, text);
      const message = name === "head"
        ? /^The key "head" below the prefix in etcd.*: restore etcd/
        : new RegExp(
          `^Cannot use the key "${name}" below the prefix in etcd: it must hold .*; delete it`,
        );
      const refusal = { code: "damaged", message };
      const start = async () => loadSharedSecret(await open(t, etcd));
      await assert.rejects(start, refusal, text);
      const options = { files: realFiles, tables: [] };
      await assert.rejects(scanEtcd(etcd, options, true), refusal, text);
      if (name === "head") continue;
      // All records can be read.
      const { seq } = await scanEtcd(etcd, options);
      assert.equal(seq, 1);
      gateway.remove(name);
      await start();
    }
  }
});

test("a head that no server has put is named by the servers that run, which are not told to start again", async (t) => {
  for (const text of [...unusable.head, undefined]) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    await add(store, "Berlin");
    const { head = "" } = gateway;
    if (text === undefined) gateway.remove("head");
    else gateway.set("head", text);
    const message = /^The key "head" below the prefix in etcd.*: restore etcd/;
    const refusal = { code: "unreachable", message };
    await assert.rejects(add(store, "Rome"), refusal, text);
    await assert.rejects(store.confirm(true) ?? Promise.resolve(), refusal);
    assert.match(store.notices.join(), message);
    gateway.set("head", head);
    while (store.notices.length > 0) await wait(1);
    await add(store, "Vienna");
    assert.deepEqual(namesIn(store), ["Berlin", "Vienna"]);
  }
});

test("a log with a gap, or with another head, is named as damaged at the start, which is never told to start again", async (t) => {
  const salt = "a".repeat(16);
  const log = (number: number) => `log/${String(number).padStart(16, "0")}`;
  const table: readonly (readonly [
    change: (gateway: Gateway) => void,
    key: string,
  ])[] = [
    ...[1, 2, 3, 4].map((number) =>
      [(gateway: Gateway) => gateway.remove(log(number)), log(number)] as const
    ),
    [(gateway) => gateway.forget("log"), log(1)],
    ...[`0 ${salt}`, `2 ${salt}`, `4 ${salt}`].map((head) =>
      [(gateway: Gateway) => gateway.set("head", head), "head"] as const
    ),
    // An older one, without the log of then.
    [(gateway) => {
      const [header = ""] = gateway.get(log(3)).split("\n");
      const [, before] = /"store":"(2 [^"]*)"/.exec(header) ?? [];
      gateway.set("head", String(before));
    }, "head"],
    [(gateway) => gateway.set("head", `5 ${salt}`), log(5)],
    [(gateway) => gateway.set("head", `${10 ** 15} ${salt}`), log(5)],
    [(gateway) => gateway.set(log(3), gateway.get(log(2))), log(3)],
    [(gateway) => gateway.set(log(2), gateway.get(log(1))), log(2)],
  ];
  for (const [change, key] of table) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    for (const name of ["a", "b", "c", "d"]) await add(store, name);
    await store.close();
    change(gateway);
    const { head } = gateway;
    const message = new RegExp(
      `^The key "${key}" below the prefix in etcd is missing or holds .*: restore etcd`,
    );
    const refusal = { code: "damaged", message };
    await assert.rejects(open(t, etcd), refusal, key);
    const options = { files: realFiles, tables: [] };
    await assert.rejects(scanEtcd(etcd, options), refusal, key);
    assert.equal(gateway.head, head);
  }
});

test("a head that is missing beside a log or a snapshot is refused by all that read or copy, and nothing is changed", async (t) => {
  for (const kinds of [["log"], ["snapshot"], ["log", "snapshot"]]) {
    const gateway = new Gateway();
    const etcd = await gateway.listen(t);
    const store = await open(t, etcd);
    await add(store, "Berlin");
    if (kinds.includes("snapshot")) await store.checkpoint();
    await store.close();
    if (!kinds.includes("log")) gateway.forget("log");
    gateway.remove("head");
    const { keys } = gateway;
    assert.deepEqual(
      kinds.filter((kind) => keys.some((each) => each.startsWith(`${kind}/`))),
      kinds,
    );
    const refusal = {
      code: "damaged",
      message:
        /^The key "head" below the prefix in etcd is missing.*: restore etcd/,
    };
    const options = { files: realFiles, tables: [] };
    await assert.rejects(scanEtcd(etcd, options), refusal);
    const source = await scanEtcd(await new Gateway().listen(t), options);
    source.seq = 1;
    await assert.rejects(copyToEtcd(source, undefined, etcd), refusal);
    assert.deepEqual(gateway.keys, keys);
    await assert.rejects(open(t, etcd), refusal);
    assert.deepEqual(gateway.keys, keys);
  }
});

test("a server whose name was damaged takes another one", async (t) => {
  const etcd = await new Gateway().listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  for (const text of ["", "../../x", "0123456789abcdef\r\n\r\nx"]) {
    await writeFile(join(folder, "server"), text);
    const store = await openEtcdStore({ folder, tables: [] }, etcd);
    assert.match(store.serverId, /^[\da-f]{16}$/);
    await store.close();
  }
});

test("a server keeps its name over restarts and kills, and one with a copy of its folder takes another", async (t) => {
  const etcd = await new Gateway().listen(t);
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  const openIn = async (name: string) => {
    const folder = join(own, name);
    return await openEtcdStore({ folder, tables: [] }, etcd);
  };
  const copyAs = (name: string) =>
    cp(join(own, "first"), join(own, name), { recursive: true });
  const first = await openIn("first");
  await first.close();
  await copyAs("second");
  await copyAs("third");
  // A name is known to be used for a minute after that.
  const again = await openIn("first");
  assert.equal(again.serverId, first.serverId);
  const others = await Promise.all(["second", "third"].map(openIn));
  const names = [again, ...others].map(({ serverId }) => serverId);
  assert.equal(new Set(names).size, 3);
  for (const store of [again, ...others]) await store.close();
  const third = await openIn("third");
  assert.equal(third.serverId, names[2]);
  await third.close();
});

test("two servers with copies of a folder that start at once have two names", async (t) => {
  const etcd = await new Gateway().listen(t);
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  for (const name of ["one", "other"]) {
    await mkdir(join(own, name), { mode: 0o700 });
    await writeFile(join(own, name, "server"), "0123456789abcdef\n");
  }
  const stores = await Promise.all(
    ["one", "other"].map((name) =>
      openEtcdStore({ folder: join(own, name), tables: [] }, etcd)
    ),
  );
  assert.equal(new Set(stores.map(({ serverId }) => serverId)).size, 2);
  for (const store of stores) await store.close();
});

test("a server whose name the copy of its folder takes while it runs finds that out, and takes another at its restart", async (t) => {
  const client = new EtcdClient(await new Gateway().listen(t));
  const [first, copy, restarted] = [0, 1, 2].map(() => new Lease(client));
  const claim = (lease: Lease | undefined, ...more: [string, string[]]) =>
    lease?.claim("0123456789abcdef", ...more);
  assert.equal(await claim(first, "a", []), true);
  assert.equal(await first?.renew(), true);
  assert.equal(await claim(copy, "b", ["a"]), true);
  assert.equal(await first?.renew(), false);
  assert.equal(await copy?.renew(), true);
  assert.equal(await claim(restarted, "c", ["a"]), false);
  // After its lease has ended, too, and it does not take the name back.
  assert.ok(first);
  first.id = undefined;
  assert.equal(await first.renew(), false);
  assert.equal(await copy?.renew(), true);
});

test("a server keeps its name if a start could not write it", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const names = new Set<string>();
  for (const isFull of [false, true, true, false, false]) {
    const files = {
      ...realFiles,
      open: (path: string, mode: "read") =>
        isFull && path.includes("server.")
          ? Promise.reject(
            Object.assign(new Error("ENOSPC"), { code: "ENOSPC" }),
          )
          : realFiles.open(path, mode),
    };
    const options = { folder, tables: [], files } as StoreOptions;
    const store = await openEtcdStore(options, etcd);
    names.add(store.serverId);
    await store.close();
  }
  // It ends before etcd has the name of its next process, and again.
  gateway.faultOf = (path) => path === "kv/txn" ? "full" : undefined;
  for (let starts = 0; starts < 3; starts++) {
    await assert.rejects(openEtcdStore({ folder, tables: [] }, etcd));
  }
  gateway.faultOf = () => undefined;
  const store = await openEtcdStore({ folder, tables: [] }, etcd);
  names.add(store.serverId);
  await store.close();
  assert.equal(names.size, 1);
});

test("no empty store is begun in etcd beside one in the folder", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const own = await temporaryFolder();
  t.after(() => removeFolder(own));
  const folder = join(own, "store");
  const tables = [{ name: "zoos" }];
  const store = await openStore({ folder, tables });
  await add(store, "Berlin");
  await store.close();
  await assert.rejects(openEtcdStore({ folder, tables }, etcd), {
    code: "not-empty",
    message: /holds a store, and etcd has none under zoo\/: copy it with/,
  });
  assert.equal(gateway.head, "");
  assert.ok(!(await readdir(folder)).includes("server"));
  // Once there is one, the folder's is not used.
  await add(await open(t, etcd), "Vienna");
  const lines: string[] = [];
  const log = (_level: string, line: string) => void lines.push(line);
  const served = await openEtcdStore({ folder, tables, log }, etcd);
  assert.deepEqual(namesIn(served), ["Vienna"]);
  assert.match(
    lines.join(),
    /holds a store that is not used.* name another folder/,
  );
  await served.close();
});

test("no empty store is begun under another prefix than that of the folder", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const openAt = (prefix: string) =>
    openEtcdStore({ folder, tables: [{ name: "zoos" }] }, { ...etcd, prefix });
  const store = await openAt("zoo/");
  await add(store, "Berlin");
  await store.close();
  await assert.rejects(openAt("zo/"), {
    code: "not-empty",
    message: /no store under zo\/, .* last used the one under zoo\/: correct/,
  });
  const same = await openAt("zoo/");
  assert.deepEqual(namesIn(same), ["Berlin"]);
  await same.close();
});

test("a folder with request bodies of imports is not used for a store under another prefix, which would delete them", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const openAt = (prefix: string, name: string) =>
    openEtcdStore({ folder: join(folder, name), tables: [{ name: "zoos" }] }, {
      ...etcd,
      prefix,
    });
  for (const prefix of ["zoo/", "zo/"]) {
    const store = await openAt(prefix, prefix);
    await add(store, "Berlin");
    await store.close();
  }
  const spool = join(folder, "zoo", "spool");
  await mkdir(spool);
  await writeFile(join(spool, "1.spool.tmp"), ""); // of a request that was not accepted
  await (await openAt("zo/", "zoo")).close();
  await (await openAt("zoo/", "zoo")).close();
  await writeFile(join(spool, "1.spool"), "");
  const server = await readFile(join(folder, "zoo", "server"), "utf8");
  await assert.rejects(openAt("zo/", "zoo"), {
    code: "not-empty",
    message:
      /request bodies of imports into the store under zoo\/ that are not finished, .* start this server with that one/,
  });
  assert.equal(
    await readFile(join(folder, "zoo", "server"), "utf8"),
    server,
  );
  await (await openAt("zoo/", "zoo")).close();
});

test("no empty store is begun in place of one that etcd has lost", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const tables = [{ name: "zoos" }];
  const openAgain = () => openEtcdStore({ folder, tables }, etcd);
  const store = await openAgain();
  await add(store, "Berlin");
  await store.close();
  const options = { files: realFiles, tables };
  const backup = await scanEtcd(etcd, options);
  const lose = async () => {
    for (const key of gateway.keys) gateway.remove(key);
    await assert.rejects(openAgain(), {
      code: "not-empty",
      message:
        /no store under zoo\/, .* last used it: start the right etcd, copy a backup .* or, to begin an empty store, name another folder/,
    });
    assert.deepEqual(gateway.keys, []);
  };
  await lose();
  await copyToEtcd(backup, undefined, etcd);
  const restored = await openAgain();
  assert.deepEqual(namesIn(restored), ["Berlin"]);
  await restored.close();
  await lose();
  await Promise.all([open(t, etcd), open(t, etcd)]); // with new folders
  const joined = await openAgain();
  assert.deepEqual(namesIn(joined), []);
  await joined.close();
});

test("a first start that ended before its first write can be repeated", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const openAgain = (timeoutMs: number) =>
    openEtcdStore({ folder, tables: [] }, { ...etcd, timeoutMs });
  for (const failing of ["kv/txn", "lease/grant"]) {
    gateway.faultOf = (path) => path === failing ? "no leader" : undefined;
    await assert.rejects(openAgain(1000), { code: "unreachable" });
  }
  assert.ok((await readdir(folder)).includes("server"));
  gateway.faultOf = () => undefined;
  const store = await openAgain(5000);
  await store.close();
});

test("a store is read again if servers replace its snapshots meanwhile", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "x".repeat(1_300_000)); // in parts
  for (const name of ["a", "b"]) {
    await store.checkpoint();
    await add(store, name);
  }
  let isReplaced = false;
  gateway.delayOf = async (path, { key = "" }) => {
    const text = Buffer.from(key, "base64").toString();
    if (path !== "kv/range" || isReplaced || !/^zoo\/parts/.test(text)) return;
    isReplaced = true;
    for (const name of ["c", "d"]) {
      await store.checkpoint();
      await add(store, name);
    }
  };
  const lines: unknown[] = [];
  const scan = await scanEtcd(etcd, {
    files: realFiles,
    tables: [{ name: "zoos" }],
    onTransaction: (line) => void lines.push(line),
  });
  assert.ok(isReplaced);
  assert.equal(scan.tables.get("zoos")?.size, 5);
});

test("what does not fit TLS is told with what to do, and nothing was changed", async (t) => {
  const etcd = await new Gateway().listen(t);
  const endpoints = etcd.endpoints.map((each) =>
    each.replace("http:", "https:")
  );
  const client = new EtcdClient({ ...etcd, endpoints, timeoutMs: 500 });
  await assert.rejects(client.put("key", "value"), {
    message: /etcd:\/\/ is for a port without TLS; nothing was changed$/,
  });
});

test("what answers without being etcd is named at once", async (t) => {
  const gateway = new Gateway();
  gateway.faultOf = () => "other";
  const etcd = await gateway.listen(t);
  const client = new EtcdClient(etcd);
  const message =
    /^etcd: http:\/\/127\.0\.0\.1:\d+ is not etcd \(status 200\); nothing was changed$/;
  await assert.rejects(client.get(["head"]), { code: "unreachable", message });
  await assert.rejects(open(t, etcd), { message });
});

test("an etcd that refuses each transaction, or never answers, or asks for a user, is told, and a write ends", async (t) => {
  const gateway = new Gateway();
  const etcd = { ...await gateway.listen(t), timeoutMs: 200 };
  const store = await open(t, etcd);
  const cases: [Fault, RegExp][] = [
    [
      { status: 200, text: '{"header":{}}' },
      /^etcd: it refuses a write although nothing changed; nothing was changed$/,
    ],
    ["silent", /^etcd: no answer in time; /],
    ["endless", /^etcd: no answer in time; /],
    [
      { status: 400, text: '{"code":3,"message":"user name is empty"}' },
      /user name is empty: set ETCD_USER and ETCD_PASSWORD; /,
    ],
    [
      {
        status: 403,
        text: '{"code":7,"message":"etcdserver: permission denied"}',
      },
      /permission denied: grant the user of ETCD_USER a role with readwrite on /,
    ],
  ];
  for (const [fault, message] of cases) {
    gateway.faultOf = (path) => path === "kv/txn" ? fault : undefined;
    await assert.rejects(add(store, "Bern"), { message });
    gateway.faultOf = () => undefined;
    while (!store.isWritable) await wait(2);
  }
  assert.deepEqual(namesIn(store), []);
});

/** What a gateway of etcd never answers. */
const wrongAnswers = [
  ...["", "null", "[]", "5", '"x"', "{}", "{broken", "<html>Sign in</html>"],
  ...['{"header":{},"kvs":5}', '{"header":{},"kvs":null}'],
  ...['{"header":{},"kvs":[null]}', '{"header":{},"kvs":"abc"}'],
  ...['{"header":{},"kvs":[{"key":5}]}', '{"header":{},"kvs":[{}]}'],
  '{"header":{},"kvs":[{"key":"em9vLw==","value":7}]}',
  ...['{"header":{},"responses":3}', '{"header":{},"responses":null}'],
  ...['{"header":{},"responses":[null]}', '{"header":{},"responses":{}}'],
  '{"header":{},"responses":[{"response_range":{"kvs":[5]}}]}',
  ...[
    '{"error":"x"}',
    '{"message":"no","code":"abc"}',
    '{"message":" ","code":3}',
  ],
  ...['{"message":{"a":1},"code":13}', '{"message":null,"code":13}'],
];

test("an answer of another shape than those of etcd is no answer of etcd, at the start and later", async (t) => {
  const message = /^etcd: http:\S+ is not etcd \(status \d+\); [\w ]+$/;
  const credentials = { user: "zoo", password: "secret" };
  const paths = ["auth/authenticate", "lease/grant", "kv/range", "kv/txn"];
  const table = wrongAnswers.flatMap((text) =>
    [200, 400].map((status) => ({ status, text }))
  );
  await Promise.all(table.map(async (answer) => {
    const gateway = new Gateway();
    const etcd = { ...await gateway.listen(t), timeoutMs: 100 };
    const name = JSON.stringify(answer);
    gateway.user = { name: "zoo", password: "secret" };
    for (const path of paths) {
      gateway.faultOf = (each) => each === path ? answer : undefined;
      const starting = open(t, { ...etcd, ...credentials });
      await assert.rejects(starting, { message }, `${path}: ${name}`);
    }
    gateway.user = undefined;
    gateway.faultOf = () => undefined;
    const store = await open(t, { ...etcd, timeoutMs: 1000 });
    await add(store, "Berlin");
    gateway.faultOf = (path) => path === "watch" ? undefined : answer;
    // It may have been carried out.
    const code = "outcome-unknown";
    await assert.rejects(add(store, "Vienna"), { code, message }, name);
    gateway.faultOf = () => undefined;
    while (!store.isWritable) await wait(2);
    assert.deepEqual(namesIn(store), ["Berlin"]);
  }));
});

test("a file in etcd that no server wrote is damaged, also if it is empty", async (t) => {
  const long = "x".repeat(1 << 20);
  for (const kind of ["log", "snapshot"]) {
    for (
      const text of [
        ...["", "\n", "\0", "abc", "null\n", "5\nx\n", "{}\n"],
        ...[long, `null\n${long}`.slice(0, 1 << 20)],
        ...["null}", "0}", '"format":3}', '"format":3,"salt":5}']
          .map((rest) => encodeLine(rest).toString()),
      ]
    ) {
      const gateway = new Gateway();
      const etcd = await gateway.listen(t);
      const store = await open(t, etcd);
      await add(store, "Berlin");
      if (kind === "snapshot") await store.checkpoint();
      await store.close();
      gateway.replace(kind, () => text);
      const { keys, head } = gateway;
      const refusal = {
        code: "damaged",
        message: /in etcd is (?:damaged|missing)/,
      };
      const name = `${kind}: ${text.slice(0, 40)}`;
      await assert.rejects(open(t, etcd), refusal, name);
      const options = { files: realFiles, tables: [] };
      await assert.rejects(scanEtcd(etcd, options), refusal, name);
      assert.deepEqual([gateway.keys.length, gateway.head], [
        keys.length + 1,
        head,
      ]);
    }
  }
});

test("a user is not needed while etcd does not ask for one, and is as soon as it does", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, { ...etcd, user: "zoo", password: "secret" });
  await add(store, "Berlin");
  gateway.user = { name: "zoo", password: "secret" };
  await add(store, "Vienna");
  gateway.user = undefined;
  gateway.forgetTokens();
  await add(store, "Bern");
  assert.deepEqual(namesIn(store), ["Berlin", "Vienna", "Bern"]);
});

test("a server is served while its lease lasts", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  assert.ok(await other.isServed(one.serverId));
  gateway.expireLeases();
  assert.equal(await other.isServed(one.serverId), false);
});

test("a batch whose answer was lost and that is deleted already has an unknown outcome, and is not repeated", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  let commits = 0;
  gateway.faultOf = (path) => {
    if (path !== "kv/txn") return undefined;
    if (++commits === 1) return "lost";
    gateway.forget("log");
    return undefined;
  };
  await assert.rejects(add(store, "Berlin"), { code: "outcome-unknown" });
  assert.equal(commits, 2);
  assert.deepEqual(namesIn(store), []);
});

test("a store that fell behind a log without transactions loads anew", async (t) => {
  const gateway = new Gateway();
  gateway.isWatchSilent = true;
  const etcd = await gateway.listen(t);
  const [one, behind] = [await open(t, etcd), await open(t, etcd)];
  await add(one, "Berlin");
  gateway.faultOf = (path) => path === "kv/range" ? "silent" : undefined;
  const confirmed = behind.confirm(true);
  gateway.faultOf = () => undefined;
  await one.checkpoint();
  await one.checkpoint();
  gateway.forget("log");
  await confirmed;
  await behind.confirm(true);
  assert.deepEqual(namesIn(behind), ["Berlin"]);
  assert.equal(behind.seq, 1);
});

test("a store closes while etcd is away, and tells those who wait", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, { ...etcd, timeoutMs: 1000 });
  await store.confirm(true);
  gateway.faultOf = () => "silent";
  const write = add(store, "Berlin");
  const refused = assert.rejects(write, { code: "outcome-unknown" });
  const confirmed = assert.rejects(store.confirm(true) ?? Promise.resolve());
  await store.close();
  await Promise.all([refused, confirmed]);
  await assert.rejects(add(store, "Vienna"), { code: "closed" });
  await assert.rejects(store.confirm(true) ?? Promise.resolve(), {
    code: "closed",
  });
});

test("a store closes while another one writes", async (t) => {
  const etcd = await new Gateway().listen(t);
  const one = await open(t, etcd);
  let isClosed = false;
  const writing = (async () => {
    while (!isClosed) await add(one, "Berlin");
  })();
  for (let each = 0; each < 4; each++) {
    const other = await open(t, etcd);
    await other.confirm(true);
    await other.close();
  }
  isClosed = true;
  await writing;
});

test("an etcd that is full says so, and can be read, also by those who asked with a write", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  gateway.faultOf = (path) => path === "kv/txn" ? "full" : undefined;
  const refused = assert.rejects(add(store, "Berlin"), { code: "disk-full" });
  await Promise.all([refused, store.confirm(true)]);
  assert.ok(store.isWritable);
  assert.match(store.notices.join(), /^etcd is full: the log says more$/);
  gateway.faultOf = (path) => path === "kv/range" ? undefined : "full";
  await assert.rejects(open(t, etcd), {
    code: "disk-full",
    message:
      /exceeded: compact and defragment etcd, raise its quota, then run "etcdctl alarm disarm"; nothing was changed$/,
  });
  gateway.faultOf = () => undefined;
  await add(store, "Berlin");
  assert.deepEqual(store.notices, []);
});

test("an etcd that has too many requests is not full", async (t) => {
  const gateway = new Gateway();
  const store = await open(t, await gateway.listen(t));
  const message = "etcdserver: too many requests";
  const text = JSON.stringify({ error: message, message, code: 8 });
  gateway.faultOf = (path) =>
    path === "kv/txn" ? { status: 429, text } : undefined;
  await assert.rejects(add(store, "Berlin"), {
    code: "unreachable",
    message: `etcd: ${message}; nothing was changed`,
  });
});

test("anybody may see that etcd cannot be used, but not the text of its errors or of a proxy, of which the log has the beginning", async (t) => {
  const place = "http://etcd-3.internal:2379 (10.1.2.3) ";
  const page = place + "x".repeat(50_000);
  const reported = (code: number, message: string) => ({
    status: 400,
    text: JSON.stringify({ error: message, message, code }),
  });
  const table: readonly [Fault, logged: string, notice: RegExp][] = [
    [
      { status: 502, text: page },
      "status 502",
      /^etcd cannot be used: the log/,
    ],
    [reported(14, page), place, /^etcd cannot be used: the log/],
    [reported(13, page), place, /^etcd cannot be used: the log/],
    [reported(8, page), place, /^etcd cannot be used: the log/],
    ["broken", "socket hang up", /^etcd cannot be used: the log/],
    ["no leader", "no leader", /^etcd cannot be used: the log/],
    ["full", "space exceeded", /^etcd is full: the log says more$/],
  ];
  await Promise.all(table.map(async ([fault, logged, notice]) => {
    const gateway = new Gateway();
    const etcd = { ...await gateway.listen(t), timeoutMs: 1000 };
    const lines: string[] = [];
    const log = (_level: string, line: string) => void lines.push(line);
    const store = await open(t, etcd, { log });
    const isFull = /full/.test(notice.source); // then it can be read
    gateway.faultOf = (path) =>
      isFull && path === "kv/range" ? undefined : fault;
    for (let each = 0; each < 2; each++) {
      await assert.rejects(add(store, "Berlin"), logged);
    }
    assert.match(store.notices.join(), notice, logged);
    assert.equal(lines.length, 1, lines.join());
    assert.ok(lines[0]?.includes(logged), lines[0]);
    assert.ok((lines[0]?.length ?? 0) < 300, logged);
  }));
});

test("what etcd refuses because it is full may have been carried out: the store looks", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const [store, other] = [await open(t, etcd), await open(t, etcd)];
  let count = 0;
  gateway.faultOf = (path) =>
    path === "kv/txn" && count++ === 0 ? "filled" : undefined;
  await add(store, "Berlin");
  assert.equal(count, 1);
  await other.confirm(true);
  assert.deepEqual(namesIn(other), ["Berlin"]);

  // Another server commits after it, before the store looks.
  let late: Promise<unknown> | undefined;
  count = 0;
  gateway.faultOf = (path) => {
    if (path === "kv/txn" && count++ === 0) return "filled";
    if (path === "kv/range" && count === 1) late ??= add(other, "Vienna");
    return undefined;
  };
  await add(store, "Prague");
  await late;
  await Promise.all([store.confirm(true), other.confirm(true)]);
  assert.deepEqual(namesIn(store).sort(), ["Berlin", "Prague", "Vienna"]);
  assert.deepEqual(namesIn(other).sort(), ["Berlin", "Prague", "Vienna"]);
});

test("a full etcd that cannot be read then leaves the outcome unknown", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, { ...etcd, timeoutMs: 1000 });
  gateway.faultOf = (path) =>
    path === "kv/txn"
      ? "filled"
      : path === "kv/range"
      ? "no leader"
      : undefined;
  await assert.rejects(add(store, "Berlin"), {
    code: "outcome-unknown",
    message: "etcd: etcdserver: no leader; the write may have been carried out",
  });
  gateway.faultOf = () => undefined;
  while (!store.isWritable) await wait(2);
  await store.confirm(true);
  assert.deepEqual(namesIn(store), ["Berlin"]);
});

test("a store that is gone from etcd is named, and nothing is put there", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "Berlin");
  await add(store, "Vienna");
  for (const key of gateway.keys) gateway.remove(key);
  const error = {
    code: "unreachable",
    message: /no store below this prefix any more: .* copy the last backup/,
  };
  await assert.rejects(async () => await store.confirm(true), error);
  await assert.rejects(add(store, "Rome"), error);
  assert.match(store.notices.join(), /no store below this prefix any more/);
  assert.ok(!gateway.keys.some((each) => /^(?:head|log)/.test(each)));
});

test("a snapshot or lock that no server has put is named, and no snapshot is begun", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "Berlin");
  const values = [
    ["snapshot/0000000099999999", "garbage", /a later state than the head: /],
    ["snapshot-lock", "", /"snapshot-lock" .* 16 hexadecimal digits/],
    ["snapshot-lock", " ", /"snapshot-lock" /],
    ["snapshot-lock", `${"a".repeat(16)}\n`, /"snapshot-lock" /],
  ] as const;
  for (const [key, value, message] of values) {
    gateway.set(key, value);
    await assert.rejects(store.checkpoint(), { code: "damaged", message });
    assert.ok(!gateway.keys.some((each) => each.startsWith("parts/")));
    gateway.remove(key);
  }
  gateway.set("snapshot-lock", "a".repeat(16)); // of a server that is gone
  await store.checkpoint();
  assert.deepEqual(namesIn(await open(t, etcd)), ["Berlin"]);
});

test("a snapshot that fills etcd is written, and its lock released", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "Berlin");
  gateway.faultOf = (path) => path === "kv/txn" ? "filled" : undefined;
  await store.checkpoint();
  gateway.faultOf = () => undefined;
  assert.ok(gateway.keys.some((key) => key.startsWith("snapshot/")));
  assert.ok(!gateway.keys.includes("snapshot-lock"));
  await add(store, "Vienna");
  await store.checkpoint();
  assert.deepEqual(namesIn(await open(t, etcd)), ["Berlin", "Vienna"]);
});

test("where a copy was interrupted no server begins an empty store, and the copy can be repeated", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const options = { files: realFiles, tables: [] };
  const source = await scanEtcd(etcd, options);
  source.tables = new Tables([{ name: "zoos" }]);
  getOrCreateTable(source.tables, "zoos").load({ id: 1, name: "Berlin" }, 1);
  source.seq = 1;
  const timeoutMs = 1000;
  gateway.faultOf = (path) => path === "kv/txn" ? "silent" : undefined;
  await assert.rejects(copyToEtcd(source, undefined, { ...etcd, timeoutMs }));
  gateway.faultOf = () => undefined;
  const refusal = {
    code: "damaged",
    message: /a copy to it is not finished.*run "zoo-api copy" again/,
  };
  await assert.rejects(open(t, etcd), refusal);
  await assert.rejects(scanEtcd(etcd, options), refusal);
  await copyToEtcd(source, undefined, etcd);
  assert.ok(!gateway.keys.includes("copy"));
  assert.deepEqual(namesIn(await open(t, etcd)), ["Berlin"]);
  await assert.rejects(copyToEtcd(source, undefined, etcd), {
    code: "not-empty",
    message: /Name another prefix, or stop its servers and delete it with/,
  });
});

test("a copy that fills etcd is complete", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  gateway.faultOf = (path) => path === "kv/txn" ? "filled" : undefined;
  const source = await scanEtcd(etcd, { files: realFiles, tables: [] });
  source.tables = new Tables([{ name: "zoos" }]);
  getOrCreateTable(source.tables, "zoos").load({ id: 1, name: "Berlin" }, 1);
  source.seq = 1;
  await copyToEtcd(source, undefined, etcd);
  gateway.faultOf = () => undefined;
  assert.deepEqual(namesIn(await open(t, etcd)), ["Berlin"]);
});

test("an etcd that is full can be read while one write comes after the other", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "Berlin");
  gateway.faultOf = (path) => path === "kv/txn" ? "full" : undefined;
  let isRead = false;
  const writing = [1, 2, 3].map(async () => {
    while (!isRead) {
      await assert.rejects(add(store, "Vienna"), { code: "disk-full" });
    }
  });
  for (let each = 0; each < 3; each++) await store.confirm(true);
  isRead = true;
  await Promise.all(writing);
  assert.deepEqual(namesIn(store), ["Berlin"]);
});

test("a snapshot that is begun while a write waits is written, although that write is overtaken", async (t) => {
  const gateway = new Gateway();
  gateway.isWatchSilent = true;
  const etcd = await gateway.listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  await add(one, "Berlin");
  const late = async <T>(begin: () => Promise<T>) => {
    gateway.release = undefined;
    gateway.faultOf = (path) => path === "kv/txn" ? "late" : undefined;
    const result = begin();
    while (!gateway.release) await wait(1);
    gateway.faultOf = () => undefined;
    return { result, release: gateway.release as () => void };
  };
  const snapshot = await late(() => one.checkpoint()); // it waits for the lock
  await add(other, "Vienna");
  const write = await late(() => add(one, "Prague"));
  snapshot.release();
  await wait(50); // it waits for the write
  write.release();
  await Promise.all([snapshot.result, write.result]);
  const joined = await open(t, etcd);
  assert.deepEqual(namesIn(joined), ["Berlin", "Vienna", "Prague"]);
  assert.deepEqual(namesIn(one), namesIn(joined));
});

test("a watch that breaks is begun again, and goes on where it was", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const [one, other] = [await open(t, etcd), await open(t, etcd)];
  for (const name of ["Berlin", "Vienna", "Prague"]) {
    gateway.cutWatches();
    await add(one, name);
    while (other.table("zoos").size < one.table("zoos").size) {
      await wait(2);
    }
  }
  assert.deepEqual(namesIn(other), namesIn(one));
});

test("a snapshot of a newer version is refused", async (t) => {
  const gateway = new Gateway();
  const etcd = await gateway.listen(t);
  const store = await open(t, etcd);
  await add(store, "Berlin");
  await store.checkpoint();
  gateway.replace("snapshot", ofNewerVersion);
  await assert.rejects(open(t, etcd), { code: "format" });
});
