/**
 * Identifies the client of a request, for limits and the log: by its IP
 * address, or by the one that a trusted proxy reports. What anybody else
 * reports is ignored, because it can be forged.
 */

import { BlockList, isIP, SocketAddress } from "node:net";
import type { IncomingRequest } from "./connection.ts";
import { splitList } from "./headers.ts";

/** Parses addresses and networks such as `10.0.0.0/8`, separated by commas; returns undefined if one is malformed. */
export function parseNetworks(value: string): BlockList | undefined {
  const networks = new BlockList();
  for (const member of value.split(",")) {
    const [, address = "", length] =
      /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(member.trim()) ?? [];
    const [bits, family] = isIP(address) === 6
      ? [128, "ipv6"] as const
      : [32, "ipv4"] as const;
    const prefix = Number(length ?? bits);
    if (isIP(address) === 0 || prefix > bits) return undefined;
    networks.addSubnet(address, prefix, family);
  }
  return networks;
}

/**
 * Returns the client of a request: an IPv4 address such as `192.0.2.1`, or the
 * first 64 bits of a global IPv6 address such as `2001:db8:0:7::/64`, as one
 * subscriber usually has all addresses that begin with them.
 *
 * @param peer the address of the connection
 * @param proxies those whose `Forwarded` (RFC 7239) or `X-Forwarded-For` is
 * trusted. Most proxies maintain one of the two and pass on what a client sent
 * as the other: if the two name different clients, the proxy itself counts as
 * the client.
 */
export function clientOf(
  peer: string,
  headers: IncomingRequest["headers"],
  proxies: BlockList | undefined,
): string {
  if (proxies === undefined) return networkOf(peer);
  const { forwarded = "", "x-forwarded-for": addresses = "" } = headers;
  const [client = peer, other = client] = [
    elementsOf(forwarded).map(forwardedFor),
    String(addresses).split(",").map((node) => node.trim()).filter(Boolean),
  ]
    .filter((nodes) => nodes.length > 0)
    .map((nodes) => followBack(peer, nodes, proxies));
  return networkOf(client === other ? client : peer);
}

/**
 * Returns the elements of a Forwarded field (RFC 7239 section 4). It is split
 * from its end, as a quoted string that a client leaves open would include what
 * its proxy appends.
 */
function elementsOf(field: string): string[] {
  return splitList(reverse(field), ",").map(reverse).reverse();
}

function reverse(text: string): string {
  return text.split("").reverse().join("");
}

/** Returns the value of `for` in such an element; none if it has an escape, which no address needs and which is different from the end. */
function forwardedFor(element: string): string {
  if (element.includes("\\")) return "";
  const pair = splitList(element, ";").find((each) => /^for=/i.test(each));
  return pair?.slice(4).replace(/^"(.*)"$/, "$1") ?? "";
}

/** Returns the farthest node that is reported by trusted proxies only; the search ends at a node without an address. */
function followBack(
  peer: string,
  nodes: string[],
  proxies: BlockList,
): string {
  let known = peer;
  while (
    isIP(known) && proxies.check(known, isIP(known) === 6 ? "ipv6" : "ipv4")
  ) {
    const address = addressOf(nodes.pop() ?? "");
    if (address === undefined) break;
    known = address;
  }
  return known;
}

/** Returns the address of a node such as `192.0.2.1:4711` or `[2001:db8::1]` (RFC 7239 section 6). */
function addressOf(node: string): string | undefined {
  const [, v6, v4] = /^(?:\[(.*)\]|([\d.]+))(?::\w+)?$/.exec(node) ?? [];
  const address = v6 ?? v4 ?? node;
  return isIP(address) === 0 ? undefined : address;
}

/** Returns the client that an address belongs to. */
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
