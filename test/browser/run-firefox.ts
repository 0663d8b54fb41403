/** The forms in Firefox. */

import { after, test } from "node:test";
import { launchFirefox } from "./firefox.ts";
import { forms } from "./forms.ts";
import { startSite } from "./site.ts";

const [site, { tab, close }] = await Promise.all([
  startSite(),
  launchFirefox(),
]);
after(() => Promise.all([site.close(), close()]));
await tab.open(site.origin);
await tab.signIn();
for (const [title, work] of Object.entries(forms)) {
  test(title, () => work(tab, site));
}
