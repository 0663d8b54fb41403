/**
 * One process per folder: each listens on a unix socket in the folder itself,
 * which the kernel closes with the process, however that ends. So no stale lock
 * has to be deleted by hand, and containers and network namespaces that share
 * the folder see each other's locks. (Machines that share it over a network do
 * not.) The usual way would be flock, which Node.js offers only through a child
 * process; a file with a process id would have to be cleaned up, and could name
 * the wrong process in another container.
 *
 * A process gives up if it sees another one alive. Otherwise it listens under a
 * temporary name, renames the socket to its published name `lock-<random>.sock`,
 * and looks again. (One that dies in between leaves an empty file that nobody
 * looks at.)
 *
 * - Safe. Names are never reused, and a published socket listens until its
 *   process withdraws or dies. So a refused connection means a dead process,
 *   and others remove only such names. When two processes publish, the later
 *   one lists the folder after the earlier name is in it, so it sees the
 *   earlier process as long as that lives, and withdraws.
 * - Live. A process that sees another one only after it has published withdraws,
 *   and begins again after a pause. Others give up only for a process that is
 *   published, so the last one that still tries becomes the owner. A stopped
 *   process is alive, as the kernel accepts connections for it: better to give
 *   up than to share.
 */

import { Buffer } from "node:buffer";
import { once } from "node:events";
import { connect, createServer } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { errorCode, StoreError } from "../error.ts";
import { statOf } from "./files.ts";
import { randomName, type StoreFolder } from "./folder.ts";

/** The longest path of a folder with sockets: with their names, 27 bytes, it may have 103 (on Linux 107). */
const maxFolderBytes = 76;

/** The longest pause after two processes have seen each other. */
const maxPauseMs = 50;

/**
 * Locks a folder; rejects with `in-use` if another process has it. Returns the
 * function that releases it, and the folder, whose files cannot be used once its
 * path leads to another one: what is there now belongs to others.
 */
export async function acquireLock(place: StoreFolder) {
  const { files, folder } = place;
  const handle = await files.open(`${folder}/`, "read"); // it may be a link itself
  const sockets = socketFolder(folder, handle.fd);
  try {
    while (!await hasLivingLock(place, sockets)) {
      const { name, withdraw } = await publish(place, sockets);
      const hasRival = await hasLivingLock(place, sockets, name)
        .catch((error) => withdraw().then(() => Promise.reject(error)));
      if (!hasRival) {
        return { folder: await whileLocked(place, name), release: withdraw };
      }
      await withdraw();
      await delay(Math.random() * maxPauseMs);
    }
    throw new StoreError(
      "in-use",
      `Cannot open ${folder}: another process, such as a running ` +
        "server, is using it: stop it first",
    );
  } finally {
    await handle.close(); // a socket's name is needed only while it is made
  }
}

/**
 * Returns a folder whose files can be used only while the socket of this name is
 * in it: itself and not a copy, as of a whole folder. Its inode is not used again
 * while a process listens.
 */
async function whileLocked(
  place: StoreFolder,
  name: string,
): Promise<StoreFolder> {
  const { files, folder } = place;
  const socket = join(folder, name);
  const inode = (await statOf(socket))?.ino ?? NaN;
  const held = async () => {
    if ((await statOf(socket))?.ino === inode) return files;
    throw new StoreError(
      "unusable",
      `Cannot use ${folder}: it is not the folder that was opened, which was renamed or replaced meanwhile, or its lock was removed: stop this process`,
    );
  };
  return {
    ...place,
    files: {
      ...files,
      open: async (path, mode) => (await held()).open(path, mode),
      rename: async (from, to) => (await held()).rename(from, to),
      remove: async (path) => (await held()).remove(path),
    },
  };
}

/** Listens on a new socket; returns its name and the function that ends it. */
async function publish(place: StoreFolder, sockets: string) {
  const { files, folder } = place;
  const base = `lock-${randomName(place)}`;
  const name = `${base}.sock`;
  const server = createServer((socket) => socket.destroy());
  server.listen(join(sockets, `${base}.new`));
  await once(server, "listening");
  server.unref();
  const withdraw = async () => {
    await files.remove(join(folder, name));
    await new Promise((resolve) => server.close(resolve));
  };
  await files.rename(join(folder, `${base}.new`), join(folder, name));
  return { name, withdraw };
}

/** Returns whether another process has a lock, and removes those of dead ones. */
export async function hasLivingLock(
  { files, folder }: StoreFolder,
  sockets: string,
  ownName?: string,
): Promise<boolean> {
  for (const name of await files.list(folder)) {
    if (!/^lock-.+\.sock$/.test(name) || name === ownName) continue;
    if (await isAlive(join(sockets, name))) return true;
    await files.remove(join(folder, name));
  }
  return false;
}

/** Returns whether a process listens on a socket. */
async function isAlive(path: string): Promise<boolean> {
  const socket = connect(path);
  try {
    await once(socket, "connect");
    return true;
  } catch (error) {
    // Its process has died, or has withdrawn. Any other error proves nothing.
    return !["ECONNREFUSED", "ENOENT"].includes(errorCode(error));
  } finally {
    socket.destroy();
  }
}

/** Returns a path of an open folder that is short enough for the sockets in it. */
export function socketFolder(folder: string, descriptor: number): string {
  const isShort = Buffer.byteLength(folder) <= maxFolderBytes;
  return isShort || process.platform !== "linux"
    ? folder
    : `/proc/self/fd/${descriptor}`;
}
