/** The `serve` command: from settings to a server that answers, and to its orderly end. */

import { randomBytes } from "node:crypto";
import process from "node:process";
import { tablesOf } from "./api/routes.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import { loadOrCreateSecret } from "./secret.ts";
import { collections } from "./collections.ts";
import { CommandError, createUser, openDataFolder } from "./data-folder.ts";
import type { Config } from "./config.ts";
import { loadFeatures } from "./features.ts";
import { listen, type Listener } from "./http/server.ts";
import { createLog, writeLogLine } from "./log.ts";
import type { Store } from "./store/store.ts";

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
  const features = await loadFeatures(config.features);
  const store = await openDataFolder(config.dataDir, {
    log,
    tables: tablesOf(collections, features),
  });
  let application: Application;
  let listener: Listener;
  try {
    await prepare(store, config);
    const secrets = config.jwtSecrets ??
      [await loadOrCreateSecret(config.dataDir)];
    application = new Application({
      declarations: collections,
      features,
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
  writeLogLine("info", `listening on ${address} as ${who}`);

  log("info", `stopping on ${await stopped}`);
  await listener.close(grace);
  await application.stop();
  await store.close();
  log("info", "stopped");
}

/** Creates the sample records and the first user of a new store. */
async function prepare(
  store: Store,
  { seed, ...config }: Config,
): Promise<void> {
  if (seed !== undefined) {
    const { seedEmptyStore } = await import("./cli/seed.ts");
    await seedEmptyStore(store, seed);
  }
  if (store.table("users").size === 0) await createAdmin(store, config);
}

async function createAdmin(
  store: Store,
  { adminPassword }: Pick<Config, "adminPassword">,
): Promise<void> {
  const username = "admin";
  const password = adminPassword ?? randomBytes(15).toString("base64url");
  await createUser(store, { username, role: "admin", password });
  if (adminPassword !== undefined) return;
  const message = "made the user admin; its password is shown only now";
  writeLogLine("info", message, { username, password });
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
