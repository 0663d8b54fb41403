/**
 * Debian's Firefox, headless, driven over Marionette, its own protocol: JSON in
 * messages that begin with their length, on a port of the loopback.
 */

import { type ChildProcess, spawn } from "node:child_process";
import { Buffer } from "node:buffer";
import { once } from "node:events";
import { existsSync } from "node:fs";
import { readFile, writeFile } from "node:fs/promises";
import { connect, type Socket } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { setTimeout as delay } from "node:timers/promises";
import { removeFolder, temporaryFolder } from "../harness.ts";
import { Tab } from "./tab.ts";

/** The path of the browser; `FIREFOX` can name another one. */
export const program = process.env["FIREFOX"] ??
  ["/usr/bin/firefox-esr", "/usr/bin/firefox"].find((file) => existsSync(file));

/** The response to a command: its number, an error, and what it returns. */
type Response = readonly [
  kind: number,
  id: number,
  error: { readonly message: string } | null,
  result: { readonly value?: unknown },
];

/** The names that the protocol has for keys without a character. */
const keys: Readonly<Record<string, string>> = {
  Tab: "\uE004",
  Enter: "\uE007",
  Escape: "\uE00C",
  ArrowDown: "\uE015",
  ArrowLeft: "\uE012",
};

/** A running Firefox with one tab. */
export class Firefox extends Tab {
  readonly #child: ChildProcess;
  readonly #folder: string;
  readonly #socket: Socket;
  readonly #waiting = new Map<number, (response: Response) => void>();
  #rest = Buffer.alloc(0);
  #lastId = 0;

  private constructor(child: ChildProcess, folder: string, socket: Socket) {
    super();
    this.#child = child;
    this.#folder = folder;
    this.#socket = socket;
    socket.on("data", (part) => this.#receive(part));
  }

  /** Starts the browser, with a profile of its own. */
  static async start(): Promise<Firefox> {
    if (program === undefined) {
      throw new Error(
        "FIREFOX IS MISSING: apt-get install firefox-esr, or name it in the variable FIREFOX.",
      );
    }
    const folder = await temporaryFolder();
    await writeFile(
      join(folder, "user.js"),
      'user_pref("marionette.port", 0);\n',
    );
    const flags = ["--headless", "--marionette", "--profile", folder];
    const child = spawn(program, flags, {
      stdio: "ignore",
      env: { ...process.env, HOME: folder },
    });
    const port = await portIn(folder, child);
    const socket = connect(port, "127.0.0.1");
    await once(socket, "connect");
    const browser = new Firefox(child, folder, socket);
    await browser.send("WebDriver:NewSession", {});
    return browser;
  }

  #receive(part: Uint8Array): void {
    this.#rest = Buffer.concat([this.#rest, part]);
    for (;;) {
      const colon = this.#rest.indexOf(":");
      const end = colon + 1 + Number(this.#rest.toString("latin1", 0, colon));
      if (colon < 0 || this.#rest.length < end) return;
      const message = JSON.parse(this.#rest.toString("utf8", colon + 1, end));
      this.#rest = this.#rest.subarray(end);
      // The first message greets, and is no response.
      if (Array.isArray(message)) {
        this.#waiting.get(message[1])?.(message as never);
      }
    }
  }

  /** Sends a command, and returns what it returns. */
  async send(name: string, parameters: object): Promise<unknown> {
    const id = ++this.#lastId;
    const text = JSON.stringify([0, id, name, parameters]);
    const responded = new Promise<Response>((resolve) => {
      this.#waiting.set(id, resolve);
    });
    this.#socket.write(`${Buffer.byteLength(text)}:${text}`);
    const [, , error, result] = await responded;
    this.#waiting.delete(id);
    if (error) throw new Error(`${name}: ${error.message}`);
    return result?.value;
  }

  async evaluate<Value = unknown>(expression: string): Promise<Value> {
    const script = `return (${expression});`;
    return await this.send("WebDriver:ExecuteScript", {
      script,
      args: [],
    }) as Value;
  }

  protected async navigate(url: string): Promise<void> {
    await this.send("WebDriver:Navigate", { url });
  }

  async insert(text: string): Promise<void> {
    await this.#type([...text]);
  }

  async choose(selector: string, file: string): Promise<void> {
    const found = await this.send("WebDriver:FindElement", {
      using: "css selector",
      value: selector,
    });
    const [id] = Object.values(found as Record<string, string>);
    await this.send("WebDriver:ElementSendKeys", { id, text: file });
  }

  async reload(): Promise<void> {
    await this.send("WebDriver:Refresh", {});
  }

  async press(key: string): Promise<void> {
    await this.#type([keys[key] ?? key]);
  }

  async #type(values: readonly string[]): Promise<void> {
    const actions = values.flatMap((value) => [
      { type: "keyDown", value },
      { type: "keyUp", value },
    ]);
    await this.send("WebDriver:PerformActions", {
      actions: [{ type: "key", id: "keyboard", actions }],
    });
  }

  async stop(): Promise<void> {
    const ended = once(this.#child, "close");
    this.send("Marionette:Quit", { flags: ["eForceQuit"] }).catch(() => {});
    await ended;
    this.#socket.destroy();
    await removeFolder(this.#folder);
  }
}

/** Waits until the browser has written into its profile which port it listens on. */
async function portIn(folder: string, child: ChildProcess): Promise<number> {
  const file = join(folder, "MarionetteActivePort");
  while (child.exitCode === null) {
    const text = await readFile(file, "utf8").catch(() => "");
    if (/^\d+$/.test(text)) return Number(text);
    await delay(50);
  }
  throw new Error("Firefox has ended");
}
