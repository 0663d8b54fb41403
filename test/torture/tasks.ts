/**
 * Work in the background on real servers that are killed at random moments:
 * imports, and deletions by filter. However often a server dies, each line is
 * imported once, and each record that matches is deleted and counted once.
 */

import { strict as assert } from "node:assert";
import { rmSync } from "node:fs";
import { join } from "node:path";
import { setTimeout as delay } from "node:timers/promises";
import { buildInto, patchBuild } from "../etcd/cluster.ts";
import { type Body, type RequestOptions, start } from "../harness.ts";
import type { Defect } from "./memory/defects.ts";
import { Random } from "./random.ts";

/** Servers that save progress wrongly, in one way each. */
const defects: Readonly<Record<string, Defect>> = {
  "saves the progress of an import after its lines": {
    file: "features/imports/worker.js",
    from: "apply(context.records.putMutation(current));",
    // Not once it has ended: it would run for ever.
    to: `const saved = current;
      globalThis.setTimeout(() => {
        const { status } = context.records.table.get(saved.id).document;
        if (!/queued|running/.test(status)) return;
        store.transact(0, (apply) => apply(context.records.putMutation(saved)));
      }, 20);`,
    caught: /imported/,
  },
  "saves the progress of a deletion at its end only": {
    file: "features/deletions/task.js",
    from: "if (!isChanged &&",
    to: "if (!isPast() || !isChanged &&",
    caught: /deleted|cascaded|matched/,
  },
};

/** A defect must be caught within so many rounds. */
const roundsPerDefect = 20;

/** How many zoos a round deletes, and how many animals each of them has. */
const zoosPerRound = 600;
const animalsPerZoo = 6;

/** The longest time until a server is killed: most tasks take longer. */
const maxLifeMs = 150;

/** The options of the rounds. */
interface TaskOptions {
  readonly folder: string;
  readonly rounds: number;
  readonly seed: number;
  readonly say: (what: string, result: unknown) => void;
}

/** Runs rounds, then servers with each defect until it is caught. */
export async function taskRounds(options: TaskOptions): Promise<void> {
  const { folder, rounds, seed, say } = options;
  const main = await buildInto(folder, []);
  const random = new Random(seed);
  const total = { rounds, kills: 0, import: 0, deletion: 0 };
  for (let each = 0; each < rounds; each++) {
    const own = join(folder, `tasks-${each}`);
    await taskRound(own, { main, random, total });
    rmSync(own, { recursive: true });
  }
  assert.ok(total.import + total.deletion > 0, "no task was interrupted");
  say("Killed while a task was running, by its type", total);
  for (const [index, [name, defect]] of Object.entries(defects).entries()) {
    const wrong = await patchBuild(folder, `tasks-defect-${index}`, [defect]);
    let isCaught = false;
    for (let tries = 0; !isCaught; tries++) {
      assert.ok(tries < roundsPerDefect, `Not caught: a server that ${name}`);
      const own = join(folder, `tasks-${index}-${tries}`);
      const end = await taskRound(own, { main: wrong, random, total })
        .then(() => "no failure", String);
      isCaught = defect.caught.test(end);
      if (isCaught) say(`Seeded defect, caught in try ${tries}`, name);
    }
  }
}

/** The life of one store: an import, then deletions with and without cascade, over several servers. */
async function taskRound(
  folder: string,
  { main, random, total }: {
    readonly main: string;
    readonly random: Random;
    /** Counts how often a server was killed, and what it was doing. */
    readonly total: { kills: number; import: number; deletion: number };
  },
): Promise<void> {
  const options = { folder, main, isNew: true };
  let server = await start(options);
  let token = await server.signIn();
  const send = async (
    method: string,
    path: string,
    more: RequestOptions = {},
  ) => await server.request(method, `/v1/${path}`, { token, ...more });
  const restart = async () => {
    await server.end("SIGKILL");
    total.kills++;
    server = await start(options);
    token = await server.signIn();
  };
  /** Begins a task, kills the server meanwhile, often several times, and returns the task at its end. */
  const playTask = async (begin: () => Promise<unknown>): Promise<Body> => {
    const { body: [latest] } = await send("GET", "tasks?sortby=id&order=desc");
    const id = (latest?.id ?? 0) + 1;
    let isKilling = true;
    for (let isNew = false;;) {
      const found = await send("GET", `tasks/${id}`);
      const { status, ["type"]: type } = found.body;
      if (isNew && status === "running") {
        total[type === "import" ? "import" : "deletion"]++;
      }
      isNew = isKilling;
      if (status === "succeeded" || status === "failed") return found.body;
      // A task that was not acknowledged may not have been stored.
      const begun = found.status === 200
        ? undefined
        : begin().catch(() => undefined);
      if (isKilling) {
        await delay(random.below(maxLifeMs));
        await restart();
        isKilling = random.chance(2 / 3);
      } else await delay(5);
      await begun;
    }
  };
  try {
    const cities = ["Artis", "Basel", "Celle"];
    for (const city of cities) {
      const zoos = Array.from(
        { length: zoosPerRound },
        (_, at) => ({ name: `${at}`, city, country: "NL" }),
      );
      assert.equal((await send("POST", "zoos", { json: zoos })).status, 201);
    }
    // The zoos of the first two cities have animals, those of the third none.
    const lines = Array.from(
      { length: 2 * zoosPerRound * animalsPerZoo },
      (_, at) =>
        JSON.stringify({
          zoo_id: at % (2 * zoosPerRound) + 1,
          animal_type_id: 7,
          name: `${at}`,
        }),
    );
    const imported = await playTask(() =>
      send("POST", "animals", {
        raw: lines.join("\n"),
        headers: { "content-type": "application/x-ndjson" },
      })
    );
    const count = async (path: string) =>
      Number((await send("HEAD", path)).headers.get("x-total-count"));
    const animals = zoosPerRound * animalsPerZoo;
    assert.deepEqual(
      { imported: imported.imported, animals: await count("animals") },
      { imported: lines.length, animals: lines.length },
    );
    const expected = [
      ["Artis", "&cascade=true", zoosPerRound, animals],
      ["Basel", "", 0, 0],
      ["Celle", "", zoosPerRound, 0],
    ] as const;
    for (const [city, more, deleted, cascaded] of expected) {
      const task = await playTask(() =>
        send("DELETE", `zoos?city=${city}${more}`)
      );
      const { body: [zoo] } = await send("GET", `zoos?city=${city}`);
      assert.deepEqual({
        status: task.status,
        matched: task["matched"],
        deleted: task["deleted"],
        cascaded: task["cascaded"],
        rejected: task.rejected,
        isLeft: zoo !== undefined,
      }, {
        status: "succeeded",
        matched: zoosPerRound,
        deleted,
        cascaded,
        rejected: zoosPerRound - deleted,
        isLeft: deleted === 0,
      });
    }
    assert.equal(await count("zoos"), zoosPerRound);
    assert.equal(await count("animals"), animals);
  } finally {
    await server.stop();
  }
}
