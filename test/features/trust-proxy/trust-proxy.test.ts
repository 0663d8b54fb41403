/** The client of a request: the report of a proxy counts only if it is trusted. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import {
  clientOf,
  settings,
  toBlockList,
} from "../../../src/features/trust-proxy/feature.ts";
import { networkOf } from "../../../src/http/client-address.ts";
import { createReader } from "../../../src/cli/command-line.ts";
import { startApplication } from "../../application.ts";

type Headers = Parameters<typeof clientOf>[1];

function clientFrom(address: string, headers: Headers, trusted: string) {
  const reader = createReader(new Map(), { TRUST_PROXY: trusted });
  const { TRUST_PROXY } = reader.read(settings);
  assert.ok(TRUST_PROXY);
  return networkOf(clientOf(address, headers, toBlockList(TRUST_PROXY)));
}

test("what an address reports that is not trusted is ignored", () => {
  const headers = {
    forwarded: "for=192.0.2.66",
    "x-forwarded-for": "192.0.2.66",
  };
  assert.equal(clientFrom("10.0.0.1", headers, "10.0.0.2"), "10.0.0.1");
  assert.equal(clientFrom("10.0.0.1", headers, "10.0.0.1"), "192.0.2.66");
});

test("the client is the last that a trusted proxy reports", () => {
  const table: readonly [Headers, string][] = [
    [{ "x-forwarded-for": "192.0.2.9" }, "192.0.2.9"],
    // The client wrote the first itself, before its proxy appended the second.
    [{ "x-forwarded-for": "192.0.2.66, 192.0.2.9" }, "192.0.2.9"],
    // Through two proxies.
    [{ "x-forwarded-for": "192.0.2.66,192.0.2.9,10.2.3.4" }, "192.0.2.9"],
    [{ "x-forwarded-for": "10.7.7.7, fd00::5" }, "10.7.7.7"],
    [{ "x-forwarded-for": "192.0.2.9:4711" }, "192.0.2.9"],
    [{ "x-forwarded-for": "2001:DB8:0:7::1" }, "2001:db8:0:7::/64"],
    [{ "x-forwarded-for": "::ffff:c000:209" }, "192.0.2.9"],
    [{ "x-forwarded-for": "[2001:db8:0:7::1]:80" }, "2001:db8:0:7::/64"],
    [{ forwarded: "for=192.0.2.66, For=192.0.2.9;proto=https" }, "192.0.2.9"],
    [{ forwarded: 'by=10.0.0.1;for="192.0.2.9:4711"' }, "192.0.2.9"],
    [{ forwarded: 'for="[2001:db8:0:7::1]:4711"' }, "2001:db8:0:7::/64"],
    // The search ends at a node without an address.
    [{ "x-forwarded-for": "192.0.2.66, 1.2.3.4.5, 10.2.3.4" }, "10.2.3.4"],
    [{ "x-forwarded-for": "192.0.2.66, unknown" }, "10.0.0.1"],
    [{ "x-forwarded-for": "192.0.2.66, 10.2.3.4.5" }, "10.0.0.1"],
    [{ "x-forwarded-for": "192.0.2.9,, 10.2.3.4" }, "192.0.2.9"],
    [{ "x-forwarded-for": "" }, "10.0.0.1"],
    [{ forwarded: "for=192.0.2.66, for=_hidden, for=10.2.3.4" }, "10.2.3.4"],
    [{ forwarded: "for=192.0.2.66, proto=https" }, "10.0.0.1"],
    [{ forwarded: 'for=10.2.3.4;host="a, for=192.0.2.66"' }, "10.2.3.4"],
    // A quoted string that the client leaves open ends before what its proxy appended.
    [{ forwarded: 'for="192.0.2.66, for=192.0.2.9' }, "192.0.2.9"],
    [{ forwarded: 'for=192.0.2.66;x=", for=192.0.2.9' }, "192.0.2.9"],
    [{ forwarded: 'for=192.0.2.66;x="\\, for="192.0.2.9:80"' }, "192.0.2.9"],
    [{ forwarded: 'for=192.0.2.66;x="\\", for=192.0.2.9' }, "192.0.2.9"],
    [
      { forwarded: 'for=192.0.2.66;x=", for="[2001:db8:0:7::1]"' },
      "2001:db8:0:7::/64",
    ],
    [{ "x-forwarded-for": '", 192.0.2.9' }, "192.0.2.9"],
    [{ "x-forwarded-for": '192.0.2.66, ", 192.0.2.9, "' }, "10.0.0.1"],
    // A proxy that escapes what a client sent as Host.
    [
      { forwarded: 'for=192.0.2.66;x=y, for=192.0.2.9;host="a\\"b"' },
      "10.0.0.1",
    ],
  ];
  for (const [headers, client] of table) {
    assert.equal(
      clientFrom("::ffff:10.0.0.1", headers, "10.0.0.0/8, fd00::/8"),
      client,
      JSON.stringify(headers),
    );
  }
});

test("a field that contradicts the one of the proxy names nobody", () => {
  const headers = { "x-forwarded-for": "192.0.2.9" };
  const spoofed = { ...headers, forwarded: "for=192.0.2.66" };
  const agreeing = { ...headers, forwarded: "for=192.0.2.9" };
  assert.equal(clientFrom("10.0.0.1", spoofed, "10.0.0.1"), "10.0.0.1");
  assert.equal(clientFrom("10.0.0.1", agreeing, "10.0.0.1"), "192.0.2.9");
  const differentlySpelled = {
    "x-forwarded-for": "2001:db8:0:7::1",
    forwarded: 'for="[2001:DB8:0:7:0::1]"',
  };
  assert.equal(
    clientFrom("10.0.0.1", differentlySpelled, "10.0.0.1"),
    "2001:db8:0:7::/64",
  );
});

test("without TRUST_PROXY, no report of any address counts", async (t) => {
  const clients: unknown[] = [];
  for (const trustProxy of ["", "127.0.0.1"]) {
    const app = await startApplication({
      trustProxy,
      log(_level, _message, fields) {
        const line = typeof fields === "function" ? fields() : fields;
        if (line?.["path"] === "/v1/zoos") clients.push(line["client"]);
      },
    });
    t.after(() => app.stop());
    const headers = { forwarded: "for=192.0.2.9" };
    await app.request("GET", "/v1/zoos", { headers });
  }
  assert.deepEqual(clients, ["127.0.0.1", "192.0.2.9"]);
});
