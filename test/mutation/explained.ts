/** Mutants that no test can kill, because they behave exactly like the original, each with the reason. */

/** A mutant as `mutants.ts` names it. */
export interface Explained {
  readonly file: string;
  readonly code: string;
  readonly change: string;
  readonly reason: string;
}

export const explained: readonly Explained[] = [
  ...[["if (error)", "if never"], ["reject(error);", "no statement"]].map(
    ([code = "", change = ""]) => ({
      file: "src/auth/passwords.ts",
      code,
      change,
      reason:
        "scrypt throws on wrong parameters; no input makes it call back with an error",
    }),
  ),
  {
    file: "src/api/accounts/authorizations.ts",
    code: 'const hash = typeof stored === "string" ? stored : undefined;',
    change: "? always",
    reason: "the stored password of a user is always a string",
  },
  {
    file: "src/exchange.ts",
    code:
      "const isLater = !isReadMethod(method) && !operation?.ignoresCredentials &&",
    change: "without !",
    reason:
      "without the second !, a sign-in is confirmed before its response only, and repeated if need be, as other writes are; the tests of servers on etcd fail without the first",
  },
];
