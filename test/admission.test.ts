/** Admission when many ask at once: the order in which they are served, and those refused. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import { PassThrough } from "node:stream";
import { test } from "node:test";
import { Admission, OverloadedError, Slots } from "../src/admission.ts";

/** Work that runs until it is told to end. */
function controlled() {
  const started: string[] = [];
  const ends: (() => void)[] = [];
  return {
    started,
    work: (name: string) => () =>
      new Promise<string>((resolve) => {
        started.push(name);
        ends.push(() => resolve(name));
      }),
    /** Ends the work that started first, and lets the next one start. */
    endOne: async () => {
      ends.shift()?.();
      await new Promise((resolve) => setImmediate(resolve));
    },
  };
}

function requester(client: string) {
  const result = {
    client,
    isGone: false,
    throwIfAborted() {
      if (result.isGone) throw new Error(`${client} is gone`);
    },
  };
  return result;
}

const limits = { maxRunning: 1, maxWaiting: 3, message: "Too many." };

test("those of one client are served in the order in which they asked", async () => {
  const admission = new Admission(limits);
  const { started, work, endOne } = controlled();
  const names = ["1", "2", "3", "4"];
  const all = names.map((name) => admission.run(requester("a"), work(name)));
  assert.ok(admission.isFull);
  for (const _ of names) await endOne();
  assert.deepEqual(await Promise.all(all), names);
  assert.deepEqual(started, names);
});

test("a client that asks for little does not wait for one that asks for much", async () => {
  const admission = new Admission({ ...limits, maxWaiting: 10 });
  const { started, work, endOne } = controlled();
  const all = ["a1", "a2", "a3", "a4", "b1", "b2", "c1"].map((name) =>
    admission.run(requester(name.charAt(0)), work(name))
  );
  for (const _ of all) await endOne();
  await Promise.all(all);
  assert.deepEqual(started, ["a1", "b1", "c1", "a2", "b2", "a3", "a4"]);
});

test("in a full queue the client with the most requests is refused", async () => {
  const admission = new Admission(limits);
  const { started, work, endOne } = controlled();
  const run = (name: string) =>
    admission.run(requester(name.charAt(0)), work(name));
  const served = [run("a1"), run("a2"), run("a3")];
  const displaced = run("a4");
  await assert.rejects(run("a5"), new OverloadedError("Too many."));
  assert.throws(() => admission.check(requester("a")), OverloadedError);
  admission.check(requester("b"));
  served.push(run("b1"));
  await assert.rejects(displaced, new OverloadedError("Too many."));
  for (const _ of served) await endOne();
  await Promise.all(served);
  assert.deepEqual(started, ["a1", "b1", "a2", "a3"]);
});

test("a client's later request never comes before its earlier ones, however long they wait", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const admission = new Admission(limits);
  const { started, work, endOne } = controlled();
  const run = (name: string) => admission.run(requester("a"), work(name));
  const served = ["1", "2", "3", "4"].map(run);
  now = 600_000;
  await assert.rejects(run("5"), OverloadedError);
  await endOne();
  served.push(run("6"));
  for (const _ of served) await endOne();
  await Promise.all(served);
  assert.deepEqual(started, ["1", "2", "3", "4", "6"]);
});

test("a refused request counts too, so that asking again and again does not help", async () => {
  const admission = new Admission(limits);
  const { started, work, endOne } = controlled();
  const run = (client: string) =>
    admission.run(requester(client), work(client));
  const served = ["a", "b", "c", "d"].map(run);
  for (let times = 0; times < 3; times++) {
    assert.throws(() => admission.check(requester("e")), OverloadedError);
  }
  await endOne();
  const refused = assert.rejects(run("e"), OverloadedError);
  served.push(run("f"));
  await refused;
  for (const _ of served) await endOne();
  await Promise.all(served);
  assert.deepEqual(started, ["a", "b", "c", "d", "f"]);
});

test("an aborted request makes room, and is not started", async () => {
  const admission = new Admission(limits);
  const { started, work, endOne } = controlled();
  const leaver = requester("b");
  const first = admission.run(requester("a"), work("a1"));
  const leaving = admission.run(leaver, work("b1"));
  const others = ["a2", "a3"].map((name) =>
    admission.run(requester("a"), work(name))
  );
  leaver.isGone = true;
  const last = admission.run(requester("a"), work("a4"));
  await assert.rejects(leaving, OverloadedError);
  const lateLeaver = requester("c");
  const late = admission.run(lateLeaver, work("c1"));
  lateLeaver.isGone = true;
  const refused = assert.rejects(last, OverloadedError);
  const gone = assert.rejects(late, /c is gone/);
  for (let each = 0; each < 4; each++) await endOne();
  await Promise.all([first, ...others, refused, gone]);
  assert.deepEqual(started, ["a1", "a2", "a3"]);
});

test("a slot is free again when its work fails", async () => {
  const admission = new Admission({ ...limits, maxWaiting: 0 });
  const fail = () => Promise.reject(new Error("failed"));
  for (let times = 0; times < 3; times++) {
    await assert.rejects(admission.run(requester("a"), fail), /failed/);
  }
  assert.equal(await admission.run(requester("a"), () => "done"), "done");
});

test("a request of a minute ago counts half", async (t) => {
  let now = 0;
  t.mock.method(performance, "now", () => now);
  const admission = new Admission({ ...limits, maxWaiting: 1 });
  const { started, work, endOne } = controlled();
  const run = (client: string, work: () => unknown) =>
    admission.run(requester(client), work);
  for (const client of ["a", "a"]) await run(client, () => {});
  now = 60_000;
  await run("b", () => {});
  const served = [run("c", work("c")), run("a", work("a"))];
  await assert.rejects(run("b", work("b")), OverloadedError); // both have one
  for (const _ of served) await endOne();
  await Promise.all(served);
  assert.deepEqual(started, ["c", "a"]);
});

test("of 10,000 clients the longest idle one is forgotten for another", async () => {
  const admission = new Admission({ ...limits, maxWaiting: 1 });
  const ask = (client: string) => admission.run(requester(client), () => {});
  for (const client of ["a", "a", "b", "b", "waiting"]) await ask(client);
  for (let index = 0; index < 9996; index++) await ask(`${index}`);
  /** Checks clients while the queue is full with a client that has asked before. */
  const whileFull = async (check: () => void) => {
    const { work, endOne } = controlled();
    const all = ["running", "waiting"].map((client) =>
      admission.run(requester(client), work(client))
    );
    check();
    for (const _ of all) await endOne();
    await Promise.all(all);
  };
  await whileFull(() =>
    assert.throws(() => admission.check(requester("a")), OverloadedError)
  );
  await ask("another");
  await whileFull(() => admission.check(requester("b")));
});

test("the client with the most slots loses one to a client that holds fewer", () => {
  const slots = new Slots(3, "Too many.");
  const cancelled: string[] = [];
  const take = (name: string) => {
    const destroy = () => cancelled.push(name);
    const stream = Object.assign(new PassThrough(), { destroy });
    slots.take(name.charAt(0), stream);
    return () => stream.emit("close");
  };
  const release = take("a1");
  take("a2");
  take("a3");
  assert.throws(() => take("a4"), new OverloadedError("Too many."));
  take("b1");
  assert.deepEqual(cancelled, ["a1"]);
  release(); // its slot belongs to b by now
  assert.throws(() => take("b2"), OverloadedError, "a would hold fewer");
  take("c1");
  assert.deepEqual(cancelled, ["a1", "a2"]);
  assert.throws(() => take("d1"), OverloadedError, "each holds one");
});

test("a slot is free again when its stream closes", async () => {
  const slots = new Slots(1, "Too many.");
  for (let times = 0; times < 3; times++) {
    const stream = new PassThrough();
    slots.take("a", stream);
    const other = new PassThrough();
    assert.throws(() => slots.take("a", other), OverloadedError);
    assert.equal(stream.destroyed, false);
    stream.destroy();
    await once(stream, "close");
  }
});
