/** Finds the file of a URL in a folder, and nothing outside of it. */

import { type BigIntStats, constants } from "node:fs";
import { access, open, realpath, stat } from "node:fs/promises";
import { extname, join, relative, sep } from "node:path";
import { decodePercent } from "../../http/router.ts";

/** A file that exists, or a folder whose URL lacks the slash at its end. */
export interface Found {
  readonly file: string;
  readonly stats: BigIntStats;
  readonly isFolder: boolean;
}

/** The media types by extension; any other file is a sequence of bytes. */
const types: Readonly<Record<string, string>> = {
  avif: "image/avif",
  css: "text/css; charset=utf-8",
  csv: "text/csv; charset=utf-8",
  gif: "image/gif",
  htm: "text/html; charset=utf-8",
  html: "text/html; charset=utf-8",
  ico: "image/x-icon",
  jpeg: "image/jpeg",
  jpg: "image/jpeg",
  js: "text/javascript; charset=utf-8",
  json: "application/json",
  map: "application/json",
  md: "text/markdown; charset=utf-8",
  mjs: "text/javascript; charset=utf-8",
  mp3: "audio/mpeg",
  mp4: "video/mp4",
  pdf: "application/pdf",
  png: "image/png",
  svg: "image/svg+xml",
  txt: "text/plain; charset=utf-8",
  wasm: "application/wasm",
  webmanifest: "application/manifest+json",
  webp: "image/webp",
  woff: "font/woff",
  woff2: "font/woff2",
  xml: "application/xml",
};

/** Returns the media type of a file, by its name. */
export function typeOf(file: string): string {
  const extension = extname(file).slice(1).toLowerCase();
  return types[extension] ?? "application/octet-stream";
}

/**
 * Finds the file of a path: that of its name, or `index.html` of a folder.
 * Returns undefined if there is none, if it or a folder around it begins with a
 * dot, or if a link leads out of the root.
 *
 * @param root the folder, without links in its path
 * @throws {ApiError} 40000 on malformed percent-encoding
 */
export async function findFile(
  root: string,
  path: string,
): Promise<Found | undefined> {
  const segments = path.split("/").slice(1).map(decodePercent);
  const isFolder = segments.at(-1) === "";
  if (isFolder) segments[segments.length - 1] = "index.html";
  if (!segments.every(isPlain)) return undefined;
  const found = await look(root, join(root, ...segments));
  if (isFolder || !found?.isFolder) return found?.isFolder ? undefined : found;
  return await look(root, join(found.file, "index.html")) && found;
}

/** Matches a segment that names no visible file; on Windows, `:` and `\` separate too. */
const foreign = sep === "/" ? /^\.|^$|[/\p{Cc}]/u : /^\.|^$|[/\\:\p{Cc}]/u;

function isPlain(segment: string): boolean {
  return !foreign.test(segment);
}

async function look(root: string, file: string): Promise<Found | undefined> {
  try {
    const real = await realpath(file);
    const inside = relative(root, real).split(sep);
    if (!inside.every(isPlain)) return undefined;
    const stats = await stat(real, { bigint: true });
    const isFolder = stats.isDirectory();
    if (!isFolder) await access(real, constants.R_OK);
    return isFolder || stats.isFile()
      ? { file: real, stats, isFolder }
      : undefined;
  } catch { // it does not exist, or must not be read
    return undefined;
  }
}

/**
 * Returns a weak entity tag: a file may change twice within its time's precision
 * (RFC 9110 section 8.8.1). It has the time of the change, as builds and archives set
 * that of the content.
 */
export function entityTagOf({ size, ctimeNs, ino }: BigIntStats): string {
  const parts = [size, ctimeNs, ino].map((each) => each.toString(36));
  return `W/"${parts.join("-")}"`;
}

/**
 * Yields the content of a file, opened when it is read.
 *
 * @throws if it is not as long as it was, so that the connection is reset
 */
export async function* readFile(
  { file, stats: { size, dev, ino } }: Found,
): AsyncGenerator<Uint8Array, undefined> {
  // Since it was found, it may have been replaced by a link or a FIFO.
  const { O_RDONLY, O_NOFOLLOW = 0, O_NONBLOCK = 0 } = constants;
  const handle = await open(file, O_RDONLY | O_NOFOLLOW | O_NONBLOCK);
  try {
    const found = await handle.stat({ bigint: true });
    if (found.dev !== dev || found.ino !== ino) {
      throw new Error("the file is another one");
    }
    const length = Number(size);
    let sent = 0;
    const end = length - 1;
    const options = { end, autoClose: false, highWaterMark: 1 << 16 };
    if (length > 0) {
      for await (const part of handle.createReadStream(options)) {
        sent += part.length;
        yield part;
      }
    }
    if (sent !== length) throw new Error("the file has become shorter");
  } finally {
    await handle.close();
  }
}
