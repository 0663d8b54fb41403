/**
 * Preloaded by `npm test`: makes promises cheap again. The test runner of Node.js
 * observes each promise with an async hook, to know in which test an uncaught
 * error arose; then a million times `await` take two seconds instead of a tenth
 * of one. Here the runner observes only the tests themselves, which it needs to
 * nest them, and an uncaught error ends the process with exit code 1.
 */

import hooks, {
  AsyncResource,
  type AsyncResourceOptions,
  createHook,
  type HookCallbacks,
} from "node:async_hooks";
import process from "node:process";

let observe: HookCallbacks["init"];

/** The class that the tests of the runner derive from. */
class ObservedResource extends AsyncResource {
  constructor(type: string, options?: AsyncResourceOptions) {
    super(type, options);
    observe?.(this.asyncId(), type, this.triggerAsyncId(), this);
  }
}

Object.assign(hooks, {
  AsyncResource: ObservedResource,
  createHook({ init }: HookCallbacks) {
    // Only the runner's hook, which is created first, is replaced.
    Object.assign(hooks, { AsyncResource, createHook });
    return {
      enable: () => observe = init,
      disable: () => observe = undefined,
    };
  },
});

function end(error: unknown): void {
  console.error(error);
  process.exit(1);
}
process.on("uncaughtExceptionMonitor", end);
process.on("unhandledRejection", end);
