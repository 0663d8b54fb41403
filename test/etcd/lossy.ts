/** Loaded into a server before its own code: after SIGUSR2 all answers of etcd are lost for 7 s. */

import process from "node:process";

const { fetch } = globalThis;
let lostUntil = 0;
process.on("SIGUSR2", () => lostUntil = performance.now() + 7000);
globalThis.fetch = async (...request) => {
  const answer = await fetch(...request);
  if (performance.now() < lostUntil) throw new Error("The answer is lost");
  return answer;
};
