/** Nodes of etcd, on free ports of this machine; they end with this process. */

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { createServer } from "node:net";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { temporaryFolder } from "../server.ts";

/** Why there can be none. */
export const skip: string | false =
  spawnSync("etcd", ["--version"]).error !== undefined &&
  "etcd is not installed";

/** Starts nodes, and waits until they agree; with a certificate, each has also an address for TLS. */
export async function startNodes(size: number, certificate = "") {
  const free = new Set<string>(); // the system may give the same port twice
  while (free.size < 3 * size) {
    const server = createServer().listen(0, "127.0.0.1");
    await once(server, "listening");
    free.add(`127.0.0.1:${Object(server.address()).port}`);
    server.close();
  }
  const hosts = [...free];
  const secured = hosts.splice(2 * size);
  const peers = hosts.splice(size);
  const cluster = peers.map((peer) => `${peer}=http://${peer}`).join();
  const nodes = hosts.map((host, at) => {
    const peer = peers[at];
    const safe = secured[at];
    const tls = certificate &&
      `,https://${safe} --cert-file ${certificate}.pem --key-file ${certificate}.key`;
    const words =
      `--name ${peer} --data-dir ${temporaryFolder()} --initial-cluster ${cluster} --advertise-client-urls http://${host} --listen-peer-urls http://${peer} --initial-advertise-peer-urls http://${peer} --listen-client-urls http://${host}${tls}`;
    const start = () => spawn("etcd", words.split(" "), { stdio: "ignore" });
    const run = { child: start() };
    run.child.unref();
    process.prependOnceListener("exit", () => run.child.kill("SIGKILL"));
    return { host, secured: safe, start, run };
  });
  for (const { host } of nodes) {
    const ask = () => fetch(`http://${host}/health`).catch(() => undefined);
    while (!(await ask())?.ok) await delay(50);
  }
  return nodes;
}
