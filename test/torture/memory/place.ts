/**
 * Where a server has little memory: in a small heap, or in a cgroup whose limit
 * the kernel enforces by killing.
 */

import { mkdirSync, rmdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { runNode, type Server, start } from "../../harness.ts";

/** How much memory a process may use, and who limits it. */
export interface Place {
  readonly limitedBy: "heap" | "cgroup";
  readonly megabytes: number;
}

/** The folders of the memory controller, and the files with its limits: cgroup v1 and v2. */
const controllers = [
  ["/sys/fs/cgroup/memory", "memory.limit_in_bytes"],
  ["/sys/fs/cgroup", "memory.max"],
] as const;

let groups = 0;

/**
 * Creates a cgroup with a memory limit; returns its folder.
 *
 * @throws {Error} if there is no memory controller, or no right to use it
 */
export function createGroup(megabytes: number): string {
  const name = `zoo-api-torture-${process.pid}-${++groups}`;
  const reasons: string[] = [];
  for (const [controller, limit] of controllers) {
    const group = join(controller, name);
    try {
      mkdirSync(group);
    } catch (error) {
      reasons.push(String(error));
      continue;
    }
    try {
      writeFileSync(join(group, limit), String(megabytes << 20));
      return group;
    } catch (error) {
      rmdirSync(group);
      reasons.push(String(error));
    }
  }
  throw new Error(reasons.join("; "));
}

/** Removes a cgroup, once the processes in it are gone. */
async function removeGroup(group: string): Promise<void> {
  for (let attempt = 0;; attempt++) {
    try {
      return rmdirSync(group);
    } catch (error) {
      // The kernel takes a moment to notice that the last process has ended.
      if (attempt === 200) throw error;
      await delay(20);
    }
  }
}

/** Returns why a cgroup cannot limit memory here; undefined if it can. */
export async function lacksGroups(): Promise<string | undefined> {
  try {
    await removeGroup(createGroup(256));
    return undefined;
  } catch (error) {
    return `no cgroup with a memory limit here: ${error}`;
  }
}

/** The built program, its declaration and its data folder. */
export interface Program {
  readonly main: string;
  readonly collections: string;
  readonly folder: string;
}

/** Moves the shell into a cgroup, and replaces it with the command. */
const enter = 'echo $$ > "$0/cgroup.procs" && exec "$@"';

function heapFlags({ limitedBy, megabytes }: Place): readonly string[] {
  return limitedBy === "heap" ? [`--max-old-space-size=${megabytes}`] : [];
}

/** Starts a server in a place; throws an error with its output if it ends instead. */
export async function startIn(
  place: Place,
  { main, collections, folder }: Program,
): Promise<Server> {
  const isInGroup = place.limitedBy === "cgroup";
  const group = isInGroup ? createGroup(place.megabytes) : undefined;
  const remove = () => group === undefined ? undefined : removeGroup(group);
  try {
    const server = await start({
      ...{ main, folder },
      env: { COLLECTIONS: collections },
      nodeArgs: heapFlags(place),
      ...(group && { prefix: ["sh", "-c", enter, group] }),
      // The heap has no share in the memory of password hashes, a cgroup has.
      hashesFully: isInGroup,
    });
    server.child.once("close", () => remove()?.catch(() => {}));
    return server;
  } catch (error) {
    await remove();
    throw error;
  }
}

/** Checks a data folder with the command, in as small a heap as the server had. */
export async function checkFolder(
  place: Place,
  { main, collections, folder }: Program,
): Promise<void> {
  const words = [main, "check", "--data-dir", folder];
  const { code, stdout, stderr } = await runNode(
    [...heapFlags(place), ...words],
    { env: { COLLECTIONS: collections } },
  );
  if (code !== 0) {
    const output = `${stdout}${stderr}`.slice(-2000);
    throw new Error(`The command check ended with ${code}: ${output}`);
  }
}
