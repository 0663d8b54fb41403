/** A few hundred requests of the fuzzer's first lane. */

import "./run.ts";
