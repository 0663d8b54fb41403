/**
 * The page with servers that make it hard: thousands of records, a stream that
 * breaks, a sign-in that ends, preconditions that are required, and nginx.
 */

import { strict as assert } from "node:assert";
import { execFileSync, spawn } from "node:child_process";
import { once } from "node:events";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, afterEach, before, describe, test } from "node:test";
import type { TestContext } from "node:test";
import {
  adminPassword,
  freePort,
  removeFolder,
  root,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { Browser } from "./chromium.ts";

const zoos = ["Ueno Zoo", "Artis"].map((name) => ({
  name,
  city: "Somewhere",
  country: "JP",
}));
const animals = Array.from({ length: 3000 }, (_, at) => ({
  zoo_id: 1,
  animal_type_id: 1 + at % 7,
  name: `Animal ${at}`,
  weight_kg: at + 0.5,
}));

let browser: Browser;
before(async () => {
  browser = await Browser.start();
});
after(() => browser?.stop());
afterEach(() => assert.deepEqual(browser.complaints, []));

/** Starts a server with records, which ends with the test. */
async function startFor(
  t: Pick<TestContext, "after">,
  options: Parameters<typeof start>[0] = {},
): Promise<Server> {
  const seed = { zoos, animals: animals.slice(0, 3), employees: [] };
  const server = await start({ seed, ...options });
  t.after(() => server.stop());
  return server;
}

const rows = 'document.querySelectorAll("tbody tr").length';
const liveText = 'document.querySelector("#live").innerText';

describe("a collection of thousands of records", () => {
  let server: Server;
  before(async () => {
    server = await start({ seed: { zoos, animals, employees: [] } });
  });
  after(() => server?.stop());

  test("is shown page by page, never as a whole", async () => {
    await browser.open(`${server.origin}/v1/animals`);
    assert.equal(await browser.text("#count"), "1 to 20 of 3000 records");
    await browser.fill("#page-size", "100");
    await browser.shown(`${rows} === 100`);
    const elements = await browser.evaluate<number>(
      "document.querySelectorAll('*').length",
    );
    assert.ok(elements < 3000, `${elements} elements`);
    await browser.click("#page-last");
    await browser.shown(
      "document.querySelector('#count').innerText === '2901 to 3000 of 3000 records'",
    );
    await browser.click("Filter");
    await browser.fill("[aria-label='weight_kg: comparison']", ":lt");
    await browser.fill("[aria-label='weight_kg: value']", "50");
    await browser.click("Apply");
    await browser.shown(
      "document.querySelector('#count').innerText === '1 to 50 of 50 records'",
    );
  });

  test("keeps the focus when it is sorted, and the place when one comes back", async () => {
    await browser.open(`${server.origin}/v1/animals?limit=100`);
    await browser.evaluate("document.querySelector('#by-name').focus()");
    await browser.press("Enter");
    await browser.shown("/sortby=name/.test(location.search)");
    const focused = "document.activeElement.id";
    assert.equal(await browser.evaluate(focused), "by-name");
    const sorted = "[...document.querySelectorAll('[aria-sort]')]";
    const described = `${sorted}.map((each) =>
      each.innerText + each.getAttribute("aria-sort")).join()`;
    assert.equal(await browser.evaluate(described), "name ↑ascending");
    const scroll = "document.querySelector('#records')";
    await browser.evaluate(`${scroll}.scrollTo(0, 1500)`);
    await browser.until("history.state?.rows === 1500");
    await browser.evaluate("document.querySelector('tbody a').click()");
    await browser.shown("!!document.querySelector('#record')");
    await browser.evaluate("history.back()");
    await browser.shown(`${rows} === 100`);
    await browser.until(`${scroll}.scrollTop === 1500`);
    await browser.open(
      `${server.origin}/v1/animals?sortby=animal_type_id,name&order=asc,desc`,
    );
    assert.equal(
      await browser.evaluate(described),
      "animal_type_id ↑ascending",
    );
    assert.match(await browser.text("thead"), /name ↓/);
  });

  test("is deleted with the record that they refer to as a task, whose progress is shown", async () => {
    await browser.open(`${server.origin}/v1/zoos/1`);
    await browser.signIn();
    await browser.click("Delete…");
    await browser.click("#delete");
    await browser.until(
      "/^409/.test(document.querySelector('dialog .wrong').innerText)",
    );
    await browser.click("#cascade");
    await browser.click("#delete");
    await browser.shown(
      "/tasks/.test(location.pathname) && /succeeded/.test(document.querySelector('#record').innerText)",
    );
    assert.match(await browser.text(), /succeeded\s+1 of 1 deleted/);
    const { status } = await server.request("GET", "/v1/zoos/1");
    assert.equal(status, 410);
  });
});

test("a stream that breaks is visible, and nothing is missed meanwhile", async (t) => {
  const port = await freePort();
  const server = await startFor(t, { port });
  await browser.open(`${server.origin}/v1/zoos`);
  await browser.signIn();
  await browser.until(`${liveText} === "live"`);
  const stream = [`${server.origin}/v1/events`];
  await browser.send("Network.setBlockedURLs", { urls: stream });
  await server.end();
  const again = await startFor(t, {
    port,
    folder: server.folder,
    seed: undefined,
  });
  await browser.until(`/not live/.test(${liveText})`);
  const token = await again.signIn();
  const json = { name: "Changed meanwhile" };
  await again.request("PATCH", "/v1/zoos/2", { token, json });
  assert.doesNotMatch(await browser.text("tbody"), /meanwhile/);
  await browser.send("Network.setBlockedURLs", { urls: [] });
  await browser.until(`${liveText} === "live"`);
  await browser.until(
    "document.querySelector('tr.changed')?.innerText.includes('meanwhile')",
  );
  assert.equal(
    await browser.evaluate("document.querySelectorAll('tr.changed').length"),
    1,
  );
});

test("a stream that is refused is not requested again", async (t) => {
  const server = await startFor(t);
  for (const status of [403, 404]) {
    await browser.open(`${server.origin}/v1/zoos`);
    if (status === 403) await browser.signIn();
    await browser.until(`${liveText} === "live"`);
    await browser.evaluate(`(() => {
      const { fetch } = globalThis;
      globalThis.fetch = (url, init) =>
        String(url).endsWith("/v1/events")
          ? Promise.resolve(new Response("", { status: ${status} }))
          : fetch(url, init);
      document.dispatchEvent(new Event("visibilitychange"));
    })()`);
    await browser.until(`${liveText} === "not live"`);
  }
});

/** Ends the sign-in of the page from elsewhere. */
async function endSignIn(server: Server): Promise<void> {
  const token = await browser.evaluate<string>(
    `JSON.parse(sessionStorage.getItem("/ authorization")).token`,
  );
  const { body } = await server.request("GET", "/v1/authorizations", { token });
  await server.request("DELETE", body[0]?.url ?? "", { token });
}

test("a sign-in that ends loses nothing of what is being typed", async (t) => {
  const server = await startFor(t);
  await browser.open(`${server.origin}/v1/zoos/1`);
  await browser.signIn();
  await browser.click("Edit");
  await browser.fill("#field-name", "Typed before");
  await endSignIn(server);
  await browser.click("#save");
  await browser.until(
    "/revoked|ended/.test(document.querySelector('#editing .wrong').innerText)",
  );
  await browser.signIn();
  await browser.click("#save");
  await browser.shown(
    "/^Typed before/.test(document.querySelector('h1')?.innerText)",
  );
});

test("a sign-in that has ended is seen by whoever creates a record, without events too", async (t) => {
  const server = await startFor(t, { env: { FEATURES: "page,imports" } });
  await browser.open(`${server.origin}/v1/zoos`);
  await browser.signIn();
  for (const form of ["New zoo", "Import…"]) {
    await browser.click(form);
    await browser.shown("!!document.querySelector('#editing')");
    const isImport = form === "Import…";
    if (isImport) {
      const folder = await temporaryFolder();
      t.after(() => removeFolder(folder));
      const file = join(folder, "zoos.ndjson");
      await writeFile(file, `${JSON.stringify(zoos[0])}\n`);
      await browser.choose("#file", file);
      await browser.until("document.querySelector('#preview table')");
    } else {
      await browser.fill("#field-name", "Typed before");
      await browser.fill("#field-city", "Bern");
      await browser.fill("#field-country", "CH");
    }
    await endSignIn(server);
    await browser.click(".bar .primary");
    await browser.until(
      "/^401/.test(document.querySelector('#editing .wrong')?.innerText)",
    );
    await browser.signIn();
    await browser.click(".bar .primary");
    await browser.shown(
      isImport
        ? "/succeeded/.test(document.querySelector('#record')?.innerText)"
        : "/^Typed before/.test(document.querySelector('h1')?.innerText)",
    );
    await browser.open(`${server.origin}/v1/zoos`);
  }
});

test("each user can change the own password, and is asked to sign in again", async (t) => {
  const server = await startFor(t);
  const json = { username: "erin", password: adminPassword, role: "viewer" };
  const token = await server.signIn();
  await server.request("POST", "/v1/users", { token, json });
  const changed = "another long password";
  for (const username of ["erin", "admin"]) {
    await browser.open(`${server.origin}/v1/user`);
    await browser.click("Sign in");
    await browser.fill("dialog [name=username]", username);
    await browser.fill("dialog [name=current-password]", adminPassword);
    await browser.press("Enter");
    await browser.click("Edit");
    await browser.fill("#field-password", changed);
    await browser.click("#save");
    await browser.until(
      "document.querySelector('#message').innerText === 'Changed: sign in again.'",
    );
    await browser.until(
      "document.querySelector('#who').innerText === 'Sign in'",
    );
    assert.equal(
      await browser.evaluate("location.pathname + location.hash"),
      "/v1/user",
    );
    await server.signIn(username, changed);
  }
  // Chromium's hint that a form with a password could name the user.
  for (const each of browser.complaints.splice(0)) {
    assert.match(each, /username fields/);
  }
});

test("a new record goes to the collection, whatever part of it the view shows", async (t) => {
  const server = await startFor(t);
  await browser.open(`${server.origin}/v1/zoos/2/animals?sex=female`);
  await browser.signIn();
  await browser.click("New animal");
  await browser.shown("location.hash === '#new'");
  assert.match(await browser.text("#editing"), /zoo\s*Artis, by the URL/);
  await browser.fill("#field-animal_type_id", "1");
  await browser.fill("#field-name", "Born here");
  await browser.click("#save");
  await browser.shown(
    "/Born here/.test(document.querySelector('h1')?.innerText)",
  );
  await browser.click("Edit");
  await browser.shown("location.hash === '#edit'");
  await browser.evaluate("document.querySelector('#field-zoo_id').focus()");
  await browser.until(
    "document.querySelectorAll('#choices-zoo_id option').length === 2",
  );
  const choices =
    "[...document.querySelectorAll('#choices-zoo_id option')].map(({ value }) => value)";
  assert.match(String(await browser.evaluate(choices)), /Ueno Zoo/);
});

test("a title of digits is the record of this title, never that of this id", async (t) => {
  const names = Array.from({ length: 200 }, (_, at) => `${200 - at}`);
  const numbered = [...names, "Artis"]
    .map((name) => ({ name, city: "Somewhere", country: "NL" }));
  const server = await startFor(t, {
    seed: { zoos: numbered, animals: [], employees: [] },
  });
  await browser.open(`${server.origin}/v1/animals`);
  await browser.signIn();
  const zooOf = async (name: string) => {
    await browser.shown(
      `document.querySelector('h1')?.innerText === ${JSON.stringify(name)}`,
    );
    const { body } = await server.request("GET", `/v1/animals?name=${name}`);
    return body[0]?.["zoo_id"];
  };
  const options =
    "[...document.querySelectorAll('#choices-zoo_id option')].map(({ value }) => value)";
  await browser.click("New animal");
  await browser.fill("#field-animal_type_id", "1");
  await browser.fill("#field-name", "Waited");
  await browser.fill("#field-zoo_id", "2"); // 20 others contain it, and come first
  await browser.until(`${options}.includes("2")`);
  await browser.click("#save");
  assert.equal(await zooOf("Waited"), 199);

  await browser.open(`${server.origin}/v1/animals#new`);
  await browser.fill("#field-animal_type_id", "1");
  await browser.fill("#field-name", "Fast");
  await browser.fill("#field-zoo_id", "3");
  await browser.press("Enter");
  assert.equal(await zooOf("Fast"), 198);

  await browser.click("Edit");
  await browser.until("document.querySelector('#field-zoo_id')?.value === '3'");
  await browser.fill("#field-zoo_id", "198"); // its id, but the title of another
  await browser.reload();
  await browser.shown("!!document.querySelector('#restored')");
  await browser.click("#save");
  assert.equal(await zooOf("Fast"), 3);

  await browser.click("Edit");
  await browser.fill("#field-name", "Chosen");
  await browser.fill("#field-zoo_id", "201");
  await browser.click("#save");
  await browser.until("document.querySelector('#error-zoo_id').innerText");
  await browser.until(`${options}.includes("Artis (201)")`);
  await browser.fill("#field-zoo_id", "Artis (201)");
  await browser.reload();
  await browser.until(
    "document.querySelector('#field-zoo_id')?.value === 'Artis'",
  );
  await browser.click("#save");
  assert.equal(await zooOf("Chosen"), 201);
});

test("times and truth values have controls of their own, also in forms", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "collections.mjs");
  await writeFile(
    file,
    `export default ({ collection, timestamp, boolean, optional }) => ({
      title: "Walks", roles: ["walker", "admin"],
      collections: [collection({
        name: "walks", singular: "walk",
        access: { read: "anyone", write: "walker", delete: "walker" },
        properties: { began_at: timestamp(), is_dry: boolean(), is_long: optional(boolean()) },
      })],
    })`,
  );
  const server = await startFor(t, {
    env: { COLLECTIONS: file },
    seed: undefined,
  });
  const zone = (timezoneId: string) =>
    browser.send("Emulation.setTimezoneOverride", { timezoneId });
  await zone("Europe/Berlin");
  t.after(() => zone(""));
  await browser.open(`${server.origin}/v1/walks#new`);
  await browser.signIn();
  await browser.fill("#field-began_at", "2026-07-01T12:30:00.250");
  await browser.fill("#field-is_dry", "false");
  await browser.click("#save");
  await browser.shown("!!document.querySelector('#record')");
  assert.match(await browser.text("#record"), /12:30:00.*GMT\+2/);
  const { body } = await server.request("GET", "/v1/walks/1");
  assert.deepEqual(
    [body["began_at"], body["is_dry"], body["is_long"]],
    ["2026-07-01T10:30:00.250Z", false, null],
  );
  // 2:30 comes twice on that day: a control for local times cannot name the second.
  const twice = "2026-10-25T01:30:00.000Z";
  const url = `${server.origin}/v1/walks?began_at:lt=${twice}&is_dry=false`;
  await browser.open(url);
  await browser.click("Filter");
  await browser.click("Apply");
  await browser.shown("!document.querySelector('.filters[open]')");
  const parameters = new URLSearchParams(
    await browser.evaluate<string>("location.search"),
  );
  assert.deepEqual(Object.fromEntries(parameters), {
    "began_at:lt": twice,
    is_dry: "false",
  });
  assert.equal(await browser.text("#count"), "1 to 1 of 1 record");
});

test("a property named like a parameter is a filter like any other", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "collections.mjs");
  await writeFile(
    file,
    `export default ({ collection, string }) => ({
      title: "Books", roles: ["reader", "admin"],
      collections: [collection({
        name: "books", singular: "book",
        access: { read: "anyone", write: "reader", delete: "reader" },
        properties: { by: string({ maxLength: 9 }) },
      })],
    })`,
  );
  const server = await startFor(t, {
    env: { COLLECTIONS: file },
    seed: undefined,
  });
  const token = await server.signIn();
  for (const by of ["Ada", "Kim"]) {
    await server.request("POST", "/v1/books", { token, json: { by } });
  }
  await browser.open(`${server.origin}/v1/books?by=Kim`);
  assert.equal(await browser.text("#count"), "1 to 1 of 1 record");
  assert.match(await browser.text(".chip"), /by is Kim/);
  assert.doesNotMatch(await browser.text(), /Numbers/);
  await browser.click("Clear");
  await browser.shown(`${rows} === 2`);
});

test("a request can be changed and sent again: 428, 406, 304 and 410 are seen", async (t) => {
  const server = await startFor(t, { env: { REQUIRE_IF_MATCH: "1" } });
  await browser.open(`${server.origin}/v1/zoos/2`);
  await browser.signIn();
  await browser.shown(
    "/Delete/.test(document.querySelector('main').innerText)",
  );
  await browser.evaluate(
    `[...document.querySelectorAll(".exchange summary")].find((each) => /^POST/.test(each.innerText)).parentElement.open = true`,
  );
  await browser.until("!!document.querySelector('.curl')");
  const shownCurl =
    `[...document.querySelectorAll(".exchange")].find((each) => /^POST/.test(each.innerText))?.querySelector(".curl")?.innerText`;
  const curl = String(await browser.until(shownCurl));
  assert.ok(!curl.includes(adminPassword));
  const env = { ...process.env, PASSWORD: adminPassword };
  const output = execFileSync("sh", ["-c", curl], { env, stdio: "pipe" });
  assert.match(String(output), /^HTTP\/1\.1 201 /);
  const repeat = async (request: string, status: number) => {
    // The latest exchange, once nothing is being sent.
    await browser.until(`(() => {
      const first = document.querySelector(".exchange");
      first.open = true;
      first.querySelector(".repetition").open = true;
      return !!first.querySelector(".repetition textarea") &&
        !document.querySelector(".repetition [aria-busy]");
    })()`);
    await browser.evaluate(`(() => {
      const area = document.querySelector(".exchange .repetition textarea");
      area.value = ${JSON.stringify(request)};
      area.parentElement.querySelector("button").click();
    })()`);
    const shown = `[...document.querySelectorAll(".exchange")].find((each) =>
        each.querySelector(".meaning") && each.querySelector(".status").innerText === "${status}")`;
    await browser.until(`!!${shown}?.querySelector(".meaning")`);
    return await browser.evaluate<string>(
      `${shown}.querySelector(".meaning").innerText`,
    );
  };
  const patch = "PATCH /v1/zoos/2\nContent-Type: application/json";
  const body = '\n\n{"name":"Blind"}';
  assert.match(await repeat(patch + body, 428), /send If-Match/);
  const stale = `${patch}\nIf-Match: "old"${body}`;
  assert.match(
    await repeat(stale, 412),
    /record has changed since you read it/,
  );
  const image = "GET /v1/zoos/2\nAccept: image/png";
  assert.match(await repeat(image, 406), /formats that Accept allows/);
  const { headers } = await server.request("GET", "/v1/zoos/2");
  const etag = headers.get("etag");
  const conditional = `GET /v1/zoos/2\nIf-None-Match: ${etag}`;
  assert.match(await repeat(conditional, 304), /still current/);
  const remove = `DELETE /v1/zoos/2\nIf-Match: ${etag}`;
  assert.equal(
    await repeat(remove, 204),
    "Success; the response has no content.",
  );
  await browser.shown("document.querySelector('h1').innerText === '410 Gone'");
  await browser.until(
    "/never be reused/.test(document.querySelector('#meaning').innerText)",
  );
  await browser.evaluate(`(() => {
    const area = document.querySelector(".repetition textarea");
    area.value = "GET /v1/zoos\\n\\n{}";
    area.parentElement.querySelector("button").click();
  })()`);
  await browser.until(
    "/TypeError/.test(document.querySelector('.repetition .wrong').textContent)",
  );
});

test("the page works behind nginx, as the README configures it", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const port = await freePort();
  const origin = `https://localhost:${port}`;
  const server = await startFor(t, { args: ["--base-url", `${origin}/api/`] });
  await startNginx(t, { folder, port, server });
  await browser.send("Security.enable");
  await browser.send("Security.setIgnoreCertificateErrors", { ignore: true });
  await browser.open(`${origin}/api/`);
  await browser.signIn();
  await browser.click("zoos");
  await browser.shown(`${rows} === 2`);
  await browser.until(`${liveText} === "live"`);
  await browser.evaluate("document.querySelector('tbody th a').click()");
  await browser.shown("!!document.querySelector('#record')");
  await browser.click("Edit");
  await browser.fill("#field-city", "Tokyo");
  await browser.click("#save");
  await browser.shown(
    "/Tokyo/.test(document.querySelector('#record')?.innerText)",
  );
  const token = await browser.evaluate<string>(
    `JSON.parse(sessionStorage.getItem("/api/ authorization")).token`,
  );
  const change = await server.request("PATCH", "/api/v1/zoos/1", {
    token,
    json: { city: "Taito" },
  });
  assert.equal(change.status, 201);
  await browser.until(
    "document.querySelector('#record.changed')?.innerText.includes('Taito')",
  );
  await browser.open(`${origin}/api/docs#41000`);
  assert.equal(await browser.evaluate("document.activeElement.id"), "41000");
  assert.match(await browser.text("#roles"), /zoos\s+anyone\s+keeper\s+keeper/);
  const example = await browser.text("#resource-zoos .pair");
  assert.match(
    example,
    /POST \/api\/v1\/zoos[^]*"url": "[^"]*\/api\/v1\/zoos\/1"/,
  );
  const signingIn = await browser.text("#signing-in");
  assert.ok(signingIn.includes(`curl ${origin}/api/v1/authorizations `));
  for (const url of browser.requested) {
    assert.ok(url.startsWith(`${origin}/api/`), url);
  }
});

/** Starts nginx with the server block of the README, its paths and ports replaced. */
async function startNginx(
  t: TestContext,
  { folder, port, server }: {
    readonly folder: string;
    readonly port: number;
    readonly server: Server;
  },
): Promise<void> {
  const files = ["-keyout", `${folder}/api.key`, "-out", `${folder}/api.crt`];
  const kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"];
  const args = ["req", "-x509", "-nodes", "-subj", "/CN=localhost"];
  execFileSync("openssl", [...args, ...kind, ...files], { stdio: "pipe" });
  const readme = await readFile(join(root, "README.md"), "utf8");
  const [, block = ""] = /^```nginx\n([^]*?)^```$/m.exec(readme) ?? [];
  const temporary = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"]
    .map((kind) => `${kind}_temp_path ${folder}/${kind};`).join("\n");
  const file = join(folder, "nginx.conf");
  const replaced = block
    .replace("listen 443", `listen 127.0.0.1:${port}`)
    .replaceAll("/etc/ssl/api", `${folder}/api`)
    .replace("127.0.0.1:3000", `127.0.0.1:${server.port}`);
  await writeFile(
    file,
    `${process.getuid?.() === 0 ? "user root;" : ""}
daemon off; master_process off;
pid ${folder}/nginx.pid; error_log ${folder}/error.log;
events {}
http { access_log off;
${temporary}
${replaced}
}`,
  );
  const child = spawn("nginx", ["-c", file], { stdio: "inherit" });
  const kill = () => child.kill("SIGKILL");
  process.once("exit", kill);
  t.after(async () => {
    process.off("exit", kill);
    const ended = once(child, "exit");
    kill();
    await ended;
  });
  const options = ["-ks", "--retry", "50", "--retry-connrefused"];
  const wait = ["--retry-delay", "1", "-o", "/dev/null"];
  const url = `https://localhost:${port}/api/health`;
  execFileSync("curl", [...options, ...wait, "-4", url]);
}
