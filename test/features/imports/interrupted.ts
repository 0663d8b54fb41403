/** Servers that are interrupted in the midst of an import. */

/**
 * Returns flags of Node.js with which a server sends itself a signal before it
 * writes some text to a file: always at the same line, however fast it is.
 */
export function signalBeforeWrite(
  signal: NodeJS.Signals,
  text: string,
): readonly string[] {
  const code = `
    import fs from "node:fs";
    import { syncBuiltinESMExports } from "node:module";
    fs.write = new Proxy(fs.write, {
      apply(write, self, args) {
        const isNext = args[1].includes(${JSON.stringify(text)});
        if (isNext) process.kill(process.pid, "${signal}");
        return Reflect.apply(write, self, args);
      },
    });
    syncBuiltinESMExports();`;
  return ["--import", `data:text/javascript,${encodeURIComponent(code)}`];
}
