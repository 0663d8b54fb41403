/**
 * The page in a real browser: everything that a person can do with it, by
 * clicks and keys. `npm run test:browser`
 */

import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { readdir, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, afterEach, before, describe, test } from "node:test";
import { featureNames } from "../../src/features.ts";
import {
  adminPassword,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { extension } from "../root.ts";
import { Browser } from "./chromium.ts";

const script = "<img src=x onerror=alert(1)><script>alert(1)</script>";

const zoos = Array.from({ length: 30 }, (_, at) => ({
  name: `Zoo ${at + 1}`,
  city: at % 2 ? "Amsterdam" : "Berlin",
  country: at % 2 ? "NL" : "DE",
}));
const animals = [
  { zoo_id: 1, animal_type_id: 1, name: script },
  { zoo_id: 1, animal_type_id: 1, name: "حديقة الحيوان", weight_kg: 2.5 },
  { zoo_id: 2, animal_type_id: 2, name: "Nele", sex: "female" },
];

describe("the page in Chromium", () => {
  let server: Server;
  let browser: Browser;
  let token: string;
  before(async () => {
    server = await start({ seed: { zoos, animals, employees: [] } });
    browser = await Browser.start();
    token = await server.signIn();
  });
  after(async () => {
    await browser?.stop();
    await server?.stop();
  });
  afterEach(() => {
    assert.deepEqual(browser.complaints, []);
    for (const url of browser.requested) {
      assert.ok(/^(?:data|blob):/.test(url) || url.startsWith(server.origin));
    }
  });

  const at = (path: string) => `location.href === "${server.origin}${path}"`;
  const open = (path: string) => browser.open(server.origin + path);
  const column = (n: number): Promise<string[]> =>
    browser.evaluate(
      `[...document.querySelectorAll("tbody tr")].map((row) => row.cells[${n}].innerText)`,
    );

  /** Opens the latest exchange whose summary begins with a text. */
  async function openExchange(text: string): Promise<void> {
    const find = `[...document.querySelectorAll(".exchange summary")]
      .find((each) => each.innerText.replace(/\\s+/g, " ").startsWith(${
      JSON.stringify(text)
    }))`;
    await browser.until(`!!${find}`);
    await browser.evaluate(`${find}.parentElement.open = true`);
  }

  test("shows the root document first, with few requests and little work", async () => {
    // Time of the processor, which other programs do not lengthen.
    const timeDomain = "threadTicks";
    await browser.send("Performance.enable", { timeDomain });
    await browser.send("Network.setCacheDisabled", { cacheDisabled: true });
    await open("/");
    const { metrics } = await browser.send("Performance.getMetrics");
    await browser.send("Performance.disable");
    await browser.send("Network.setCacheDisabled", { cacheDisabled: false });
    const paths = browser.requested
      .filter((url) => url.startsWith(server.origin))
      .map((url) => url.slice(server.origin.length));
    // The document, its two files, and the resource that it shows.
    assert.deepEqual(paths, [
      "/",
      "/page/page.css",
      "/page/page.js",
      "/",
      "/",
      ...["/v1/zoos", "/v1/animals", "/v1/employees"], // HEAD, for their counts
    ]);
    const script = metrics.find(({ name }) => name === "ScriptDuration");
    assert.ok(script && script.value > 0 && script.value < 0.15);
    assert.equal(await browser.text("h1"), "zoo-api");
    await browser.click("zoos");
    await browser.shown(at("/v1/zoos"));
    assert.equal((await column(0)).length, 20);
    assert.equal(await browser.text("#count"), "1 to 20 of 30 records");
  });

  test("sorts, pages, and keeps each view in its URL", async () => {
    await open("/v1/zoos");
    await browser.click("name");
    await browser.shown(at("/v1/zoos?sortby=name&order=asc"));
    assert.deepEqual((await column(0)).slice(0, 2), ["Zoo 1", "Zoo 10"]);
    await browser.click("#page-next");
    await browser.shown(
      at("/v1/zoos?sortby=name&order=asc&offset=20"),
    );
    assert.equal((await column(0)).length, 10);
    const last = await column(0);
    await browser.send("Page.reload");
    await browser.shown(`document.querySelectorAll("tbody tr").length === 10`);
    assert.deepEqual(await column(0), last);
    await browser.evaluate("history.back()");
    await browser.shown(at("/v1/zoos?sortby=name&order=asc"));
    assert.equal((await column(0)).length, 20);
    await browser.evaluate("history.forward()");
    await browser.shown(`document.querySelectorAll("tbody tr").length === 10`);
    await browser.fill("#page-size", "50");
    await browser.shown(`document.querySelectorAll("tbody tr").length === 30`);
    assert.match(await browser.evaluate("location.search"), /limit=50/);
  });

  test("filters by the type of each property, and says if nothing matches", async () => {
    await open("/v1/zoos");
    await browser.click("Filter");
    await browser.fill("[aria-label='city: comparison']", ":starts");
    await browser.fill("[aria-label='city: value']", "amst");
    await browser.fill("[aria-label='id: comparison']", ":lte");
    await browser.fill("[aria-label='id: value']", "10");
    await browser.click("Apply");
    await browser.shown(
      `document.querySelector("#count").innerText === "1 to 5 of 5 records"`,
    );
    assert.deepEqual(await column(1), ["2", "4", "6", "8", "10"]);
    assert.match(
      await browser.text("#filtered"),
      /id at most 10\s+city starts with amst/,
    );
    await browser.click("Filter");
    await browser.fill("[aria-label='city: value']", "nowhere + there");
    await browser.click("Apply");
    await browser.shown(
      `/No record matches/.test(document.querySelector("#records").innerText)`,
    );
    await browser.click("Clear");
    await browser.shown(at("/v1/zoos"));
    await open("/v1/zoos?offset=60");
    await browser.click("The first page");
    await browser.shown(at("/v1/zoos"));
    await open("/v1/zoos?id:lte=many");
    assert.equal(await browser.text("h1"), "400 Bad Request");
    assert.match(await browser.text(), /id:lte/);
    await browser.click("This URL without parameters");
    await browser.shown(at("/v1/zoos"));
  });

  test("has for each type of property a control that holds its values exactly", async () => {
    const { body } = await server.request("GET", "/v1/animals/2");
    const time = body.created_at;
    const zone = (timezoneId: string) =>
      browser.send("Emulation.setTimezoneOverride", { timezoneId });
    await zone("Asia/Tokyo");
    await open(
      `/v1/animals?weight_kg:gte=2&weight_kg:lte=3&sex=unknown&born_on=null&created_at=${time}`,
    );
    assert.deepEqual(await column(1), ["2"]);
    await browser.click("Filter");
    await browser.until("!!document.querySelector('.filter')");
    const controls = await browser.evaluate<string[]>(
      `[...document.querySelectorAll(".filter")].map((each) => {
        const [, operator, { firstChild: control }] = each.children;
        const { value, type, min, max, step } = control;
        return [each.innerText.split("\\n")[0], operator.value, type, value, min, max, step].join(" ").trim();
      })`,
    );
    const hoursAhead = 9;
    const local = new Date(Date.parse(time) + hoursAhead * 3_600_000)
      .toISOString().replace(/0*Z$/, "");
    for (
      const expected of [
        "id  number  1  1",
        "name  text",
        "sex  select-one unknown",
        "born_on =null",
        "born_on  date",
        "weight_kg :gte number 2  200000 any",
        "weight_kg :lte number 3  200000 any",
        "weight_kg  number   200000 any",
        `created_at  datetime-local ${local}`,
      ]
    ) {
      const isThere = controls.some((each) => each.startsWith(expected));
      assert.ok(isThere, `${expected} in\n${controls.join("\n")}`);
    }
    await browser.click("Apply");
    await browser.shown("!document.querySelector('.filters[open]')");
    const sent = new URLSearchParams(
      await browser.evaluate<string>("location.search"),
    );
    assert.deepEqual(Object.fromEntries(sent), {
      "weight_kg:gte": "2",
      "weight_kg:lte": "3",
      "sex": "unknown",
      "born_on": "null",
      "created_at": time,
    });
    assert.deepEqual(await column(1), ["2"]);
    await zone("");
    await open("/v1/animals?id:in=1,3");
    assert.deepEqual(await column(1), ["1", "3"]);
    await browser.click("Filter");
    await browser.fill("[aria-label='sex: value']", "female");
    await browser.click("Apply");
    await browser.shown(at("/v1/animals?id:in=1%2C3&sex=female"));
    assert.deepEqual(await column(1), ["3"]);
  });

  test("follows the links of a record, and shows text as text", async () => {
    await open("/v1/zoos/1");
    await browser.click("#to-animals");
    await browser.shown(at("/v1/zoos/1/animals"));
    assert.equal(await browser.text("h1"), "animals");
    assert.match(await browser.text(".crumbs"), /zoos \/ 1 \/ animals/);
    assert.deepEqual(await column(0), [script, "حديقة الحيوان"]);
    assert.deepEqual(await column(2), ["Zoo 1", "Zoo 1"]);
    assert.equal(
      await browser.evaluate(
        "document.querySelectorAll('main img, main script').length",
      ),
      0,
    );
    await browser.click(script);
    await browser.shown(at("/v1/animals/1"));
    assert.equal(await browser.text("h1"), script);
    await browser.click("Zoo 1");
    await browser.shown(at("/v1/zoos/1"));
  });

  test("shows errors with their status, and what they mean", async () => {
    const { body } = await server.request("POST", "/v1/zoos", {
      token,
      json: zoos[0],
    });
    await server.request("DELETE", body.url, { token });
    for (
      const [path, heading] of [
        [body.url, "410 Gone"],
        ["/v1/zoos/999", "404 Not Found"],
        ["/nowhere", "404 Not Found"],
        ["/v1/user", "401 Unauthorized"],
        ["/v1/events", "401 Unauthorized"],
        ["/metrics", "401 Unauthorized"],
      ]
    ) {
      await open(path ?? "");
      assert.equal(await browser.text("h1"), heading);
      await browser.until("document.querySelector('#meaning').innerText");
      assert.ok(
        await browser.evaluate(
          `!!document.querySelector('main a[href*="/docs#4"]')`,
        ),
      );
    }
    await open(body.url);
    await browser.click("Up to /v1/zoos");
    await browser.shown(at("/v1/zoos"));
  });

  test("offers nothing that a caller may not do, and signs in and out", async () => {
    await open("/v1/zoos");
    assert.doesNotMatch(await browser.text(), /New zoo/);
    await browser.click("Sign in");
    await browser.fill("dialog [name=username]", "admin");
    await browser.fill("dialog [name=current-password]", "a wrong password");
    await browser.click("Sign in");
    await browser.until(
      "/^401 Unauthorized: .*wrong/.test(document.querySelector('dialog .wrong').innerText)",
    );
    await browser.fill("dialog [name=current-password]", adminPassword);
    await browser.press("Enter");
    await browser.until(
      "/admin\\s+admin/.test(document.querySelector('#who').innerText)",
    );
    await browser.shown(
      "/New zoo/.test(document.querySelector('main').innerText)",
    );
    assert.equal(
      await browser.evaluate("localStorage.length + document.cookie.length"),
      0,
    );
    await browser.send("Page.reload");
    await browser.until(
      "/admin/.test(document.querySelector('#who').innerText)",
    );
  });

  test("creates a record, beside whose properties it shows what is wrong", async () => {
    await open("/v1/zoos");
    await browser.click("New zoo");
    await browser.shown(at("/v1/zoos#new"));
    await browser.fill("#field-name", "Ueno Zoo");
    await browser.fill("#field-country", "Japan");
    await browser.click("#save");
    await browser.until(
      "document.querySelector('#error-city').innerText !== ''",
    );
    assert.match(
      await browser.text("#error-country"),
      /two|capital|format|characters/,
    );
    assert.equal(
      await browser.evaluate("document.activeElement.id"),
      "field-city",
    );
    const summary = await browser.text("#editing [role=alert]");
    assert.match(summary, /^422 Unprocessable Entity: .*city, country/);
    assert.match(summary, /breaks a rule.*Correct.*What 42200 means/s);
    await browser.fill("#field-city", "Tokyo");
    await browser.fill("#field-country", "JP");
    await browser.fill("#field-opened_on", "1882-03-20");
    await browser.press("Enter");
    await browser.shown(
      "/^Ueno Zoo$/.test(document.querySelector('h1').innerText)",
    );
    assert.match(await browser.text(), /Ueno Zoo/);
    assert.match(await browser.text("#message"), /Created/);
  });

  test("changes only what was changed, and shows both versions on a 412", async () => {
    await open("/v1/zoos/3#edit");
    const changed = await server.request("PATCH", "/v1/zoos/3", {
      token,
      json: { name: "Theirs" },
    });
    assert.equal(changed.status, 201);
    await browser.fill("#field-name", "Mine");
    await browser.click("#save");
    await browser.until("!!document.querySelector('#versions')");
    await browser.screenshot("conflict");
    assert.equal(
      await browser.evaluate("document.activeElement.id"),
      "apply-mine",
    );
    assert.match(
      await browser.text("#versions"),
      /name\s+Zoo 3\s+Theirs\s+Mine/,
    );
    await browser.click("Keep theirs");
    await browser.shown(
      `${
        at("/v1/zoos/3")
      } && /Theirs/.test(document.querySelector('h1').innerText)`,
    );
    await browser.click("Edit");
    await browser.shown(at("/v1/zoos/3#edit"));
    await server.request("PATCH", "/v1/zoos/3", {
      token,
      json: { city: "Bonn" },
    });
    await browser.fill("#field-name", "Mine");
    await browser.click("#save");
    await browser.until("!!document.querySelector('#versions')");
    const versions = await browser.text("#versions");
    await assertAccessible("a conflict");
    assert.match(versions, /name\s+Theirs\s+Theirs\s+Mine/);
    assert.match(versions, /city\s+Berlin\s+Bonn\s+Bonn/);
    assert.doesNotMatch(versions, /country/);
    await browser.click("#apply-mine");
    await browser.shown(
      `${
        at("/v1/zoos/3")
      } && /Mine/.test(document.querySelector('h1').innerText)`,
    );
    const { body } = await server.request("GET", "/v1/zoos/3");
    assert.deepEqual([body.name, body.city], ["Mine", "Bonn"]);
  });

  test("says what became of a record that is deleted while it is edited", async () => {
    const { body } = await server.request("POST", "/v1/zoos", {
      token,
      json: zoos[0],
    });
    await open(`${body.url}#edit`);
    await server.request("DELETE", body.url, { token });
    browser.requested.length = 0;
    await browser.fill("#field-city", "Bonn");
    await browser.fill("#field-name", "Mine");
    await browser.click("#save");
    const alert = "document.querySelector('#editing [role=alert]').innerText";
    await browser.until(alert);
    assert.match(
      await browser.text("#editing [role=alert]"),
      /^404 Not Found: There is no zoo.*There is nothing at this URL.*What 40401 means/s,
    );
    // Only a reference is completed by requests.
    const others = browser.requested.filter((url) =>
      url.startsWith(server.origin) && !url.endsWith(body.url)
    );
    assert.deepEqual(others.map((url) => new URL(url).pathname), []);
  });

  test("replaces a record with PUT", async () => {
    await open("/v1/zoos/4#edit");
    await browser.fill("#field-website", "https://example.com/");
    await browser.click("#replace");
    await browser.shown(
      `${
        at("/v1/zoos/4")
      } && /example.com/.test(document.querySelector('#record').innerText)`,
    );
    const { body } = await server.request("GET", "/v1/zoos/4");
    assert.equal(body.website, "https://example.com/");
    assert.equal(body.name, "Zoo 4");
  });

  test("deletes after confirmation, and explains a cascade", async () => {
    await open("/v1/zoos/2");
    await browser.click("Delete…");
    await browser.click("#delete");
    await browser.until(
      "/^409 Conflict: .*animal/.test(document.querySelector('dialog .wrong').innerText)",
    );
    await browser.click("#cascade");
    await browser.click("#delete");
    await browser.shown(at("/v1/zoos"));
    assert.equal((await server.request("GET", "/v1/zoos/2")).status, 410);
    assert.equal((await server.request("GET", "/v1/animals/3")).status, 410);
  });

  test("says if the server cannot be reached, and tries again", async () => {
    await open("/v1/zoos");
    const offline = (offline: boolean) =>
      browser.send("Network.emulateNetworkConditions", {
        offline,
        latency: 0,
        downloadThroughput: -1,
        uploadThroughput: -1,
      });
    await offline(true);
    await browser.click("animals");
    await browser.shown(
      "document.querySelector('h1').innerText === 'No response'",
    );
    await offline(false);
    await browser.click("Retry");
    await browser.shown("document.querySelector('h1').innerText === 'animals'");
  });

  test("says when a request that was refused can be repeated", async () => {
    await open("/v1/zoos");
    await browser.evaluate(`(() => {
      const body = '{"error":"There are too many requests."}';
      const headers = { "Retry-After": "7" };
      globalThis.fetch = async () => new Response(body, { status: 429, headers });
    })()`);
    await browser.click("animals");
    await browser.until(
      "/Try again in 7 s/.test(document.querySelector('#meaning')?.innerText)",
    );
  });

  test("shows changes by others as they happen, and marks them", async () => {
    await open("/v1/zoos?limit=5");
    await openExchange("GET /v1/zoos?limit=5 ");
    await browser.until("!!document.querySelector('.curl')");
    await browser.screenshot("collection");
    await browser.until(
      "/live/.test(document.querySelector('#live').innerText)",
    );
    await server.request("PATCH", "/v1/zoos/1", {
      token,
      json: { name: "Now" },
    });
    await browser.until(
      "document.querySelector('tr.changed')?.innerText.includes('Now')",
    );
    await open("/v1/zoos/1");
    await server.request("PATCH", "/v1/zoos/1", {
      token,
      json: { name: "Later" },
    });
    await browser.until(
      "!!document.querySelector('#record.changed') && document.querySelector('h1').innerText === 'Later'",
    );
  });

  test("explains the stream of events, and shows them as they come", async () => {
    await open("/v1/events");
    assert.equal(await browser.text("h1"), "events");
    assert.match(await browser.text(), /Last-Event-ID/);
    await openExchange("GET /v1/events 200");
    await browser.until("!!document.querySelector('.curl')");
    const exchange = await browser.text(".exchange[open]");
    assert.match(exchange, /content-type: text\/event-stream/);
    assert.match(exchange, /retry: 1000/);
    await browser.until(
      "/live/.test(document.querySelector('#live').innerText)",
    );
    const patch = (name: string) =>
      server.request("PATCH", "/v1/zoos/1", { token, json: { name } });
    await patch("Streamed");
    const shown = "document.querySelector('#events').innerText";
    await browser.until(`/Streamed/.test(${shown})`);
    assert.match(
      await browser.text("#events"),
      /^id: \d+-\w+\s*event: zoos.updated\s*data: \{"id":1,.*\}$/s,
    );
    for (let count = 0; count < 60; count++) await patch(`Event ${count}`);
    await browser.until(`/Event 59/.test(${shown})`);
    const count = "document.querySelectorAll('#events pre').length";
    assert.equal(await browser.evaluate(count), 50);
  });

  test("shows what is not JSON as it is", async () => {
    await open("/metrics");
    assert.match(await browser.text(), /^\/metrics\s+# HELP /);
  });

  test("imports a file and watches its task, and exports", async () => {
    const folder = await temporaryFolder();
    const file = join(folder, "import.ndjson");
    const lines = zoos.slice(0, 3).map((zoo) => JSON.stringify(zoo));
    await writeFile(file, [...lines, "{}"].join("\n"));
    await open("/v1/zoos");
    await browser.click("Import…");
    await browser.shown(at("/v1/zoos#import"));
    const { root } = await browser.send("DOM.getDocument");
    const { nodeId } = await browser.send("DOM.querySelector", {
      nodeId: root.nodeId,
      selector: "#file",
    });
    await browser.send("DOM.setFileInputFiles", { nodeId, files: [file] });
    await browser.click(".bar .primary");
    await browser.shown(
      "/succeeded/.test(document.querySelector('#record')?.innerText)",
    );
    assert.match(await browser.text("#record"), /imported\s+3\s+rejected\s+1/);
    await browser.send("Browser.setDownloadBehavior", {
      behavior: "allow",
      downloadPath: folder,
    });
    await open("/v1/zoos?country=NL");
    await browser.click("Export");
    await browser.until(
      "/Saved as zoos.ndjson/.test(document.querySelector('#message').innerText)",
    );
    const saved = join(folder, "zoos.ndjson");
    while (!existsSync(saved)) await browser.text(); // it is renamed when complete
    const exported = (await readFile(saved, "utf8")).trim().split("\n");
    assert.ok(exported.length > 10);
    for (const line of exported) assert.equal(JSON.parse(line).country, "NL");
    await removeFolder(folder);
  });

  test("shows the exchange behind each click, with a command that works", async () => {
    await open("/v1/zoos/1");
    await browser.send("Page.reload");
    await browser.shown();
    await openExchange("GET /v1/zoos/1 304");
    await browser.until("!!document.querySelector('.curl')");
    const shown = await browser.text(".exchange[open]");
    assert.match(shown, /if-none-match: |If-None-Match: /);
    assert.match(shown, /stored copy is still current/);
    assert.match(shown, /RFC 9110 section 13\.1\.2/);
    assert.match(shown, /Authorization: Bearer …/);
    const curl = await browser.text(".curl");
    assert.match(curl, /^curl -gi -X GET 'http/);
    assert.match(curl, /Bearer \$TOKEN/);
    const env = { ...process.env, TOKEN: token };
    const output = execFileSync("sh", ["-c", curl], { env, stdio: "pipe" });
    assert.match(String(output), /^HTTP\/1\.1 304 /);
  });

  test("documents the running API, with examples that run", async () => {
    await open("/docs#40401");
    assert.equal(await browser.evaluate("document.activeElement.id"), "40401");
    const text = await browser.text();
    assert.match(text, /41000\n.*deleted/);
    assert.match(text, /name\s+required, string, 1 to 100 characters/);
    assert.match(text, /\/v1\/zoos\/\{zoo_id\}\/animals/);
    await browser.evaluate(
      `document.querySelector("[aria-label='Run GET /v1/zoos?limit=2']").click()`,
    );
    await browser.until(
      "[...document.querySelectorAll('.example p')].some((each) => each.innerText === '200 OK')",
    );
    const roles = await browser.text("#roles table");
    assert.match(roles, /animals\s+anyone\s+keeper\s+keeper\s+keeper\s+keeper/);
    assert.match(
      roles,
      /employees\s+viewer\s+keeper\s+keeper\s+keeper\s+admin/,
    );
    const one = await browser.text("#resource-animals .pair");
    assert.match(one, /POST \/v1\/animals[^]*"weight_kg"[^]*201[^]*"zoo_url"/);
  });

  test("documents every chapter that the API has, and finds words in them", async () => {
    await open("/docs");
    const shown = () =>
      browser.evaluate<string[]>(
        "[...document.querySelectorAll('.contents li:not([hidden])')].map((each) => each.innerText)",
      );
    const all = await shown();
    const sections = await browser.evaluate(
      "[...document.querySelectorAll('.docs section h2')].map((each) => each.innerText)",
    );
    assert.deepEqual(all, sections);
    assert.deepEqual(all.slice(0, 3), [
      "Signing in",
      "Methods and statuses",
      "Pages",
    ]);
    assert.equal(new Set(all).size, all.length);
    await browser.fill("#docs-search", "idempotency-key");
    await browser.until(
      "/^\\d+ of \\d+ parts have it$/.test(document.querySelector('nav [role=status]').innerText)",
    );
    const found = await shown();
    assert.ok(
      found.includes("Retries") && !found.includes("Pages"),
      `${found}`,
    );
    // Every example is about this API, and succeeds, but the one of an error.
    await open("/health");
    await open("/docs");
    const count = await browser.evaluate<number>(
      "document.querySelectorAll('.example button').length",
    );
    for (let each = 0; each < count; each++) {
      await browser.evaluate(
        `document.querySelectorAll('.example button')[${each}].click()`,
      );
      await browser.until(
        `!!document.querySelectorAll('.example')[${each}].querySelector('p')`,
      );
      const text = await browser.evaluate<string>(
        `document.querySelectorAll('.example')[${each}].innerText`,
      );
      const expected = text.includes("colour=red") ? 400 : 200;
      assert.match(text, RegExp(`\n${expected} `), text);
    }
    assert.ok(count >= 9, `${count}`);
  });

  test("draws numbers over time and by value, above a table of them", async () => {
    const { body: [first] } = await server.request("GET", "/v1/zoos?limit=1");
    for (
      const [born_on, weight_kg, sex] of [
        ["2019-05-01", 4, "male"],
        ["2021-07-02", 9, "female"],
      ]
    ) {
      const name = `Drawn ${born_on}`;
      const json = {
        name,
        zoo_id: first?.id,
        animal_type_id: 1,
        sex,
        born_on,
      };
      const all = { json: { ...json, weight_kg }, token };
      const { status } = await server.request("POST", "/v1/animals", all);
      assert.equal(status, 201);
    }
    await open("/v1/animals?sex:ne=unknown");
    const ask = async (aggregate: string, by: string, mark: string) => {
      await browser.click("Numbers");
      await browser.fill("#numbers [name=aggregate]", aggregate);
      await browser.fill("#numbers [name=by]", by);
      await browser.click("Show");
      await browser.until(`!!document.querySelector('.chart ${mark}')`);
    };
    await ask("avg(weight_kg)", "month(born_on)", "polyline");
    const response = await server.request(
      "GET",
      "/v1/animals?sex:ne=unknown&aggregate=avg(weight_kg)&by=month(born_on)&limit=100",
    );
    const groups = response.body as unknown as Record<string, unknown>[];
    const drawn = groups.filter((each) =>
      each["avg(weight_kg)"] !== null && each["month(born_on)"] !== null
    );
    const means = drawn.map((each) => Number(each["avg(weight_kg)"]));
    const caption = await browser.text(".chart figcaption");
    assert.match(
      caption,
      RegExp(
        `avg\\(weight_kg\\) by month\\(born_on\\): ${drawn.length} values from ${
          Math.min(...means)
        } to ${Math.max(...means)}`,
      ),
    );
    const rows = "document.querySelectorAll('#records tbody tr').length";
    assert.equal(await browser.evaluate(rows), groups.length);
    const filters = await browser.text("#filtered");
    assert.match(filters, /sex/);
    assert.doesNotMatch(filters, /aggregate|born_on/);
    await browser.click("Numbers");
    await browser.until("!!document.querySelector('#numbers')");
    await browser.evaluate("document.querySelector('#numbers select').focus()");
    await browser.press("Escape");
    await browser.until("document.activeElement.innerText === 'Numbers'");
    assert.ok(
      await browser.evaluate("!document.activeElement.parentElement.open"),
    );
    await ask("count", "sex", "rect");
    assert.equal(await browser.evaluate(rows), 2);
    await browser.click("Back to the records");
    await browser.shown(at("/v1/animals?sex:ne=unknown"));
  });

  test("teaches in twelve lessons, each of which checks what was sent", async () => {
    await open("/docs#course");
    const titles = await browser.evaluate<string[]>(
      "[...document.querySelectorAll('.steps a')].map((each) => each.innerText)",
    );
    assert.equal(titles.length, 12);
    for (const [at0, title] of titles.entries()) {
      const number = at0 + 1;
      await browser.click(number === 1 ? title : `Next: ${title}`);
      await browser.shown(at(`/docs#course-${number}`));
      assert.equal(await browser.text("#why"), "");
      await browser.evaluate(
        `document.querySelectorAll("[name=guess]")[${number % 2}].click()`,
      );
      const count = await browser.evaluate<number>(
        "document.querySelectorAll('main ol button').length",
      );
      for (let step = 0; step < count; step++) {
        const item = `document.querySelectorAll("main ol li")[${step}]`;
        await browser.until(
          `(() => { const step = ${item}.querySelector("button"); return !step.disabled && !step.click(); })()`,
        );
        await browser.until(
          `${item}.matches(".done") || /✗/.test(${item}.innerText)`,
        );
      }
      assert.doesNotMatch(await browser.text("main ol"), /✗/, title);
      await browser.until("document.querySelector('#why').innerText !== ''");
      assert.match(await browser.text("#verdict"), /predicted/);
    }
    await browser.click("#why a");
    await browser.shown(at("/docs#course"));
    assert.equal(
      await browser.evaluate(
        "document.querySelectorAll('.steps .done').length",
      ),
      12,
    );
    const made = await server.request("GET", "/v1/zoos?name:starts=Lesson");
    assert.deepEqual(made.body, []);
  });

  const views = [
    "/",
    "/v1/zoos",
    "/v1/zoos?city=nowhere",
    "/v1/animals?aggregate=count&by=month(born_on)",
    "/v1/zoos#new",
    "/v1/zoos#import",
    "/v1/zoos/1",
    "/v1/zoos/1#edit",
    "/v1/zoos/2",
    "/v1/zoos?limit=none",
    "/v1/tasks",
    "/v1/tasks/1",
    "/v1/events",
    "/v1/user",
    "/metrics",
    "/docs",
    "/docs#course",
    "/docs#course-1",
    "/nowhere",
  ];

  /** Opens all that a view can hide: its filters, what it asks, and the latest exchange. */
  async function unfold(view: string): Promise<void> {
    await open("/health"); // so that a change of the fragment is a new view
    await open(view);
    await browser.evaluate(
      `document.querySelectorAll("main details, .exchange:first-child").forEach((each) => each.open = true)`,
    );
    await browser.until("!!document.querySelector('.curl')");
    const isFolded = "document.querySelector('.filters:not(:has(form))')";
    await browser.until(`!${isFolded}`);
    await browser.evaluate("document.querySelector('.repetition').open = true");
    await browser.until("!!document.querySelector('.repetition textarea')");
    if (/\/zoos\/1$/.test(view)) {
      await browser.click("Delete…");
      await browser.until("!!document.querySelector('dialog[open]')");
    }
  }

  /** Checks what is shown by the rules of axe-core. */
  async function assertAccessible(what: string, rules = ""): Promise<void> {
    await browser.evaluate(await (axe ??= loadAxe()));
    const violations = await browser.evaluate(
      `axe.run(${rules}).then(({ violations }) => violations.map(({ id, nodes }) =>
        id + ": " + nodes.map(({ html, failureSummary }) => html + failureSummary).join()))`,
    );
    assert.deepEqual(violations, [], what);
  }

  test("is accessible in every view, by the rules of axe-core", async () => {
    for (const scheme of ["light", "dark"]) {
      await browser.send("Emulation.setEmulatedMedia", {
        features: [{ name: "prefers-color-scheme", value: scheme }],
      });
      // Rules that do not depend on the colours are checked once.
      const rules = scheme === "dark" ? '{ runOnly: ["color-contrast"] }' : "";
      for (const view of views) {
        await unfold(view);
        await assertAccessible(`${view}, ${scheme}`, rules);
      }
    }
  });

  test("fits a phone in every view", async () => {
    const metrics = { width: 360, height: 640, deviceScaleFactor: 1 };
    await browser.send("Emulation.setDeviceMetricsOverride", {
      ...metrics,
      mobile: true,
    });
    for (const view of views) {
      await unfold(view);
      const width = "document.documentElement.scrollWidth";
      assert.equal(await browser.evaluate(width), 360, view);
    }
    await browser.send("Emulation.clearDeviceMetricsOverride");
  });

  test("can be used without a mouse", async () => {
    await open("/v1/zoos");
    const tabTo = async (text: string) => {
      for (let count = 0; count < 200; count++) {
        await browser.press("Tab");
        const active = await browser.evaluate(
          "document.activeElement.innerText?.trim().replace(/\\s+/g, ' ') || document.activeElement.id",
        );
        if (active === text) return;
      }
      assert.fail(`Tab does not reach ${text}`);
    };
    await tabTo("Skip to the content");
    await tabTo("New zoo");
    await browser.press("Enter");
    await browser.shown(at("/v1/zoos#new"));
    assert.equal(
      await browser.evaluate("document.activeElement.tagName"),
      "H1",
    );
    for (
      const [id, text] of [["name", "Keys"], ["city", "Bonn"], [
        "country",
        "DE",
      ]]
    ) {
      await tabTo(`field-${id}`);
      await browser.send("Input.insertText", { text });
    }
    await tabTo("Create POST");
    await browser.press("Enter");
    await browser.shown(
      "/Keys/.test(document.querySelector('h1')?.innerText)",
    );
    await tabTo("Delete…");
    await browser.press("Enter");
    await browser.until("!!document.querySelector('dialog[open]')");
    await browser.press("Escape");
    await browser.until("!document.querySelector('dialog')");
    assert.equal(
      await browser.evaluate("document.activeElement.innerText"),
      "Delete…",
    );
  });

  test("signs out, which ends the token", async () => {
    const stored = await browser.evaluate<string>(
      `JSON.parse(sessionStorage.getItem("/ authorization")).token`,
    );
    await browser.click("#sign-out");
    await browser.until(
      "/^Sign in$/.test(document.querySelector('#who').innerText)",
    );
    const { body } = await server.request("GET", "/v1/user", { token: stored });
    assert.equal(body.errorCode, 40104);
    assert.equal(
      await browser.evaluate(`sessionStorage.getItem("/ authorization")`),
      "null",
    );
    await browser.click("Sign in");
    await browser.click("Sign in");
    await browser.until("document.querySelector('dialog .wrong').innerText");
    await assertAccessible("the dialog for signing in");
  });
});

describe("a hundred rows", () => {
  let server: Server;
  let browser: Browser;
  let url: string;
  before(async () => {
    const herd = Array.from({ length: 120 }, (_, at) => ({
      ...{ zoo_id: 1 + at % 30, animal_type_id: 1, name: `Nele ${at}` },
      ...{ born_on: "2020-02-29", weight_kg: 500 - at },
    }));
    server = await start({ seed: { zoos, animals: herd, employees: [] } });
    browser = await Browser.start();
    url = `${server.origin}/v1/animals?limit=100`;
  });
  after(async () => {
    await browser?.stop();
    await server?.stop();
  });
  afterEach(() => assert.deepEqual(browser.complaints, []));

  const rows = "document.querySelectorAll('tbody tr')";
  const isComplete = `${rows}.length === 100`;

  /** Holds back the frames of the page: it shows the first rows, and no others. */
  const holdFrames = () =>
    browser.evaluate(`globalThis.held = [];
      globalThis.drawNext = requestAnimationFrame;
      globalThis.requestAnimationFrame = (draw) => held.push(draw)`);
  const releaseFrames = () =>
    browser.evaluate(`globalThis.requestAnimationFrame = drawNext;
      held.forEach((draw) => requestAnimationFrame(draw))`);

  test("are shown and sorted without a task that is twice as long as drawing a plain table of them", async () => {
    const median = async (work: () => Promise<unknown>) => {
      const times = [];
      for (let round = 0; round < 3; round++) {
        times.push(await browser.longestTask(work));
      }
      return times.sort((one, other) => one - other)[1] ?? 0;
    };
    await browser.open(url);
    await browser.shown(isComplete);
    let order = "desc";
    const longest = await median(async () => {
      order = order === "asc" ? "desc" : "asc";
      await browser.click("#by-name");
      await browser.shown(
        `location.href === "${url}&sortby=name&order=${order}" && ${isComplete}`,
      );
    });
    const plain = await median(() =>
      browser.evaluate(`(() => {
        globalThis.texts ??= [...document.querySelectorAll("#records tr")]
          .map((row) => [...row.cells].map((cell) => cell.textContent));
        const table = document.createElement("table");
        for (const each of texts) {
          const row = table.insertRow();
          for (const text of each) row.insertCell().append(text);
        }
        document.querySelector("main").replaceChildren(table);
      })()`)
    );
    assert.ok(longest < 2 * plain, `${longest} ms, plain ${plain} ms`);
  });

  test("are added to what is seen first, and a live change marks only its own", async () => {
    await browser.open(url);
    await browser.signIn();
    await browser.shown(isComplete);
    await browser.until(
      "/live/.test(document.querySelector('#live').innerText)",
    );
    await holdFrames();
    await browser.click("#by-weight_kg");
    await browser.until(
      `/weight_kg&/.test(location.href) && held.length === 1`,
    );
    assert.ok(await browser.evaluate(`${rows}.length < 100`));
    const name = "Changed meanwhile";
    const id = await browser.evaluate<string>(`${rows}[3].dataset.id`);
    const token = await server.signIn();
    const path = `/v1/animals/${id}`;
    await server.request("PATCH", path, { token, json: { name } });
    await browser.until(
      `[...document.querySelectorAll(".background code")]
        .some((each) => /sortby=weight_kg/.test(each.innerText))`,
    );
    await releaseFrames();
    await browser.shown(isComplete);
    await browser.until(
      "[...document.querySelectorAll('tr.changed')].map((row) => row.cells[0].innerText).join() === " +
        JSON.stringify(name),
    );
    assert.equal(await browser.evaluate(`${rows}[3].dataset.id`), id);
  });

  test("are those of the last of two clicks", async () => {
    await browser.open(url);
    await browser.shown(isComplete);
    await holdFrames();
    await browser.click("#by-name");
    await browser.until("/sortby=name/.test(location.href) && held.length > 0");
    await browser.click("#by-weight_kg");
    await browser.until(
      "/sortby=weight_kg/.test(location.href) && held.length > 1",
    );
    await releaseFrames();
    await browser.shown(isComplete);
    const weights = await browser.evaluate<string[]>(
      `(({ parentElement: { cellIndex } }) =>
        [...${rows}].map((row) => row.cells[cellIndex].innerText)
      )(document.querySelector("#by-weight_kg"))`,
    );
    assert.deepEqual(weights.map(Number), weights.map((_, at) => 381 + at));
  });
});

test("the page shows an API of one's own, and nothing of any other", async () => {
  const server = await start({
    env: {
      COLLECTIONS: join(
        import.meta.dirname,
        `../library/collections${extension}`,
      ),
    },
  });
  const browser = await Browser.start();
  try {
    await browser.open(`${server.origin}/`);
    await browser.signIn();
    await browser.click("authors");
    await browser.click("New author");
    await browser.fill("#field-name", "Le Guin");
    await browser.press("Enter");
    await browser.shown(
      "/^Le Guin$/.test(document.querySelector('h1').innerText)",
    );
    await browser.click("#to-books");
    await browser.click("New book");
    await browser.fill("#field-title", "Always Coming Home");
    await browser.fill("#field-isbn", "nothing");
    await browser.fill("#field-genre", "science");
    await browser.fill("#field-published_on", "1985-01-01");
    await browser.fill("#field-reprinted_on", "1984-01-01");
    await browser.click("#save");
    await browser.until(
      "document.querySelector('#error-isbn').innerText !== ''",
    );
    await browser.fill("#field-isbn", "9783423000015");
    await browser.click("#save");
    await browser.until(
      "/published_on/.test(document.querySelector('#error-reprinted_on').innerText)",
    );
    await browser.fill("#field-reprinted_on", "");
    await browser.click("#save");
    await browser.shown(
      "/^Always Coming Home$/.test(document.querySelector('h1').innerText)",
    );
    await browser.click("Le Guin");
    await browser.shown(
      "/^Le Guin$/.test(document.querySelector('h1').innerText)",
    );
    await browser.click("notes");
    await browser.click("New note");
    await browser.fill("#field-text", "Mine");
    await browser.click("#save");
    await browser.shown(
      "/owner_id/.test(document.querySelector('#record')?.innerText)",
    );
    await browser.click("Docs");
    await browser.shown(
      "document.querySelector('h1').innerText === 'Documentation'",
    );
    assert.doesNotMatch(await browser.text("body"), /zoo|animal/);
    assert.deepEqual(browser.complaints, []);
  } finally {
    await browser.stop();
    await server.stop();
  }
});

test("the page works below a path, and without each other feature", async () => {
  const browser = await Browser.start();
  const others = featureNames.filter((name) => name !== "page");
  try {
    for (const off of ["", ...others]) {
      const names = featureNames.filter((name) => name !== off).join();
      const server = await start({
        seed: { zoos: zoos.slice(0, 3), animals: [], employees: [] },
        args: ["--base-url", "/api/", "--features", names],
      });
      const token = await server.signIn().catch(() => undefined);
      assert.equal(token, undefined, "there is nothing but /api/");
      await browser.open(`${server.origin}/api/`);
      await browser.signIn();
      await browser.click("zoos");
      await browser.shown(`document.querySelectorAll("tbody tr").length === 3`);
      await browser.click("Zoo 2");
      await browser.shown(
        "/^Zoo 2$/.test(document.querySelector('h1').innerText)",
      );
      await browser.click("Docs");
      await browser.shown(
        `${"document.querySelector('h1').innerText"} === "Documentation"`,
      );
      const isLive = await browser.text("#live");
      assert.equal(isLive !== "", off !== "events");
      await server.stop();
    }
    assert.deepEqual(browser.complaints, []);
  } finally {
    await browser.stop();
  }
});

/** The script of axe-core. */
let axe: Promise<string> | undefined;

/** Returns the script of axe-core, which comes from the registry and is not a dependency. */
async function loadAxe(): Promise<string> {
  const folder = await temporaryFolder();
  try {
    execFileSync("npm", ["pack", "--silent", "axe-core@4"], { cwd: folder });
    execFileSync("tar", ["xzf", ...await readdir(folder)], { cwd: folder });
    return await readFile(join(folder, "package/axe.min.js"), "utf8");
  } finally {
    await removeFolder(folder);
  }
}
