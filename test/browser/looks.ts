/** How the page looks: on a phone, in the dark, in other scripts, with much of everything; and what axe-core finds. */

import assert from "node:assert/strict";
import type { Site } from "./site.ts";
import type { Tab } from "./tab.ts";

type Test = (tab: Tab, site: Site) => Promise<void>;

/** The views, by their paths. */
export const paths = [
  "/",
  "/v1/zoos",
  "/v1/animals?weight_kg:gte=100&sortby=name&order=desc",
  "/v1/animals?aggregate=count&by=species",
  "/v1/animals?name=nobody",
  "/v1/animals#filter",
  "/v1/animals#numbers",
  "/v1/animals/1",
  "/v1/animals/1#edit",
  "/v1/animals#new",
  "/v1/animals#import",
  "/v1/zoos/1#delete",
  "/v1/zoos/999",
  "/v1/users",
  "/v1/user",
  "/v1/tasks",
  "/v1/openapi.json",
  "/docs",
  "/docs#lessons",
  "/docs#lesson-3",
];

/** Fails if the page is wider than the window. */
async function checkWidth(tab: Tab, path: string) {
  const wide = await tab.run(() =>
    [document.documentElement, document.body, document.querySelector("main")]
      .filter((each) => each && each.scrollWidth > each.clientWidth + 1)
      .map((each) => `${each?.tagName} ${each?.scrollWidth}`)
  );
  assert.deepEqual(wide, [], path);
}

/** The tests by their titles; the tab is signed in as the admin. */
export const looks: Readonly<Record<string, Test>> = {
  async "No view is wider than a phone, and fingers reach everything"(
    tab,
    { origin },
  ) {
    await tab.driver.resize?.(390, 844, "light");
    for (const path of paths) {
      await tab.open(origin + path);
      await checkWidth(tab, path);
      const small = await tab.run(() =>
        Array.from(
          document.querySelectorAll<HTMLElement>("button, .button, input"),
        ).filter((each) =>
          each.checkVisibility() && each.offsetHeight < 40 &&
          !each.matches("[type=checkbox], [type=radio]")
        ).map((each) => each.outerHTML)
      );
      assert.deepEqual(small, [], path);
    }
    await tab.click("The HTTP behind this page");
    await tab.click("#exchanges summary");
    await checkWidth(tab, "drawer");
    await tab.click("Close the drawer");
  },

  async "Dark is dark, light is light, and texts stand out from both"(
    tab,
    { origin },
  ) {
    await tab.open(`${origin}/v1/zoos`);
    const brightness = () =>
      tab.run(() =>
        ["backgroundColor", "color"].map((name) => {
          const style = Reflect.get(getComputedStyle(document.body), name);
          return Number(/\d+/.exec(style)?.[0]); // how red it is
        })
      );
    for (const scheme of ["light", "dark"] as const) {
      await tab.driver.resize?.(1920, 1080, scheme);
      const [paper = 0, ink = 0] = await brightness();
      assert.ok(
        scheme === "light" ? paper - ink > 170 : ink - paper > 170,
        `${scheme} ${paper} ${ink}`,
      );
    }
  },

  async "Names from right to left or with HTML in them are texts"(
    tab,
    { origin, request },
  ) {
    const name = "حديقة الحيوان";
    const city = "<b>Ulm</b><img src=x onerror=alert(1)>";
    const zoo = { name, city, country: "EG" };
    const { id } = await request("POST", "zoos", zoo);
    await tab.open(`${origin}/v1/zoos/${id}`, name, "main h1");
    await tab.sees(city, "#record");
    // Each text has its own direction; a value still begins beside its name.
    const [bidi, gap] = await tab.run(() => {
      const [name, value] = ["dt", "dd"].map((tag) =>
        document.querySelector(`#record ${tag}:nth-of-type(2)`)
      );
      if (!name || !value) return [];
      const { right } = name.getBoundingClientRect();
      const { left } = value.getBoundingClientRect();
      return [getComputedStyle(value).unicodeBidi, left - right];
    });
    assert.equal(bidi, "plaintext");
    assert.ok(Number(gap) < 100, `${gap}`);
    await tab.open(`${origin}/v1/zoos/${id}#edit`);
    assert.equal(await tab.value("#field-name:dir(rtl)"), name);
    assert.equal(await tab.value("#field-city"), city);
  },
};
