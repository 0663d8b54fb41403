/**
 * Debian's Chromium, headless, driven over the DevTools protocol through a
 * pipe: JSON messages that end in a zero byte, on its file descriptors 3 and 4.
 */

import { strict as assert } from "node:assert";
import { type ChildProcess, spawn } from "node:child_process";
import { Buffer } from "node:buffer";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import {
  adminPassword,
  removeFolder,
  root,
  temporaryFolder,
} from "../harness.ts";

/** The path of the browser; `CHROMIUM` can name another one. */
const program = process.env["CHROMIUM"] ??
  ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
    .find((file) => existsSync(file));

/** An exception in the page. */
interface Problem {
  readonly text: string;
  readonly exception?: { readonly description?: string };
}

/** The result of a command, as far as these tests use one. */
interface Result {
  readonly result: { readonly value?: unknown };
  readonly exceptionDetails?: Problem;
  readonly targetId: string;
  readonly sessionId: string;
  readonly root: { readonly nodeId: number };
  readonly nodeId: number;
  readonly data: string;
  readonly identifier: string;
  readonly metrics: readonly {
    readonly name: string;
    readonly value: number;
  }[];
}

/** A message of the browser: the response to a command, or an event. */
interface Message {
  readonly id: number;
  readonly result: Result;
  readonly error?: unknown;
  readonly method?: string;
  readonly params: {
    readonly exceptionDetails: Problem;
    readonly entry: Readonly<Record<"level" | "text" | "source", string>>;
    readonly request: { readonly url: string };
  };
}

/** How long a condition may take to become true, on a busy machine. */
const maxWaitMs = 60_000;

/** A running browser with one tab. */
export class Browser {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #output: Writable;
  readonly #waiting = new Map<
    number,
    { resolve: (result: Result) => void; reject: (error: Error) => void }
  >();
  #lastId = 0;
  #session = "";
  /** Events that must not occur in any test: errors in the console, violations of the policy. */
  readonly complaints: string[] = [];
  /** The URLs of all requests since {@linkcode Browser.open}. */
  readonly requested: string[] = [];

  private constructor(child: ChildProcess, folder: string) {
    this.#child = child;
    this.#folder = folder;
    this.#output = child.stdio[3] as Writable;
    let rest = "";
    const input = child.stdio[4] as Readable;
    input.setEncoding("utf8").on("data", (text: string) => {
      const messages = (rest + text).split("\0");
      rest = messages.pop() ?? "";
      for (const message of messages) this.#receive(JSON.parse(message));
    });
    child.once("close", () => {
      const error = new Error("Chromium has ended");
      for (const { reject } of this.#waiting.values()) reject(error);
    });
  }

  /** Starts the browser; it ends with this process, when its pipe closes. */
  static async start(): Promise<Browser> {
    if (program === undefined) {
      throw new Error(
        "CHROMIUM IS MISSING: apt-get install chromium, or name it in the variable CHROMIUM.",
      );
    }
    const folder = await temporaryFolder();
    const flags = [
      "--headless",
      "--no-sandbox", // as root in a container
      "--disable-gpu",
      "--window-size=1280,900",
      "--disable-quic",
      "--disable-background-networking",
      "--disable-component-update",
      "--disable-sync",
      "--disable-dev-shm-usage",
      "--no-first-run",
      "--remote-debugging-pipe",
      `--user-data-dir=${folder}`,
    ];
    const child = spawn(program, flags, {
      stdio: ["ignore", "ignore", "ignore", "pipe", "pipe"],
    });
    const browser = new Browser(child, folder);
    await browser.#openTab();
    return browser;
  }

  async #openTab(): Promise<void> {
    const { targetId } = await this.send("Target.createTarget", {
      url: "about:blank",
    });
    const { sessionId } = await this.send("Target.attachToTarget", {
      targetId,
      flatten: true,
    });
    this.#session = sessionId;
    for (const domain of ["Page", "Runtime", "Log", "Network"]) {
      await this.send(`${domain}.enable`);
    }
  }

  #receive({ id, result, error, method, params }: Message): void {
    const waiting = this.#waiting.get(id);
    this.#waiting.delete(id);
    if (error) waiting?.reject(new Error(JSON.stringify(error)));
    else waiting?.resolve(result);
    if (method === "Runtime.exceptionThrown") {
      const { exceptionDetails: { text, exception } } = params;
      this.complaints.push(`${text} ${exception?.description}`);
    } else if (method === "Log.entryAdded") {
      const { level, text, source } = params.entry;
      // The page shows statuses from 400 on; the browser also logs them.
      if (source !== "network") this.complaints.push(`${level}: ${text}`);
    } else if (method === "Network.requestWillBeSent") {
      this.requested.push(params.request.url);
    }
  }

  send(method: string, params: object = {}): Promise<Result> {
    const id = ++this.#lastId;
    const message = {
      id,
      method,
      params,
      ...(this.#session && { sessionId: this.#session }),
    };
    this.#output.write(`${JSON.stringify(message)}\0`);
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
    });
  }

  /** Evaluates an expression in the tab, and returns its value. */
  async evaluate<Value = unknown>(expression: string): Promise<Value> {
    const { result, exceptionDetails } = await this.send("Runtime.evaluate", {
      expression,
      awaitPromise: true,
      returnByValue: true,
    });
    if (exceptionDetails) {
      const { text, exception } = exceptionDetails;
      throw new Error(`${text} ${exception?.description}: ${expression}`);
    }
    return result.value as Value;
  }

  /** Waits until an expression is true in the tab, and returns its value. */
  async until(expression: string): Promise<unknown> {
    const deadline = performance.now() + maxWaitMs;
    for (;;) {
      // A view that is being left does not respond.
      const value = await this.evaluate(expression).catch(() => undefined);
      if (value) return value;
      if (performance.now() > deadline) {
        const shown = await this.evaluate("document.body.innerText");
        assert.fail(`never true: ${expression}\n${shown}\n${this.complaints}`);
      }
      await new Promise((resolve) => setTimeout(resolve, 20));
    }
  }

  /** Opens a URL and waits until the page shows it. */
  async open(url: string): Promise<void> {
    this.requested.length = 0;
    await this.send("Page.navigate", { url });
    await this.shown(`location.href === ${JSON.stringify(url)}`);
  }

  /** Waits until a view is complete and a condition holds in it. */
  async shown(condition = "true"): Promise<void> {
    await this.until(
      `document.querySelector("main h1") && !document.querySelector("main[aria-busy]") && (${condition})`,
    );
  }

  /** Clicks an element by its text, or by a selector that begins with `#` or a dot. */
  async click(target: string): Promise<void> {
    const find = findScript(target);
    await this.until(`!!${find}`);
    await this.evaluate(`${find}.click()`);
  }

  /** Types a text into a field, in place of what it holds. */
  async fill(selector: string, text: string): Promise<void> {
    const field = `document.querySelector(${JSON.stringify(selector)})`;
    await this.until(`!!${field}`);
    const isTyped = await this.evaluate(
      `${field}.tagName !== "SELECT" && !/^date/.test(${field}.type)`,
    );
    if (!isTyped) {
      await this.evaluate(
        `${field}.value = ${JSON.stringify(text)};
        ${field}.dispatchEvent(new Event("change", { bubbles: true }))`,
      );
      return;
    }
    await this.evaluate(`${field}.focus(); ${field}.value = ""`);
    await this.send("Input.insertText", { text });
  }

  /** Presses a key, such as `Tab` or `Enter`. */
  async press(key: string): Promise<void> {
    const codes: Record<string, number> = {
      Tab: 9,
      Enter: 13,
      Escape: 27,
      ArrowDown: 40,
      ArrowLeft: 37,
    };
    const code = codes[key] ?? 0;
    const common = { key, code: key, windowsVirtualKeyCode: code };
    const text = key === "Enter" ? { text: "\r" } : {};
    await this.send("Input.dispatchKeyEvent", {
      type: "keyDown",
      ...common,
      ...text,
    });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...common });
  }

  /** Signs in as the admin, on a page where nobody is. */
  async signIn(): Promise<void> {
    await this.click("Sign in");
    await this.fill("dialog [name=username]", "admin");
    await this.fill("dialog [name=current-password]", adminPassword);
    await this.press("Enter");
    await this.until(
      "/admin/.test(document.querySelector('#who').innerText) && !document.querySelector('dialog')",
    );
  }

  /** With `SCREENSHOTS=1`, takes the screenshots of the README. */
  async screenshot(name: string): Promise<void> {
    if (process.env["SCREENSHOTS"] !== "1") return;
    await this.send("Emulation.setDeviceMetricsOverride", {
      width: 1100,
      height: 620,
      deviceScaleFactor: 1,
      mobile: false,
    });
    const { data } = await this.send("Page.captureScreenshot", {});
    const file = join(root, "test/browser", `${name}.png`);
    await writeFile(file, Buffer.from(data, "base64"));
    await this.send("Emulation.clearDeviceMetricsOverride");
  }

  text(selector = "main"): Promise<string> {
    return this.evaluate(
      `document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`,
    );
  }

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#child.once("close", resolve));
    this.#session = "";
    this.send("Browser.close").catch(() => {});
    await closed;
    await removeFolder(this.#folder);
  }
}

/** Returns a script that finds a link, button or summary. */
function findScript(target: string): string {
  if (/^[#.]/.test(target)) {
    return `document.querySelector(${JSON.stringify(target)})`;
  }
  const within = "document.querySelector('dialog') ?? document";
  return `[...(${within}).querySelectorAll("a, button, summary")]
    .find((each) => (each.innerText || each.textContent).trim() === ${
    JSON.stringify(target)
  })`;
}
