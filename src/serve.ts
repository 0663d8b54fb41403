/**
 * The command `serve`: starts a server from the settings, and shuts it down
 * gracefully.
 */

import { resolve } from "node:path";
import process from "node:process";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { tablesOf } from "./api/routes.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import { CommandError, UsageError } from "./usage.ts";
import type { Config } from "./config.ts";
import { openDataFolder } from "./data-folder.ts";
import { etcdOf } from "./etcd/settings.ts";
import { loadFeatures } from "./features.ts";
import {
  createFirstAdmin,
  explainInvalid,
  loadSecrets,
} from "./first-start.ts";
import type { OutgoingResponse } from "./http/connection.ts";
import { type Handler, listen } from "./http/server.ts";
import { createLogger } from "./log.ts";
import { errorCode, errorText } from "./store/error.ts";
import type { Store } from "./store/store.ts";
import { megabytes, requireHeap } from "./store/memory/limit.ts";

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
  requireHeap();
  const loaded = await loadFeatures(config.FEATURES, config);
  if (config.REQUIRE_IF_MATCH && !config.FEATURES.includes("conditional")) {
    throw new UsageError(
      "REQUIRE_IF_MATCH: this server lacks the feature for it",
    );
  }
  const etcd = etcdOf(config);
  const shared = etcd ? [(await import("./etcd/feature.ts")).feature] : [];
  const features = [...loaded, ...shared];
  for (const { checkSettings } of features) checkSettings?.(config);
  const options = { log, tables: tablesOf(declaration, features), etcd };
  const store = await openDataFolder(dataDir, declaration, options);
  /** Undoes each step of the startup, the last one first. */
  const closing = [() => store.close()];
  try {
    if (seed !== undefined) await loadSeed(store, declaration, seed);
    const secrets = await loadSecrets(config, store);
    const application = new Application({
      declaration,
      features,
      store,
      signer: new TokenSigner(secrets, declaration.title),
      base: config.BASE_URL,
      now: Date.now,
      log,
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
    print("info", describeServer(config, listener.port, store));
    log("info", `stopping on ${await stopped}`);
  } finally {
    for (const close of closing) await close();
  }
  log("info", "stopped");
}

/** Loads the seed into an empty store. Few starts have one, so it is imported late. */
async function loadSeed(
  store: Store,
  declaration: ApiDeclaration,
  seed: string,
): Promise<void> {
  const { seedEmptyStore } = await import("./api/seed.ts");
  const load = () => seedEmptyStore(store, declaration, seed);
  await explainInvalid(store.settle(load));
}

/**
 * Returns the name of the signal to stop on. To be called before the log says
 * that the server listens, as a reader of that may stop it at once. The signal
 * can be sent again while the server stops, without effect. Process 1 of a
 * container receives no signal without a handler.
 */
function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    process.on("SIGTERM", resolve);
    process.on("SIGINT", resolve);
  });
}

/** Describes where the server listens, its process and its Node.js. */
function describeServer(
  { HOST, TLS_CERT }: Config,
  port: number,
  { memory: { used, limit }, tables }: Store,
): string {
  const { pid, version } = process;
  let records = 0;
  for (const { size } of tables.values()) records += size;
  const scheme = TLS_CERT === undefined ? "http" : "https";
  const name = HOST.includes(":") ? `[${HOST}]` : HOST;
  return `listening on ${scheme}://${name}:${port} as process ${pid} on Node.js ${version}` +
    `; ${records} records take ${megabytes(used)} of ${megabytes(limit)}`;
}

/** Explains why the server cannot listen, and what to do. */
function explainListenError(
  { HOST, PORT }: Config,
  error: unknown,
): string {
  const code = errorCode(error);
  const reason = code === "EADDRINUSE"
    ? "the port is in use: choose another one with --port"
    : code === "EACCES"
    ? "only root may open it: choose a --port from 1024 on"
    : /^(?:EADDRNOTAVAIL|EAI_AGAIN|ENOTFOUND)$/.test(code)
    ? "HOST or --host must name an address of this machine, such as 127.0.0.1"
    : errorText(error);
  return `cannot listen on ${HOST} port ${PORT}: ${reason}`;
}
