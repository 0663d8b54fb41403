/** The `serve` command: from settings to a server that answers, and to its orderly end. */

import { randomBytes } from "node:crypto";
import process from "node:process";
import { isEmpty, planSeed, SeedError } from "./api/seed.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import { keptSecret } from "./secret.ts";
import { collections } from "./collections.ts";
import { CommandError, createUser, openDataFolder } from "./commands.ts";
import type { Config } from "./config.ts";
import { listen, type Listener } from "./http/server.ts";
import { announce, createLog } from "./log.ts";
import type { Operation, Store } from "./store/store.ts";

/** How long requests under way may take once the server is told to stop, in ms. */
const grace = 10_000;

/**
 * Serves until a signal says stop.
 *
 * @throws {CommandError} where it cannot start: port or folder in use, a bad
 * seed, a damaged store
 */
export async function serve(config: Config): Promise<void> {
  const log = createLog(config.log);
  const { pid, version } = process;
  const store = await openDataFolder(config.dataDir, log);
  let application: Application;
  let listener: Listener;
  try {
    await prepare(store, config);
    const secrets = config.jwtSecrets ?? [await keptSecret(config.dataDir)];
    application = new Application({
      declarations: collections,
      store,
      signer: new TokenSigner(secrets),
      base: config.base,
      now: Date.now,
      log,
      corsOrigins: config.corsOrigins,
      requireIfMatch: config.requireIfMatch,
    });
    await application.start();
    listener = await open(application, config);
  } catch (error) {
    await store.close();
    throw error;
  }
  const stopped = stopSignal();
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  const address = `http://${host}:${listener.port}`;
  const who = `process ${pid} on Node.js ${version}`;
  announce("info", `listening on ${address} as ${who}`);

  log("info", `stopping on ${await stopped}`);
  await listener.close(grace);
  await application.stop();
  await store.close();
  log("info", "stopped");
}

/** The first user and the sample records of a new store; a bad seed leaves it without either. */
async function prepare(store: Store, config: Config): Promise<void> {
  const records = planRecords(store, config);
  if (store.table("users").size === 0) await createAdmin(store, config);
  if (records.length > 0) await store.commit(records, 0);
}

function planRecords(store: Store, { seed }: Config): readonly Operation[] {
  if (seed === undefined || !isEmpty(store, collections)) return [];
  try {
    return planSeed(seed, collections, new Date().toISOString());
  } catch (error) {
    if (!(error instanceof SeedError)) throw error;
    throw new CommandError(`cannot load the seed: ${error.message}`);
  }
}

async function createAdmin(
  store: Store,
  { adminPassword }: Config,
): Promise<void> {
  const username = "admin";
  const password = adminPassword ?? randomBytes(15).toString("base64url");
  await createUser(store, { username, role: "admin", password });
  if (adminPassword !== undefined) return;
  const message = "made the user admin; its password is shown only now";
  announce("info", message, { username, password });
}

async function open(
  application: Application,
  { host, port }: Config,
): Promise<Listener> {
  try {
    return await listen(
      (request, response) => application.handle(request, response),
      { host, port },
    );
  } catch (error) {
    const code = error instanceof Error && "code" in error ? error.code : error;
    const reason = code === "EADDRINUSE" ? "the port is in use" : code;
    throw new CommandError(
      `cannot listen on ${host} port ${port}: ${reason}`,
    );
  }
}

/**
 * The name of the signal that says stop. As process 1 of a container we are
 * sent no other; one that is sent again while we are stopping changes nothing.
 */
function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    process.on("SIGTERM", resolve);
    process.on("SIGINT", resolve);
  });
}
