/**
 * Debian's Chromium, headless, driven over the DevTools protocol through a
 * pipe: JSON messages that end in a zero byte, on its file descriptors 3 and 4.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { Buffer } from "node:buffer";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import type { Readable, Writable } from "node:stream";
import { removeFolder, root, temporaryFolder } from "../harness.ts";
import { Tab } from "./tab.ts";

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

/** An event of a trace; times are in microseconds. */
interface TraceEvent {
  readonly name: string;
  readonly pid: number;
  readonly tid: number;
  readonly tdur?: number;
  readonly args: { readonly name?: string };
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
    readonly value: readonly TraceEvent[];
  };
}

/** A running browser, one tab of which is driven at a time. */
export class Browser extends Tab {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #output: Writable;
  readonly #waiting = new Map<
    number,
    { resolve: (result: Result) => void; reject: (error: Error) => void }
  >();
  #lastId = 0;
  #session = "";
  readonly #traced: TraceEvent[] = [];
  #endTrace = () => {};
  private constructor(child: ChildProcess, folder: string) {
    super();
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

  /** The tab that is driven. */
  get tab(): string {
    return this.#session;
  }

  /** Opens another tab, drives it from now on, and returns it. */
  async openTab(): Promise<string> {
    await this.#openTab();
    return this.#session;
  }

  async switchTo(tab: string): Promise<void> {
    this.#session = tab;
    await this.send("Page.bringToFront");
  }

  async #openTab(): Promise<void> {
    this.#session = ""; // a command for the browser
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
    } else if (method === "Tracing.dataCollected") {
      this.#traced.push(...params.value);
    } else if (method === "Tracing.tracingComplete") this.#endTrace();
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

  /**
   * Returns how many milliseconds the longest task of the pages takes while
   * some work is done: a script, or drawing a frame. This is time of the
   * processor, which other programs do not lengthen.
   */
  async longestTask(work: () => Promise<unknown>): Promise<number> {
    this.#traced.length = 0;
    const ended = new Promise<void>((resolve) => this.#endTrace = resolve);
    await this.send("Tracing.start", {
      traceConfig: {
        includedCategories: ["disabled-by-default-devtools.timeline"],
      },
    });
    await work();
    await this.evaluate(
      "new Promise((drawn) => requestAnimationFrame(() => setTimeout(drawn)))",
    );
    await this.send("Tracing.end");
    await ended;
    const threadOf = ({ pid, tid }: TraceEvent) => `${pid} ${tid}`;
    const main = new Set(
      this.#traced.filter(({ args }) => args.name === "CrRendererMain")
        .map(threadOf),
    );
    const times = this.#traced
      .filter((each) => each.name === "RunTask" && main.has(threadOf(each)))
      .map(({ tdur = 0 }) => tdur / 1000);
    return Math.max(...times);
  }

  protected async navigate(url: string): Promise<void> {
    await this.send("Page.navigate", { url });
  }

  async insert(text: string): Promise<void> {
    await this.send("Input.insertText", { text });
  }

  async choose(selector: string, file: string): Promise<void> {
    const { root } = await this.send("DOM.getDocument");
    const { nodeId } = await this.send("DOM.querySelector", {
      nodeId: root.nodeId,
      selector,
    });
    await this.send("DOM.setFileInputFiles", { nodeId, files: [file] });
  }

  async reload(): Promise<void> {
    await this.send("Page.reload");
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
    const isText = key.length === 1;
    const text = key === "Enter" ? { text: "\r" } : isText && { text: key };
    await this.send("Input.dispatchKeyEvent", {
      type: "keyDown",
      ...common,
      ...text,
    });
    await this.send("Input.dispatchKeyEvent", { type: "keyUp", ...common });
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

  async stop(): Promise<void> {
    const closed = new Promise((resolve) => this.#child.once("close", resolve));
    this.#session = "";
    this.send("Browser.close").catch(() => {});
    await closed;
    await removeFolder(this.#folder);
  }
}
