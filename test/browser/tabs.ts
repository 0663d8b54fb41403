/** The page in several tabs of one browser. */

import { strict as assert } from "node:assert";
import { after, afterEach, before, test } from "node:test";
import { type Server, start } from "../harness.ts";
import { Browser } from "./chromium.ts";

const zoos = ["Ueno Zoo", "Artis"].map((name) => ({
  name,
  city: "Somewhere",
  country: "JP",
}));

let server: Server;
let browser: Browser;
before(async () => {
  server = await start({ seed: { zoos, animals: [], employees: [] } });
  browser = await Browser.start();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
});
afterEach(() => assert.deepEqual(browser.complaints, []));

const who = "document.querySelector('#who').innerText";
const isSignedIn = `/admin/.test(${who})`;
const name = `document.querySelector("#field-name").value`;

/** Opens a zoo in a tab, signs in, and begins to edit it. */
async function edit(): Promise<void> {
  await browser.open(`${server.origin}/v1/zoos/1`);
  await browser.signIn();
  await browser.click("Edit");
  await browser.shown("location.hash === '#edit'");
}

test("two tabs have sign-ins and drafts of their own; what both change is a conflict that shows both", async () => {
  const first = browser.tab;
  await edit();
  await browser.fill("#field-name", "Of the first tab");
  const second = await browser.openTab();
  await browser.open(`${server.origin}/v1/zoos/1`);
  assert.equal(await browser.evaluate(isSignedIn), false);
  await edit();
  assert.equal(
    await browser.evaluate(name),
    "Ueno Zoo",
    "the draft of the other tab",
  );
  await browser.fill("#field-name", "Of the second tab");
  await browser.click("#save");
  await browser.shown(
    "/^Of the second/.test(document.querySelector('h1').innerText)",
  );

  await browser.switchTo(first);
  assert.equal(await browser.evaluate(name), "Of the first tab");
  await browser.click("#save");
  await browser.until("!!document.querySelector('#versions')");
  assert.match(
    await browser.text("#versions"),
    /name\s+Ueno Zoo\s+Of the second tab\s+Of the first tab/,
  );
  await browser.click("#apply-mine");
  await browser.shown(
    "/^Of the first/.test(document.querySelector('h1').innerText)",
  );

  // The other tab shows it without a reload.
  await browser.switchTo(second);
  await browser.until(
    "/^Of the first/.test(document.querySelector('h1').innerText)",
  );
});

test("a tab in which one signs out leaves the others signed in", async () => {
  const first = browser.tab;
  const third = await browser.openTab();
  await edit();
  await browser.switchTo(first);
  await browser.click("Sign out");
  await browser.until(`/Sign in/.test(${who})`);
  await browser.switchTo(third);
  await browser.fill("#field-name", "Still signed in");
  await browser.click("#save");
  await browser.shown("/^Still/.test(document.querySelector('h1').innerText)");
  const { body } = await server.request("GET", "/v1/zoos/1");
  assert.equal(body["name"], "Still signed in");
});
