/**
 * Identifies the client of a request that came through a trusted proxy by the
 * address that the proxy reports. What anybody else reports is ignored, because
 * it can be forged. It is on if `TRUST_PROXY` names proxies.
 */

import { BlockList, isIP } from "node:net";
import type { Feature } from "../../api/feature.ts";
import { listOf } from "../../api/settings/setting.ts";
import type { IncomingRequest } from "../../http/connection.ts";
import { networkOf } from "../../http/client-address.ts";
import { splitList } from "../../http/headers.ts";

/** Returns a list for lookups of addresses and networks such as `10.0.0.0/8`. */
export function toBlockList(networks: readonly string[]): BlockList {
  const list = new BlockList();
  for (const network of networks) {
    const [address = "", length] = network.split("/");
    if (isIP(address) === 6) {
      list.addSubnet(address, Number(length ?? 128), "ipv6");
    } else list.addSubnet(address, Number(length ?? 32), "ipv4");
  }
  return list;
}

/**
 * Returns the address of the client that sent a request.
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
  proxies: BlockList,
): string {
  const { forwarded = "", "x-forwarded-for": addresses = "" } = headers;
  const [client = peer, other = client] = [
    elementsOf(forwarded).map(forwardedFor),
    String(addresses).split(",").map((node) => node.trim()).filter(Boolean),
  ]
    .filter((nodes) => nodes.length > 0)
    .map((nodes) => followBack(peer, nodes, proxies));
  // They may spell an IPv6 address in different ways.
  return networkOf(client) === networkOf(other) ? client : peer;
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

/** Returns whether a text is an address, or a network such as `10.0.0.0/8`. */
function isNetwork(text: string): boolean {
  const [, address = "", length = "0"] =
    /^([\da-f.:]+)(?:\/(\d{1,3}))?$/i.exec(text) ?? [];
  const maxLength = isIP(address) === 6 ? 128 : 32;
  return isIP(address) !== 0 && Number(length) <= maxLength;
}

export const settings = {
  TRUST_PROXY: {
    description: "proxies whose Forwarded or X-Forwarded-For is trusted",
    expected:
      "IP addresses or networks such as 10.0.0.0/8, separated by commas",
    default: undefined,
    parse: (value: string) => listOf(value, isNetwork),
  },
};

export const feature: Feature = {
  settings,
  open({ settings: { read } }) {
    const { TRUST_PROXY: networks = [] } = read(settings);
    const proxies = toBlockList(networks);
    return {
      findClient: (peer, headers) =>
        networkOf(clientOf(peer, headers, proxies)),
    };
  },
};
