/** Drives Chromium by its DevTools protocol over a pipe: no package, no port. */

import { spawn } from "node:child_process";
import { join } from "node:path";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import { temporaryFolder } from "../server.ts";
import { type Driver, Tab } from "./tab.ts";

type Values = Record<string, unknown>;
interface Message {
  readonly id?: number;
  readonly method: string;
  readonly sessionId?: string;
  // deno-lint-ignore no-explicit-any
  readonly params: any;
  // deno-lint-ignore no-explicit-any
  readonly result: any;
  readonly error?: { readonly message: string };
}

/** What a page complains of, but failed requests, which are the tests' own. */
function complaintOf({ method, params }: Message): string | undefined {
  if (method === "Runtime.exceptionThrown") {
    const { text, exception } = params.exceptionDetails;
    return `${text} ${exception?.description}`;
  }
  const { entry } = params;
  const isComplaint = method === "Log.entryAdded" && entry.level === "error" &&
    entry.source !== "network";
  return isComplaint ? entry.text : undefined;
}

/** Starts Chromium; it dies with this process. */
export function launchChromium() {
  const child = spawn(process.env["CHROMIUM"] ?? "chromium", [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--lang=en-GB",
    "--remote-debugging-pipe",
    `--user-data-dir=${join(temporaryFolder(), "profile")}`,
  ], {
    stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    env: { ...process.env, LANG: "en_GB.UTF-8" },
  });
  process.once("exit", () => child.kill("SIGKILL"));
  const to = child.stdio[3] as Writable;
  const from = child.stdio[4] as Readable;
  const waiting = new Map<number, (message: Message) => void>();
  const complaints = new Map<string, string[]>();
  let rest = "";
  from.setEncoding("utf8").on("data", (text: string) => {
    const messages = `${rest}${text}`.split("\0");
    rest = messages.pop() ?? "";
    for (const each of messages) {
      const message: Message = JSON.parse(each);
      const { id, sessionId = "" } = message;
      if (id) waiting.get(id)?.(message);
      const complaint = id ? undefined : complaintOf(message);
      if (complaint) complaints.get(sessionId)?.push(complaint);
    }
  });
  let last = 0;
  const send = (method: string, params: Values = {}, sessionId?: string) =>
    new Promise<Message["result"]>((resolve, reject) => {
      const id = ++last;
      waiting.set(id, ({ result, error }) => {
        waiting.delete(id);
        if (error) reject(new Error(`${method}: ${error.message}`));
        else resolve(result);
      });
      to.write(`${JSON.stringify({ id, method, params, sessionId })}\0`);
    });

  /** Opens a tab with a storage of its own. */
  const createTab = async () => {
    const { browserContextId } = await send("Target.createBrowserContext");
    const url = "about:blank";
    const created = await send("Target.createTarget", {
      url,
      browserContextId,
    });
    const flags = { targetId: created.targetId, flatten: true };
    const { sessionId } = await send("Target.attachToTarget", flags);
    const call = (method: string, params: Values = {}) =>
      send(method, params, sessionId);
    const found: string[] = [];
    complaints.set(sessionId, found);
    await Promise.all(
      ["Page.enable", "Runtime.enable", "Log.enable"].map((each) => call(each)),
    );
    const driver = driverOf(call, found);
    await driver.resize?.(1280, 900, "light");
    return new Tab(driver);
  };
  const close = async () => {
    await send("Browser.close");
    if (child.exitCode === null) {
      await new Promise((resolve) => child.once("exit", resolve));
    }
  };
  return { createTab, close };
}

/** The names and codes of the keys that are no characters. */
const keys: Readonly<Record<string, readonly [code: number, text?: string]>> = {
  Tab: [9],
  Enter: [13, "\r"],
};

function driverOf(
  call: (method: string, params?: Values) => Promise<Message["result"]>,
  complaints: readonly string[],
): Driver {
  return {
    complaints,
    async open(url) {
      await call("Page.navigate", { url });
    },
    async run(expression) {
      const options = { expression, awaitPromise: true, returnByValue: true };
      const { result, exceptionDetails } = await call(
        "Runtime.evaluate",
        options,
      );
      if (exceptionDetails) {
        throw new Error(exceptionDetails.exception?.description);
      }
      return result.value;
    },
    async press(key) {
      const [windowsVirtualKeyCode, text] = keys[key] ?? [0, key];
      for (const type of ["keyDown", "keyUp"]) {
        const shown = type === "keyDown" ? { text } : {};
        const event = { type, key, windowsVirtualKeyCode, ...shown };
        await call("Input.dispatchKeyEvent", event);
      }
    },
    async chooseFile(selector, path) {
      const { root } = await call("DOM.getDocument");
      const { nodeId } = await call("DOM.querySelector", {
        nodeId: root.nodeId,
        selector,
      });
      await call("DOM.setFileInputFiles", { nodeId, files: [path] });
    },
    async resize(width, height, scheme) {
      await call("Emulation.setDeviceMetricsOverride", {
        width,
        height,
        deviceScaleFactor: 1,
        mobile: width < 500,
      });
      await call("Emulation.setEmulatedMedia", {
        features: [
          { name: "prefers-color-scheme", value: scheme },
          { name: "prefers-reduced-motion", value: "reduce" },
        ],
      });
    },
  };
}
