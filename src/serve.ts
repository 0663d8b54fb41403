/**
 * The command `serve`: starts a server from the settings, and shuts it down
 * gracefully.
 */

import { resolve } from "node:path";
import process from "node:process";
import type { Command, CommandSettings, Feature } from "./api/feature.ts";
import { tablesOf } from "./api/routes.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import { type Config, featureSettings, settings } from "./config.ts";
import { openDataFolder } from "./data-folder.ts";
import {
  createFirstAdmin,
  loadSecret,
  removeChangedPassword,
} from "./first-start.ts";
import { listen } from "./http/server.ts";
import { createLogger } from "./log.ts";
import { countRecords, type Store } from "./store/store.ts";
import { CommandError, UsageError } from "./usage.ts";

/** How long the requests in flight may take at shutdown. */
const graceMs = 10_000;

/** How long responses announce the shutdown before idle connections are closed. */
const announceMs = 100;

/**
 * The command: serves until a signal.
 *
 * @throws {CommandError} if it cannot start: the port or folder is in use, the
 * seed is invalid or the store is damaged
 * @throws {UsageError} if a setting is not allowed
 */
export const command: Command = [0, async (options) => {
  process.on("SIGHUP", () => {}); // without a listener it would end the process
  await serve(options);
  // A signal that comes while Node.js itself shuts down would kill the process.
  process.exit(0);
}];

async function serve(options: CommandSettings): Promise<void> {
  const { etcd, flags, reader } = options;
  const config = { ...reader.read(settings) }; // a copy reads all of them
  const loaded = await loadCheckedFeatures(options);
  const declaration = await options.loadApi(loaded);
  const { DATA_DIR: dataDir, HOST: host, PORT: port } = config;
  const output = createLogger(config.LOG, process.stdout);
  const { log, print, isForPeople } = output;
  const shared = etcd && await import("./etcd/feature.ts");
  const features = loaded.concat(shared?.feature ?? []);
  const store = await openDataFolder(dataDir, declaration, {
    ...Object.assign({}, ...features.map((each) => each.storeOptions?.())),
    adaptRecords: features.find((each) => each.adaptRecords)?.adaptRecords,
    log,
    tables: tablesOf(declaration, features),
    etcd,
  });
  const closing = [() => store.close()]; // undoes each step, the last one first
  try {
    const secrets = config.JWT_SECRET ??
      await (shared?.loadSharedSecret(store) ?? loadSecret(dataDir));
    const application = new Application({
      declaration,
      features,
      store,
      signer: new TokenSigner(secrets, declaration.title),
      base: config.BASE_URL,
      now: Date.now,
      log,
      settings: reader,
    });
    closing.unshift(() => application.stop());
    await application.start();
    if (config.SEED !== undefined || flags.has("sample")) {
      const { loadSeed } = await import("./first-seed.ts"); // few have one
      await loadSeed(store, config, { declaration, flags });
    }
    await createFirstAdmin(store, { declaration, ...config }, output);
    removeChangedPassword(store, dataDir);
    const all = { ...application.hooks, host, port };
    const handle = application.handle.bind(application);
    const listener = await listen(handle, all).catch((cause) => {
      throw new CommandError(`cannot listen on ${host} port ${port}`, {
        cause,
      });
    });
    closing.unshift(() => listener.close(graceMs, announceMs));
    const stopped = stopSignal();
    const place = etcd ? "etcd" : resolve(dataDir);
    if (isForPeople) {
      print("info", `the data is in ${place}; Ctrl-C stops the server`);
    }
    const urls = describeUrls(config, all, listener.port);
    print("info", `listening on ${urls} ${describeProcess(store)}`);
    log("info", `stopping on ${await stopped}`);
  } finally {
    for (const close of closing) await close();
  }
  log("info", "stopped");
}

/**
 * Loads the features that are on, and reads their settings.
 *
 * @throws {UsageError} if one is not allowed, or its feature is not on
 */
async function loadCheckedFeatures(
  { etcd, loadFeatures, reader }: CommandSettings,
): Promise<readonly Feature[]> {
  const features = await loadFeatures();
  const names = etcd ? ["ETCD_USER", "READS"] : [];
  for (const { settings = {}, checkSettings } of features) {
    names.push(...Object.keys({ ...reader.read(settings) }));
    checkSettings?.(reader);
  }
  const missing = featureSettings.find((name) =>
    !names.includes(name) && reader.isSet(name)
  );
  if (missing === undefined) return features;
  throw new UsageError(
    `${missing}: this server lacks the feature or the store for it`,
  );
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

/** Describes the URL to open and, if `BASE_URL` names one, the URL at which others reach it. */
function describeUrls(
  { HOST, BASE_URL: { origin, path } }: Config,
  { createSecureServer }: Application["hooks"],
  port: number,
): string {
  const scheme = createSecureServer ? "https" : "http";
  const name = HOST.includes(":") ? `[${HOST}]` : HOST;
  const outside = origin && `, served as ${origin}${path}`;
  return `${scheme}://${name}:${port}${path.slice(0, -1)}${outside}`;
}

/** Describes the process, its Node.js and its memory. */
function describeProcess({ memory, tables }: Store): string {
  return `as process ${process.pid} on Node.js ${process.version}` +
    `; ${countRecords(tables)} records${memory?.description ?? ""}`;
}
