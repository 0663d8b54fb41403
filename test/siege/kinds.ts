/** The kinds of hostile clients: each function returns what one connection does. */

import { Buffer } from "node:buffer";
import type { Socket } from "node:net";
import type { Conduct } from "./load.ts";

/** The resources of a kind. */
export interface Means {
  /** A keeper's token. */
  readonly token: string;
}

/** One kind of attack. */
export interface Kind {
  readonly description: string;
  /** The most connections, if more would last longer than the siege. */
  readonly maxConnections?: number;
  /** True if two other connections write meanwhile. */
  readonly hasWriters?: boolean;
  readonly conduct: (means: Means) => Conduct;
}

const host = "Host: localhost\r\n";
const json = "Content-Type: application/json\r\n";
const form = "Content-Type: application/x-www-form-urlencoded\r\n";
const ndjson = "Content-Type: application/x-ndjson\r\n";
const exports = `Accept: application/x-ndjson\r\n${host}\r\n`;

/** Slightly under 1 MiB. */
const largeBytes = 1_048_000;

/** Writes a request with a body. */
function withBody(head: string, body: string): Buffer {
  const length = Buffer.byteLength(body);
  return Buffer.from(`${head}${host}Content-Length: ${length}\r\n\r\n${body}`);
}

/** Sends the same bytes again some time after each response. */
function repeat(bytes: Buffer | string, pauseMs: number): Conduct {
  return {
    open: (socket) => socket.write(bytes),
    answered: (socket) => {
      setTimeout(() => socket.write(bytes), pauseMs);
    },
  };
}

/** Sends a part every second for as long as the connection lasts. */
function trickle(socket: Socket, part: string): void {
  const timer = setInterval(() => socket.write(part), 1000);
  socket.on("close", () => clearInterval(timer));
}

const signInHead = `POST /v1/authorizations HTTP/1.1\r\n${json}`;

const signIn = (user: number) =>
  withBody(signInHead, `{"username":"user-${user}","password":"a wrong one"}`);

const largeSignIn = withBody(
  signInHead,
  `{"username":"x","password":"${"a".repeat(largeBytes)}"}`,
);

/** The same in chunks of 1 KiB. */
const chunkedSignIn = `${signInHead}${host}Transfer-Encoding: chunked\r\n\r\n` +
  `400\r\n${"a".repeat(1024)}\r\n`.repeat(largeBytes / 1024) +
  "0\r\n\r\n";

/** Bodies that are expensive to parse. */
function bombs(): Buffer[] {
  const times = Array.from(
    { length: 40_000 },
    (_, index) => new Date(index * 1e7).toISOString(),
  );
  const ids = Array.from({ length: 150_000 }, (_, index) => index + 1);
  const names = Array.from({ length: 90_000 }, (_, index) => `"n${index}":1`);
  const query = `QUERY /v1/animals HTTP/1.1\r\n${form}`;
  return [
    withBody(query, `created_at:in=${times.join(",")}`),
    withBody(query, `id:in=${ids.join(",")}`),
    withBody(query, "x=1&".repeat(largeBytes / 4)),
    withBody(signInHead, `{${names.join(",")}}`),
    withBody(signInHead, '{"a":'.repeat(largeBytes / 5)),
    withBody(signInHead, `{"a":${"[".repeat(largeBytes)}`),
  ];
}

/** Returns URLs of pages that need indexes of all combinations of a filter and a sort order. */
export function combinations(): string[] {
  const filters = [
    "animal_type_id=7",
    "sex=female",
    "species=x",
    "born_on=2020-02-29",
    "name=x",
    "weight_kg=7",
    "zoo_id=3",
    "created_at=2026-01-01T00:00:00.000Z",
  ];
  const orders = filters.map((filter) => filter.replace(/=.*/, ""));
  return filters.flatMap((filter) =>
    orders.filter((order) => !filter.startsWith(order)).map((order) =>
      `/v1/animals?${filter}&sortby=${order}&limit=20`
    )
  );
}

/** All kinds by name. */
export const kinds: Readonly<Record<string, Kind>> = {
  exports: {
    description: "exports, read slowly, while others write",
    hasWriters: true,
    conduct: () => ({
      open: (socket) => {
        socket.write(`GET /v1/animals HTTP/1.1\r\n${exports}`);
        const timer = setInterval(() => socket.resume(), 1000);
        socket.on("data", () => socket.pause());
        socket.on("close", () => clearInterval(timer));
      },
    }),
  },
  heads: {
    description: "HEAD of exports",
    conduct: () => repeat(`HEAD /v1/animals HTTP/1.1\r\n${exports}`, 0),
  },
  "abandoned-sign-ins": {
    description: "sign-ins, abandoned after 100 ms",
    conduct: () => ({
      open: (socket, index) => {
        socket.write(signIn(index));
        setTimeout(() => socket.destroy(), 100);
      },
      reopenMs: 900,
    }),
  },
  "large-sign-ins": {
    description: "sign-ins with bodies of 1 MB, half of them in chunks",
    conduct: () => {
      const send = (socket: Socket, index: number) => {
        socket.write(index % 4 < 2 ? largeSignIn : chunkedSignIn);
      };
      const again = (socket: Socket, index: number) => {
        setTimeout(() => send(socket, index), 5000);
      };
      return { open: send, answered: again, reopenMs: 5000 };
    },
  },
  "slow-bodies": {
    description: "bodies that continue slowly after an error",
    conduct: () => ({
      open: (socket, index) => {
        const path = index % 4 < 2 ? "/v1/zoos" : "/v1/authorizations";
        const length = `Content-Length: ${largeBytes}\r\n`;
        socket.write(`POST ${path} HTTP/1.1\r\n${host}${json}${length}\r\n`);
        if (index % 4 === 2) socket.write(" ".repeat(largeBytes - 100));
        trickle(socket, " ");
      },
    }),
  },
  unread: {
    description: "responses that are never read",
    conduct: () => ({
      open: (socket) => {
        socket.write(
          `GET /v1/openapi.json HTTP/1.1\r\n${host}\r\n`.repeat(10),
        );
      },
      isUnread: true,
    }),
  },
  pipelines: {
    description:
      "thousands of pipelined requests whose responses are never read",
    // Each brings 64 KiB of requests in its first packet, 20 ms to parse.
    maxConnections: 50,
    conduct: () => ({
      open: (socket) => {
        socket.write(
          `GET /v1/openapi.json HTTP/1.1\r\n${host}\r\n`.repeat(5000),
        );
      },
      isUnread: true,
    }),
  },
  indexes: {
    description: "sorted pages that each need an index of their own",
    conduct: () => {
      const requests = combinations().map((url) =>
        `GET ${url} HTTP/1.1\r\n${host}\r\n`
      );
      let at = 0;
      const next = (socket: Socket) => {
        socket.write(requests[at++ % requests.length] ?? "");
      };
      return { open: next, answered: next };
    },
  },
  bombs: {
    description: "long lists, many names and deep nesting in bodies of 1 MB",
    conduct: () => {
      const bodies = bombs();
      const send = (socket: Socket, index: number) => {
        socket.write(bodies[index % bodies.length] ?? "");
      };
      const again = (socket: Socket, index: number) => {
        setTimeout(() => send(socket, index + 1), 1000);
      };
      return { open: send, answered: again };
    },
  },
  imports: {
    description: "imports of lines that are all rejected",
    maxConnections: 20,
    conduct: ({ token }) => {
      const head = `POST /v1/animals HTTP/1.1\r\n${ndjson}` +
        `Authorization: Bearer ${token}\r\n`;
      const long = `{${
        Array.from(
          { length: 20 },
          (_, index) => `"${"x".repeat(200)}${index}":1`,
        ).join(",")
      }}\n`;
      const body = long.repeat(24) + "{}\n".repeat(300_000);
      return repeat(withBody(head, body), 1000);
    },
  },
  listeners: {
    description: "listeners to events that read nothing, while others write",
    hasWriters: true,
    conduct: ({ token }) => ({
      open: (socket) => {
        socket.write(
          `GET /v1/events HTTP/1.1\r\n${host}Authorization: Bearer ${token}\r\n\r\n`,
        );
      },
      isUnread: true,
    }),
  },
  idle: {
    description: "slow heads and idle connections",
    conduct: () => ({
      open: (socket, index) => {
        if (index % 4 < 2) return;
        socket.write(`GET / HTTP/1.1\r\n${host}`);
        trickle(socket, "X-Slow: 1\r\n");
      },
    }),
  },
  floods: {
    description: "a thousand pipelined requests at a time",
    conduct: () => {
      const bytes = `GET /v1/animals/7 HTTP/1.1\r\n${host}\r\n`.repeat(1000);
      return repeat(bytes, 100);
    },
  },
};

/** Creates one record after the other. */
export function writer({ token }: Means): Conduct {
  const head = `POST /v1/animals HTTP/1.1\r\n${json}` +
    `Authorization: Bearer ${token}\r\n`;
  const body = '{"zoo_id":1,"animal_type_id":1,"name":"Written"}';
  return repeat(withBody(head, body), 0);
}
