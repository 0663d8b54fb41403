import { sample } from "../collections.ts";
import { strict as assert } from "node:assert";
import { test } from "node:test";
import { authenticate } from "../../src/api/accounts/authentication.ts";
import { TokenSigner } from "../../src/auth/jwt.ts";
import { openStore } from "../../src/store/store.ts";
import { jwtSecret, removeFolder, temporaryFolder } from "../harness.ts";
import { commit } from "../commit.ts";

test("a signature is verified once, everything else at each request, and 250 tokens are cached", async (t) => {
  const folder = await temporaryFolder();
  const tables = [{ name: "users" }, { name: "authorizations" }];
  const store = await openStore({ folder, tables });
  t.after(async () => {
    await store.close();
    await removeFolder(folder);
  });
  const signer = new TokenSigner([jwtSecret], "zoo-api");
  let verifications = 0;
  const verify = signer.verify.bind(signer);
  signer.verify = (token) => {
    verifications++;
    return verify(token);
  };
  let now = 1_000_000;
  const state = {
    base: { origin: "", path: "/" },
    declaration: sample,
    store,
    signer,
    now: () => now,
    verified: new Map(),
  };
  const created_at = "1970-01-01T00:00:00.999Z";
  await commit(store, [
    ["put", "users", { id: 1, role: "keeper" }],
    ["put", "authorizations", { id: 1, user_id: 1, created_at }],
    ["put", "authorizations", { id: 2, user_id: 1, created_at }],
  ], 0);
  const tokenOf = (jti: number, exp: number) =>
    `Bearer ${signer.sign({ sub: 1, jti, iat: 0, exp })}`;
  const errorWith = (code: number) => ({ name: "ApiError", code });

  const token = tokenOf(1, 2000);
  for (let time = 0; time < 3; time++) {
    const caller = authenticate(state, token);
    assert.deepEqual(caller, {
      id: 1,
      role: "keeper",
      grants: new Set(["viewer", "keeper"]),
    });
  }
  assert.equal(verifications, 1);
  await commit(store, [["put", "users", { id: 1, role: "admin" }]], 0);
  assert.equal(authenticate(state, token)?.role, "admin");
  const other = token.slice(0, -2) + (token.endsWith("AA") ? "BA" : "AA");
  assert.throws(() => authenticate(state, other), errorWith(40102));

  // As many other tokens evict it.
  for (let exp = 3000; exp < 3250; exp++) {
    authenticate(state, tokenOf(2, exp));
  }
  assert.ok(state.verified.size <= 250);
  verifications = 0;
  authenticate(state, token);
  authenticate(state, tokenOf(2, 3249));
  assert.equal(verifications, 1);

  // An unexpected error is not mistaken for an invalid token.
  const broken = new TokenSigner([jwtSecret], "zoo-api");
  broken.verify = () => {
    throw new RangeError("broken");
  };
  const withBroken = { ...state, signer: broken };
  assert.throws(() => authenticate(withBroken, `${token} `), RangeError);

  await commit(store, [["del", "authorizations", 1]], 0);
  assert.throws(() => authenticate(state, token), errorWith(40104));
  now = 3_999_000;
  const late = tokenOf(2, 3999);
  assert.throws(() => authenticate(state, late), errorWith(40103));
  const later = tokenOf(2, 4000);
  assert.equal(authenticate(state, later)?.id, 1);
  now = 3_999_999;
  assert.equal(authenticate(state, later)?.id, 1);
  now = 4_000_000; // its signature is known by now
  assert.throws(() => authenticate(state, later), errorWith(40103));
});
