/** The certificate of HTTPS, read and checked before it is used. */

import { createPrivateKey, X509Certificate } from "node:crypto";
import { type Config, readText, UsageError } from "./config.ts";
import type { TlsFiles } from "./http/server.ts";

/**
 * Reads the certificate and its key; returns undefined if HTTPS is off.
 *
 * @throws {UsageError} if only one of them is set, a file is unreadable, or they
 * do not belong together
 */
export function readTls(
  { TLS_CERT, TLS_KEY }: Pick<Config, "TLS_CERT" | "TLS_KEY">,
): TlsFiles | undefined {
  if (TLS_CERT === undefined && TLS_KEY === undefined) return undefined;
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
  if (certificate.checkPrivateKey(privateKey)) return { cert, key };
  throw new UsageError(
    "TLS_KEY does not match TLS_CERT: it must be the key of the first certificate in that file",
  );
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
