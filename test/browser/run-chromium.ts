/** The views and the forms in Chromium. */

import { after, test } from "node:test";
import { launchChromium } from "./chromium.ts";
import { forms } from "./forms.ts";
import { startSite } from "./site.ts";
import { views } from "./views.ts";

const chromium = launchChromium();
const site = await startSite();
after(() => Promise.all([site.close(), chromium.close()]));

for (const [title, work] of Object.entries({ ...views, ...forms })) {
  test(title, async () => {
    const tab = await chromium.createTab();
    if (title in forms) {
      await tab.open(site.origin);
      await tab.signIn();
    }
    await work(tab, site);
    tab.check();
  });
}
