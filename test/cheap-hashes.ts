/** Password hashes that cost little, for the tests of how they are computed. */

import crypto from "node:crypto";
import { syncBuiltinESMExports } from "node:module";
import type { TestContext } from "node:test";

/** Lowers the cost of each hash until the test ends, and counts those that run. */
export function cheapHashes(t: TestContext): { most: number; total: number } {
  const { scrypt } = crypto;
  const count = { running: 0, most: 0, total: 0 };
  const hash = (...args: Parameters<typeof scrypt>) => {
    const [password, salt, length, , done] = args;
    count.running++;
    count.total++;
    count.most = Math.max(count.most, count.running);
    const cost = { N: 16, r: 1, p: 1 };
    scrypt(password, salt, length, cost, (error, key) => {
      count.running--;
      done(error, key);
    });
  };
  t.mock.method(crypto, "scrypt", hash);
  syncBuiltinESMExports();
  t.after(() => {
    t.mock.restoreAll();
    syncBuiltinESMExports();
  });
  return count;
}
