/**
 * Programs of third parties read the OpenAPI document: a linter, and two
 * generators whose clients compile strictly, have no casts, and then do as they
 * say. Not part of `npm test`, as it installs them: `.ci/run` runs it.
 */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { cpSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { authorize, send, serve, temporaryFolder } from "./server.ts";

const packages = [
  "@redocly/cli@2",
  "@types/node@20",
  "openapi-fetch@0.17.0",
  "openapi-typescript@7.13.0",
  "orval@7.13.2",
  "typescript@5.9.3",
];
const folder = temporaryFolder();
const env = { ...process.env, REDOCLY_TELEMETRY: "off", DO_NOT_TRACK: "1" };
const run = (command: string, ...words: string[]) =>
  execFileSync(command, words, { cwd: folder, env, encoding: "utf8" });

cpSync(join(import.meta.dirname, "strangers"), folder, { recursive: true });
writeFileSync(join(folder, "package.json"), '{ "type": "module" }');
run(
  "npm",
  "install",
  "--ignore-scripts",
  "--no-audit",
  "--no-fund",
  ...packages,
);
const { origin } = await serve({ FEATURES: "all" });
const { text } = await send(origin, "/v1/openapi.json");
writeFileSync(join(folder, "openapi.json"), text);
const password = "a long enough one";
const headers = await authorize(origin);
const body = { username: "kim", role: "keeper", password };
await send(origin, "/v1/users", { headers, body });

test("Redocly finds no error in the OpenAPI document", () => {
  run("npx", "redocly", "lint", "openapi.json");
});

const clients = {
  fetch: ["openapi-typescript", "openapi.json", "-o", "fetch/api.d.ts"],
  orval: [
    "orval",
    "--input=openapi.json",
    "--output=orval/api.ts",
    "--client=fetch",
  ],
};
const strict = [
  ...["--noEmit", "--strict", "--noUncheckedIndexedAccess"],
  ...["--module", "esnext", "--moduleResolution", "bundler"],
  ...["--target", "es2023", "--allowImportingTsExtensions"],
];
for (const [name, command] of Object.entries(clients)) {
  test(`${command[0]} makes a client that needs no casts`, () => {
    run("npx", ...command);
    run("npx", "tsc", ...strict, `${name}.ts`);
    const tsx = fileURLToPath(import.meta.resolve("tsx"));
    run(process.execPath, `--import=${tsx}`, `${name}.ts`, origin);
  });
}

test("README's typed client compiles, and gets errors by their fields", () => {
  const [, program = ""] =
    /```ts\n([^]*?)```/.exec(readFileSync("README.md", "utf8")) ?? [];
  const path = join(folder, "fetch", "readme.ts");
  writeFileSync(path, program.replaceAll("http://localhost:3000", origin));
  run("npx", "tsc", ...strict, path);
  const tsx = fileURLToPath(import.meta.resolve("tsx"));
  assert.match(run(process.execPath, `--import=${tsx}`, path), /'zoo_id'/);
});
