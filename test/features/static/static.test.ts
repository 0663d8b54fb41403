/** The files of a front end, for all URLs outside of the API. */

import { strict as assert } from "node:assert";
import { once } from "node:events";
import {
  chmod,
  mkdir,
  open,
  readFile,
  stat,
  symlink,
  truncate,
  utimes,
  writeFile,
} from "node:fs/promises";
import { connect } from "node:net";
import { join } from "node:path";
import { after, before, describe, test } from "node:test";
import { residentMegabytes } from "../../fuzz/watch.ts";
import {
  boundUser,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../../harness.ts";
import { runHere, startHere } from "../../in-process.ts";

const large = 200 << 20;
const html = "<!doctype html><title>app</title>";

let folder: string;
let server: Server;

before(async () => {
  folder = await temporaryFolder();
  const root = join(folder, "public");
  const files: Readonly<Record<string, string>> = {
    "index.html": html,
    "app.js": "export {};",
    "a b ü%.txt": "odd",
    ".secret": "hidden",
    "docs/index.html": "<p>docs",
    "docs/.git/config": "hidden",
    "empty/note.unknown": "",
  };
  for (const [name, text] of Object.entries(files)) {
    await mkdir(join(root, name, ".."), { recursive: true });
    await writeFile(join(root, name), text);
  }
  await writeFile(join(folder, "outside.txt"), "outside");
  await symlink(join(folder, "outside.txt"), join(root, "out.txt"));
  await symlink(folder, join(root, "up"));
  await symlink(join(root, ".secret"), join(root, "shown.txt"));
  await symlink(join(root, "app.js"), join(root, "in.js"));
  await writeFile(join(root, "large.bin"), "");
  await truncate(join(root, "large.bin"), large);
  server = await start({ env: { PUBLIC: root, BASE_URL: "/api/" } });
});

after(async () => {
  await server.stop();
  await removeFolder(folder);
});

const get = (path: string, init: RequestInit = {}) =>
  fetch(server.origin + path, { redirect: "manual", ...init });

/** Sends a target as it is, and returns the whole response. */
async function raw(target: string, method = "GET"): Promise<string> {
  const socket = connect(server.port, "127.0.0.1");
  socket.write(
    `${method} ${target} HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n`,
  );
  let text = "";
  for await (const part of socket.setEncoding("latin1")) text += part;
  return text;
}

describe("files", () => {
  test("of the same length and time are new ones if they were written again, as by an archive of a build", async () => {
    const file = join(folder, "public", "built.html");
    const time = new Date("1985-10-26T08:15:00Z");
    const build = async (text: string) => {
      await writeFile(file, text);
      await utimes(file, time, time);
      return (await stat(file, { bigint: true })).ctimeNs;
    };
    const before = await build("index-AbCd1234.js");
    const first = await get("/built.html");
    assert.equal(await first.text(), "index-AbCd1234.js");
    const etag = first.headers.get("etag") ?? "";
    while (await build("index-EfGh5678.js") === before); // within the precision of the time
    const next = await get("/built.html", {
      headers: { "if-none-match": etag },
    });
    assert.equal(next.status, 200);
    assert.equal(await next.text(), "index-EfGh5678.js");
  });

  test("have types by their names, tags, and no ranges", async () => {
    const response = await get("/app.js");
    assert.equal(response.status, 200);
    assert.equal(await response.text(), "export {};");
    const { headers } = response;
    assert.equal(headers.get("content-type"), "text/javascript; charset=utf-8");
    assert.equal(headers.get("content-length"), "10");
    assert.equal(headers.get("accept-ranges"), "none");
    assert.equal(headers.get("x-content-type-options"), "nosniff");
    const etag = headers.get("etag") ?? "";
    for (const tag of [etag, `"a", ${etag}`, etag.replace("W/", ""), "*"]) {
      const same = await get("/app.js", { headers: { "if-none-match": tag } });
      assert.equal(same.status, 304, tag);
      assert.equal(same.headers.get("etag"), etag);
    }
    // Its tag is weak, so only * matches strongly.
    for (const [tag, status] of [[etag, 412], ['"a"', 412], ["*", 200]]) {
      const kept = await get("/app.js", {
        headers: { "if-match": String(tag) },
      });
      assert.equal(kept.status, status, String(tag));
      await kept.body?.cancel();
    }
    const other = await get("/app.js", { headers: { "if-none-match": '"a"' } });
    assert.equal(other.status, 200);
    await other.body?.cancel();
    const head = await get("/app.js", { method: "HEAD" });
    assert.equal(head.headers.get("content-length"), "10");
    const unknown = await get("/empty/note.unknown");
    assert.equal(
      unknown.headers.get("content-type"),
      "application/octet-stream",
    );
    assert.equal(await unknown.text(), "");
    assert.equal(await (await get("/a%20b%20%C3%BC%25.txt?x=1")).text(), "odd");
    assert.equal((await get("/in.js")).status, 200);
  });

  test("of folders are their index.html, with a slash at the end", async () => {
    assert.equal(await (await get("/")).text(), html);
    assert.equal(await (await get("/docs/")).text(), "<p>docs");
    const moved = await get("/docs?a=1");
    assert.equal(moved.status, 308);
    assert.equal(moved.headers.get("location"), "/docs/?a=1");
    assert.equal((await get("/empty/")).status, 404);
    assert.equal((await get("/empty")).status, 404);
    assert.equal((await get("/app.js/")).status, 404);
  });

  test("are the application for pages that a browser opens", async () => {
    const headers = { accept: "text/html,application/xhtml+xml,*/*;q=0.8" };
    for (const path of ["/users/7", "/empty/", "/nowhere/"]) {
      const page = await get(path, { headers });
      assert.equal(page.status, 200, path);
      assert.equal(await page.text(), html);
    }
    assert.equal((await get("/users/7")).status, 404, "a program gets no page");
    const none = { accept: "text/html;q=0, */*" };
    assert.equal((await get("/users/7", { headers: none })).status, 404);
    assert.equal((await get("/.git/x", { headers })).status, 404);
    const missing = await get("/missing.js", { headers });
    assert.equal(missing.status, 404);
    assert.match(await missing.text(), /"errorCode":40400/);
  });

  test("do not hide the API", async () => {
    const { status, body } = await server.request("GET", "/api/v1/zoos");
    assert.equal(status, 200);
    assert.deepEqual(body, []);
    const unknown = await server.request("GET", "/api/nope");
    assert.equal(unknown.body.errorCode, 40400);
    const page = await get("/api/", { headers: { accept: "text/html" } });
    assert.match(await page.text(), /page\/page\.js/);
  });

  test("are only read", async () => {
    const post = await get("/app.js", { method: "POST", body: "{}" });
    assert.equal(post.status, 405);
    assert.equal(post.headers.get("allow"), "GET, HEAD, OPTIONS");
    assert.equal((await get("/app.js", { method: "PROPFIND" })).status, 501);
    const options = await get("/app.js", { method: "OPTIONS" });
    assert.equal(options.status, 204);
    assert.equal(options.headers.get("allow"), "GET, HEAD, OPTIONS");
  });

  const strange = [
    "/../outside.txt",
    "/%2e%2e/outside.txt",
    "/..%2foutside.txt",
    "/docs/../../outside.txt",
    "/..%5coutside.txt",
    "/..\\outside.txt",
    "/.secret",
    "/%2esecret",
    "/docs/.git/config",
    "/shown.txt",
    "/out.txt",
    "/up/outside.txt",
    "//outside.txt",
    "/docs//index.html",
    "/app.js%00.txt",
    "/app.js%0a",
    "/./app.js",
    "/C:/app.js",
    "/app.js::$DATA",
    `/${"a".repeat(5000)}`,
    "/%ff",
    "/%",
  ];
  for (const target of strange) {
    test(`none is at ${target.slice(0, 30)}`, async () => {
      const text = await raw(target);
      assert.match(text, /^HTTP\/1\.1 (?:400|404) /, text.slice(0, 300));
      assert.doesNotMatch(text, /outside$|hidden$|export \{\}/);
    });
  }

  test("may have any character in their names that the system allows", {
    skip: process.platform === "win32",
  }, async () => {
    const names = ["12:30.txt", "C:/a.txt", "a\\..\\b.txt", "\\\\host\\c.txt"];
    for (const name of names) {
      const file = join(folder, "public", name);
      await mkdir(join(file, ".."), { recursive: true });
      await writeFile(file, name);
      const encoded = name.replaceAll("\\", "%5c");
      for (const path of [name, encoded, encoded.replace(":", "%3A")]) {
        const text = await raw(`/${path}`);
        assert.match(text, /^HTTP\/1\.1 200 /, path);
        assert.ok(text.endsWith(name), path);
      }
    }
    assert.equal((await get("/C:")).status, 404);
    const index = join(folder, "public", "\\example.com", "index.html");
    await mkdir(join(index, ".."));
    await writeFile(index, html);
    const moved = await raw("/\\example.com");
    assert.match(moved, /^location: \/%5Cexample\.com\/\r$/im);
  });

  test("are sent as they are read, and not held in memory", async () => {
    const before = residentMegabytes(server.child.pid ?? 0);
    const response = await get("/large.bin");
    assert.equal(response.headers.get("content-length"), String(large));
    let length = 0;
    let highest = 0;
    for await (const part of response.body ?? []) {
      if (length >> 24 !== (length + part.length) >> 24) {
        highest = Math.max(highest, residentMegabytes(server.child.pid ?? 0));
      }
      length += part.length;
    }
    assert.equal(length, large);
    assert.ok(highest - before < 100, `${highest - before} MB`);
  });

  test("are closed when a client leaves, and cut if they become shorter", async () => {
    const descriptors = join("/proc", String(server.child.pid), "fd");
    for (let count = 0; count < 20; count++) {
      const socket = connect(server.port, "127.0.0.1");
      socket.write("GET /large.bin HTTP/1.1\r\nHost: x\r\n\r\n");
      await once(socket, "data");
      socket.destroy();
      await once(socket, "close");
    }
    if (process.platform === "linux") {
      const { readdir, readlink } = await import("node:fs/promises");
      const isOpen = async () => {
        const names = await readdir(descriptors);
        const links = await Promise.all(
          names.map((name) =>
            readlink(join(descriptors, name)).catch(() => "")
          ),
        );
        return links.some((link) => link.endsWith("large.bin"));
      };
      while (await isOpen());
    }
    const file = join(folder, "public", "shrinking.bin");
    await writeFile(file, "");
    await truncate(file, large);
    const response = await get("/shrinking.bin");
    await truncate(file, 1000);
    await assert.rejects(response.arrayBuffer());
    const handle = await open(file);
    await handle.close();
    assert.equal((await readFile(file)).length, 1000);
  });
});

const prefix = boundUser();
test(
  "a file that the server's user may not read is not there, and a folder that it may not list has its files",
  {
    skip: prefix === undefined,
  },
  async (t) => {
    const site = join(folder, "with closed files");
    for (const path of ["closed.txt", "closed/index.html", "passage/a.txt"]) {
      await mkdir(join(site, path, ".."), { recursive: true });
      await writeFile(join(site, path), "text", {
        mode: path.startsWith("closed") ? 0 : 0o444,
      });
    }
    await chmod(join(site, "passage"), 0o100);
    t.after(() => chmod(join(site, "passage"), 0o700));
    const env = { PUBLIC: site, BASE_URL: "/api/" };
    const other = await start({ env, ...prefix && { prefix } });
    t.after(() => other.stop());
    for (const path of ["/closed.txt", "/closed/", "/closed"]) {
      const response = await fetch(other.origin + path);
      assert.equal(response.status, 404, path);
      assert.match(await response.text(), /"errorCode":40400/);
      const head = await fetch(other.origin + path, { method: "HEAD" });
      assert.equal(head.status, 404, path);
    }
    const served = await fetch(`${other.origin}/passage/a.txt`);
    assert.deepEqual([served.status, await served.text()], [200, "text"]);
  },
);

test("a folder needs a BASE_URL with a path, and must exist", async () => {
  const rows: readonly (readonly [Record<string, string>, RegExp])[] = [
    [
      { PUBLIC: "." },
      /^zoo-api: PUBLIC needs a BASE_URL with a path such as \/api\//,
    ],
    [{ PUBLIC: ".", BASE_URL: "https://a.example" }, /needs a BASE_URL/],
    [
      { PUBLIC: "./nowhere", BASE_URL: "/api/" },
      /^zoo-api: PUBLIC: \.\/nowhere is not a folder/,
    ],
    [{ PUBLIC: "package.json", BASE_URL: "/api/" }, /is not a folder/],
  ];
  for (const [env, expected] of rows) {
    const { code, stderr } = await runHere(["serve", "--port", "0"], { env });
    assert.equal(code, 2, stderr);
    assert.match(stderr, expected);
  }
});

test("neither the data folder nor a key is among the files, whatever their paths look like", async () => {
  const site = join(folder, "site");
  await mkdir(join(site, "made"), { recursive: true });
  await writeFile(join(site, "key.pem"), "");
  await symlink(site, join(folder, "link"));
  await symlink(join(folder, "circle"), join(folder, "circle"));
  const circular = await runHere(["serve", "--port", "0"], {
    env: { PUBLIC: join(folder, "circle"), BASE_URL: "/api/" },
  });
  assert.equal(circular.code, 2, circular.stderr);
  assert.match(circular.stderr, /PUBLIC: \S+circle is not a folder/);
  const refused: readonly Readonly<Record<string, string>>[] = [
    { DATA_DIR: join(site, "made") },
    { DATA_DIR: join(site, "not", "yet") },
    { DATA_DIR: site },
    { DATA_DIR: folder }, // its damaged-… folders hold records
    { DATA_DIR: join(folder, "link", "later") },
    { DATA_DIR: join(folder, "other", "..", "site", "store") },
    { DATA_DIR: join(folder, "d"), TLS_KEY: join(folder, "link", "key.pem") },
  ];
  for (const each of refused) {
    const env = { PUBLIC: site, BASE_URL: "/api/", ...each };
    const { code, stderr } = await runHere(["serve", "--port", "0"], { env });
    assert.equal(code, 2, JSON.stringify(each));
    assert.match(
      stderr,
      /^zoo-api: PUBLIC: .* would show (?:DATA_DIR|TLS_KEY)/m,
    );
  }
  const secret = join(site, "secret.txt");
  await writeFile(secret, "x".repeat(32));
  for (const flag of ["--jwt-secret-file", "--admin-password-file"]) {
    const { code, stderr } = await runHere([
      ...["serve", "--port", "0", flag, secret],
      ...["--data-dir", join(folder, "d")],
    ], { env: { PUBLIC: site, BASE_URL: "/api/" } });
    assert.equal(code, 2, flag);
    assert.match(stderr, /^zoo-api: PUBLIC: .* would show \w+_FILE, /m);
  }
  for (const name of ["JWT_SECRET_FILE", "ADMIN_PASSWORD_FILE"]) {
    const { code, stderr } = await runHere(["serve", "--port", "0"], {
      env: { PUBLIC: site, BASE_URL: "/api/", [name]: secret },
    });
    assert.equal(code, 2, name);
    assert.match(stderr, /^zoo-api: PUBLIC: .* would show \w+_FILE, /m);
  }
  const beside = join(folder, "site-store");
  const env = { PUBLIC: site, BASE_URL: "/api/" };
  const other = await startHere({ env, folder: beside });
  assert.equal((await other.request("GET", "/api/v1")).status, 200);
  await other.stop();
});
