/** A store in etcd, where that is installed; torture.ts has what servers do while something fails. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { test } from "node:test";
import { setTimeout as delay } from "node:timers/promises";
import {
  authorize,
  fileOf,
  launch,
  outputOf,
  send,
  serve,
  stop,
  temporaryFolder,
} from "../server.ts";
import { skip, startNodes } from "./nodes.ts";

const folder = temporaryFolder();
if (!skip) {
  execFileSync(
    "openssl",
    `req -x509 -nodes -newkey rsa:2048 -subj /CN=etcd -addext subjectAltName=IP:127.0.0.1 -keyout ${folder}/etcd.key -out ${folder}/etcd.pem`
      .split(" "),
    { stdio: "ignore" },
  );
}
const [node] = skip ? [] : await startNodes(1, `${folder}/etcd`);

/** Calls a method of etcd. */
const call = (method: string, key: string, value = "") =>
  send(`http://${node?.host}`, `/v3/kv/${method}`, {
    body: { key: btoa(key), ...value && { value: btoa(value) } },
  });

test("Keys that no server wrote are refused by name", { skip }, async () => {
  const log = "log/0000000000000001/";
  const rows = [
    ["other=x", "holds no store"],
    ["head=x", '"head"'],
    ["latest=5", '"head"'],
    [`${log}=x`, '"head"'],
    ["head=1", `"${log}"`],
    [`head=1,${log}000000=x\n`, `${log}000000`],
    ["head=5,latest=5", '"snapshot/0000000000000005/"'],
    ["head=5 0", "copy --from etcd"], // of version 0.3.0
    ["secret=short", '"secret"'],
  ] as const;
  for (const [row, [pairs, output]] of rows.entries()) {
    for (const pair of pairs.split(",")) {
      const [key, value] = pair.split("=");
      await call("put", `${row}/${key}`, value);
    }
    const run = launch(
      pairs === "secret=short" ? ["serve"] : ["export", "zoos"],
      {
        PORT: "0",
        DATA_DIR: `${folder}/bad`,
        STORE: `etcd://${node?.host}/${row}`,
      },
    );
    assert.equal(await run.exit, 1);
    assert.ok(run.output.includes(output), run.output);
  }
});

test("A server that has never reached etcd is a standby", async () => {
  const server = await serve({ STORE: "etcd://127.0.0.1:9/zoo" });
  const { json } = await send(server.origin, "/health");
  assert.equal(json.status, "standby");
  await stop(server);
});

test("A folder moves into etcd over TLS, and back", { skip }, async () => {
  const DATA_DIR = `${folder}/folder`;
  const STORE = `etcds://${node?.secured}/zoo`;
  const tls = { NODE_EXTRA_CA_CERTS: `${folder}/etcd.pem` };
  const etcd = { STORE, ...tls, FEATURES: "metrics,imports", METRICS: "local" };
  const zoo = { city: "Bern", country: "CH" };
  // More than a connection takes that nobody reads.
  const website = `https://example.org/${"x".repeat(1900)}`;
  const zoos = Array(3000).fill({ ...zoo, name: "Seed", website });
  const SEED = fileOf("seed.json", JSON.stringify({ zoos }));
  const before = await serve({ DATA_DIR, SEED });
  const headers = await authorize(before.origin);
  const post = async ({ origin }: typeof before, name: string) => {
    const sent = { headers, body: { ...zoo, name } };
    return (await send(origin, "/v1/zoos", sent)).status;
  };
  await post(before, "One");
  await stop(before);
  await outputOf(["copy", STORE], { DATA_DIR }, 1); // whoever it is
  const into = () => outputOf(["copy", STORE], { DATA_DIR, ...tls });
  await into().catch(into); // etcd may respond too late to the first
  await assert.rejects(into); // it is not empty

  await call("put", "zoo/leader", "another");
  const server = await serve(etcd);
  for (const name of ["Two", "Three"]) { // the second time it led before
    assert.equal(await post(server, "No"), 503);
    assert.equal(await post(server, ""), 503); // nobody judges it
    const seen = [];
    for (const path of ["/v1/zoos", "/health", "/metrics"]) {
      const { status, json } = await send(server.origin, path);
      seen.push(status, json?.errorCode ?? json?.status);
    }
    assert.deepEqual(seen, [503, 50302, 503, "standby", 200, undefined]);
    await call("deleterange", "zoo/leader");
    while (await post(server, name) !== 201) await delay(20);
    const begun = await fetch(`${server.origin}/v1/zoos`, {
      headers: { Accept: "application/x-ndjson" },
    });
    const { json: { kvs: [leader] } } = await call("range", "zoo/leader");
    await call("put", "zoo/leader", "another");
    if (name === "Two") continue; // its next write tells it
    // Its next renewal tells it, before anybody reads on.
    const body = { ID: atob(leader.value) };
    await send(`http://${node?.host}`, "/v3/lease/revoke", { body });
    const health = () => send(server.origin, "/health");
    while ((await health()).json.status !== "standby") await delay(20);
    await assert.rejects(begun.text()); // what may be old by now
  }

  const back = `${folder}/back`;
  await outputOf(["copy", back], etcd);
  const copied = await outputOf(["export", "zoos"], { DATA_DIR: back });
  assert.match(copied, /"One"[^]*"Two"[^]*"Three"/);
});
