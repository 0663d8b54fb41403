/**
 * Static files: a front end beside the API. Every URL outside of `BASE_URL` is
 * that of a file in the folder `PUBLIC`. It is on if that is set.
 */

import { existsSync, realpathSync, statSync } from "node:fs";
import {
  basename,
  dirname,
  isAbsolute,
  join,
  relative,
  resolve,
  sep,
} from "node:path";
import type { Feature } from "../../api/feature.ts";
import type { RequestContext, Result } from "../../api/request-context.ts";
import { type SettingReader, text } from "../../api/settings/setting.ts";
import { weightOf } from "../../http/accept.ts";
import { ApiError, implementedMethods } from "../../http/errors.ts";
import { splitList } from "../../http/headers.ts";
import { errorText } from "../../store/error.ts";
import { UsageError } from "../../usage.ts";
import {
  entityTagOf,
  findFile,
  type Found,
  readFile,
  typeOf,
} from "./files.ts";

const settings = {
  /** The folder of a front end. */
  PUBLIC: {
    description: "folder of files for URLs outside of BASE_URL",
    ...text,
  },
};

/** The settings of others that the folder must fit, as text; config.ts and the feature tls check them. */
const asText = { description: "", ...text };
const secrets = {
  DATA_DIR: { ...asText, default: "data/store" },
  TLS_KEY: asText,
  // Of the settings that name a file.
  JWT_SECRET_FILE: asText,
  ADMIN_PASSWORD_FILE: asText,
  ETCD_PASSWORD_FILE: asText,
};

/**
 * Returns the folder, without links in its path.
 *
 * @throws {UsageError} if it is no folder, leaves no URL for its files, or would
 * show the data folder or a file with a secret to everybody
 */
function folderOf({ read }: SettingReader): string {
  const { PUBLIC = "" } = read(settings);
  const { BASE_URL = "/" } = read({ BASE_URL: asText });
  if (/^(?:https?:\/\/[^/]*)?\/?$/.test(BASE_URL)) {
    throw new UsageError(
      `PUBLIC needs a BASE_URL with a path such as /api/, because its files have the other URLs`,
    );
  }
  const folder = findFolder(PUBLIC);
  for (const [name, path] of Object.entries({ ...read(secrets) })) {
    if (path === undefined) continue;
    const secret = realPathOf(path);
    // A front end within the data folder could be one of its damaged copies.
    if (isWithin(secret, folder) || isWithin(folder, secret)) {
      throw new UsageError(
        `PUBLIC: ${PUBLIC} would show ${name}, ${path}, to everybody: choose folders that do not hold each other`,
      );
    }
  }
  return folder;
}

/** Returns the path of a folder without links. */
function findFolder(path: string): string {
  let reason = "";
  try {
    const folder = path && realpathSync(path);
    if (folder && statSync(folder).isDirectory()) return folder;
  } catch (error) {
    reason = `: ${errorText(error)}`;
  }
  throw new UsageError(`PUBLIC: ${path || '""'} is not a folder${reason}`);
}

/** Returns a path without links, also of what is not there yet. */
function realPathOf(path: string): string {
  const absolute = resolve(path);
  const parent = dirname(absolute);
  if (existsSync(absolute) || parent === absolute) {
    return realpathSync(absolute);
  }
  return join(realPathOf(parent), basename(absolute));
}

/** Returns whether a path is that of a folder, or of something in it. */
function isWithin(path: string, folder: string): boolean {
  const way = relative(folder, path);
  return way !== ".." && !way.startsWith(`..${sep}`) && !isAbsolute(way);
}

const allow = "GET, HEAD, OPTIONS";

/** @throws {ApiError} 40400, 40500, 41200, 50100 */
async function respond(
  root: string,
  context: RequestContext,
  path: string,
): Promise<Result> {
  const { method, headers } = context;
  if (method === "OPTIONS") {
    return { status: 204, headers: ["Allow", allow], seq: 0 };
  }
  if (method !== "GET" && method !== "HEAD") {
    throw new ApiError(
      implementedMethods.includes(method) ? 40500 : 50100,
      `The method ${method} is not allowed for a file; allowed: ${allow}.`,
      { headers: ["Allow", allow] },
    );
  }
  const found = await findFile(root, path) ??
    await ofApplication(root, context, path);
  if (found === undefined) {
    throw new ApiError(40400, "There is no such file.");
  }
  if (found.isFolder) {
    const [, query = ""] = /(\?.*)$/s.exec(context.target) ?? [];
    // Browsers take \ for /, and // begins the name of another host.
    const location = `${path.replaceAll("\\", "%5C")}/${query}`;
    return { status: 308, headers: ["Location", location], seq: 0 };
  }
  // The tag of a file is weak, and equals none strongly (RFC 9110 section 13.1.1).
  if (headers["if-match"] && headers["if-match"] !== "*") {
    throw new ApiError(41200);
  }
  return show(found, headers["if-none-match"]);
}

/** Returns the start page for a URL that a front end shows by itself: one without a dot that a browser opens. */
async function ofApplication(
  root: string,
  { headers: { accept = "" } }: RequestContext,
  path: string,
): Promise<Found | undefined> {
  const isPage = /text\/html/i.test(accept) &&
    weightOf(accept, "text/html") > 0 && !/\/\.|\.[^/]*$/.test(path);
  return isPage ? await findFile(root, "/") : undefined;
}

/** Returns a file, or 304 if the client has it already (RFC 9110 section 13.1.2). */
function show(found: Found, ifNoneMatch: string | undefined): Result {
  const etag = entityTagOf(found.stats);
  const headers = ["ETag", etag];
  const isCurrent = splitList(ifNoneMatch ?? "", ",")
    .some((tag) =>
      tag.trim() === "*" || `W/${tag.trim().replace(/^W\//, "")}` === etag
    );
  if (isCurrent) return { status: 304, headers, seq: 0 };
  const { size } = found.stats;
  return {
    status: 200,
    headers: [
      ...headers,
      "Accept-Ranges",
      "none",
      "Content-Length",
      String(size),
    ],
    type: typeOf(found.file),
    stream: () => readFile(found),
    seq: 0,
  };
}

/** A front end's files. */
export const feature: Feature = {
  settings,
  checkSettings: folderOf,
  open({ settings }) {
    const root = folderOf(settings);
    return {
      respondOutside: (context, path) => respond(root, context, path),
    };
  },
};
