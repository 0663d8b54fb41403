/** The commands and examples of documents, run as they are printed. */

import assert from "node:assert/strict";
import { existsSync, readFileSync } from "node:fs";
import { dirname, join } from "node:path";
import process from "node:process";
import { type Environment, loader, main, run } from "./server.ts";

/** A fenced block. */
export interface Block {
  /** The heading of level two above it. */
  section: string;
  language: string;
  text: string;
}

/** Tests run in the root of the project. */
export const read = (path: string) => readFileSync(path, "utf8");

export function blocksIn(path: string): Block[] {
  return read(path).split(/^## /m).flatMap((text) => {
    const section = text.slice(0, text.indexOf("\n"));
    return Array.from(
      text.matchAll(/^ *```(\w*)\n([^]*?)^ *```$/gm),
      ([, language = "", text = ""]) => ({ section, language, text }),
    );
  });
}

/** The command line under test, in the place of the installed one. */
export const zooApi = [process.execPath, ...loader, main].map((word) =>
  `'${word}'`
).join(" ");

/** Runs a script in bash, which dies with this process, and returns its output; it fails if the script does. */
export async function shell(
  script: string,
  environment: Environment = {},
) {
  const words = ["900", "bash", "-euo", "pipefail", "-c", script];
  const env = { ...process.env, NODE_V8_COVERAGE: "", ...environment };
  const ended = run("timeout", words, { env });
  assert.equal(await ended.exit, 0, ended.output);
  return ended.output;
}

/** Runs commands whose comments state the status of each response, checks that, and returns the responses. */
export async function responsesTo(
  script: string,
  environment: Environment,
) {
  const output = await shell(
    script.replace(/^# (\d{3}): .*$/gm, "printf '\\n=====$1 \\n'")
      .replaceAll("curl -i", "curl -is"),
    environment,
  );
  const responses = output.split("\n=====").slice(1);
  assert.equal(responses.length, script.match(/curl -i/g)?.length);
  for (const response of responses) {
    assert.match(response, /^(\d{3}) .*\nHTTP\/1\.1 \1 /);
  }
  return responses;
}

/** Checks that the files and headings to which a document links are there. */
export function checkLinks(path: string) {
  for (const [, link = ""] of read(path).matchAll(/\]\(([^)\s]+)\)/g)) {
    if (/^https?:/.test(link)) continue;
    const [file, heading] = link.split("#");
    const target = file ? join(dirname(path), file) : path;
    assert.ok(existsSync(target), `${path}: ${link}`);
    if (heading === undefined) continue;
    const headings = Array.from(
      read(target).matchAll(/^#+ (.*)$/gm),
      ([, text = ""]) =>
        text.toLowerCase().replace(/[^\w\s-]/g, "").replaceAll(" ", "-"),
    );
    assert.ok(headings.includes(heading), `${path}: ${link}`);
  }
}
