/** The commands in documents: finds them, and runs them in a shell. */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import process from "node:process";
import { command, root } from "./harness.ts";

/** A fenced block. */
export interface Block {
  /** The heading of level two above it. */
  readonly section: string;
  readonly language: string;
  readonly text: string;
}

/** Returns the fenced blocks of a document. */
export function blocksIn(markdown: string): Block[] {
  return markdown.split(/^## /m).flatMap((text): Block[] => {
    const [section = ""] = text.split("\n", 1);
    return Array.from(
      text.matchAll(/^```(\w*)\n([^]*?)^```$/gm),
      ([, language = "", text = ""]) => ({ section, language, text }),
    );
  });
}

/** Returns whether the comments of a block state the status of each response. */
export function hasStatuses({ language, text }: Block): boolean {
  return language === "sh" &&
    /^curl -i/m.test(text.replaceAll(/^.*\| *$|^ +/gm, ""));
}

interface ShellOptions {
  readonly env?: Readonly<Record<string, string>>;
  /** Another shell, which reads the script from its standard input. */
  readonly program?: readonly string[];
  readonly input?: string;
  /** Stops the script once its output matches; then only the match is returned. */
  readonly until?: RegExp;
}

/**
 * Returns a script whose commands start without npm, which takes longer than
 * they do. That npm starts them is shown where one starts a server.
 */
export function withoutNpm(script: string): string {
  const words = [process.execPath, ...command].map((word) => `'${word}'`);
  return script.replaceAll(/npm run (?:-s )?zoo-api --/g, words.join(" "));
}

/** Runs a script, and returns its output, including error output. */
export async function shell(
  script: string,
  {
    env,
    program,
    input = program ? script : "",
    until,
  }: ShellOptions = {},
): Promise<string> {
  const words = program ?? ["bash", "-c", script];
  const child = spawn("timeout", ["600", ...words], {
    cwd: root,
    env: { ...process.env, NODE_V8_COVERAGE: "", ...env },
    stdio: "pipe",
  });
  let output = "";
  const collect = (text: string) => {
    output += text;
    // Ends the whole process group of the script.
    if (until?.test(output)) child.kill();
  };
  child.stdout.setEncoding("utf8").on("data", collect);
  child.stderr.setEncoding("utf8").on("data", collect);
  child.stdin.on("error", () => {}); // it may read nothing
  child.stdin.end(input);
  const code = await new Promise((resolve, reject) => {
    child.once("error", reject);
    child.once("close", resolve);
  });
  if (until === undefined) {
    assert.equal(code, 0, output);
    return output;
  }
  const [found = ""] = until.exec(output) ?? [];
  assert.notEqual(found, "", output);
  return found;
}

/**
 * Runs commands whose comments state the status of each response, and checks
 * that it has it.
 *
 * @returns the responses, with their header fields
 */
export async function responsesTo(
  script: string,
  options: ShellOptions,
): Promise<string[]> {
  // A line of output after each comment separates the responses.
  const separator = "=====";
  const comments = script.match(/^# \d{3}: /gm) ?? [];
  assert.equal(comments.length, script.match(/curl -i/g)?.length);
  const output = await shell(
    script
      .replace(/^# (\d{3}): .*$/gm, `$&\nprintf '\\n${separator}$1\\n'`)
      .replaceAll("curl -i", "curl -is"),
    options,
  );
  const responses = output.split(`\n${separator}`).slice(1);
  assert.equal(responses.length, comments.length);
  for (const response of responses) {
    const [, expected, status] =
      /^(\d{3})\nHTTP\/1\.1 (\d{3}) /.exec(response) ?? [];
    assert.ok(expected !== undefined && status === expected, response);
  }
  return responses;
}
