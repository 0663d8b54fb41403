/**
 * The command `serve`: from the settings to a running server, and to its
 * graceful shutdown. Also the secret that signs its tokens.
 */

import { Buffer } from "node:buffer";
import { randomBytes } from "node:crypto";
import { join } from "node:path";
import process from "node:process";
import type { ApiDeclaration } from "./api/declaration/api.ts";
import { tablesOf } from "./api/routes.ts";
import { Application } from "./app.ts";
import { TokenSigner } from "./auth/jwt.ts";
import type { Config } from "./config.ts";
import {
  CommandError,
  createFirstAdmin,
  openDataFolder,
  writeSecret,
} from "./data-folder.ts";
import { loadFeatures } from "./features.ts";
import { listen, type Listener, type TlsFiles } from "./http/server.ts";
import { createLogger } from "./log.ts";
import { errorText } from "./store/error.ts";
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
  let listener: Listener | undefined;
  // From the start on, as it would end the process.
  process.on("SIGHUP", () => listener && reloadTls(listener, config, log));
  const tls = readTls(config);
  const { log, print } = createLogger(config.log, process.stdout);
  const { pid, version } = process;
  const cors = config.corsOrigins.length > 0 ? ["cors"] : [];
  const features = await loadFeatures([...config.features, ...cors]);
  const store = await openDataFolder(config.dataDir, declaration, {
    log,
    tables: tablesOf(declaration, features),
  });
  let application: Application;
  try {
    if (config.seed !== undefined) {
      const { seedEmptyStore } = await import("./cli/seed.ts");
      await seedEmptyStore(store, declaration, config.seed);
    }
    const secrets = config.jwtSecrets ??
      [await loadOrCreateSecret(config.dataDir)];
    application = new Application({
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
    listener = await begin(application, store, { config, tls, log, print });
  } catch (error) {
    await store.close();
    throw error;
  }
  const stopped = stopSignal();
  const host = config.host.includes(":") ? `[${config.host}]` : config.host;
  const origin = `${tls ? "https" : "http"}://${host}:${listener.port}`;
  print(
    "info",
    `listening on ${origin} as process ${pid} on Node.js ${version}`,
  );

  log("info", `stopping on ${await stopped}`);
  await listener.close(graceMs, announceMs);
  await application.stop();
  await store.close();
  log("info", "stopped");
}

/**
 * Returns the secret in the file `secret` of a folder, which must be locked;
 * creates it if it is missing. It is on the disk before it signs anything, so
 * tokens stay valid after a power cut.
 *
 * @throws {CommandError} if the file holds under 32 bytes; {Error} of the file
 * system
 */
async function loadOrCreateSecret(folder: string): Promise<string> {
  const stored = await readSmallFile(realFiles, folder, "secret");
  if (stored !== undefined) {
    const secret = stored.toString().trim();
    if (Buffer.byteLength(secret) >= 32) return secret;
    throw new CommandError(
      `cannot sign with the file "secret" in ${folder}: it must hold at least 32 bytes`,
    );
  }
  const secret = randomBytes(32).toString("base64url");
  await writeSecret(join(folder, "secret"), secret);
  return secret;
}

/** Opens the port, and only then creates the first user: a port in use must not cost a password that is shown once. */
async function begin(
  application: Application,
  store: Store,
  { config, tls, log, print }: {
    readonly config: Config;
    readonly tls: TlsFiles | undefined;
    readonly log: Logger;
    readonly print: Logger;
  },
): Promise<Listener> {
  let listener: Listener | undefined;
  try {
    await application.start();
    listener = await open(application, config, tls);
    const terminal = process.stdout;
    const { declaration } = application;
    await createFirstAdmin(store, { declaration, ...config }, {
      log,
      print,
      terminal,
    });
    return listener;
  } catch (error) {
    await listener?.close(0);
    await application.stop();
    throw error;
  }
}

/** Reads the certificate again; without one, SIGHUP has no effect. An unusable one leaves the old one in use. */
function reloadTls(listener: Listener, config: Config, log: Logger): void {
  try {
    const tls = readTls(config);
    if (tls === undefined) return;
    listener.setTls(tls);
    log("info", "reloaded the certificate");
  } catch (error) {
    log("error", `cannot reload the certificate: ${errorText(error)}`);
  }
}

async function open(
  application: Application,
  { host, port }: Config,
  tls: TlsFiles | undefined,
): Promise<Listener> {
  try {
    return await listen(
      (request, response) => application.handle(request, response),
      { host, port, tls },
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
