/**
 * The command `serve`: starts a server from the settings, and shuts it down
 * gracefully. Also loads the secret that signs its tokens.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { join, resolve } from "node:path";
import process from "node:process";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { tablesOf } from "./api/routes.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import { createFirstAdmin } from "./cli/operator.ts";
import { describeServer, explainListenError } from "./cli/output.ts";
import { seedEmptyStore } from "./cli/seed.ts";
import { CommandError, type Config, etcdOf } from "./config.ts";
import { openDataFolder } from "./data-folder.ts";
import { loadFeatures } from "./features.ts";
import type { OutgoingResponse } from "./http/connection.ts";
import { type Handler, listen } from "./http/server.ts";
import { createLogger } from "./log.ts";
import { readSmallFile, realFiles, writeSmallFile } from "./store/log/files.ts";
import type { Store } from "./store/store.ts";

/** How long the requests in flight may take at shutdown. */
const graceMs = 10_000;

/** How long responses announce the shutdown before idle connections are closed. */
const announceMs = 100;

/**
 * Serves until a signal.
 *
 * @throws {CommandError} if it cannot start: the port or folder is in use, the
 * seed is invalid or the store is damaged
 * @throws {UsageError} if a feature cannot use its settings
 */
export async function serve(
  config: Config,
  declaration: ApiDeclaration,
): Promise<void> {
  process.on("SIGHUP", () => {}); // without a listener it would end the process
  const { DATA_DIR: dataDir, HOST: host, PORT: port, SEED: seed } = config;
  const output = createLogger(config.LOG, process.stdout);
  const { log, print, isForPeople } = output;
  const features = await loadFeatures(config.FEATURES, config);
  for (const { checkSettings } of features) checkSettings?.(config);
  const etcd = etcdOf(config);
  const options = { log, tables: tablesOf(declaration, features), etcd };
  const store = await openDataFolder(dataDir, declaration, options);
  /** Undoes each step of the startup, the last one first. */
  const closing = [() => store.close()];
  try {
    if (seed !== undefined) await seedEmptyStore(store, declaration, seed);
    const secrets = await loadSecrets(config, store);
    const application = new Application({
      declaration,
      features,
      store,
      signer: new TokenSigner(secrets, declaration.title),
      base: config.BASE_URL,
      now: Date.now,
      log,
      requireIfMatch: config.REQUIRE_IF_MATCH,
      settings: config,
    });
    closing.unshift(() => application.stop());
    await application.start();
    const early: OutgoingResponse[] = [];
    let handle: Handler = (response) => void early.push(response);
    const { hooks, onRawError } = application;
    const listener = await listen(
      (response) => handle(response),
      { ...hooks, host, port, onRawError },
    ).catch((error) => {
      throw new CommandError(explainListenError(config, error));
    });
    closing.unshift(() => listener.close(graceMs, announceMs));
    // A port in use must not cost a password that is shown once.
    await createFirstAdmin(store, { declaration, ...config }, output);
    handle = (response) => application.handle(response);
    early.forEach(handle);
    const stopped = stopSignal();
    if (isForPeople && etcd === undefined) {
      const folder = resolve(dataDir);
      print("info", `the data is in ${folder}; Ctrl-C stops the server`);
    }
    print("info", describeServer(config, listener.port));
    log("info", `stopping on ${await stopped}`);
  } finally {
    for (const close of closing) await close();
  }
  log("info", "stopped");
}

/**
 * Returns the configured secrets, or else the one in the file `secret` of the
 * data folder, which must be locked. Creates the file if it is missing; it is
 * on the disk before it signs anything, so tokens stay valid after a power cut.
 *
 * @throws {CommandError} if the file holds fewer than 32 bytes; {Error} of the
 * file system
 */
async function loadSecrets(
  { JWT_SECRET, DATA_DIR: folder }: Config,
  store: Store,
): Promise<readonly string[]> {
  if (JWT_SECRET !== undefined) return JWT_SECRET;
  const random = randomBytes(32).toString("base64url");
  const shared = await store.shareSecret(random);
  if (shared !== undefined) return [shared];
  const stored = await readSmallFile(realFiles, folder, "secret");
  if (stored !== undefined) {
    const secret = stored.toString().trim();
    if (Buffer.byteLength(secret) >= 32) return [secret];
    throw new CommandError(
      `cannot sign with the file "secret" in ${folder}: it must hold at least 32 bytes`,
    );
  }
  await writeSmallFile(realFiles, join(folder, "secret"), `${random}\n`);
  return [random];
}

/**
 * Returns the name of the signal to stop on. To be called before the log says
 * that the server listens, as a reader of that may stop it at once. The signal
 * can be sent again while the server stops, without effect. Process 1 of a container receives no signal
 * without a handler.
 */
function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    process.on("SIGTERM", resolve);
    process.on("SIGINT", resolve);
  });
}
