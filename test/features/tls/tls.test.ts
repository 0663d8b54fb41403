/** HTTPS: certificates, their reload on SIGHUP, and what is refused. */

import { strict as assert } from "node:assert";
import { execFile } from "node:child_process";
import { EventEmitter, once } from "node:events";
import { copyFile, readFile, writeFile } from "node:fs/promises";
import { connect as connectTcp } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { connect, type ConnectionOptions, type TLSSocket } from "node:tls";
import { promisify } from "node:util";
import type { Api } from "../../../src/api/feature.ts";
import { createReader } from "../../../src/cli/command-line.ts";
import { loadFeatures } from "../../../src/features.ts";
import { createServerOf } from "../../../src/features/tls/feature.ts";
import { send } from "../../../src/http/connection.ts";
import { listen } from "../../../src/http/server.ts";
import {
  lacks,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere } from "../../in-process.ts";

const openssl = promisify(execFile);
const hasOpenssl = await openssl("openssl", ["version"])
  .then(() => true, () => false);

/** Creates a certificate and its key, `NAME.pem` and `NAME.key`, in a folder. */
async function createCertificate(folder: string, name: string): Promise<void> {
  const parameters = ["-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes"];
  const files = [
    "-keyout",
    join(folder, `${name}.key`),
    "-out",
    join(folder, `${name}.pem`),
  ];
  await openssl("openssl", [
    ...["req", "-x509", "-newkey", "ec", ...parameters, ...files],
    ...["-days", "2", "-subj", `/CN=${name}`],
  ]);
}

async function open(
  port: number,
  options: ConnectionOptions = {},
): Promise<TLSSocket> {
  const host = "127.0.0.1";
  const socket = connect({ port, host, rejectUnauthorized: false, ...options });
  await once(socket, "secureConnect");
  return socket;
}

/** The name in the certificate that a server presents. */
function nameOf(socket: TLSSocket): unknown {
  return socket.getPeerCertificate().subject["CN"];
}

async function get(socket: TLSSocket, path = "/v1"): Promise<string> {
  socket.write(`GET ${path} HTTP/1.1\r\nHost: localhost\r\n\r\n`);
  const [bytes] = await once(socket, "data");
  return String(bytes);
}

/** Resolves once a server has logged a message. */
async function logged(server: Server, message: RegExp): Promise<void> {
  while (!message.test(server.output())) {
    await Promise.race([
      once(server.child.stdout ?? server.child, "data"),
      once(server.child, "close"),
    ]);
  }
}

describe("HTTPS", { skip: !hasOpenssl && "there is no openssl" }, () => {
  let folder: string;
  let flags: string[];
  before(async () => {
    folder = await temporaryFolder();
    await createCertificate(folder, "first");
    await createCertificate(folder, "second");
    await writeFile(join(folder, "bad.pem"), "nonsense");
    flags = ["--tls-cert", join(folder, "cert")];
    flags.push("--tls-key", join(folder, "key"));
  });
  after(() => removeFolder(folder));

  const use = async (name: string) => {
    await copyFile(join(folder, `${name}.pem`), join(folder, "cert"));
    await copyFile(join(folder, `${name}.key`), join(folder, "key"));
  };

  test("is served with TLS 1.2 and later, and with Strict-Transport-Security", async () => {
    await use("first");
    const server = await start({ args: flags });
    try {
      assert.match(server.output(), /listening on https:\/\/127\.0\.0\.1:/);
      for (const version of ["TLSv1.2", "TLSv1.3"] as const) {
        const options = { minVersion: version, maxVersion: version };
        const socket = await open(server.port, options);
        const received = await get(socket);
        assert.match(received, /^HTTP\/1\.1 200 /);
        assert.match(
          received,
          /^Strict-Transport-Security: max-age=31536000\r$/m,
        );
        socket.destroy();
        const other = await open(server.port, options);
        other.write("NONSENSE\r\n\r\n");
        const [error] = await once(other, "data");
        assert.match(String(error), /^HTTP\/1\.1 400 [^]*^Strict-Transport/m);
        other.destroy();
      }
      const old = {
        minVersion: "TLSv1.1",
        maxVersion: "TLSv1.1",
        ciphers: "DEFAULT@SECLEVEL=0",
      } as const;
      await assert.rejects(open(server.port, old), /alert|version|EPROTO/i);
    } finally {
      await server.stop();
    }
  });

  test("uses another certificate after SIGHUP, and the old one if it is unusable", async () => {
    await use("first");
    const server = await start({ args: flags });
    try {
      const held = await open(server.port);
      assert.equal(nameOf(held), "first");
      await use("second");
      server.child.kill("SIGHUP");
      await logged(server, /reloaded the certificate/);
      const renewed = await open(server.port);
      assert.equal(nameOf(renewed), "second");
      await copyFile(join(folder, "first.key"), join(folder, "key"));
      server.child.kill("SIGHUP");
      await logged(server, /cannot reload the certificate: TLS_KEY/);
      const unchanged = await open(server.port);
      assert.equal(nameOf(unchanged), "second");
      for (const socket of [held, renewed, unchanged]) {
        assert.match(await get(socket), /^HTTP\/1\.1 200 /);
        socket.destroy();
      }
    } finally {
      await server.stop();
    }
  });

  test(
    "stops after its responses, and after handshakes, which must end in time",
    async () => {
      const settings = createReader(new Map(), {
        TLS_CERT: join(folder, "first.pem"),
        TLS_KEY: join(folder, "first.key"),
      });
      const createSecureServer = createServerOf(settings, () => {});
      const requests = new EventEmitter();
      const listener = await listen(
        (response) => requests.emit("request", response),
        {
          host: "127.0.0.1",
          port: 0,
          createSecureServer,
          limits: { headTimeoutMs: 2000 },
        },
      );
      const silent = connectTcp(listener.port, "127.0.0.1");
      const partial = connectTcp(listener.port, "127.0.0.1");
      partial.write("\x16\x03\x01\x02\x00\x01"); // the begin of a ClientHello
      const closed = [silent, partial].map((socket) => once(socket, "close"));
      const complete = await open(listener.port);
      const received = get(complete);
      const [response] = await once(requests, "request");
      const stopped = listener.close(1000);
      send(response, { status: 200, headers: [], body: "{}" }, []);
      assert.match(await received, /^HTTP\/1\.1 200 /);
      await Promise.all(closed);
      await stopped;
    },
  );

  test(
    "closes a connection that waits for a request when a newcomer needs its place",
    {
      skip: lacks("open-network"),
    },
    async () => {
      const [feature] = await loadFeatures(["open-network"]);
      const settings = createReader(new Map(), {
        TLS_CERT: join(folder, "first.pem"),
        TLS_KEY: join(folder, "first.key"),
      });
      const requests = new EventEmitter();
      const listener = await listen(
        (response) => {
          if (response.req.url === "/slow") requests.emit("slow");
          else send(response, { status: 200, headers: [], body: "{}" }, []);
        },
        {
          host: "127.0.0.1",
          port: 0,
          ...feature?.open({ now: Date.now } as Api),
          createSecureServer: createServerOf(settings, () => {}),
          limits: { maxConnections: 2 },
        },
      );
      const busy = await open(listener.port);
      busy.write("GET /slow HTTP/1.1\r\nHost: localhost\r\n\r\n");
      await once(requests, "slow");
      const idle = await open(listener.port);
      await get(idle);
      const closed = once(idle.on("error", () => {}).resume(), "close");
      const newcomer = await open(listener.port);
      assert.match(await get(newcomer), /^HTTP\/1\.1 200 /);
      await closed;
      assert.equal(busy.closed, false);
      for (const socket of [busy, newcomer]) socket.destroy();
      await listener.close(0);
    },
  );

  test("is not served with files that cannot be used", async () => {
    const file = (name: string) => join(folder, name);
    const first = await readFile(file("first.pem"), "utf8");
    const broken = first.replace(
      /(?<=BEGIN CERTIFICATE-----\n).{9}/,
      "AAAAAAAAA",
    );
    await writeFile(file("chain.pem"), first + broken);
    const table: readonly [string, string, RegExp][] = [
      [file("none.pem"), file("first.key"), /^zoo-api: TLS_CERT.*ENOENT/],
      [file("bad.pem"), file("first.key"), /^zoo-api: TLS_CERT.*PEM/],
      [file("chain.pem"), file("first.key"), /^zoo-api: TLS_CERT.*PEM/],
      [file("first.pem"), file("bad.pem"), /^zoo-api: TLS_KEY.*PEM/],
      [file("first.pem"), file("second.key"), /^zoo-api: TLS_KEY.*match/],
      [file("first.pem"), "", /^zoo-api: TLS_KEY.*not set/],
      ["", file("first.key"), /^zoo-api: TLS_CERT.*not set/],
    ];
    for (const [TLS_CERT, TLS_KEY, message] of table) {
      const env = { TLS_CERT, TLS_KEY, DATA_DIR: join(folder, "store") };
      const { code, stderr } = await runHere(["serve"], { env });
      assert.match(stderr, message);
      assert.equal(stderr.trimEnd().split("\n").length, 1, stderr);
      assert.equal(code, 2);
    }
    await assert.rejects(readFile(join(folder, "store", "meta.json")));
  });
});
