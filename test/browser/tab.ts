/** A browser's tab as the tests use it, whatever the protocol is that drives it. */

import { strict as assert } from "node:assert";
import { adminPassword } from "../harness.ts";

/** How long a condition may take to become true, on a busy machine. */
const maxWaitMs = 60_000;

/** A tab that shows the page. */
export abstract class Tab {
  /** Events that must not occur in any test: errors in the console, violations of the policy. */
  readonly complaints: string[] = [];
  /** The URLs of all requests since {@linkcode Tab.open}. */
  readonly requested: string[] = [];

  /** Evaluates an expression, and returns its value or that of its promise. */
  abstract evaluate<Value = unknown>(expression: string): Promise<Value>;

  /** Presses a key, such as `Tab` or `Enter`. */
  abstract press(key: string): Promise<void>;

  /** Begins to open a URL. */
  protected abstract navigate(url: string): Promise<void>;

  /** Types a text where the focus is. */
  abstract insert(text: string): Promise<void>;

  /** Chooses a file in a field for files. */
  abstract choose(selector: string, file: string): Promise<void>;

  abstract reload(): Promise<void>;

  /** Ends the browser. */
  abstract stop(): Promise<void>;

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
    await this.navigate(url);
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
        `void (${field}.value = ${JSON.stringify(text)},
        ${field}.dispatchEvent(new Event("change", { bubbles: true })))`,
      );
      return;
    }
    await this.evaluate(`void (${field}.focus(), ${field}.value = "")`);
    await this.insert(text);
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

  text(selector = "main"): Promise<string> {
    return this.evaluate(
      `document.querySelector(${JSON.stringify(selector)})?.innerText ?? ""`,
    );
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
