/** How the page looks, in Chromium, and what is served. */

import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import process from "node:process";
import { after, test } from "node:test";
import { gzipSync } from "node:zlib";
import { fileOf, send, temporaryFolder } from "../server.ts";
import { launchChromium } from "./chromium.ts";
import { looks, paths } from "./looks.ts";
import { startSite } from "./site.ts";

/** A declaration with many collections, and with long texts. */
const many = fileOf(
  "many.mjs",
  `export default ({ collection, string, text }) => ({
    collections: Array.from({ length: 300 }, (_, at) => collection({
      name: "things_" + at,
      singular: "thing_" + at,
      access: { read: "anyone", write: "keeper", delete: "keeper" },
      properties: { title: string({ maxLength: 100 }), story: text({ maxLength: 100_000 }) },
    })),
  });`,
);

const chromium = launchChromium();
const [site, crowded] = await Promise.all([
  startSite(),
  startSite({ COLLECTIONS: many, SEED: "" }),
]);
after(() => Promise.all([site, crowded, chromium].map((each) => each.close())));

async function openTab(origin: string) {
  const tab = await chromium.createTab();
  await tab.open(origin);
  await tab.signIn();
  return tab;
}

for (const [title, work] of Object.entries(looks)) {
  test(title, async () => {
    const tab = await openTab(site.origin);
    await work(tab, site);
    tab.check();
  });
}

test("Three hundred collections leave room for the page", async () => {
  const tab = await openTab(crowded.origin);
  for (const width of [390, 1280]) {
    await tab.driver.resize?.(width, 844, "light");
    await tab.open(crowded.origin, /things 299\s+0/, ".list");
    const [top, body, links] = await tab.run(() =>
      ["header", "body", "#links"].map((name) => {
        const element = document.querySelector<HTMLElement>(name);
        return [element?.offsetHeight ?? 0, element?.scrollWidth ?? 0];
      })
    );
    assert.ok((top?.[0] ?? 999) < 120);
    for (const each of [body, links]) assert.ok((each?.[1] ?? 9999) <= width);
  }
  tab.check();
});

test("A text of 100,000 characters is shown, edited and stored", async () => {
  const story = "A long story. ".repeat(7142) + "The end.";
  const thing = { title: "Long", story };
  const { id } = await crowded.request("POST", "things_7", thing);
  const tab = await openTab(crowded.origin);
  const url = `${crowded.origin}/v1/things_7`;
  await tab.open(url, "Long", "main table");
  const height = await tab.run(() =>
    document.querySelector<HTMLElement>("main tbody tr")?.offsetHeight ?? 0
  );
  assert.ok(height < 60, `${height}`);
  await tab.open(`${url}/${id}`, "The end.", "#record");
  await tab.open(`${url}/${id}#edit`);
  assert.equal(await tab.value("#field-story"), story);
  await tab.type("#field-story", `${story.slice(1)}!`);
  await crowded.request("PATCH", `things_7/${id}`, { story: story.slice(2) });
  await tab.click("Save changes", "theirs, stored now");
  const tall = await tab.run(() =>
    document.querySelector("main")?.scrollHeight ?? 9999
  );
  assert.ok(tall < 2000, `${tall}`);
  await tab.click("Apply my change", "PATCH succeeded.");
  const stored = await crowded.request("GET", `things_7/${id}`);
  assert.equal(stored.story, `${story.slice(1)}!`);
  tab.check();
});

test("The first view is two files of at most 70 kB", async () => {
  const headers = { Accept: "text/html" };
  const page = (await send(site.origin, "/", { headers })).text;
  const files = Array.from(
    page.matchAll(/(?:src|href)="(\/page\/[^"]+)"/g),
    ([, path = ""]) => path,
  );
  assert.deepEqual(files, ["/page/page.css", "/page/page.js"]);
  const texts = [page];
  for (const path of files) {
    texts.push((await send(site.origin, path)).text);
  }
  const all = texts.join("");
  const bytes = Buffer.byteLength(all);
  const compressed = texts.reduce(
    (sum, each) => sum + gzipSync(each).length,
    0,
  );
  assert.ok(bytes <= 70_000 && compressed <= 24_000, `${bytes} ${compressed}`);
});

test("The script is checked as strictly as the rest", () => {
  const folder = join(process.cwd(), "build/page");
  mkdirSync(folder, { recursive: true });
  const source = join(process.cwd(), "src/features/page");
  const feature = readFileSync(join(source, "feature.ts"), "utf8");
  const parts = Array.from(
    feature.matchAll(/^ {2}"(\w+\.js)",$/gm),
    ([, name = ""]) => readFileSync(join(source, "assets", name), "utf8"),
  );
  assert.ok(parts.length > 10);
  writeFileSync(join(folder, "page.js"), parts.join("\n"));
  const project = ["tsc", "-p", "src/features/page"];
  execFileSync("npx", project, { stdio: ["ignore", "inherit", "inherit"] });
});

/** The text of axe-core; undefined if it cannot be had. */
function loadAxe(): string | undefined {
  const prefix = temporaryFolder();
  try {
    const words = ["install", "--silent", "--no-save", "--prefix", prefix];
    execFileSync("npm", [...words, "axe-core@4"], { stdio: "ignore" });
  } catch {
    return undefined;
  }
  return readFileSync(join(prefix, "node_modules/axe-core/axe.min.js"), "utf8");
}
const axe = loadAxe();

test(
  "axe-core finds nothing in any view, light or dark",
  { skip: !axe && "NO axe-core: the npm registry cannot be reached" },
  async () => {
    const tab = await openTab(site.origin);
    for (
      const [width, scheme] of [[1280, "light"], [390, "dark"]] as const
    ) {
      await tab.driver.resize?.(width, 844, scheme);
      for (const path of paths) {
        await tab.open(site.origin + path);
        await tab.driver.run(`${axe}; undefined`);
        const found = await tab.driver.run(
          `axe.run(document, { resultTypes: ["violations"] }).then(({ violations }) =>
            violations.map(({ id, nodes }) => id + " " + nodes[0].html))`,
        );
        assert.deepEqual(found, [], `${path} ${scheme}`);
      }
    }
  },
);
