/** What the page shows of each resource, and of the HTTP behind it. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { send } from "../server.ts";
import { password, type Site } from "./site.ts";
import type { Tab } from "./tab.ts";

type Test = (tab: Tab, site: Site) => Promise<void>;

/** The texts of the cells of a column. */
const column = (tab: Tab, at: number) =>
  tab.run(
    (at) =>
      Array.from(
        document.querySelectorAll<HTMLTableRowElement>("main tbody tr"),
        (row) => row.cells[at]?.innerText ?? "",
      ),
    at,
  );

/** The tests by their titles; each has a tab of its own, in which nobody is signed in. */
export const views: Readonly<Record<string, Test>> = {
  async "The start shows own collections first, with their counts"(
    tab,
    { origin },
  ) {
    await tab.open(
      origin,
      /^zoos\s+\d+\s+animals\s+\d+\s+employees\s+sign in/,
      ".list",
    );
    const text = await tab.text("main");
    assert.ok(text.indexOf("employees") < text.indexOf("openapi"));
    await tab.sees(/zoos\s+animals\s+employees\s+Docs\s+Lessons/, "#links");
  },

  async "A list sorts by the API's own parameters, both ways"(tab, { origin }) {
    await tab.open(`${origin}/v1/zoos`);
    await tab.click("city", "city ↑", "[aria-sort=ascending]");
    assert.match(await tab.address(), /\?sortby=city&order=asc$/);
    assert.equal(await tab.focused(), "by-city");
    const cities = await column(tab, 2);
    assert.deepEqual(cities, cities.toSorted());
    await tab.click("city", "city ↓", "[aria-sort=descending]");
    assert.deepEqual(await column(tab, 2), cities.toReversed());
  },

  async "A list is filtered by a form, and shows the filter"(
    tab,
    { origin },
  ) {
    await tab.open(`${origin}/v1/animals`);
    await tab.click("+ Filter");
    await tab.type("[aria-label=Property]", "weight_kg");
    await tab.type("[aria-label=Comparison]", ":gte");
    await tab.type("[aria-label=Value]", "4000");
    await tab.click("Apply", /weight_kg\s+at least 4000/, ".chip");
    assert.match(await tab.address(), /\?weight_kg:gte=4000$/);
    await tab.click("+ Filter");
    await tab.type("[aria-label=Property]", "species");
    await tab.click("Apply"); // an empty value is null
    await tab.sees("No record matches.");
    assert.match(await tab.address(), /weight_kg:gte=4000&species=null$/);
    await tab.click("species is null", /Elephas|Loxodonta/);
    await tab.click("All records", "20 of 250", "#count");
  },

  async "A list is paged by links of the response, and back works"(
    tab,
    { origin },
  ) {
    await tab.open(`${origin}/v1/animals?sortby=id`);
    await tab.click("Next", /^21$/, "main tbody td");
    assert.match(
      await tab.address(),
      /sortby=id.*offset=20|offset=20.*sortby=id/,
    );
    await tab.click("Last", "10 of 250", "#count");
    await tab.click("100 rows", "100 of 250", "#count");
    assert.match(await tab.address(), /sortby=id&limit=100$/);
    await tab.goBack(2);
    await tab.sees(/^21$/, "main tbody td");
  },

  async "A reference is shown by its title, and leads to its record"(
    tab,
    { origin },
  ) {
    await tab.open(`${origin}/v1/animals?id=1`);
    await tab.click("Zoo Berlin", "Zoo Berlin", "main h1");
    assert.equal(await tab.address(), "/v1/zoos/2");
    await tab.sees(/animals\s+\d+/, ".list");
    await tab.open(`${origin}/v1/animals/1`, "Zoo Berlin", "#record");
  },

  async "Numbers are a table of all groups"(tab, { origin }) {
    await tab.open(`${origin}/v1/animals`);
    await tab.click("+ Numbers");
    const [value, by] = ["#editing select", "#editing label + label select"];
    await tab.type(value, "avg(weight_kg)");
    await tab.type(by, "species");
    await tab.click("#editing .primary", "60 of 60", "#count");
    assert.equal((await column(tab, 0)).length, 60);
    assert.match(await tab.address(), /aggregate=avg\(weight_kg\)&by=species$/);
  },

  async "A visitor is asked to sign in, and told of a wrong password"(
    tab,
    { origin },
  ) {
    await tab.open(
      `${origin}/v1/zoos/1#delete`,
      /^Sign in as a user who may do this$/,
      "#editing",
    );
    await tab.open(`${origin}/v1/employees`, "401", "main h1");
    await tab.click("Sign in");
    await tab.type("#sign-in [name=username]", "admin");
    await tab.type("#sign-in [name=password]", "wrong-password");
    await tab.click("#sign-in .primary", "401", "#sign-in [role=alert]");
    await tab.type("#sign-in [name=password]", password);
    await tab.click("#sign-in .primary", "of 60", "#count");
    await tab.sees(/admin\s+admin/, "#user");
  },

  async "A list and a record show what others change"(tab, site) {
    const zoo = { name: "Live", city: "Ulm", country: "DE" };
    const { id } = await site.request("POST", "zoos", zoo);
    await tab.open(`${site.origin}/v1/zoos?name:starts=Live`);
    await tab.signIn();
    await tab.sees("● live", "#live");
    await site.request("PATCH", `zoos/${id}`, { city: "Live city" });
    await tab.sees("Live city", "main table");
    await tab.sees("Somebody else has changed this.");
    await site.request("POST", "zoos", { ...zoo, name: "Live too" });
    await tab.sees("2 of 2", "#count");
    await tab.click("Live", "Live city", "#record");
    await site.request("DELETE", `zoos/${id}`);
    await tab.sees("410", "main h1");
  },

  async "The drawer explains each exchange, with curl and without secrets"(
    tab,
    site,
  ) {
    await tab.open(`${site.origin}/v1/zoos?name:starts=O'Brien`);
    await tab.signIn();
    await tab.click(
      "#exchanges details:has(.post) summary",
      "POST creates. It is not idempotent",
      "details[open]",
    );
    await tab.sees(`"password": "…"`, "details[open]");
    await tab.sees(`"token": "…"`, "details[open]");
    await tab.click("zoos", "GET is safe", "details[open]");
    await tab.sees("Success; the content is what you asked for.", "#drawer");
    await tab.sees("The number of matching records on all pages.", "#drawer");
    const html = await tab.run(() => document.documentElement.outerHTML);
    assert.doesNotMatch(html, new RegExp(`${password}|eyJ[\\w-]+\\.`));
    await tab.open(
      `${site.origin}/v1/zoos?name:starts=O'Brien`,
      "O%27Brien",
      "details[open] .curl",
    );
    const curl = await tab.text("details[open] .curl");
    const command = curl.replace(/ \\\n *-H 'Authorization[^']*'/, "");
    const output = execFileSync("sh", ["-c", `${command} -s`]).toString();
    assert.match(output, /^HTTP\/1\.1 200 OK[^]*\[\]$/);
  },

  async "The documentation is about this API, and every error has an anchor"(
    tab,
    { origin },
  ) {
    await tab.open(
      `${origin}/docs`,
      `optional: one of "female", "male", "unknown"`,
      "main",
    );
    await tab.sees(/^(?![^]*undefined)/, "main");
    await tab.click("Run", "200 OK", ".example");
    const { errors } = (await send(origin, "/docs")).json;
    for (const [code, message] of Object.entries(errors)) {
      const text = await tab.run(
        (code) => document.getElementById(code)?.parentElement?.innerText,
        code,
      );
      assert.ok(text?.includes(`${message}`), code);
    }
    await tab.open(`${origin}/docs#41200`);
    assert.equal(await tab.focused(), "41200");
    await tab.sees("Twelve lessons", "main");
    const dead = await tab.run(() =>
      Array.from(
        document.querySelectorAll<HTMLAnchorElement>(".contents a"),
      ).filter(({ hash }) =>
        !document.getElementById(decodeURIComponent(hash.slice(1)))
      ).length
    );
    assert.equal(dead, 0);
  },

  async "Twelve lessons watch what is done, and delete their records"(
    tab,
    site,
  ) {
    await tab.open(`${site.origin}/docs#lesson-1`, "Sign in first", "main");
    await tab.signIn();
    const before = await site.request("GET", "zoos?name:starts=Lesson");
    for (let lesson = 1; lesson <= 12; lesson++) {
      await tab.open(
        `${site.origin}/docs#lesson-${lesson}`,
        `${lesson} of 12`,
        "main",
      );
      await tab.sees(/^$/, "main .send"); // first predict
      await tab.click(".choice");
      const steps = await tab.run(() =>
        document.querySelectorAll(".steps li").length
      );
      assert.ok(steps > 0);
      for (let step = 1; step <= steps; step++) {
        await tab.run(() => {
          const send = "li:not(.done) > .send";
          const button = document.querySelector<HTMLElement>(send);
          button?.click();
          button?.click();
        });
        await tab.sees(
          /\d{3}/,
          `.steps li:nth-child(${step}).done .status`,
        );
      }
      await tab.sees(/\w/, ".why");
    }
    await tab.open(`${site.origin}/docs#lessons`, /lesson/, "main");
    assert.equal(
      await tab.run(() => document.querySelectorAll("li.done").length),
      12,
    );
    const after = await site.request("GET", "zoos?name:starts=Lesson");
    assert.deepEqual(after, before);
  },

  async "The page is used by the keyboard alone"(tab, site) {
    const { press = () => Promise.resolve() } = tab.driver;
    await tab.open(`${site.origin}/v1/zoos`);
    await press("Tab");
    assert.equal(await tab.focused(), "Skip to the content");
    await press("Enter");
    assert.equal(await tab.focused(), "main");
    assert.equal(await tab.address(), "/v1/zoos");
    await tab.signIn();
    const tabTo = async (text: string) => {
      for (let count = 0; count < 60; count++) {
        if ((await tab.focused()).startsWith(text)) return;
        await press("Tab");
      }
      assert.fail(`${text} cannot be reached`);
    };
    await tabTo("New zoo");
    await press("Enter");
    await tab.sees("New zoo", "main h1");
    for (
      const [name, text] of [["name", "Keys"], ["city", "K"], ["country", "KE"]]
    ) {
      await tabTo(`field-${name}`);
      for (const key of text ?? "") await press(key);
    }
    await press("Enter");
    await tab.sees("POST succeeded.");
    await tab.sees("Keys", "main h1");
    assert.equal(await tab.focused(), "Keys");
  },
};
