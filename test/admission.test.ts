/** Waiting when many ask at once: the order in which they are served, and who is not. */

import { strict as assert } from "node:assert";
import { syncBuiltinESMExports } from "node:module";
import { test } from "node:test";
import { OverloadedError, Turns } from "../src/admission.ts";
import { holdTurn } from "../src/api/records/held-turn.ts";
import { background, visitor } from "./requester.ts";

/** Work that runs until it is told to end. */
function controlled(turns: Turns) {
  const started: string[] = [];
  const ends: (() => void)[] = [];
  return {
    started,
    /** Asks for work; the first letter of its name is that of its client. */
    ask: (name: string, requester = visitor(name.charAt(0))) =>
      turns.run(requester, () =>
        new Promise<string>((resolve) => {
          started.push(name);
          ends.push(() => resolve(name));
        })),
    /** Ends the work that started first, and lets the next one start. */
    endOne: async () => {
      await new Promise((resolve) => setImmediate(resolve));
      ends.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

test("all of one client are served, however many, in the order in which they asked", async () => {
  const { started, ask, endOne } = controlled(new Turns(1));
  const names = Array.from({ length: 500 }, (_, at) => `a${at}`);
  const all = names.map((name) => ask(name));
  for (const _ of names) await endOne();
  assert.deepEqual(await Promise.all(all), names);
  assert.deepEqual(started, names);
});

test("clients take turns, whatever each of them asks for", async () => {
  const { started, ask, endOne } = controlled(new Turns(1));
  const names = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"];
  const all = names.map((name) => ask(name));
  for (const _ of all) await endOne();
  await Promise.all(all);
  assert.deepEqual(started, ["a1", "c1", "b1", "a2", "b2", "a3", "a4"]);
});

test("a client that comes after a crowd does not wait for all of it", async () => {
  const { started, ask, endOne } = controlled(new Turns(1));
  const crowd = Array.from("abcdefghij", (client) => ask(`${client}1`));
  const late = ask("z1");
  await endOne();
  await endOne();
  assert.equal(await late, "z1");
  assert.deepEqual(started.slice(0, 2), ["a1", "z1"]);
  for (const _ of crowd) await endOne();
  await Promise.all(crowd);
});

test("a client cannot have more than its share of long turns", async () => {
  const turns = new Turns(3, 2);
  const { started, ask, endOne } = controlled(turns);
  const all = ["a1", "a2", "a3"].map((name) => ask(name));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(started, ["a1", "a2"]);
  all.push(ask("b1"));
  await new Promise((resolve) => setImmediate(resolve));
  assert.deepEqual(started, ["a1", "a2", "b1"]);
  for (const _ of all) await endOne();
  await Promise.all(all);
});

test("one whose client leaves while it waits is never begun", async () => {
  const { started, ask, endOne } = controlled(new Turns(1));
  const leaver = visitor("b");
  const first = ask("a1");
  const left = ask("b1", leaver);
  const second = ask("a2");
  leaver.leave();
  await assert.rejects(left, /b has left/);
  await assert.rejects(ask("b2", leaver), /b has left/, "nor is a later one");
  await endOne();
  await endOne();
  await Promise.all([first, second]);
  assert.deepEqual(started, ["a1", "a2"]);
});

test("only one that has waited for 30 s is refused", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  const { started, ask } = controlled(new Turns(1));
  ask("a1");
  const early = ask("a2");
  t.mock.timers.tick(29_999);
  const late = ask("a3");
  late.catch(() => {});
  let isRefused = false;
  early.catch(() => isRefused = true);
  await Promise.resolve();
  assert.equal(isRefused, false);
  t.mock.timers.tick(1);
  await assert.rejects(early, (error) => {
    assert.ok(error instanceof OverloadedError);
    return /30 s/.test(error.message);
  });
  t.mock.timers.tick(29_998);
  await Promise.resolve();
  t.mock.timers.tick(1);
  await assert.rejects(late, OverloadedError);
  assert.deepEqual(started, ["a1"]);
});

test("a turn ends when its work fails", async () => {
  const turns = new Turns(1);
  const fail = () => Promise.reject(new Error("failed"));
  for (let times = 0; times < 3; times++) {
    await assert.rejects(turns.run(background, fail), /failed/);
  }
  assert.equal(await turns.run(background, () => "done"), "done");
});

test("a turn that is held ends when its client leaves", async () => {
  const turns = new Turns(1);
  const holder = visitor("a");
  await holdTurn(turns, holder);
  const next = visitor("b");
  let hasTurn = false;
  const waiting = holdTurn(turns, next).then(() => hasTurn = true);
  await Promise.resolve();
  assert.equal(hasTurn, false);
  holder.leave();
  await waiting;
  next.leave();
  assert.equal(await turns.run(background, () => "free"), "free");
  await assert.rejects(holdTurn(turns, next), /b has left/);
});

test("a client that holds its turns for long does not keep others from beginning", async (t) => {
  t.mock.timers.enable({ apis: ["setTimeout"] });
  syncBuiltinESMExports(); // held-turn.ts has the timer of node:timers/promises
  t.after(() => {
    t.mock.timers.reset();
    syncBuiltinESMExports();
  });
  const turns = new Turns(1);
  const holder = visitor("a");
  await holdTurn(turns, holder);
  let hasTurn = false;
  const waiting = holdTurn(turns, visitor("b")).then(() => hasTurn = true);
  t.mock.timers.tick(9999);
  await Promise.resolve();
  assert.equal(hasTurn, false);
  t.mock.timers.tick(1);
  await waiting;
  holder.leave(); // its turn has ended already
  const { ask } = controlled(turns);
  ask("c1");
  await new Promise((resolve) => setImmediate(resolve));
  assert.equal(hasTurn, true);
});

test("the last turns of a thousand clients are remembered", async () => {
  const turns = new Turns(1);
  const { started, ask, endOne } = controlled(turns);
  const visit = (client: string) => turns.run(visitor(client), () => {});
  await visit("a");
  for (let index = 0; index < 998; index++) await visit(`${index}`);
  await visit("b");
  const order = async () => {
    started.length = 0;
    const all = ["x", "b", "a"].map((name) => ask(name));
    for (const _ of all) await endOne();
    await Promise.all(all);
    return started.join("");
  };
  assert.equal(await order(), "xab", "the turn of a was longer ago");
});
