/**
 * FEATURES: a feature that is off is not loaded, and nothing in the API shows
 * that it exists; the rest of the server works as it does with all features.
 */

import { strict as assert } from "node:assert";
import { readdir, readFile } from "node:fs/promises";
import { join } from "node:path";
import { describe, test, type TestContext } from "node:test";
import { featureNames } from "../src/features.ts";
import {
  assertError,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";
import { runHere } from "./in-process.ts";

const zoo = { name: "Artis", city: "Amsterdam", country: "NL" };
const ndjson = { "content-type": "application/x-ndjson" };

/** Starts a server that ends with the test, or when its modules are listed. */
async function startRecorded(
  t: TestContext,
  names: string,
  settings: Readonly<Record<string, string>> = {},
): Promise<{ server: Server; loaded: () => Promise<string[]> }> {
  const folder = await temporaryFolder();
  const server = await start({
    env: { FEATURES: names, NODE_V8_COVERAGE: folder, ...settings },
  });
  t.after(async () => {
    await server.stop();
    await removeFolder(folder);
  });
  /** Ends the server, which then writes its coverage, and returns the URLs of the modules in it. */
  const loaded = async () => {
    await server.end();
    const [file = ""] = await readdir(folder);
    const { result } = JSON.parse(await readFile(join(folder, file), "utf8"));
    return result.map(({ url }: { url: string }) => url.replace(/\?.*/, ""));
  };
  return { server, loaded };
}

/** The parts of each feature that a client sees: its URLs, and its entries in the root document. */
const traces: Readonly<
  Record<string, { readonly urls: string[]; readonly entries: string[] }>
> = {
  marker: { urls: [], entries: [] },
  "fast-writes": { urls: [], entries: [] },
  reserves: { urls: [], entries: [] },
  "open-network": { urls: [], entries: [] },
  indexes: { urls: [], entries: [] },
  evolution: { urls: [], entries: [] },
  conditional: { urls: [], entries: [] },
  expand: { urls: [], entries: [] },
  events: { urls: ["/v1/events"], entries: ["events_url"] },
  imports: { urls: ["/v1/tasks", "/v1/tasks/1"], entries: ["tasks_url"] },
  deletions: { urls: ["/v1/tasks", "/v1/tasks/1"], entries: ["tasks_url"] },
  batches: { urls: [], entries: [] },
  aggregates: { urls: [], entries: [] },
  idempotency: { urls: [], entries: [] },
  openapi: {
    urls: ["/v1/openapi.json"],
    entries: ["openapi_url"],
  },
  metrics: { urls: ["/metrics"], entries: [] },
  page: {
    urls: ["/docs", "/page/page.js", "/page/page.css"],
    entries: ["documentation_url"],
  },
  negotiation: { urls: [], entries: [] },
};

describe("FEATURES", { concurrency: 2 }, () => {
  test("has each feature in the list of this test", () => {
    assert.deepEqual(Object.keys(traces), [...featureNames]);
  });

  for (const names of ["none", ...featureNames]) {
    test(`${names}: is loaded and visible, and no other feature is`, async (t) => {
      const { server, loaded } = await startRecorded(t, names);
      const token = await server.signIn();
      const { body: entries } = await server.request("GET", "/");
      for (const trace of Object.values(traces)) {
        for (const url of trace.urls) {
          const response = await server.request("GET", url, {
            token,
            // An event stream would not end.
            headers: { accept: "application/json, text/javascript, text/css" },
          });
          // Several features have tasks.
          if (!traces[names]?.urls.includes(url)) assertError(response, 40400);
          else assert.equal(response.status === 404, url.endsWith("/1"));
        }
        for (const entry of trace.entries) {
          const isOn = traces[names]?.entries.includes(entry) ?? false;
          assert.equal(entry in entries, isOn, entry);
        }
      }
      await assertCore(server, token);
      await assertImports(server, { token, isOn: names === "imports" });
      await assertKeys(server, { token, isOn: names === "idempotency" });
      await assertValidators(server, { token, isOn: names === "conditional" });
      await assertFormats(server, { token, isOn: names === "negotiation" });

      if (names === "openapi") await assertDocument(server);

      const folders = foldersOf(await loaded());
      assert.deepEqual(folders, names === "none" ? [] : [names]);
    });
  }

  const settings = {
    CORS_ORIGINS: "https://a.example",
    PUBLIC: "src",
    RATE_LIMIT: "9",
    TRUST_PROXY: "127.0.0.1",
  };
  for (const [name, value] of Object.entries(settings)) {
    test(`${name} has a feature of its own, and loads no other`, async (t) => {
      const { loaded } = await startRecorded(t, "none", {
        ...(name === "PUBLIC" && { BASE_URL: "/api/" }),
        [name]: value,
      });
      const [folder = "", ...others] = foldersOf(await loaded());
      const own = name === "PUBLIC" ? "static" : name.toLowerCase();
      assert.match(own.replace("_", "-"), RegExp(`^${folder}`));
      assert.deepEqual(others, []);
    });
  }

  test("is a list with commas, or all", async (t) => {
    const server = await start({ env: { FEATURES: "metrics, events" } });
    t.after(() => server.stop());
    const { body: some } = await server.request("GET", "/");
    assert.ok(some.events_url);
    assert.equal(some.tasks_url, undefined);
    const metrics = await server.request("GET", "/metrics");
    assert.equal(metrics.status, 401, "not 404: it is there, for admins");
    const other = await start({ args: ["--features", "all"] });
    t.after(() => other.stop());
    const { body: all } = await other.request("GET", "/");
    assert.ok(all.tasks_url && all.events_url && all.openapi_url);
  });

  test("with an unknown name is exit code 2 and one line", async () => {
    for (const names of ["imports,nope", "none,events"]) {
      const { code, stderr } = await runHere(["serve", "--port", "0"], {
        env: { FEATURES: names },
      });
      assert.equal(code, 2, stderr);
      assert.match(stderr, /^zoo-api: FEATURES: .*all, none,.*metrics.*\n$/);
    }
    const { stdout } = await runHere(["help"]);
    assert.match(stdout, /--features .*\n.*FEATURES, default: all/);
  });

  test("the setting of a feature that is off is refused, not ignored", async () => {
    const values = {
      METRICS: "local",
      REQUIRE_IF_MATCH: "1",
      ETCD_USER: "zoo", // without a store in etcd
      READS: "local",
    };
    for (const [name, value] of Object.entries(values)) {
      const { code, stderr } = await runHere(["serve", "--port", "0"], {
        env: { FEATURES: "none", STORE: "file", [name]: value },
      });
      assert.equal(code, 2, stderr);
      const message =
        `^zoo-api: ${name}: .*lacks the feature or the store for it\n$`;
      assert.match(stderr, RegExp(message));
    }
  });

  test("the command of a feature that is off is unknown", async () => {
    const { code, stderr } = await runHere(["import", "zoos", "-"], {
      env: { FEATURES: "none" },
    });
    assert.equal(code, 2, stderr);
    assert.match(stderr, /unknown command "import"/);
  });

  test("the data of a feature that is off is available again when it is on", async (t) => {
    const folder = await temporaryFolder();
    t.after(() => removeFolder(folder));
    const post = async (FEATURES: string) => {
      const server = await start({ folder, env: { FEATURES } });
      const response = await server.request("POST", "/v1/zoos", {
        token: await server.signIn(),
        json: zoo,
        headers: { "idempotency-key": "one" },
      });
      await server.stop();
      return response;
    };
    const first = await post("all");
    const second = await post("none");
    const third = await post("all");
    assert.equal(first.status, 201, first.text);
    assert.notEqual(second.body.id, first.body.id);
    assert.equal(third.text, first.text);
  });
});

/** Returns the folders of features whose modules are among those of a server. */
function foldersOf(modules: readonly string[]): string[] {
  assert.ok(modules.some((url) => /\/app\.[jt]s$/.test(url)));
  const folders = modules.flatMap((url) =>
    /\/features\/([\w-]+)\//.exec(url)?.[1] ?? []
  );
  return [...new Set(folders)];
}

/** Asserts that collections, records, users, authorizations and health work. */
async function assertCore(server: Server, token: string): Promise<void> {
  const created = await server.request("POST", "/v1/zoos", {
    token,
    json: zoo,
  });
  assert.equal(created.status, 201, created.text);
  const urls = [created.body.url, "/v1/zoos?name=Artis", "/v1/user"];
  for (const url of [...urls, "/v1/authorizations", "/health"]) {
    const { status, text } = await server.request("GET", url, { token });
    assert.equal(status, 200, text);
  }
}

/** Asserts that POST accepts NDJSON if imports are on; otherwise it gets 415. */
async function assertImports(
  server: Server,
  { token, isOn }: { readonly token: string; readonly isOn: boolean },
): Promise<void> {
  const raw = `${JSON.stringify(zoo)}\n`;
  const response = await server.request("POST", "/v1/zoos", {
    token,
    raw,
    headers: ndjson,
  });
  if (isOn) assert.equal(response.status, 202, response.text);
  else assertError(response, 41500);
  const options = await server.request("OPTIONS", "/v1/zoos");
  const accepted = options.headers.get("accept-post") ?? "";
  assert.equal(accepted.includes("application/x-ndjson"), isOn);
}

/**
 * Asserts that a repeated POST creates one record if idempotency is on;
 * otherwise its key is ignored, even a malformed one.
 */
async function assertKeys(
  server: Server,
  { token, isOn }: { readonly token: string; readonly isOn: boolean },
): Promise<void> {
  const post = (key: string) =>
    server.request("POST", "/v1/zoos", {
      token,
      json: zoo,
      headers: { "idempotency-key": key },
    });
  const first = await post("once");
  const second = await post("once");
  assert.equal(first.body.id === second.body.id, isOn);
  const malformed = await post("a b");
  assert.equal(malformed.status, isOn ? 400 : 201, malformed.text);
}

/** Asserts that responses have validators and preconditions count if conditional requests are on; otherwise there are none, and they are ignored. */
async function assertValidators(
  server: Server,
  { token, isOn }: { readonly token: string; readonly isOn: boolean },
): Promise<void> {
  for (const url of ["/v1/zoos", "/v1/zoos/1", "/"]) {
    const { headers } = await server.request("GET", url, { token });
    assert.equal(headers.has("etag"), isOn, url);
    assert.equal(headers.has("last-modified"), isOn && url.endsWith("/1"));
  }
  const patch = (headers: Record<string, string>) =>
    server.request("PATCH", "/v1/zoos/1", { token, json: {}, headers });
  const changed = await patch({ "if-match": '"x"' });
  assert.equal(changed.status, isOn ? 412 : 201, changed.text);
  const read = await server.request("GET", "/v1/zoos/1", {
    token,
    headers: { "if-none-match": "*" },
  });
  assert.equal(read.status, isOn ? 304 : 200, read.text);
}

/**
 * Asserts that there are QUERY, problem details and preferences if negotiation is
 * on; otherwise QUERY is not allowed, and errors and changes are plain JSON.
 */
async function assertFormats(
  server: Server,
  { token, isOn }: { readonly token: string; readonly isOn: boolean },
): Promise<void> {
  const query = await server.request("QUERY", "/v1/zoos", {
    token,
    raw: "limit=1",
    headers: { "content-type": "application/x-www-form-urlencoded" },
  });
  if (isOn) assert.equal(query.status, 200, query.text);
  else assertError(query, 40500);
  const options = await server.request("OPTIONS", "/v1/zoos");
  assert.equal(options.headers.has("accept-query"), isOn);
  assert.equal(options.body.methods.includes("QUERY"), isOn);
  const problem = "application/problem+json";
  const missing = await server.request("GET", "/v1/nope", {
    headers: { accept: `${problem}, application/json;q=0.9` },
  });
  assert.equal(missing.status, 404);
  assert.equal(missing.headers.get("content-type") === problem, isOn);
  const only = await server.request("GET", "/v1/zoos", {
    token,
    headers: { accept: problem },
  });
  assert.equal(only.status, isOn ? 200 : 406, only.text);
  const changed = await server.request("PATCH", "/v1/zoos/1", {
    token,
    json: {},
    headers: { prefer: "return=minimal" },
  });
  assert.equal(changed.status, isOn ? 204 : 201, changed.text);
}

/** Asserts that the OpenAPI document has nothing of a feature that is off. */
async function assertDocument(server: Server): Promise<void> {
  const { body } = await server.request("GET", "/v1/openapi.json");
  for (const { urls } of Object.values(traces)) {
    for (const url of urls) {
      assert.equal(url in body.paths, url.includes("openapi"), url);
    }
  }
  const { post } = body.paths["/v1/zoos"] ?? {};
  const types = Object.keys(post?.requestBody?.content ?? {});
  assert.deepEqual(types, ["application/json"]);
  assert.equal(post?.responses[202], undefined);
  assert.equal(post?.responses[409], undefined);
  const text = JSON.stringify(body);
  assert.doesNotMatch(text, /Idempotency-Key"|Last-Event-ID|Task/);
  assert.doesNotMatch(text, /"If-Match|"Prefer"|problem\+json|x-query/i);
}
