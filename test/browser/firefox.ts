/** Drives Firefox by Marionette, its remote protocol over TCP: a length, a colon and JSON. */

import { spawn } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { connect } from "node:net";
import { join } from "node:path";
import process from "node:process";
import { temporaryFolder } from "../server.ts";
import { Tab, until } from "./tab.ts";

/** Starts Firefox with one tab; it dies with this process. */
export async function launchFirefox() {
  const profile = join(temporaryFolder(), "profile");
  mkdirSync(profile);
  const preferences = {
    "marionette.port": 0,
    "intl.accept_languages": "en-GB",
    "datareporting.policy.dataSubmissionEnabled": false,
    "browser.startup.page": 0,
  };
  const lines = Object.entries(preferences).map(([name, value]) =>
    `user_pref(${JSON.stringify(name)}, ${JSON.stringify(value)});\n`
  );
  writeFileSync(join(profile, "user.js"), lines.join(""));
  const child = spawn(process.env["FIREFOX"] ?? "firefox-esr", [
    "--headless",
    "--marionette",
    "--no-remote",
    "--profile",
    profile,
  ], { stdio: "ignore", env: { ...process.env, HOME: profile } });
  process.once("exit", () => child.kill("SIGKILL"));
  const ended = new Promise((resolve) => child.once("exit", resolve));

  const port = await until(() =>
    Number(readFileSync(join(profile, "MarionetteActivePort"), "utf8"))
  );
  const socket = connect(port, "127.0.0.1");
  const waiting = new Map<number, (error: unknown, result: unknown) => void>();
  let bytes = Buffer.alloc(0);
  socket.on("data", (more) => {
    bytes = Buffer.concat([bytes, more]);
    for (;;) {
      const colon = bytes.indexOf(":");
      const end = colon + 1 + Number(bytes.subarray(0, colon));
      if (colon < 0 || bytes.length < end) return;
      const message = JSON.parse(bytes.subarray(colon + 1, end).toString());
      bytes = bytes.subarray(end);
      const [, id, error, result] = Array.isArray(message) ? message : [];
      waiting.get(id)?.(error, result);
    }
  });
  const send = (command: string, parameters: object) =>
    new Promise<{ value: unknown }>((resolve, reject) => {
      const id = waiting.size + 1;
      waiting.set(id, (error, result) => {
        if (error) reject(new Error(`${command}: ${JSON.stringify(error)}`));
        else resolve(result as { value: unknown });
      });
      const text = JSON.stringify([0, id, command, parameters]);
      socket.write(`${Buffer.byteLength(text)}:${text}`);
    });

  await send("WebDriver:NewSession", {});
  const tab = new Tab({
    complaints: [],
    async open(url) {
      await send("WebDriver:Navigate", { url });
    },
    async run(expression) {
      const script = `return ${expression}`;
      return (await send("WebDriver:ExecuteScript", { script, args: [] }))
        .value;
    },
    async chooseFile(selector, text) {
      const query = { using: "css selector", value: selector };
      const found = await send("WebDriver:FindElement", query);
      const [id] = Object.values(found.value as Record<string, string>);
      await send("WebDriver:ElementSendKeys", { id, text });
    },
  });
  const close = async () => {
    await send("Marionette:Quit", { flags: ["eForceQuit"] });
    await ended;
  };
  return { tab, close };
}
