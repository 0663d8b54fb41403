/** The client that an address stands for, in limits and in the log. */

import { SocketAddress } from "node:net";

/**
 * Returns the client that an address belongs to: an IPv4 address such as
 * `192.0.2.1`, or the first 64 bits of a global IPv6 address such as
 * `2001:db8:0:7::/64`, as one subscriber usually has all addresses that begin
 * with them.
 */
export function networkOf(address: string): string {
  if (!address.includes(":")) return address;
  const [withoutZone = ""] = address.split("%");
  const { address: text } = new SocketAddress({
    address: withoutZone,
    family: "ipv6",
  });
  const mapped = /^::ffff:(\d+\..*)$/.exec(text)?.[1]; // an IPv4 address
  if (mapped !== undefined) return mapped;
  if (text.startsWith("fe80:")) return text; // one network for all neighbors
  const zeros = "0:".repeat(9 - text.split(":").length);
  const groups = text.replace("::", `:${zeros}`).split(":", 4);
  return `${groups.map((group) => group || "0").join(":")}::/64`;
}
