/** HTTPS, with a certificate that is checked before it is used and read again on SIGHUP. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { once } from "node:events";
import { copyFileSync, existsSync, readFileSync, writeFileSync } from "node:fs";
import { get } from "node:https";
import { connect } from "node:net";
import { join } from "node:path";
import { describe, test } from "node:test";
import { connect as connectSafely, type TLSSocket } from "node:tls";
import { outputOf, send, serve, stop, temporaryFolder } from "./server.ts";

const folder = temporaryFolder();
const at = (name: string) => join(folder, name);
const make = (name: string) =>
  execFileSync(
    "openssl",
    [
      ..."req -x509 -nodes -days 2 -newkey ec -pkeyopt ec_paramgen_curve:P-256"
        .split(" "),
      ...["-subj", `/CN=${name}`, "-addext", "subjectAltName=IP:127.0.0.1"],
      ...["-keyout", at(`${name}.key`), "-out", at(`${name}.pem`)],
    ],
    { stdio: "ignore" },
  );
for (const name of ["one", "two"]) make(name);
writeFileSync(at("text.pem"), "no certificate");
const use = (certificate: string, key = certificate) => {
  copyFileSync(at(`${certificate}.pem`), at("used.pem"));
  copyFileSync(at(`${key}.key`), at("used.key"));
};
const files = { TLS_CERT: at("used.pem"), TLS_KEY: at("used.key") };

/** Returns the status of `/health`, and whose certificate it comes with. */
async function health(origin: string, name: string) {
  const request = get(`${origin}/health`, {
    ca: readFileSync(at(`${name}.pem`)),
    agent: false,
    minVersion: "TLSv1.2",
    checkServerIdentity: () => undefined,
  });
  const [response] = await once(request, "response");
  response.resume();
  const { "strict-transport-security": policy } = response.headers;
  assert.match(String(policy), /^max-age=\d{8}$/);
  const { CN } = (response.socket as TLSSocket).getPeerCertificate().subject;
  return [response.statusCode, CN];
}

describe("A certificate", { concurrency: true }, () => {
  test("that does not fit is refused, and nothing is created", async () => {
    const rows = [
      [{ TLS_CERT: at("one.pem") }, /TLS_CERT, TLS_KEY: set both/],
      [{ TLS_KEY: at("one.key") }, /TLS_CERT, TLS_KEY: set both/],
      [{ TLS_CERT: at("none"), TLS_KEY: at("one.key") }, /TLS_CERT: .*none/],
      [
        { TLS_CERT: at("one.pem"), TLS_KEY: at("two.key") },
        /must be PEM files/,
      ],
      [
        { TLS_CERT: at("text.pem"), TLS_KEY: at("one.key") },
        /must be PEM files/,
      ],
    ] as const;
    for (const [environment, output] of rows) {
      const DATA_DIR = at("refused");
      const start = { FEATURES: "tls", DATA_DIR, ...environment };
      assert.match(await outputOf([], start, 2), output);
      assert.ok(!existsSync(DATA_DIR));
    }
  });

  // Node.js itself gives up a handshake after 120 s.
  const patience = { timeout: 110_000 };
  test(
    "is replaced on SIGHUP, and stays if the new one is wrong",
    patience,
    async () => {
      use("one");
      const server = await serve({ FEATURES: "tls", ...files });
      assert.match(server.output, /listening on https:\/\/127\.0\.0\.1:\d+/);
      assert.deepEqual(await health(server.origin, "one"), [200, "one"]);
      await assert.rejects(send(server.origin, "/health"), "plain HTTP");
      const { port, hostname } = new URL(server.origin);
      const ca = readFileSync(at("one.pem"));
      const options = { host: hostname, port: Number(port), ca };
      const request = "GET /health HTTP/1.1\r\nHost: a\r\n\r\n";
      for (let count = 0; count < 20; count++) {
        const socket = connectSafely(options).end(request);
        const [answer] = await once(socket, "data"); // though it sends no more
        assert.match(String(answer), /^HTTP\/1.1 200/);
      }
      const timer = setInterval(() => {}, 1000); // keeps this process from ending while it waits
      const reload = async (done: RegExp) => {
        server.child.kill("SIGHUP");
        while (!done.test(server.output)) {
          await once(server.child.stdout, "data");
        }
      };
      use("one", "two");
      await reload(/cannot reload the certificate/);
      assert.deepEqual(await health(server.origin, "one"), [200, "one"]);
      use("two");
      await reload(/reloaded the certificate/);
      assert.deepEqual(await health(server.origin, "two"), [200, "two"]);
      clearInterval(timer);
      const silent = connect(Number(port), hostname).on("error", () => {});
      await once(silent, "connect"); // and no handshake
      assert.equal(await stop(server), 0);
    },
  );
});
