/**
 * HTTPS, with a certificate that is read and checked before it is used, and read
 * again on SIGHUP. It is on if `TLS_CERT` or `TLS_KEY` is set.
 */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { createServer } from "node:https";
import process from "node:process";
import type { Feature } from "../../api/feature.ts";
import { type SettingReader, text } from "../../api/settings/setting.ts";
import { readText, UsageError } from "../../usage.ts";
import type { CreateServer } from "../../http/server.ts";
import { errorText } from "../../store/error.ts";
import type { Logger } from "../../store/store.ts";

const minVersion = "TLSv1.2";

const settings = {
  /** Where the certificate is: it is read again on SIGHUP. */
  TLS_CERT: {
    description: "PEM file of a certificate with its chain, for HTTPS",
    ...text,
  },
  TLS_KEY: {
    description: "PEM file of the certificate's private key",
    ...text,
  },
};

export const feature: Feature = {
  settings,
  checkSettings: readFiles,
  open: ({ settings, log }) => ({
    createSecureServer: createServerOf(settings, log),
    serverFields: ["Strict-Transport-Security", "max-age=31536000"], // RFC 6797
  }),
};

/** Returns the function that creates a server with the certificate of the settings. */
export function createServerOf(
  settings: SettingReader,
  log: Logger,
): CreateServer {
  return (options) => {
    const server = createServer({
      ...options,
      ...readFiles(settings),
      minVersion,
      handshakeTimeout: options.headersTimeout,
    });
    process.on("SIGHUP", () => {
      try {
        server.setSecureContext({ ...readFiles(settings), minVersion });
        log("info", "reloaded the certificate");
      } catch (error) { // the old one stays in use
        log("error", `cannot reload the certificate: ${errorText(error)}`);
      }
    });
    return server;
  };
}

/**
 * Reads the certificate and its key.
 *
 * @throws {UsageError} if only one of them is set, a file is unreadable, or they
 * do not belong together
 */
function readFiles({ read }: SettingReader) {
  const { TLS_CERT, TLS_KEY } = read(settings);
  if (TLS_CERT === undefined || TLS_KEY === undefined) {
    const missing = TLS_CERT === undefined ? "TLS_CERT" : "TLS_KEY";
    throw new UsageError(
      `${missing} is not set: set both TLS_CERT and TLS_KEY, or neither`,
    );
  }
  const cert = readText("TLS_CERT", TLS_CERT);
  const key = readText("TLS_KEY", TLS_KEY);
  const certificate = parse("TLS_CERT", () => new X509Certificate(cert));
  const privateKey = parse("TLS_KEY", () => createPrivateKey(key));
  if (!certificate.checkPrivateKey(privateKey)) {
    throw new UsageError(
      "TLS_KEY does not match TLS_CERT: it must be the key of the first certificate in that file",
    );
  }
  // The whole chain, and whether TLS accepts such a key.
  parse("TLS_CERT", () => createServer({ cert, key, minVersion }));
  return { cert, key };
}

function parse<T>(name: string, read: () => T): T {
  try {
    return read();
  } catch {
    throw new UsageError(
      `${name}: the file is not valid: it must be PEM, without a passphrase`,
    );
  }
}
