/**
 * Several servers that look like one: with `ETCD=HOST:PORT,…` the harness
 * starts three on a prefix of their own in that etcd. Requests of the harness go
 * to them in turn; a proxy hands connections to them in turn.
 */

import { createHash } from "node:crypto";
import { once } from "node:events";
import { type AddressInfo, connect, createServer, type Socket } from "node:net";
import { removeAtExit, type Server, type StartOptions } from "../harness.ts";

const servers = 3;

/** Starts servers that look like one. */
export async function startInTurn(
  options: StartOptions,
  { etcd, folder, startOne }: {
    readonly etcd: string;
    readonly folder: string;
    readonly startOne: (options: StartOptions) => Promise<Server>;
  },
): Promise<Server> {
  const prefix = createHash("sha256").update(folder).digest("hex").slice(0, 16);
  const env = { STORE: `etcd://${etcd}/${prefix}`, ...options.env };
  const { seed, args = [], port = 0, ...others } = options;
  const first = await startOne({
    ...{ ...others, args, env, folder, isNew: true },
    ...seed !== undefined && { seed },
  });
  // Only one stores the sample records.
  const at = args.indexOf("--seed");
  const unseeded = at < 0 ? args : args.toSpliced(at, 2);
  const rest = Array.from({ length: servers - 1 }, (_, index) =>
    startOne({
      ...{ ...others, args: unseeded, isNew: true },
      env: { ...env, SEED: "" },
      folder: removeAtExit(`${folder}.${index + 2}`),
    }));
  return await combine([first, ...await Promise.all(rest)], port);
}

async function combine(
  all: readonly Server[],
  chosenPort: number,
): Promise<Server> {
  let turn = 0;
  const next = (): Server => {
    const server = all[turn++ % all.length];
    if (server === undefined) throw new Error("There is no server");
    return server;
  };
  const proxy = createServer({ allowHalfOpen: true }, (socket) => {
    const { port } = next();
    join(socket, connect({ host: "127.0.0.1", port, allowHalfOpen: true }));
  });
  proxy.unref();
  proxy.listen(chosenPort, "127.0.0.1");
  await once(proxy, "listening");
  const { port } = proxy.address() as AddressInfo;
  const [first] = all;
  if (first === undefined) throw new Error("There is no server");
  return {
    ...first,
    origin: `http://127.0.0.1:${port}`,
    port,
    output: () => all.map((server) => server.output()).join(""),
    request: (...args) => next().request(...args),
    signIn: (...args) => next().signIn(...args),
    async end(signal) {
      proxy.close();
      const codes = await Promise.all(all.map((server) => server.end(signal)));
      return codes.find((code) => code !== 0) ?? codes[0] ?? null;
    },
    async stop() {
      proxy.close();
      await Promise.all(all.map((server) => server.stop()));
    },
  };
}

/** Passes on what arrives at either end, and its end. */
function join(one: Socket, other: Socket): void {
  for (const [from, to] of [[one, other], [other, one]] as const) {
    from.pipe(to);
    from.on("error", () => to.destroy());
    from.on("close", () => to.destroy());
  }
}
