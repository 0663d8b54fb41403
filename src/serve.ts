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
import type { Config } from "./config.ts";
import { CommandError, openDataFolder, writeSecret } from "./data-folder.ts";
import { loadFeatures } from "./features.ts";
import type { OutgoingResponse } from "./http/connection.ts";
import { listen, type Listener, type ListenOptions } from "./http/server.ts";
import { createLogger } from "./log.ts";
import { errorCode, errorText } from "./store/error.ts";
import { readSmallFile, realFiles } from "./store/log/files.ts";
import type { Logger, Store } from "./store/store.ts";
import { readTls } from "./tls.ts";

/** How long the requests in flight may take at shutdown. */
const graceMs = 10_000;

/** How long responses announce the shutdown before idle connections are closed. */
const announceMs = 100;

/**
 * Serves until a signal.
 *
 * @throws {CommandError} if it cannot start: the port or folder is in use, the
 * seed is invalid or the store is damaged
 * @throws {UsageError} if the certificate cannot be used
 */
export async function serve(
  config: Config,
  declaration: ApiDeclaration,
): Promise<void> {
  let opened: OpenServer | undefined;
  // Handled from the start, because SIGHUP would otherwise end the process.
  process.on("SIGHUP", () => opened && reloadTls(opened, config, log));
  const tls = readTls(config);
  const { log, print, isForPeople } = openLog(config);
  const cors = config.corsOrigins.length > 0 ? ["cors"] : [];
  const features = await loadFeatures([...config.features, ...cors]);
  const tables = tablesOf(declaration, features);
  const options = { log, tables, etcd: config.etcd };
  const store = await openDataFolder(config.dataDir, declaration, options);
  /** Undoes each step of the startup, the last one first. */
  const closing = [() => store.close()];
  try {
    if (config.seed !== undefined) {
      const { seedEmptyStore } = await import("./cli/seed.ts");
      await seedEmptyStore(store, declaration, config.seed);
    }
    const secrets = await loadSecrets(config, store);
    const application = new Application({
      declaration,
      features,
      store,
      signer: new TokenSigner(secrets, declaration.title),
      base: config.base,
      now: Date.now,
      log,
      corsOrigins: config.corsOrigins,
      trustProxy: config.trustProxy,
      rateLimit: config.rateLimit,
      requireIfMatch: config.requireIfMatch,
      hasLocalMetrics: config.hasLocalMetrics,
    });
    closing.unshift(() => application.stop());
    await application.start();
    opened = await open(application, { ...config, tls }, log);
    const { listener, admit } = opened;
    closing.unshift(() => listener.close(graceMs, announceMs));
    // A port in use must not cost a password that is shown once.
    const output = { log, print, terminal: process.stdout };
    await createFirstAdmin(store, { declaration, ...config }, output);
    admit();
    const stopped = stopSignal();
    if (isForPeople && config.etcd === undefined) {
      const folder = resolve(config.dataDir);
      print("info", `the data is in ${folder}; Ctrl-C stops the server`);
    }
    print("info", describeProcess(config, listener.port));
    log("info", `stopping on ${await stopped}`);
  } finally {
    for (const close of closing) await close();
  }
  log("info", "stopped");
}

/** Opens the log on standard output: plain text on a terminal, unless a level is set. */
function openLog({ log: level }: Config) {
  const { stdout } = process;
  const isForPeople = level === undefined && stdout.isTTY;
  return { ...createLogger(level ?? "info", stdout, isForPeople), isForPeople };
}

/** Describes where the server listens, its process and its Node.js. */
function describeProcess({ host, tlsCert }: Config, port: number): string {
  const { pid, version } = process;
  const scheme = tlsCert === undefined ? "http" : "https";
  const name = host.includes(":") ? `[${host}]` : host;
  return `listening on ${scheme}://${name}:${port} as process ${pid} on Node.js ${version}`;
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
  { jwtSecrets, dataDir: folder }: Config,
  store: Store,
): Promise<readonly string[]> {
  if (jwtSecrets !== undefined) return jwtSecrets;
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
  await writeSecret(join(folder, "secret"), random);
  return [random];
}

/**
 * Reads the certificate again on SIGHUP, which has no effect without one. If
 * the new one is unusable, the old one stays in use.
 */
function reloadTls(
  { listener }: OpenServer,
  config: Config,
  log: Logger,
): void {
  try {
    const tls = readTls(config);
    if (tls === undefined) return;
    listener.setTls(tls);
    log("info", "reloaded the certificate");
  } catch (error) {
    log("error", `cannot reload the certificate: ${errorText(error)}`);
  }
}

/** A server that listens. */
interface OpenServer {
  readonly listener: Listener;
  /** Begins to handle requests, which have to wait until then. */
  readonly admit: () => void;
}

async function open(
  application: Application,
  { host, port, tls }: Pick<ListenOptions, "host" | "port" | "tls">,
  log: Logger,
): Promise<OpenServer> {
  const { documentationUrl } = application;
  const early: OutgoingResponse[] = [];
  let handle: Application["handle"] = (each) => void early.push(each);
  try {
    const listener = await listen(
      (response) => handle(response),
      {
        host,
        port,
        tls,
        documentationUrl,
        onRawError: (fields) => log("debug", "answered", fields),
      },
    );
    const admit = () => {
      handle = (response) => application.handle(response);
      early.splice(0).forEach(handle);
    };
    return { listener, admit };
  } catch (error) {
    const code = errorCode(error);
    const reason = code === "EADDRINUSE"
      ? "the port is in use: choose another one with --port"
      : code === "EACCES"
      ? "only root may open it: choose a --port from 1024 on"
      : /^(?:EADDRNOTAVAIL|EAI_AGAIN|ENOTFOUND)$/.test(code)
      ? "HOST or --host must name an address of this machine, such as 127.0.0.1"
      : errorText(error);
    throw new CommandError(`cannot listen on ${host} port ${port}: ${reason}`);
  }
}

/**
 * Returns the name of the signal to stop on. It can be sent again while the
 * server stops, without effect. Process 1 of a container receives no signal
 * without a handler.
 */
function stopSignal(): Promise<string> {
  return new Promise((resolve) => {
    process.on("SIGTERM", resolve);
    process.on("SIGINT", resolve);
  });
}
