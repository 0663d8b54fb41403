/**
 * Checks the API with third-party programs, from its document alone: the rules
 * of Redocly, the types of openapi-typescript and a client that uses them, a
 * validating proxy in front of every operation, jose for the tokens, and
 * promtool for the metrics. The packages go to a temporary folder.
 *
 *     node --import tsx test/strangers/run.ts
 */

import { strict as assert } from "node:assert";
import { spawn } from "node:child_process";
import { readFile, writeFile } from "node:fs/promises";
import { createServer } from "node:net";
import type { AddressInfo } from "node:net";
import { join } from "node:path";
import process from "node:process";
import {
  adminPassword,
  type Answer,
  jwtSecret,
  removeFolder,
  request,
  type RequestOptions,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { compile, install, run, say, silence } from "./programs.ts";

const packages = [
  "@redocly/cli@2.77.0",
  "@stoplight/prism-cli@5.16.0",
  "@types/node@20.19.43",
  "jose@6.2.17",
  "openapi-fetch@0.17.0",
  "openapi-typescript@7.13.0",
  "typescript@5.9.3",
];

/** All rules of Redocly: neither errors nor warnings. */
async function lint(cwd: string): Promise<void> {
  const report = await run("npx", [
    "redocly",
    "lint",
    "--extends=recommended-strict",
    "--format=json",
    "openapi.json",
  ], { cwd });
  const { totals } = JSON.parse(report);
  assert.deepEqual(totals, { errors: 0, warnings: 0, ignored: 0 }, report);
  say("redocly lint, recommended-strict: 0 errors, 0 warnings");
}

/** A client with the types of the document, under the strictest compiler options. */
async function useTypedClient(server: Server, cwd: string): Promise<void> {
  await run("npx", ["openapi-typescript", "openapi.json", "-o", "api.d.ts"], {
    cwd,
  });
  await compile("fetch.ts", cwd);
  const args = ["out/fetch.js", server.origin, adminPassword, jwtSecret];
  await run(process.execPath, args, { cwd });
  say("openapi-typescript, tsc --strict, openapi-fetch and jose: all is well");
}

async function freePort(): Promise<number> {
  const server = createServer().listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const { port } = server.address() as AddressInfo; // it is not a pipe
  await new Promise((resolve) => server.close(resolve));
  return port;
}

/** A validating proxy in front of the server, and at least one request for each operation. */
async function proxy(server: Server, cwd: string): Promise<void> {
  const port = String(await freePort());
  const child = spawn(
    process.execPath,
    [
      join(cwd, "node_modules/@stoplight/prism-cli/dist/index.js"),
      ...["proxy", "openapi.json", server.origin, "-p", port, "--cors=false"],
    ],
    { cwd, env: { ...process.env, ...silence } },
  );
  try {
    let output = "";
    await new Promise<void>((resolve, reject) => {
      const listen = (chunk: unknown) => {
        output += chunk;
        if (output.includes("listening on")) resolve();
      };
      child.stdout.on("data", listen);
      child.stderr.on("data", listen);
      child.once("close", () => reject(new Error(output)));
    });
    const asked = await askForAll(server, `http://127.0.0.1:${port}`);
    say(`prism proxy: ${asked} requests, 0 violations`);
  } finally {
    child.kill();
  }
}

/** A new record of each collection; `unique` occurs in no other one. */
const examples: Readonly<Record<string, (unique: string) => object>> = {
  zoos: () => ({ name: "Zoo", city: "Bern", country: "CH" }),
  animals: () => ({ zoo_id: 1, name: "Momo", animal_type_id: 17 }),
  employees: (unique) => ({
    zoo_id: 1,
    name: "Kim",
    job_title: "Keeper",
    email: `${unique}@example.com`,
  }),
  users: (unique) => ({ username: unique, password: adminPassword }),
  authorizations: () => ({ username: "admin", password: adminPassword }),
};

/** Requests every operation of the document, in several ways; returns the number of requests. */
async function askForAll(server: Server, origin: string): Promise<number> {
  const { body: document } = await server.request("GET", "/v1/openapi.json");
  const token = await server.signIn();
  let count = 0;
  const ask = async (
    method: string,
    path: string,
    expected: number,
    options: RequestOptions = {},
  ): Promise<Answer> => {
    count++;
    const whole = { token, ...options };
    const answer = await request(method, origin + path, whole);
    const violations = answer.headers.get("sl-violations");
    assert.equal(violations, null, `${method} ${path}: ${violations}`);
    assert.equal(answer.status, expected, `${method} ${path}: ${answer.text}`);
    return answer;
  };
  const make = async (collection: string): Promise<number> => {
    if (collection === "tasks") return await importOne();
    const json = examples[collection]?.(`kim${++count}`);
    const path = `/v1/${collection}`;
    const answer = await server.request("POST", path, { json, token });
    return answer.body.id;
  };

  /** A finished task. */
  const importOne = async (): Promise<number> => {
    const headers = { "content-type": "application/x-ndjson" };
    const raw = `${JSON.stringify(examples["zoos"]?.(""))}\n`;
    const made = await ask("POST", "/v1/zoos/import", 202, { raw, headers });
    const path = `/v1/tasks/${made.body.id}`;
    while ((await ask("GET", path, 200)).body.status !== "succeeded");
    return made.body.id;
  };

  for (const [template, item] of Object.entries<object>(document.paths)) {
    const [collection = ""] = template.match(/\w+(?=(?:\/\{id\})?$)/) ?? [];
    const example = examples[collection];
    const isRecord = template.endsWith("{id}");
    const filled = async () =>
      template.replace(/\{\w+_id\}/g, "1")
        .replace("{id}", isRecord ? String(await make(collection)) : "");
    for (const method of Object.keys(item).map((key) => key.toUpperCase())) {
      const path = await filled();
      const json = example?.(`kim${++count}`);
      switch (method) {
        case "GET":
          // Not through Prism, which takes the empty content for malformed
          // JSON.
          await server.request("HEAD", path, { token });
          if (template === "/v1/events") break; // it never ends
          await askToRead(ask, path);
          if (isRecord) await ask(method, `${path}000`, 404);
          else if (example) await askForPages(ask, path);
          break;
        case "OPTIONS":
          await ask(method, path, 200);
          break;
        case "POST":
          if (template.endsWith("/import")) break; // importOne sends it
          await ask(method, path, 201, { json });
          if (collection === "authorizations") break;
          await ask(method, path, 201, {
            json: example?.(`kim${++count}`),
            headers: { "idempotency-key": path },
          });
          break;
        case "PUT":
        case "PATCH": {
          const own = template === "/v1/user";
          const changes = own ? { password: adminPassword } : json;
          const headers = { prefer: "return=minimal" };
          if (!own) await ask(method, path, 201, { json: changes });
          if (!own) await ask(method, path, 204, { json: changes, headers });
          await ask(method, path, 412, {
            json: changes,
            headers: { "if-match": '"none"' },
          });
          break;
        }
        case "DELETE":
          if (!isRecord) {
            await ask(method, path, 400);
            await ask(method, `${path}?id=999999`, 202);
            break;
          }
          await ask(method, path, 204);
          await ask(method, path, 404);
          await ask("GET", path, 410);
          break;
        default:
          assert.match(method, /^(?:PARAMETERS|X-QUERY)$/);
      }
    }
  }
  await ask("DELETE", "/v1/zoos/1", 409);
  await ask("DELETE", "/v1/zoos/1?cascade=true", 204);
  return count;
}

type Ask = (
  method: string,
  path: string,
  expected: number,
  options?: RequestOptions,
) => Promise<Answer>;

async function askToRead(ask: Ask, path: string): Promise<void> {
  const { headers } = await ask("GET", path, 200);
  const etag = headers.get("etag");
  if (etag === null) return;
  await ask("GET", path, 304, { headers: { "if-none-match": etag } });
  // Not as problem+json, which Prism treats as JSON, and so validates as our
  // own format.
  await ask("GET", path, 412, { headers: { "if-match": '"none"' } });
}

async function askForPages(ask: Ask, path: string): Promise<void> {
  await ask(
    "GET",
    `${path}?limit=2&offset=1&sortby=created_at&order=desc`,
    200,
  );
  await ask("GET", `${path}?per_page=2&page=2&fields=id&fields=url`, 200);
  await ask(
    "GET",
    `${path}?id:in=1&id:in=2&created_at:gt=2026-01-01T00:00:00Z`,
    200,
  );
}

const folder = await temporaryFolder();
const server = await start({
  seed: JSON.parse(await readFile(join(root, "data/seed.json"), "utf8")),
});
try {
  await install(packages, folder);
  const { text } = await server.request("GET", "/v1/openapi.json");
  await writeFile(join(folder, "openapi.json"), text);
  await lint(folder);
  await useTypedClient(server, folder);
  await proxy(server, folder);
  const token = await server.signIn();
  const metrics = await server.request("GET", "/metrics", { token });
  const options = { cwd: folder, input: metrics.text };
  assert.equal(await run("promtool", ["check", "metrics"], options), "");
  say("promtool check metrics: silent");
} finally {
  await server.stop();
  await removeFolder(folder);
}
