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
    code:
      'const isRight = await verifyPassword(String(values["password"]), typeof stored === "string" ? stored : undefined, context, beforeHash);',
    change: "? always",
    reason: "the stored password of a user is always a string",
  },
  ...["> → >=", "if always"].map((change) => ({
    file: "src/features/open-network/sign-ins.ts",
    code: "if (count > 0)",
    change,
    reason: "a count of 0 that is kept takes memory, and decides nothing",
  })),
  {
    file: "src/api/records/reading.ts",
    code: "const rows = scope ? checkScope(found) : found;",
    change: "? always",
    reason: "without a scope every row is in it",
  },
];
