/** Servers that are interrupted in the midst of an import. */

/**
 * Returns flags of Node.js with which a server sends itself a signal before it
 * writes some text to a file: always at the same line, however fast it is.
 */
export function signalBeforeWrite(
  signal: NodeJS.Signals,
  text: string,
): readonly string[] {
  // The feature fast-writes uses fs.write, and a store without it a FileHandle.
  const code = `
    import fs from "node:fs";
    import { open } from "node:fs/promises";
    import { syncBuiltinESMExports } from "node:module";
    const signalBefore = (write, at) => new Proxy(write, {
      apply(write, self, args) {
        const isNext = args[at].includes(${JSON.stringify(text)});
        if (isNext) process.kill(process.pid, "${signal}");
        return Reflect.apply(write, self, args);
      },
    });
    fs.write = signalBefore(fs.write, 1);
    const handle = await open(process.execPath);
    const methods = Object.getPrototypeOf(handle);
    methods.write = signalBefore(methods.write, 0);
    await handle.close();
    syncBuiltinESMExports();`;
  return ["--import", `data:text/javascript,${encodeURIComponent(code)}`];
}
