/** What node:http costs alone: nothing is kept. */

import { listen } from "./peer.ts";

const record = JSON.stringify({ text: "x".repeat(300) });
const list = `[${Array(20).fill(record)}]`;
listen(() => record, () => list, (body) => body);
