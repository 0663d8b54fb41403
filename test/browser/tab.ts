/// <reference lib="dom" />
/** A tab as a person uses it: opens, clicks what has a name, types, and sees texts. What is not there yet is waited for. */

import assert from "node:assert/strict";
import { password } from "./site.ts";

/** What each browser does in its own way. */
export interface Driver {
  /** The errors that the page has reported. */
  readonly complaints: readonly string[];
  readonly open: (url: string) => Promise<void>;
  /** Runs an expression in the page, and returns its value, or that of its promise. */
  readonly run: (expression: string) => Promise<unknown>;
  readonly chooseFile: (selector: string, path: string) => Promise<void>;
  readonly press?: (key: string) => Promise<void>;
  readonly resize?: (
    width: number,
    height: number,
    scheme: "light" | "dark",
  ) => Promise<void>;
}

const patienceMs = 120_000;

/** Repeats some work until it returns something true, and returns that. */
export async function until<Value>(
  work: () => Value | Promise<Value>,
  describe: () => unknown = () => "",
): Promise<Value> {
  const end = performance.now() + patienceMs;
  let failure: unknown;
  while (performance.now() < end) {
    try {
      const value = await work();
      if (value) return value;
    } catch (error) {
      failure = error;
    }
    await new Promise((resolve) => setTimeout(resolve, 25));
  }
  throw new Error(`${work}: ${failure ?? ""} ${await describe()}`);
}

/** In the page: the first element that can be seen and has a name or matches a selector. */
function locate(name: string): HTMLElement | undefined {
  const scope = document.querySelector("dialog[open]") ?? document;
  const isSelector = /[#.[>]|^(?:body|main|header)/.test(name);
  const candidates = scope.querySelectorAll<HTMLElement>(
    isSelector ? name : "a, button, summary, label",
  );
  return Array.from(candidates).find((element) =>
    element.checkVisibility() &&
    (isSelector || element.ariaLabel === name ||
      element.innerText.trim().replace(/\s+/g, " ").startsWith(name))
  );
}

/** A text, and the selector of the element that has it. */
type Seen = [expected?: RegExp | string, selector?: string];

export class Tab {
  readonly driver: Driver;

  constructor(driver: Driver) {
    this.driver = driver;
  }

  /** Runs a function in the page, which sees nothing but its arguments. */
  async run<Arguments extends unknown[], Value>(
    work: (...args: Arguments) => Value,
    ...args: Arguments
  ): Promise<Awaited<Value>> {
    const list = args.map((each) => JSON.stringify(each) ?? "undefined");
    const expression = `(() => {
      const locate = ${locate};
      return (${work})(${list});
    })()`;
    return await this.driver.run(expression) as Awaited<Value>;
  }

  async open(url: string, ...seen: Seen) {
    // What an earlier test has typed may go.
    await this.run(() =>
      document.querySelector("#editing")?.classList.remove("typed")
    );
    await this.leave();
    await this.driver.open(url);
    await this.arrive();
    await this.sees(...seen);
  }

  /** Marks the view that is left, as a browser may show it for a while. */
  async leave() {
    await this.run(() =>
      document.querySelector("main")?.setAttribute("aria-busy", "true")
    );
  }

  /** Waits until a view is complete. */
  arrive() {
    return this.sees(/./, "main:not([aria-busy]) h1");
  }

  async goBack(steps = 1) {
    await this.leave();
    await this.run((steps) => history.go(-steps), steps);
    await this.arrive();
  }

  /** Clicks an element by what it says, or by a selector, and waits for a text if one is expected. */
  async click(name: string, ...seen: Seen) {
    await until(
      () =>
        this.run((name) => {
          const element = locate(name);
          element?.focus();
          element?.click();
          return element !== undefined;
        }, name),
      async () => `click ${name}: ${await this.text()}`,
    );
    await this.sees(...seen);
  }

  /** Replaces what is in a field. */
  async type(selector: string, text: string) {
    await until(() =>
      this.run(
        (selector, text) => {
          const field = locate(selector);
          if (!field) return false;
          field.focus();
          Reflect.set(field, "value", text);
          for (const type of ["input", "change"]) {
            field.dispatchEvent(new Event(type, { bubbles: true }));
          }
          return true;
        },
        selector,
        text,
      )
    );
  }

  /** The text of the first element that can be seen; empty if there is none. */
  text(selector = "body") {
    return this.run(
      (selector) => locate(selector)?.innerText ?? "",
      selector,
    );
  }

  /** Waits for a text. */
  async sees(...[expected = "", selector = "body"]: Seen) {
    let text = "";
    await until(
      async () => {
        text = await this.text(selector);
        return typeof expected === "string"
          ? text.includes(expected)
          : expected.test(text);
      },
      () => `${expected} is not in ${selector}: ${text.slice(0, 3000)}`,
    );
  }

  async signIn() {
    await this.click("Sign in");
    await this.type("#sign-in [name=username]", "admin");
    await this.type("#sign-in [name=password]", password);
    await this.click("#sign-in .primary");
    await this.sees("You are signed in");
  }

  /** What is in a field. */
  value(selector: string) {
    return this.run(
      (selector) =>
        document.querySelector<HTMLInputElement>(selector)?.value ?? "",
      selector,
    );
  }

  /** The id of what has the focus, or its text. */
  focused() {
    return this.run(() =>
      document.activeElement?.id || document.activeElement?.textContent || ""
    );
  }

  address() {
    return this.run(() => location.href.slice(location.origin.length));
  }

  /** Answers the questions of the page from now on; the element `asked` counts them. */
  async answer(yes: boolean) {
    await this.run((yes) => {
      const counter = document.createElement("p");
      counter.id = "asked";
      counter.textContent = "0";
      document.querySelector("#asked")?.remove();
      document.body.append(counter);
      // The global object of Firefox's driver is another one.
      Reflect.set(document.defaultView ?? {}, "confirm", () => {
        counter.textContent = String(Number(counter.textContent) + 1);
        return yes;
      });
    }, yes);
  }

  check(): void {
    assert.deepEqual(this.driver.complaints, []);
  }
}
