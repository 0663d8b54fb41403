import { strict as assert } from "node:assert";
import { get } from "node:http";
import { after, before, describe, test } from "node:test";
import { type Running, startApplication } from "../../application.ts";
import { sample as zoos } from "../../collections.ts";
import { exchange, signInNew } from "../../harness.ts";

/** The value of one sample; undefined where there is none. */
function sample(text: string, name: string): number | undefined {
  const line = text.split("\n").find((line) => line.startsWith(`${name} `));
  return line === undefined ? undefined : Number(line.slice(name.length + 1));
}

describe("the metrics", () => {
  let running: Running;
  before(async () => {
    running = await startApplication({ hasLocalMetrics: true });
  });
  after(() => running.stop());

  async function read(): Promise<string> {
    const { status, headers, text } = await running.request("GET", "/metrics");
    assert.equal(status, 200);
    assert.equal(
      headers.get("content-type"),
      "text/plain; version=0.0.4; charset=utf-8",
    );
    assert.equal(headers.get("cache-control"), "no-store");
    return text;
  }

  test("count requests by method, route and status, and how long they took", async () => {
    const name =
      'zoo_api_http_requests_total{method="GET",route="/v1/zoos/:id",status="404"}';
    const count =
      'zoo_api_http_request_duration_seconds_count{route="/v1/zoos/:id"}';
    const before = await read();
    for (const id of [7, 8, 9]) {
      const { status } = await running.request("GET", `/v1/zoos/${id}`);
      assert.equal(status, 404);
    }
    const after = await read();
    assert.equal(sample(after, name), (sample(before, name) ?? 0) + 3);
    assert.equal(sample(after, count), (sample(before, count) ?? 0) + 3);
    const all = count.replace("count", "bucket").replace("}", ',le="+Inf"}');
    assert.equal(sample(after, all), sample(after, count));
  });

  test("count all unknown URLs as one route, and all unknown methods as one", async () => {
    await running.request("GET", "/one");
    await running.request("GET", "/two/three");
    await running.request("PROPFIND", "/v1/zoos");
    const text = await read();
    const name = "zoo_api_http_requests_total";
    const unknown = `${name}{method="GET",route="none",status="404"}`;
    const other = `${name}{method="other",route="/v1/zoos",status="501"}`;
    assert.equal(sample(text, unknown), 2);
    assert.equal(sample(text, other), 1);
    assert.doesNotMatch(text, /three|PROPFIND/);
  });

  test("count what is not a request", async () => {
    const name =
      'zoo_api_http_requests_total{method="other",route="none",status="400"}';
    const before = sample(await read(), name) ?? 0;
    await exchange(running.port, "NONSENSE\r\n\r\n");
    assert.equal(sample(await read(), name), before + 1);
  });

  test("measure the store and the time that the disk takes", async () => {
    const { token, store } = running;
    const json = { name: "A", city: "B", country: "CH" };
    const before = await read();
    await running.request("POST", "/v1/zoos", { json, token });
    const text = await read();
    assert.equal(sample(text, 'zoo_api_records{collection="zoos"}'), 1);
    assert.equal(sample(text, "zoo_api_store_seq"), store.seq);
    assert.equal(sample(text, "zoo_api_store_durable_seq"), store.seq);
    assert.equal(
      sample(text, "zoo_api_store_log_bytes"),
      store.log.offset,
    );
    assert.equal(sample(text, "zoo_api_store_writable"), 1);
    assert.equal(sample(text, "zoo_api_store_full"), 0);
    const syncs = "zoo_api_store_sync_duration_seconds_count";
    assert.equal(sample(text, syncs), (sample(before, syncs) ?? 0) + 1);
  });

  test("have a help and a type before the samples of each name, once", async () => {
    const types = new Map<string, string>();
    let name = "";
    for (const line of (await read()).trimEnd().split("\n")) {
      const [, help] = /^# HELP (\w+) \S/.exec(line) ?? [];
      const [, typed, type] = /^# TYPE (\w+) (\w+)$/.exec(line) ?? [];
      if (help !== undefined) name = help;
      else if (typed !== undefined && type !== undefined) {
        assert.equal(typed, name);
        assert.ok(!types.has(typed), typed);
        types.set(typed, type);
      } else {
        assert.match(line, /^\w+(?:\{\w+="[^"]*"(?:,\w+="[^"]*")*\})? \S+$/);
        assert.ok(line.startsWith(name), line);
      }
    }
    assert.equal(types.get("process_cpu_seconds_total"), "counter");
  });

  test("are for programs on this machine and for admins, not for clients behind a proxy, with a foreign host name or of a web page", async () => {
    const { token } = running;
    const user = { token, username: "kim", role: "keeper" };
    const keeper = await signInNew(running, user);
    const fields = [
      ["x-forwarded-for", "192.0.2.1"],
      ["x-forwarded-host", "example.com"],
      ["x-real-ip", "192.0.2.1"],
      ["forwarded", "for=192.0.2.1"],
      ["via", "1.1 proxy"],
      ["cf-connecting-ip", "192.0.2.1"],
      ["true-client-ip", "192.0.2.1"],
      ["x-client-ip", "192.0.2.1"],
      ["fly-client-ip", "192.0.2.1"],
      ["cdn-loop", "a"],
      ["origin", "https://evil.example"],
      ["host", "evil.example"],
      ["host", "127.evil.example"],
    ] as const;
    for (const [name, value] of fields) {
      const ask = (token?: string) => askRaw(running.port, name, value, token);
      assert.equal(await ask(), 401, `${name}: ${value}`);
      assert.equal(await ask(keeper), 403);
      assert.equal(await ask(token), 200);
    }
    for (const host of ["localhost", "LOCALHOST:80", "127.0.0.1", "[::1]:80"]) {
      assert.equal(await askRaw(running.port, "host", host), 200, host);
    }
    const foreign = "http://evil.example/metrics"; // which counts, not Host
    const ask = askRaw(running.port, "host", "localhost", "", foreign);
    assert.equal(await ask, 401);
  });
});

test("the names of the metrics begin with the title, and never with a digit", async (t) => {
  for (
    const [title, prefix] of [["Library API", "library_api"], ["2nd", "_2nd"]]
  ) {
    const declaration = { ...zoos, title: title ?? "" };
    const running = await startApplication({
      declaration,
      hasLocalMetrics: true,
    });
    t.after(() => running.stop());
    const { text } = await running.request("GET", "/metrics");
    const [name = ""] = /^[a-z0-9_]+(?=_http_requests_total\{)/m.exec(text) ??
      [];
    assert.equal(name, prefix);
  }
});

test("without METRICS=local the metrics are for admins only", async (t) => {
  const running = await startApplication();
  t.after(() => running.stop());
  const ask = async (token?: string) =>
    (await running.request("GET", "/metrics", { token })).status;
  assert.equal(await ask(), 401);
  assert.equal(await ask(running.token), 200);
  const { body } = await running.request("GET", "/v1/openapi.json");
  assert.deepEqual(body.paths["/metrics"]?.["get"]?.security, [{ bearer: [] }]);
});

/** Requests the metrics with a field that fetch would not send; returns the status. */
function askRaw(
  port: number,
  name: string,
  value: string,
  token?: string,
  path = "/metrics",
): Promise<number | undefined> {
  const authorization = token && `Bearer ${token}`;
  const headers = { [name]: value, ...(authorization && { authorization }) };
  return new Promise((resolve, reject) => {
    get({ port, path, headers, agent: false }, (response) => {
      response.resume();
      resolve(response.statusCode);
    }).on("error", reject);
  });
}
