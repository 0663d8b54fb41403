/** The client that an address stands for. */

import { strict as assert } from "node:assert";
import { test } from "node:test";
import { networkOf } from "../../src/http/client-address.ts";

test("a client is its IPv4 address, or the first 64 bits of its IPv6 address if that is global", () => {
  const table: readonly [string, string][] = [
    ["192.0.2.1", "192.0.2.1"],
    ["::ffff:192.0.2.1", "192.0.2.1"],
    ["::1", "0:0:0:0::/64"],
    ["2001:db8::7", "2001:db8:0:0::/64"],
    ["2001:db8:0:7:1:2:3:4", "2001:db8:0:7::/64"],
    ["2001:db8:0:7:1::", "2001:db8:0:7::/64"],
    ["fe80::1%eth0", "fe80::1"],
    ["", ""],
  ];
  for (const [address, client] of table) {
    assert.equal(networkOf(address), client, address);
  }
});
