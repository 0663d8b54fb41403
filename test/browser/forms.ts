/** What each browser must do with the forms: nothing typed is lost, nothing ambiguous is taken for certain. */

import assert from "node:assert/strict";
import { fileOf, send } from "../server.ts";
import { password, type Site } from "./site.ts";
import { type Tab, until } from "./tab.ts";

type Test = (tab: Tab, site: Site) => Promise<void>;

const zoo = { name: "Zoo", city: "Ulm", country: "DE" };
let last = 0;
/** Creates a zoo whose name nothing else has. */
const createZoo = ({ request }: Site) =>
  request("POST", "zoos", { ...zoo, name: `Zoo ${++last} of the tests` });

const openForm = async (tab: Tab, { origin }: Site, path: string) => {
  await tab.open(`${origin}/v1/${path}`, /./, "#editing .bar");
};

/** The tests by their titles; the tab is signed in as the admin. */
export const forms: Readonly<Record<string, Test>> = {
  async "A form has the fields that OPTIONS says may be written"(tab, site) {
    const { writable } = await site.request("OPTIONS", "animals");
    // Within a zoo, the URL gives the zoo.
    for (const [path, at] of [["zoos/1/animals", 1], ["animals", 0]] as const) {
      await openForm(tab, site, `${path}#new`);
      const names = await tab.run(() =>
        Array.from(
          document.querySelectorAll<HTMLInputElement>("#editing [name]"),
          ({ name }) => name,
        )
      );
      assert.deepEqual(names, writable.slice(at));
    }
    await tab.sees("required: a string of 1 to 100 characters", "#hint-name");
    await tab.sees(
      "optional: a number above 0 up to 200000, or null",
      "#hint-weight_kg",
    );
    assert.equal(await tab.value("#field-sex"), "unknown");
  },

  async "Each error stands beside its field, and the first has the focus"(
    tab,
    site,
  ) {
    await openForm(tab, site, "zoos#new");
    await tab.type("#field-name", "Zoo with errors");
    await tab.type("#field-country", "germany");
    await tab.click("Create", "country", "#error-country");
    await tab.sees("city", "#error-city");
    await tab.sees(/^$/, "#error-name");
    assert.equal(await tab.focused(), "field-city");
    await tab.type("#field-city", "Ulm");
    await tab.type("#field-country", "DE");
    await tab.click("Create", "POST succeeded.");
    await tab.sees("Zoo with errors", "main h1");
  },

  async "A change sends what was changed, once, and an empty field is null"(
    tab,
    site,
  ) {
    const { id } = await createZoo(site);
    await site.request("PATCH", `zoos/${id}`, { opened_on: "2001-02-03" });
    await openForm(tab, site, `zoos/${id}#edit`);
    await tab.type("#field-opened_on", "");
    await tab.type("#field-city", "Bonn");
    await tab.run(async () => {
      const save = document.querySelector<HTMLElement>("#editing .primary");
      while (save?.isConnected) {
        save.click();
        await new Promise((resolve) => setTimeout(resolve));
      }
    });
    await tab.sees("PATCH succeeded.");
    assert.equal(await tab.focused(), "of-city");
    await tab.sees("201", "details[open] summary");
    const { city, opened_on, name } = await site.request("GET", `zoos/${id}`);
    assert.deepEqual([city, opened_on], ["Bonn", null]);
    assert.match(name, /of the tests$/);
    await tab.sees(/PATCH[^]*If-Match: "/, "details[open] section");
    const sent = await tab.text("details[open] section");
    assert.match(sent, /"city": "Bonn",\s*"opened_on": null\s*\}/);
  },

  async "A title is taken only if one record has it"(tab, site) {
    const [one, other] = [await createZoo(site), await createZoo(site)];
    const title = `Twins ${one.id}`;
    for (const { id } of [one, other]) {
      await site.request("PATCH", `zoos/${id}`, { name: title });
    }
    await openForm(tab, site, "animals#new");
    await tab.type("#field-name", "Lena");
    await tab.type("#field-animal_type_id", "1");
    await tab.type("#field-zoo_id", "Nowhere of the tests");
    await tab.click("Create", "No record has this title", "#error-zoo_id");
    await tab.type("#field-zoo_id", title);
    await tab.sees(/^$/, "#error-zoo_id");
    await until(() =>
      tab.run(() => document.querySelectorAll("#list-zoo_id option").length)
        .then((count) => count === 2)
    );
    await tab.click(
      "Create",
      `one of #${one.id}, #${other.id}`,
      "#error-zoo_id",
    );
    await tab.type("#field-zoo_id", `#${other.id}`);
    await tab.click("Create", "POST succeeded.");
    await tab.sees(title, "#record");
  },

  async "A conflict shows both versions, and takes the chosen one"(tab, site) {
    const { id, name } = await createZoo(site);
    await openForm(tab, site, `zoos/${id}#edit`);
    await tab.type("#field-city", "Mine");
    await site.request("PATCH", `zoos/${id}`, { city: "Theirs" });
    await tab.click("Save changes", "Somebody else has changed this record");
    await tab.sees("412", "details[open] summary");
    await tab.sees(/city\s+Ulm\s+Theirs\s+Mine/, "#editing table");
    await tab.sees(/^\s*Cancel\s*$/, ".bar");
    assert.equal(await tab.value("#field-city"), "Mine");
    await tab.click("Apply my change", "PATCH succeeded.");
    assert.equal((await site.request("GET", `zoos/${id}`)).city, "Mine");

    await openForm(tab, site, `zoos/${id}#edit`);
    await tab.type("#field-city", "Mine again");
    await site.request("PATCH", `zoos/${id}`, { city: "Theirs again" });
    await tab.click("Save changes");
    await tab.answer(true);
    await tab.click("Keep theirs", name, "main h1");
    await tab.sees("Theirs again", "#record");
  },

  async "A draft survives a change by others, and a failed save"(tab, site) {
    const { id } = await createZoo(site);
    await openForm(tab, site, `zoos/${id}#edit`);
    await tab.type("#field-city", "Draft");
    await site.request("PATCH", `zoos/${id}`, {
      website: "https://a.example/",
    });
    await tab.sees("Somebody else has changed this.");
    await tab.type("#field-country", "?");
    await tab.click("Save changes", /./, "#error-country, #editing table");
    assert.equal(await tab.value("#field-city"), "Draft");
    assert.equal(await tab.value("#field-country"), "?");
  },

  async "A draft survives a sign-in that has ended"(tab, site) {
    await openForm(tab, site, "zoos#new");
    for (const [name, value] of Object.entries(zoo)) {
      await tab.type(`#field-${name}`, value);
    }
    const [latest] = await site.request("GET", "authorizations?order=desc");
    await site.request("DELETE", `authorizations/${latest.id}`);
    await tab.click("Create", "Your sign-in has ended");
    await tab.sees("401", "#editing [role=alert]");
    assert.equal(await tab.value("#field-city"), "Ulm");
    await tab.signIn();
    await tab.click("Create", "POST succeeded.");
  },

  async "A form in which something is typed is left only on purpose"(
    tab,
    site,
  ) {
    await tab.open(`${site.origin}/v1/animals`);
    await tab.click("zoos", "zoos", "main h1");
    await tab.click("New zoo");
    await tab.click("Cancel"); // nothing is typed: nothing is asked
    await tab.sees("zoos", "main h1");
    await tab.click("New zoo", "New zoo", "main h1");
    const mayClose = () =>
      tab.run(() =>
        document.defaultView?.dispatchEvent(
          new Event("beforeunload", { cancelable: true }),
        )
      );
    assert.equal(await mayClose(), true);
    await tab.type("#field-name", "Draft");
    assert.equal(await mayClose(), false);
    await tab.answer(false);
    await tab.click("animals", /^1$/, "#asked");
    assert.equal(await tab.value("#field-name"), "Draft");
    await tab.run(() => history.back());
    await tab.sees(/^2$/, "#asked");
    assert.equal(await tab.value("#field-name"), "Draft");
    assert.match(await tab.address(), /zoos#new$/);
    await tab.answer(true);
    await tab.click("animals", "animals", "main h1");
    assert.equal(await mayClose(), true);
  },

  async "An import shows its progress, and the lines that were rejected"(
    tab,
    site,
  ) {
    const { id: zoo_id } = await createZoo(site);
    const animal = { zoo_id, animal_type_id: 1, name: "Imported" };
    const lines = [animal, { ...animal, name: 5 }, animal].map((each) =>
      JSON.stringify(each)
    );
    const more = `{\n${"{}\n".repeat(8000)}`;
    const path = fileOf("animals.ndjson", `${lines.join("\n")}\n${more}`);
    await openForm(tab, site, "animals#import");
    await tab.driver.chooseFile("#file", path);
    await tab.click(
      "#editing .primary",
      /status\s+(queued|running)/,
      "#record",
    );
    await tab.sees(/status\s+succeeded[^]*rejected\s+8002/, "#record");
    await tab.sees(/^2\t.*name/m, "main table");
    await tab.sees(/^4\t.*JSON/m, "main table");
    await tab.sees(/imported\s+2/, "#record");
    assert.match(await tab.text("main table"), /^Line\tWhy/);
  },

  async "A deletion says what refers to the record, or takes it along"(
    tab,
    site,
  ) {
    const { id: zoo_id, name } = await createZoo(site);
    const animal = { zoo_id, animal_type_id: 1, name: "Refers" };
    await site.request("POST", "animals", animal);
    await openForm(tab, site, `zoos/${zoo_id}#delete`);
    await tab.sees(name, "main h1");
    await tab.click("#editing .primary", "409", "#editing [role=alert]");
    await tab.click("#cascade");
    await tab.click("#editing .primary", "DELETE succeeded.");
    await tab.open(`${site.origin}/v1/zoos/${zoo_id}`, "410", "main h1");
  },

  // The last one, as Firefox has one tab for all.
  async "Sign out leaves nothing in the storage, on the page or before"(
    tab,
    { origin },
  ) {
    await tab.open(`${origin}/v1/employees`);
    const secret = await tab.text("main tbody th");
    const token = await tab.run(() =>
      /"token":"([^"]+)/.exec(Object.values(sessionStorage).join())?.[1] ?? ""
    );
    assert.ok(secret && token);
    await tab.click("zoos");
    await tab.click("New zoo");
    await tab.type("#field-name", "Typed by the admin");
    await tab.answer(true);
    await tab.click("Sign out", "Sign in", "header");
    for (let step = 0; step < 4; step++) {
      if (step > 0) await tab.goBack();
      const all = await tab.run(() =>
        JSON.stringify([{ ...sessionStorage }, { ...localStorage }]) +
        document.cookie + document.documentElement.outerHTML
      );
      for (const each of [secret, token, "Typed by the admin", password]) {
        assert.ok(!all.includes(each), each);
      }
      assert.match(all, /^\[\{\},\{\}\]/);
    }
    const headers = { Authorization: `Bearer ${token}` };
    assert.equal((await send(origin, "/v1/user", { headers })).status, 401);
  },
};
