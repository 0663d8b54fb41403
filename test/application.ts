/** An application in this process, for tests that control its clock, its disk or its declarations. */

import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import { join } from "node:path";
import { setTimeout as wait } from "node:timers/promises";
import type { TestContext } from "node:test";
import { beginHistory } from "../src/api/own-tables.ts";
import { Application } from "../src/app.ts";
import type { ApiDeclaration } from "../src/api/declaration/api.ts";
import type { Declaration } from "../src/api/declaration/declaration.ts";
import { tablesOf } from "../src/api/routes.ts";
import { TokenSigner } from "../src/auth/jwt.ts";
import { createReader } from "../src/cli/command-line.ts";
import { apiOf, collections } from "./collections.ts";
import { featureNames, loadFeatures } from "../src/features.ts";
import { feature as judgesAnew } from "../src/etcd/feature.ts";
import { openEtcdStore } from "../src/etcd/open.ts";
import type { EtcdOptions } from "../src/store/shared.ts";
import type { ServerLimits } from "../src/http/connection.ts";
import { listen } from "../src/http/server.ts";
import {
  type FileSystem,
  type Logger,
  openStore,
  realFiles,
  type Store,
  type StoreOptions,
} from "../src/store/store.ts";
import {
  type Answer,
  clientOf,
  jwtSecret,
  removeFolder,
  type RequestOptions,
  reserveNothing,
  storedAdmin,
  temporaryFolder,
} from "./harness.ts";
import { forgetServer } from "./replay.ts";

/** A running application. */
export interface Running {
  readonly port: number;
  readonly store: Store;
  /** The token of the admin. */
  readonly token: string;
  request(
    method: string,
    path: string,
    options?: RequestOptions,
  ): Promise<Answer>;
  /** Signs in as a user and returns the token. */
  signIn(username: string, password?: string): Promise<string>;
  /** Starts anew on the store as it is: what was only in the memory of the features is gone. */
  restart(): Promise<void>;
  stop(): Promise<void>;
}

/** Starts an application with an admin in a temporary folder. */
export async function startApplication(options: {
  readonly declarations?: readonly Declaration[];
  /** An API with a title and roles of its own. */
  readonly declaration?: ApiDeclaration;
  /** The names of the features that are on; all by default. */
  readonly features?: readonly string[];
  readonly files?: FileSystem;
  readonly now?: () => number;
  readonly queueBytes?: number;
  /** Proxies to trust, so that requests can come from several clients. */
  readonly trustProxy?: string;
  readonly rateLimit?: number;
  readonly log?: Logger;
  readonly hasLocalMetrics?: boolean;
  readonly limits?: Partial<ServerLimits>;
  /** Where the store is, if not in a folder. */
  readonly etcd?: EtcdOptions;
} = {}): Promise<Running> {
  const { declarations = collections, now = Date.now } = options;
  const { declaration = apiOf(declarations) } = options;
  const settings = createReader(new Map(), {
    TRUST_PROXY: options.trustProxy,
    RATE_LIMIT: options.rateLimit?.toString(),
    METRICS: options.hasLocalMetrics ? "local" : undefined,
  });
  const names = options.features ?? featureNames;
  const loaded = await loadFeatures(names, settings.isSet);
  const features = options.etcd ? [...loaded, judgesAnew] : loaded;
  const folder = await temporaryFolder();
  await reserveNothing(join(folder, "store"));
  const { etcd } = options;
  const open = etcd
    ? (all: StoreOptions) => openEtcdStore(all, etcd)
    : openStore;
  const store = await open({
    folder: join(folder, "store"),
    now,
    log: options.log ?? (() => {}),
    tables: tablesOf(declaration, features),
    ...Object.assign({}, ...features.map((each) => each.storeOptions?.())),
    ...(options.files && { files: options.files }),
    limits: options.queueBytes ? { maxQueueBytes: options.queueBytes } : {},
  });
  await store.settle(() =>
    store.table("users").size > 0
      ? store
      : { seq: store.apply([["put", "users", storedAdmin]], 0) }
  );
  const serve = async (port: number) => {
    const log = options.log ?? (() => {});
    await beginHistory(store, log);
    const application = new Application({
      declaration,
      features,
      store,
      signer: new TokenSigner([jwtSecret], "zoo-api"),
      base: { origin: "", path: "/" },
      now,
      log,
      settings,
    });
    await application.start();
    const limits = options.limits ?? {};
    const all = { ...application.hooks, host: "127.0.0.1", port, limits };
    const listener = await listen(
      (response) => application.handle(response),
      all,
    );
    const end = async () => {
      await listener.close(1000);
      await application.stop();
    };
    return { port: listener.port, end };
  };
  let served = await serve(0);
  const { port } = served;
  const origin = `http://127.0.0.1:${port}`;
  const ownDocument = options.declarations ?? options.declaration ??
    options.features;
  const client = clientOf(
    origin,
    ownDocument ? origin : "the default application",
  );
  return {
    port,
    store,
    token: await client.signIn(),
    request: client.request,
    signIn: client.signIn,
    async restart() {
      await served.end();
      served = await serve(port);
    },
    async stop() {
      await served.end();
      forgetServer(origin);
      await store.close();
      await removeFolder(folder);
    },
  };
}

/** The machine's own files, but after a call of `hold` syncs wait until the function that it returned is called. */
export function heldFiles(): { files: FileSystem; hold: () => () => void } {
  let held: Promise<void> | undefined;
  const files: FileSystem = {
    ...realFiles,
    async open(path, how) {
      const file = await realFiles.open(path, how);
      const datasync = file.datasync.bind(file);
      file.datasync = async () => {
        await held;
        await datasync();
      };
      return file;
    },
  };
  const hold = () => {
    let release = () => {};
    held = new Promise((resolve) => release = resolve);
    return () => {
      held = undefined;
      release();
    };
  };
  return { files, hold };
}

/** Hashes of passwords that wait until the test computes them. */
export interface HeldHashes {
  /** Waits until this many hashes have begun. */
  begun(count: number): Promise<void>;
  /** Computes the hash that has waited for longest. */
  computeOne(): void;
  /** Computes all waiting hashes and all later ones. */
  computeAll(): void;
}

/** Makes each password hash in this process wait, until the test ends. */
export function holdHashes(t: TestContext): HeldHashes {
  const { scrypt } = crypto;
  const held: (() => void)[] = [];
  let isHolding = true;
  const hold = (...args: Parameters<typeof scrypt>) => {
    if (isHolding) held.push(() => scrypt(...args));
    else scrypt(...args);
  };
  t.mock.method(crypto, "scrypt", hold);
  syncBuiltinESMExports();
  const computeAll = () => {
    isHolding = false;
    for (const compute of held.splice(0)) compute();
  };
  t.after(() => {
    computeAll();
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  return {
    begun: (count) => eventually(() => held.length >= count),
    computeOne: () => held.shift()?.(),
    computeAll,
  };
}

/** Waits until a condition holds in this process. */
export async function eventually(holds: () => boolean): Promise<void> {
  while (!holds()) await wait(1);
}
