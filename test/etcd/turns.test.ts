/** Stores that other ones, which write all the time, overtake at each attempt. */

import { strict as assert } from "node:assert";
import { Buffer } from "node:buffer";
import { join } from "node:path";
import { performance } from "node:perf_hooks";
import { test, type TestContext } from "node:test";
import { openEtcdStore } from "../../src/etcd/open.ts";
import type { EtcdStore } from "../../src/etcd/store.ts";
import { errorCode } from "../../src/store/error.ts";
import type { Store } from "../../src/store/store.ts";
import { startApplication } from "../application.ts";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { Gateway } from "./gateway.ts";

/** The turn of a server that is not there. */
const turn = `head/turn/${"f".repeat(16)}`;

const hasTurn = ({ keys }: Gateway) =>
  keys.some((key) => key.startsWith("head/turn"));

/** An attempt is lost for certain if so many are. */
const maxAttempts = 20;

/** Opens stores that share an etcd, and closes them before it when the test ends. */
async function openStores(t: TestContext, count: number) {
  const gateway = new Gateway();
  const folder = await temporaryFolder();
  const stores: EtcdStore[] = [];
  t.after(async () => {
    await Promise.all(stores.map((store) => store.close()));
    await removeFolder(folder);
  });
  const etcd = await gateway.listen(t);
  for (let each = 0; each < count; each++) {
    const place = {
      folder: join(folder, `${each}`),
      tables: [{ name: "zoos" }],
    };
    stores.push(await openEtcdStore(place, etcd));
  }
  const [slow, other] = stores;
  assert.ok(slow && other);
  return { gateway, etcd, stores, slow, other };
}

/** Adds a record; returns how many attempts it took. */
async function add(store: Store, name: string): Promise<number> {
  let attempts = 0;
  await store.settle(() => {
    if (++attempts > maxAttempts) throw new Error(`${name} starves`);
    const id = store.table("zoos").lastId + 1;
    return { seq: store.apply([["put", "zoos", { id, name }]], 0) };
  });
  return attempts;
}

/** Delays each commit of a record whose name contains `slow`, until another store has committed or has had two rounds: one that writes all the time commits in each. */
function delaySlow(gateway: Gateway, other: EtcdStore): void {
  gateway.delayOf = async (path, { success: [log] = [] }) => {
    const { value = "" } = log?.request_put ?? {};
    const isSlow = Buffer.from(value, "base64").includes("slow");
    if (path !== "kv/txn" || !isSlow) return;
    const { head } = gateway;
    for (let round = 0; round < 2 && gateway.head === head; round++) {
      await other.confirm(true);
    }
  };
}

/** Writes all the time until `work` has ended; passes it the number of writes so far. */
async function whileWriting(
  write: () => Promise<unknown>,
  work: (count: () => number) => Promise<void>,
): Promise<void> {
  let isDone = false;
  let count = 0;
  const writing = (async () => {
    for (; !isDone; count++) await write();
  })();
  try {
    await work(() => count);
  } finally {
    isDone = true;
    await writing;
  }
}

test("a store that is slow commits after a few attempts, although another one writes all the time, and that one goes on", async (t) => {
  const { gateway, slow, other } = await openStores(t, 2);
  delaySlow(gateway, other);
  await whileWriting(() => add(other, "quick"), async (count) => {
    for (let each = 0; each < 3; each++) {
      const attempts = await add(slow, `slow ${each}`);
      assert.ok(attempts > 4, "it was not overtaken");
      assert.ok(attempts <= 6, `${attempts} attempts`);
      const before = count();
      while (count() < before + 2) await new Promise(setImmediate);
      assert.ok(!hasTurn(gateway));
    }
  });
});

test("work in the background that is slow, and begins again by itself, is done after a few attempts", async (t) => {
  const { gateway, slow, other } = await openStores(t, 2);
  delaySlow(gateway, other);
  await whileWriting(() => add(other, "quick"), async () => {
    for (let attempts = 1, isDone = false; !isDone; attempts++) {
      assert.ok(attempts <= 6, `${attempts} attempts`);
      const id = slow.table("zoos").lastId + 1;
      const seq = slow.apply([["put", "zoos", { id, name: "slow" }]], 0);
      try {
        await slow.durable(seq);
        isDone = true;
      } catch (error) {
        assert.equal(errorCode(error), "overtaken");
      }
    }
    assert.ok(!hasTurn(gateway));
  });
});

test("all that waits for one commit loses one attempt, and work that is not tried again keeps no turn", async (t) => {
  const { gateway, slow, other } = await openStores(t, 2);
  gateway.delayOf = async (path, { success: [log] = [] }) => {
    const { value = "" } = log?.request_put ?? {};
    const isSlow = Buffer.from(value, "base64").includes("slow");
    if (path === "kv/txn" && isSlow) await add(other, "first");
  };
  for (let each = 1; each <= 4; each++) {
    assert.ok(!hasTurn(gateway), `after ${each - 1} attempts`);
    const id = slow.table("zoos").lastId + 1;
    const seq = slow.apply([["put", "zoos", { id, name: "slow" }]], 0);
    const waiting = Array.from({ length: 5 }, () => slow.durable(seq));
    for (const { status } of await Promise.allSettled(waiting)) {
      assert.equal(status, "rejected");
    }
  }
  assert.ok(hasTurn(gateway));
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + 3000);
  await add(slow, "another");
  assert.ok(!hasTurn(gateway));
});

test("of two stores that are slow, beside one that writes all the time, each commits", async (t) => {
  const { gateway, stores, slow, other } = await openStores(t, 3);
  const two = stores[2] ?? slow;
  delaySlow(gateway, other);
  await whileWriting(() => add(other, "quick"), async () => {
    await Promise.all(
      Array.from({ length: 6 }, async (_, each) => {
        const attempts = await add(each % 2 ? slow : two, `slow ${each}`);
        assert.ok(attempts <= 10, `${attempts} attempts`);
      }),
    );
  });
  assert.ok(!hasTurn(gateway));
});

/** Opens a store that waits for another one, with a write that waits. */
async function openWaiting(t: TestContext) {
  const { gateway, slow: store } = await openStores(t, 2);
  gateway.set(turn, "1");
  await store.confirm(true);
  const { head } = gateway;
  let isDone = false;
  const writing = add(store, "waits").then(() => isDone = true);
  // Reads are not refused meanwhile.
  for (let each = 0; each < 3; each++) await store.confirm(true);
  assert.deepEqual([isDone, gateway.head], [false, head]);
  return { gateway, store, writing };
}

test("a store waits while another one has the turn, and reads; then it goes on", async (t) => {
  const { gateway, writing } = await openWaiting(t);
  gateway.remove(turn);
  await writing;
});

test("a store waits for three seconds at most, and for the next turn again", async (t) => {
  const { gateway, store, writing } = await openWaiting(t);
  let aheadMs = 3000;
  const now = performance.now.bind(performance);
  t.mock.method(performance, "now", () => now() + aheadMs);
  await writing;
  await add(store, "does not wait");
  gateway.set(turn, "2");
  await store.confirm(true);
  let isDone = false;
  const next = add(store, "waits again").then(() => isDone = true);
  for (let each = 0; each < 3; each++) await store.confirm(true);
  assert.ok(!isDone);
  aheadMs += 3000;
  await next;
});

test("a store that waits for another one closes, and makes durable what waits", async (t) => {
  const { store, writing } = await openWaiting(t);
  await store.close();
  await writing;
});

/** Has a store ask for the turn; runs `work` once it has it, instead of a commit. */
async function whileOnesTurn(
  t: TestContext,
  work: (
    gateway: Gateway,
    count: () => number,
    store: Store,
  ) => Promise<void>,
): Promise<void> {
  const { gateway, slow, other } = await openStores(t, 2);
  delaySlow(gateway, other);
  const write = async () => {
    const attempts = await add(other, "quick");
    assert.ok(attempts <= 2, `${attempts} attempts`);
  };
  await whileWriting(write, async (count) => {
    let attempts = 0;
    const settling = slow.settle(async () => {
      if (hasTurn(gateway)) {
        await work(gateway, count, slow);
        throw new Error("invalid now");
      }
      if (++attempts > maxAttempts) throw new Error("it starves");
      const mutation = ["put", "zoos", { id: 1, name: "slow" }] as const;
      return { seq: slow.apply([mutation], 0) };
    });
    await assert.rejects(settling, /invalid now/);
    while (hasTurn(gateway)) await new Promise(setImmediate);
  });
}

test("a store that ends without a commit ends its turn", async (t) => {
  await whileOnesTurn(t, async () => {});
});

test("a store that waits loses one attempt, however often the one that has the turn commits", async (t) => {
  await whileOnesTurn(t, async (_gateway, _count, store) => {
    for (let each = 0; each < 5; each++) await add(store, "more");
  });
});

test("a turn ends with the lease of its server", async (t) => {
  await whileOnesTurn(t, async (gateway, count) => {
    gateway.expireLeases();
    assert.ok(!hasTurn(gateway));
    const before = count();
    while (count() < before + 2) await new Promise(setImmediate);
  });
});

test("a request that is slow succeeds, although another server writes all the time", async (t) => {
  const { gateway, etcd, other } = await openStores(t, 2);
  const server = await startApplication({ etcd });
  t.after(() => server.stop());
  const { token } = server;
  delaySlow(gateway, other);
  await whileWriting(() => add(other, "quick"), async (count) => {
    const json = { name: "slow", city: "Amsterdam", country: "NL" };
    for (let each = 0; each < 3; each++) {
      const options = { token, json };
      const { status } = await server.request("POST", "/v1/zoos", options);
      assert.equal(status, 201);
      const before = count();
      while (count() < before + 2) await new Promise(setImmediate);
      assert.ok(!hasTurn(gateway));
    }
  });
});
