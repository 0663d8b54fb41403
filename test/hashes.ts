/**
 * Loaded into a program before its own code: passwords cost next to nothing,
 * and those that begin with "slow" a fifth of what they should. As
 * hashes are as weak as they are cheap, what is really stored is a matter of
 * `auth/auth.test.ts`, and of programs that start with `HASHES=real`.
 */

import crypto, { type ScryptOptions } from "node:crypto";
import { syncBuiltinESMExports } from "node:module";

const { scrypt } = crypto;
type Done = Parameters<typeof scrypt>[3];

Object.assign(crypto, {
  scrypt: (
    password: string,
    salt: Buffer,
    length: number,
    options: ScryptOptions,
    done: Done,
  ) =>
    scrypt(
      password,
      salt,
      length,
      (password.startsWith("slow")
        ? { ...options, p: 1 }
        : { N: 2, r: 1, p: 1 }) as never,
      done as never,
    ),
});
syncBuiltinESMExports();
