/**
 * The page's forms with every kind of property, and under the hands of people
 * who click twice, leave, reload, or have several tabs.
 */

import { strict as assert } from "node:assert";
import { execFileSync } from "node:child_process";
import { existsSync } from "node:fs";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, afterEach, before, describe, test } from "node:test";
import {
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { Browser } from "./chromium.ts";
import { Firefox } from "./firefox.ts";
import type { Tab } from "./tab.ts";

const declaration = `export default (
  { collection, string, text, integer, number, boolean, date, timestamp, choice, url, reference, optional },
) => ({
  title: "Things",
  roles: ["reader", "writer", "admin"],
  collections: [
    collection({
      name: "makers", singular: "maker",
      access: { read: "anyone", write: "writer", delete: "writer" },
      properties: { name: string({ maxLength: 50 }) },
    }),
    collection({
      name: "things", singular: "thing",
      access: { read: "anyone", write: "writer", delete: "writer" },
      properties: {
        name: string({ maxLength: 50, description: "what people call it" }),
        maker_id: optional(reference("makers")),
        tester_id: optional(reference("makers", { as: "tests" })),
        note: optional(text({ maxLength: 500 })),
        label: string({ minLength: 0, maxLength: 20 }),
        alias: optional(string({ minLength: 0, maxLength: 20 })),
        count: optional(integer()),
        price: optional(number({ minimum: 0 })),
        level: optional(integer({ minimum: 1 }), 5),
        is_good: optional(boolean()),
        made_on: optional(date()),
        seen_at: optional(timestamp()),
        status: optional(choice("running", "done"), "running"),
        shop: optional(url()),
      },
    }),
  ],
})`;

const isFirefox = process.env["BROWSER"] === "firefox";

let browser: Tab;
let server: Server;
let token: string;
let folder: string;

before(async () => {
  folder = await temporaryFolder();
  const file = join(folder, "collections.mjs");
  await writeFile(file, declaration);
  server = await start({ env: { COLLECTIONS: file } });
  token = await server.signIn();
  const post = (path: string, json: object) =>
    server.request("POST", path, { token, json });
  await post("/v1/makers", { name: "Ada" });
  await post("/v1/makers", { name: "Grace" });
  await post("/v1/things", { name: "Lamp", label: "old", alias: "light" });
  browser = await (isFirefox ? Firefox : Browser).start();
  await browser.open(`${server.origin}/`);
  await browser.signIn();
});
after(async () => {
  await browser?.stop();
  await server?.stop();
  if (folder) await removeFolder(folder);
});
afterEach(() => assert.deepEqual(browser.complaints, []));

/** Opens a view anew, also one that differs only in its fragment. */
async function open(path: string): Promise<void> {
  await browser.evaluate("sessionStorage.removeItem('/ copy')");
  await browser.open(`${server.origin}/health`);
  await browser.open(server.origin + path);
}

const value = (selector: string) =>
  browser.evaluate(`document.querySelector(${JSON.stringify(selector)}).value`);

/** Counts the requests of the page that are sent from now on, by method. */
async function countRequests(): Promise<
  (method: string) => Promise<number>
> {
  await browser.evaluate(`(() => {
    const { fetch } = window;
    window.sent ??= [];
    sent.length = 0;
    if (window.isCounted) return;
    window.isCounted = true;
    window.fetch = (request, ...rest) => {
      sent.push(request.method ?? "GET");
      return fetch(request, ...rest);
    };
  })()`);
  return (method) =>
    browser.evaluate<number>(
      `sent.filter((each) => each === ${JSON.stringify(method)}).length`,
    );
}

async function thing(id: number): Promise<Record<string, unknown>> {
  const { body } = await server.request("GET", `/v1/things/${id}`);
  return body;
}

describe("what is typed is what is sent, or it is refused beside its field", () => {
  test("a date that is half typed is not sent as nothing", async () => {
    await open("/v1/things/1#edit");
    const sent = await countRequests();
    await browser.evaluate("document.querySelector('#field-made_on').focus()");
    for (const digit of "02") await browser.press(digit);
    await browser.click("#save");
    await browser.until("document.querySelector('#error-made_on').innerText");
    assert.match(await browser.text("#error-made_on"), /incomplete/);
    assert.equal(
      await browser.evaluate("document.activeElement.id"),
      "field-made_on",
    );
    assert.equal(
      await browser.evaluate(
        "document.querySelector('#field-made_on').getAttribute('aria-invalid')",
      ),
      "true",
    );
    assert.equal(await sent("PATCH"), 0);
    await browser.click("#cancel");
    await browser.shown("location.hash === ''");
  });

  test("a number is sent as it is typed, and a text in its place is not sent", async () => {
    await open("/v1/things/1#edit");
    const sent = await countRequests();
    for (
      const [name, typed] of [
        ["count", "9007199254740993"],
        ["count", " "],
        ["count", "0x10"],
        ["price", "1,5"],
        ["level", ""],
      ] as const
    ) {
      await browser.fill(`#field-${name}`, typed);
      await browser.click("#save");
      const isRefused = `document.querySelector('#error-${name}').innerText`;
      await browser.until(isRefused);
      const before = name === "level" ? "5" : "";
      await browser.fill(`#field-${name}`, before);
    }
    assert.equal(await sent("PATCH"), 0);
    await browser.fill("#field-price", "0.1");
    await browser.fill("#field-count", "-7");
    await browser.click("#save");
    await browser.shown("!!document.querySelector('#record')");
    const { price, count, level } = await thing(1);
    assert.deepEqual([price, count, level], [0.1, -7, 5]);
  });

  test("a string can be emptied, and an optional one be either empty or nothing", async () => {
    await open("/v1/things/1#edit");
    await browser.fill("#field-label", "");
    await browser.fill("#field-alias", "");
    await browser.click("#save");
    await browser.shown("!!document.querySelector('#record')");
    const emptied = await thing(1);
    assert.deepEqual([emptied["label"], emptied["alias"]], ["", ""]);
    await open("/v1/things/1#edit");
    await browser.click("#null-alias");
    await browser.click("#save");
    await browser.shown("!!document.querySelector('#record')");
    assert.equal((await thing(1))["alias"], null);
  });

  test("only a text has several lines, which are shown as such", async () => {
    await open("/v1/things/1#edit");
    assert.equal(
      await browser.evaluate(
        "document.querySelectorAll('form textarea').length",
      ),
      1,
    );
    await browser.fill("#field-note", "One\n\nTwo");
    await browser.click("#save");
    await browser.shown("!!document.querySelector('#record')");
    assert.equal((await thing(1))["note"], "One\n\nTwo");
    assert.equal(await browser.text(".lines"), "One\n\nTwo");
  });

  test("a reference is found by its title, with keys alone", async () => {
    const json = { name: "Two  spaces" };
    const spaced = await server.request("POST", "/v1/makers", { token, json });
    await open("/v1/things/1#edit");
    assert.match(await browser.text("#help-name"), /What people call it/);
    await browser.evaluate("document.querySelector('#field-maker_id').focus()");
    const options = "document.querySelectorAll('#choices-maker_id option')";
    await browser.until(`${options}.length === 3`);
    const offered = `[...${options}].map(({ value }) => value)`;
    assert.deepEqual(await browser.evaluate(offered), [
      "Ada",
      "Grace",
      json.name,
    ]);
    const { headers } = spaced; // others count the makers
    await server.request("DELETE", headers.get("location") ?? "", { token });
    await browser.insert("Gra");
    await browser.until(`${options}.length === 1`);
    // No protocol reaches what browsers show of a list, so the rest is typed.
    await browser.insert("ce");
    assert.equal(await value("#field-maker_id"), "Grace");
    await browser.fill("#field-tester_id", "nobody");
    await browser.click("#save");
    await browser.until("document.querySelector('#error-tester_id').innerText");
    await browser.fill("#field-tester_id", "Ada"); // and no search before
    await browser.click("#save");
    await browser.shown("!!document.querySelector('#record')");
    const { maker_id, tester_id } = await thing(1);
    assert.deepEqual([maker_id, tester_id], [2, 1]);
    await browser.until(
      "/maker_id\\s+Grace\\s+tester_id\\s+Ada/.test(document.querySelector('#record').innerText)",
    );
  });

  test("a new record has the reference that the URL fixes, and no other", async () => {
    await open("/v1/makers/1/tests#new");
    assert.match(await browser.text("#editing"), /tester\s*Ada, by the URL/);
    assert.equal(await value("#field-maker_id"), "");
    await browser.fill("#field-name", "Tested");
    await browser.click("#save");
    await browser.shown(
      "/Tested/.test(document.querySelector('h1').innerText)",
    );
    const { body } = await server.request("GET", "/v1/things?name=Tested");
    assert.equal(body[0]?.["maker_id"], null);
    assert.equal(body[0]?.["tester_id"], 1);
  });
});

describe("each form is sent once", () => {
  test("whoever clicks twice creates one record, and changes it without a conflict", async () => {
    await open("/v1/makers#new");
    const sent = await countRequests();
    await browser.fill("#field-name", "Once");
    const twice =
      "(() => { const save = document.querySelector('#save'); save.click(); save.click(); })()";
    await browser.evaluate(twice);
    await browser.shown("document.querySelector('h1').innerText === 'Once'");
    assert.equal(await sent("POST"), 1);
    await browser.click("Edit");
    await browser.shown("location.hash === '#edit'");
    await browser.fill("#field-name", "Twice");
    await browser.evaluate(twice);
    await browser.shown("document.querySelector('h1').innerText === 'Twice'");
    assert.equal(await sent("PATCH"), 1);
  });

  test("a response that is lost is no conflict with oneself", async () => {
    await open("/v1/makers/1#edit");
    await browser.evaluate(`(() => {
      const { fetch } = window;
      window.fetch = async (request) => {
        const response = await fetch(request);
        if (request.method !== "PATCH") return response;
        window.fetch = fetch;
        throw new TypeError("lost");
      };
    })()`);
    await browser.fill("#field-name", "Ada L.");
    await browser.click("#save");
    await browser.until(
      "/does not respond/.test(document.querySelector('#editing').innerText)",
    );
    await browser.click("#save");
    await browser.shown("document.querySelector('h1').innerText === 'Ada L.'");
    assert.equal(
      await browser.evaluate("!document.querySelector('dialog')"),
      true,
    );
  });

  test("a new record whose response is lost is named when it is corrected", async () => {
    await open("/v1/makers#new");
    await browser.evaluate(`(() => {
      const { fetch } = window;
      window.fetch = async (request) => {
        const response = await fetch(request);
        if (request.method !== "POST") return response;
        window.fetch = fetch;
        throw new TypeError("lost");
      };
    })()`);
    await browser.fill("#field-name", "Lostt");
    await browser.click("#save");
    await browser.until(
      "/does not respond/.test(document.querySelector('#editing').innerText)",
    );
    await browser.fill("#field-name", "Lost");
    await browser.click("#save");
    await browser.until(
      "/^422/.test(document.querySelector('#editing .wrong').innerText)",
    );
    const shown = await browser.text("#editing");
    assert.match(shown, /What you sent before was stored/);
    assert.doesNotMatch(shown, /nothing was changed/);
    await browser.click("Show the list");
    await browser.shown(
      "location.href.endsWith('/v1/makers') && /Lostt/.test(document.querySelector('#records').innerText)",
    );
  });

  test("a file is imported once, as CSV too, after a preview", async () => {
    await open("/v1/makers#import");
    const sent = await countRequests();
    const file = join(folder, "makers.csv");
    await writeFile(file, 'name\r\n"Quoted, ""so"""\r\nPlain\r\n""\r\n');
    await browser.choose("#file", file);
    await browser.until("document.querySelector('#preview table')");
    assert.match(
      await browser.text("#preview"),
      /2 records[^]*Quoted, \\"so\\"/,
    );
    await browser.evaluate(
      "(() => { const button = document.querySelector('.bar .primary'); button.click(); button.click(); })()",
    );
    await browser.shown(
      "/succeeded/.test(document.querySelector('#record')?.innerText)",
    );
    assert.equal(await sent("POST"), 1);
    const { body } = await server.request(
      "GET",
      "/v1/makers?name:starts=Quoted",
    );
    assert.equal(body[0]?.["name"], 'Quoted, "so"');
  });

  test("a table in another order can be imported as it was exported, as CSV too", async () => {
    const texts = ["+41 44 2", "'-1", "''=B", "@b", "'quoted'", "=A1"];
    for (const text of texts) {
      const json = { name: text, label: text };
      const { status } = await server.request("POST", "/v1/things", {
        token,
        json,
      });
      assert.equal(status, 201);
    }
    const list = "/v1/things?sortby=name&order=desc";
    await open(list);
    await browser.evaluate(
      "URL.createObjectURL = (blob) => { window.saved = blob; return ''; }",
    );
    const save = async (id: string) => {
      await browser.evaluate("delete window.saved");
      await browser.click(id);
      await browser.until("!!window.saved");
      return await browser.evaluate<string>("saved.text()");
    };
    const lines = (await save("#export")).trim().split("\n");
    const ids = lines.map((line) => JSON.parse(line).id);
    assert.deepEqual(ids, [...ids].sort((one, other) => one - other));
    const csv = await save("#export-csv");
    const file = join(folder, "things.csv");
    await writeFile(file, csv);
    const { body: before } = await server.request("GET", "/v1/things");
    const last = Math.max(...before.map(({ id }) => Number(id)));
    // Their ids are used here, and those above them are not.
    await writeFile(
      file,
      csv.replaceAll(
        /^([^,\n]*,)(\d+)/gm,
        (_, name, id) => `${name}${Number(id) + last}`,
      ),
    );
    await open("/v1/things#import");
    await browser.choose("#file", file);
    await browser.until("document.querySelector('#preview table')");
    assert.doesNotMatch(await browser.text("#preview"), /Not properties/);
    await browser.click(".bar .primary");
    await browser.shown(
      "/succeeded/.test(document.querySelector('#record')?.innerText)",
    );
    const { body: after } = await server.request(
      "GET",
      `/v1/things?id:gt=${last}&sortby=id`,
    );
    const contents = (records: readonly Record<string, unknown>[]) =>
      records.map(({ name, label, status }) => ({ name, label, status }));
    assert.deepEqual(contents(after), contents(before));
  });

  test("of a CSV nothing is cut or rounded without a word, and a rejected row is named", async () => {
    const file = join(folder, "odd.csv");
    const choose = async (content: string | Buffer) => {
      await open("/v1/things#import");
      await writeFile(file, content);
      await browser.choose("#file", file);
    };
    const refused: [string | Buffer, RegExp][] = [
      ["name\nSmith, John\n", /Row 2 has “ John” in a column .*quotation/],
      ["name,label,price\na,b,1,5\n", /Row 2 has “5”/],
      ["name,,label\na,b,c\n", /Row 2 has “b”/],
      ['name,label\na,b\n"Smith,c\nd,e\n', /Row 3 has a quotation mark/],
      ['name,label\n"x"y",a\n', /Row 2 has a quotation mark/],
      [`name,label\n"x,${"a\n".repeat(5 << 20)}`, /Row 2 has a quotation mark/],
      ["name,label,name\na,b,c\n", /names name twice/],
      [Buffer.from("name,label\nZürich,a\n", "latin1"), /not in UTF-8/],
    ];
    for (const [content, message] of refused) {
      await choose(content);
      const sent = await countRequests();
      await browser.until("document.querySelector('#editing .wrong')");
      assert.match(await browser.text("#editing"), message);
      await browser.click(".bar .primary");
      await browser.until(
        "/Choose a file first/.test(document.querySelector('#editing').innerText)",
      );
      assert.equal(await sent("POST"), 0);
    }
    const { body } = await server.request("GET", "/v1/things?sortby=id");
    const last = Number(body.at(-1)?.["id"]);
    await choose(
      "\ufeffid;name;label;price;;\r\n" +
        `${last + 3};Third;"two\r\nlines";12345678901234567;;\r\n\r\n` +
        `${last + 1};First;a;1e400;;\r\n${last + 2};Second;"b;c";1.5;;\r\n` +
        `;Last;d;0.30000000000000004;;\r\n;Long;f;3.5000000000000000;;\r\n${
          last + 4
        };Fourth;e;1.00000000000000001;;\r\n`,
    );
    await browser.until("document.querySelector('#preview table')");
    await browser.click(".bar .primary");
    await browser.shown(
      "/succeeded/.test(document.querySelector('#record')?.innerText)",
    );
    const shown = await browser.text("#main");
    assert.match(
      shown,
      /Rejected rows[^]*Row 4[^]*price[^]*Row 2[^]*price[^]*Row 8[^]*price/,
    );
    const { body: added } = await server.request(
      "GET",
      `/v1/things?id:gt=${last}&sortby=id`,
    );
    assert.deepEqual(
      added.map(({ name, label, price }) => [name, label, price]),
      [["Second", "b;c", 1.5], ["Last", "d", 0.30000000000000004], [
        "Long",
        "f",
        3.5,
      ]],
    );
  });

  test("a file that is chosen is imported, even while it is being read", async () => {
    await open("/v1/makers#import");
    const sent = await countRequests();
    await browser.evaluate(`(() => {
      const { arrayBuffer } = Blob.prototype;
      Blob.prototype.arrayBuffer = async function () {
        await new Promise((resolve) => window.read = resolve);
        return arrayBuffer.call(this);
      };
    })()`);
    const file = join(folder, "slow.ndjson");
    await writeFile(file, '{"name":"Read slowly"}\n');
    await browser.choose("#file", file);
    await browser.until("!!window.read");
    await browser.click(".bar .primary");
    assert.doesNotMatch(await browser.text(), /Choose a file/);
    await browser.evaluate("read()");
    await browser.shown(
      "/succeeded/.test(document.querySelector('#record')?.innerText)",
    );
    assert.equal(await sent("POST"), 1);
    const { body } = await server.request(
      "GET",
      "/v1/makers?name=Read%20slowly",
    );
    assert.equal(body["length"], 1);
  });
});

describe("nothing that is typed is lost", () => {
  test("by a reload, or by going away and back", async () => {
    await open("/v1/makers/2#edit");
    await browser.fill("#field-name", "Grace H.");
    await browser.reload();
    await browser.shown("!!document.querySelector('#restored')");
    assert.equal(await value("#field-name"), "Grace H.");
    await browser.click("things");
    await browser.shown("location.pathname === '/v1/things'");
    await browser.evaluate("history.back()");
    await browser.shown("!!document.querySelector('#restored')");
    assert.equal(await value("#field-name"), "Grace H.");
    await browser.click("#discard");
    await browser.shown("!document.querySelector('#restored')");
    assert.equal(await value("#field-name"), "Grace");
  });

  test("nor that an empty text is no value, or that it is one", async () => {
    const json = { name: "Bulb", label: "", alias: "light" };
    const { body } = await server.request("POST", "/v1/things", {
      token,
      json,
    });
    for (const alias of [null, ""]) {
      await open(`/v1/things/${body["id"]}#edit`);
      await browser.fill("#field-alias", "");
      const box = "document.querySelector('#null-alias').checked";
      if (await browser.evaluate<boolean>(box) !== (alias === null)) {
        await browser.click("#null-alias");
      }
      await browser.reload();
      await browser.shown("!!document.querySelector('#restored')");
      await browser.click("#save");
      await browser.shown("!!document.querySelector('#record')");
      assert.equal((await thing(Number(body["id"])))["alias"], alias);
    }
  });

  test("and a change by somebody else keeps what is selected in a table", async () => {
    await open("/v1/makers?limit=5&sortby=id");
    await browser.until("document.querySelector('#live').innerText === 'live'");
    await browser.evaluate(`(() => {
      const cell = document.querySelector("tbody tr").cells[1];
      getSelection().selectAllChildren(cell);
      document.querySelector("tbody th a").focus();
    })()`);
    const selected = await browser.evaluate("String(getSelection())");
    await server.request("PATCH", "/v1/makers/2", {
      token,
      json: { name: "Changed" },
    });
    await browser.until(
      "document.querySelector('tr.changed')?.innerText.includes('Changed')",
    );
    assert.equal(await browser.evaluate("String(getSelection())"), selected);
    assert.equal(
      await browser.evaluate("document.querySelectorAll('tr.changed').length"),
      1,
    );
    assert.equal(
      await browser.evaluate("document.activeElement.innerText"),
      "Ada L.",
    );
  });
});

describe("the exchange is beside the view", () => {
  test("open at first, as wide as it was left, and closed if it was closed", async () => {
    await open("/v1/makers/1");
    const width = () =>
      browser.evaluate<number>("document.querySelector('#wire').offsetWidth");
    assert.equal(await width(), 432);
    await browser.until("!!document.querySelector('.exchange[open] .curl')");
    await browser.evaluate("document.querySelector('.grip').focus()");
    await browser.press("ArrowLeft");
    assert.equal(await width(), 448);
    await browser.reload();
    await browser.shown("!!document.querySelector('#record')");
    assert.equal(await width(), 448);
    await browser.click("#wire-close");
    assert.equal(
      await browser.evaluate("document.activeElement.id"),
      "wire-open",
    );
    await browser.reload();
    await browser.shown("!!document.querySelector('#record')");
    assert.equal(await width(), 0);
    await browser.click("#wire-open");
    assert.equal(await width(), 448);
  });

  test("as a command, and as code in two languages", async () => {
    await open("/v1/makers/1");
    const code = "document.querySelector('.exchange[open] .curl').innerText";
    await browser.until(`/^curl -gi -X GET/.test(${code})`);
    await browser.click("fetch");
    await browser.until(`/^const response = await fetch/.test(${code})`);
    const script = await browser.evaluate<string>(code);
    assert.ok(!script.includes(token));
    const output = execFileSync(process.execPath, [
      "--input-type=module",
      "-e",
      `const token = "${token}";\n${script}`,
    ]);
    assert.match(String(output), /^200 \{"id":1,/);
    await browser.click("Python");
    await browser.until(`/^import os, urllib.request/.test(${code})`);
    const python = await browser.evaluate<string>(code);
    assert.match(python, /"Authorization": "Bearer " \+ os.environ\["TOKEN"\]/);
    if (!existsSync("/usr/bin/python3")) return;
    const env = { ...process.env, TOKEN: token };
    const printed = execFileSync("/usr/bin/python3", ["-c", python], { env });
    assert.match(String(printed), /^200 \{"id":1,/);
  });
});

describe("the page works where others fail", () => {
  test("behind a proxy that compresses, and so weakens entity tags", async () => {
    await open("/v1/makers");
    await browser.evaluate(`(() => {
      const { fetch } = window;
      window.fetch = async (request, init) => {
        const response = await fetch(request, init);
        const etag = response.headers.get("etag");
        if (!etag || etag.startsWith("W/")) return response;
        const headers = new Headers(response.headers);
        headers.set("etag", "W/" + etag);
        const { status } = response;
        const body = status === 304 ? null : response.body;
        return new Response(body, { status, headers });
      };
    })()`);
    await browser.click("Ada L.");
    await browser.shown("!!document.querySelector('#record')");
    await browser.click("Edit");
    await browser.shown("location.hash === '#edit'");
    await browser.fill("#field-name", "Ada");
    await browser.click("#save");
    await browser.shown("document.querySelector('h1').innerText === 'Ada'");
  });

  test("with a plus sign in the address bar", async () => {
    const json = { name: "c+d", label: "" }; // others are imported twice
    await server.request("POST", "/v1/things", { token, json });
    await open("/v1/things?name=c+d");
    assert.equal(await browser.text("#count"), "1 to 1 of 1 record");
    await browser.click("#by-count");
    await browser.shown("/sortby=count/.test(location.search)");
    assert.equal(await browser.text("#count"), "1 to 1 of 1 record");
  });

  test("with a status of its own, which is not a task's", async () => {
    await open("/v1/things");
    await browser.evaluate(
      "window.setInterval = () => { window.isPolled = true; }",
    );
    await browser.click("Lamp");
    await browser.shown(
      "/running/.test(document.querySelector('#record')?.innerText)",
    );
    assert.equal(await browser.evaluate("!window.isPolled"), true);
  });

  test("where the browser stores nothing", { skip: isFirefox }, async () => {
    assert.ok(browser instanceof Browser);
    const { identifier } = await browser.send(
      "Page.addScriptToEvaluateOnNewDocument",
      {
        source: `for (const name of ["sessionStorage", "localStorage"]) {
          Object.defineProperty(window, name, {
            get() { throw new DOMException("blocked", "SecurityError"); },
          });
        }`,
      },
    );
    await browser.open(`${server.origin}/v1/makers`);
    await browser.signIn();
    await browser.click("New maker");
    await browser.shown("location.hash === '#new'");
    await browser.fill("#field-name", "Stored nowhere");
    await browser.click("#save");
    await browser.shown(
      "document.querySelector('h1').innerText === 'Stored nowhere'",
    );
    await browser.send("Page.removeScriptToEvaluateOnNewDocument", {
      identifier,
    });
  });
});
