/**
 * What reaches the disk for each record: bytes, writes and flushes, counted by
 * the kernel on a loop device of its own, at one write per second and at a
 * thousand. Needs root.
 *
 *     npm run bench:wear [-- --seconds 60 --type ext4]
 */

import { execFileSync } from "node:child_process";
import { mkdirSync, mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { parseArgs } from "node:util";
import { fastFiles, FastWrites } from "../../src/store/log/fast-writes.ts";
import * as marker from "../../src/store/log/marker.ts";
import { openStore, type Store } from "../../src/store/store.ts";
import { commit } from "../commit.ts";

const { values } = parseArgs({
  options: {
    seconds: { type: "string", default: "60" },
    type: { type: "string", default: "ext4" },
  },
});

const run = (command: string, ...args: string[]) =>
  execFileSync(command, args, { encoding: "utf8" }).trim();

const record = {
  zoo_id: 12,
  name: "Momo",
  species: "Okapia johnstoni",
  weight_kg: 212.5,
  born: "2019-04-30",
  created_at: "2026-05-01T08:00:00.000Z",
  updated_at: "2026-05-01T08:00:00.000Z",
};
let id = 0;

/** Writes records at a rate for some seconds, each durable, and returns how many. */
async function write(
  store: Store,
  { rate, seconds }: { rate: number; seconds: number },
): Promise<number> {
  const commits: Promise<void>[] = [];
  const start = performance.now();
  for (let ms = 0; ms < seconds * 1000; ms = performance.now() - start) {
    while (commits.length <= ms * rate / 1000) {
      const operation = ["put", "animals", { id: ++id, ...record }] as const;
      commits.push(commit(store, [operation], 1));
    }
    await delay(1000 / rate);
  }
  await Promise.all(commits);
  return commits.length;
}

/** Returns the counters of a device. */
function count(device: string) {
  const name = device.replace("/dev/", "");
  const fields = readFileSync(`/sys/block/${name}/stat`, "utf8")
    .trim().split(/\s+/).map(Number);
  const [, , , , writes = 0, , sectors = 0] = fields;
  return { writes, bytes: sectors * 512, flushes: fields[15] ?? 0 };
}

const folder = mkdtempSync(join(tmpdir(), "wear-"));
const image = join(folder, "image");
const mount = join(folder, "mount");
mkdirSync(mount);
run("truncate", "-s", "512M", image);
const device = run("losetup", "--find", "--show", image);
try {
  // Work that ext4 would do later by itself must not be counted.
  const options = values.type === "ext4"
    ? ["-E", "lazy_itable_init=0,lazy_journal_init=0"]
    : [];
  run(`mkfs.${values.type}`, "-q", ...options, device);
  run("mount", device, mount);
  const folder = join(mount, "store");
  const store = await openStore({
    folder,
    tables: [{ name: "animals" }],
    files: fastFiles,
    fastWrites: new FastWrites(),
    marker,
  });
  for (const rate of [1, 1000]) {
    // The start, and the small steps in which a new log grows, are not counted.
    await write(store, { rate: 500, seconds: 10 });
    run("sync", "-f", mount);
    const before = count(device);
    const seconds = rate === 1 ? Number(values.seconds) : 10;
    const records = await write(store, { rate, seconds });
    run("sync", "-f", mount);
    const after = count(device);
    const each = (unit: keyof typeof before) =>
      (after[unit] - before[unit]) / records;
    console.log(
      `${values.type}, ${rate} a second: ${records} records, each ` +
        `${(each("bytes") / 1024).toFixed(2)} KiB, ` +
        `${each("writes").toFixed(2)} writes, ` +
        `${each("flushes").toFixed(2)} flushes`,
    );
  }
  await store.close();
} finally {
  try {
    run("umount", mount);
  } finally {
    run("losetup", "--detach", device);
    rmSync(folder, { recursive: true });
  }
}
process.exit(0);
