import { strict as assert } from "node:assert";
import { writeFile } from "node:fs/promises";
import { join } from "node:path";
import { test } from "node:test";
import { createReader, findEtcd, type Flags } from "../src/cli/command-line.ts";
import { parseAnyCommandLine } from "../src/cli/tool-flags.ts";
import { settings } from "../src/config.ts";
import { etcdSettings } from "../src/etcd/settings.ts";
import { loadFeatures } from "../src/features.ts";
import type { Feature } from "../src/api/feature.ts";
import { readText } from "../src/usage.ts";
import { removeFolder, temporaryFolder } from "./harness.ts";

const none = new Map<string, string>();

type Environment = Parameters<typeof createReader>[1];

function readConfig(flags: Flags, environment: Environment) {
  return createReader(flags, environment).read(settings);
}

/** Returns the feature of a setting; undefined if this server lacks it. */
async function featureOf(setting: string): Promise<Feature | undefined> {
  const names: Readonly<Record<string, string>> = {
    METRICS: "metrics",
    REQUIRE_IF_MATCH: "conditional",
  };
  const isSet = (name: string) => name === setting;
  return (await loadFeatures([names[setting] ?? ""], isSet))[0];
}

test("a base URL is a path or complete, and ends in a slash", () => {
  const table: readonly [string, string, string][] = [
    ["/", "", "/"],
    ["/api", "", "/api/"],
    ["/api/v7.1/", "", "/api/v7.1/"],
    ["https://example.com", "https://example.com", "/"],
    ["HTTPS://Example.com:443/api", "https://example.com", "/api/"],
    ["http://[::1]:8080/a/b/", "http://[::1]:8080", "/a/b/"],
  ];
  for (const [value, origin, path] of table) {
    const { BASE_URL } = readConfig(none, { BASE_URL: value });
    assert.deepEqual(BASE_URL, { origin, path }, value);
  }
});

test("an invalid value is reported with the name of its setting", () => {
  const table: readonly [Record<string, string>, RegExp][] = [
    [{ BASE_URL: "api" }, /^BASE_URL: "api"/],
    [{ BASE_URL: "//evil.example/" }, /^BASE_URL/],
    [{ BASE_URL: "/a//b" }, /^BASE_URL/],
    [{ BASE_URL: "/a/../b" }, /^BASE_URL/],
    [{ BASE_URL: "/a?b" }, /^BASE_URL/],
    [{ BASE_URL: "/a b" }, /^BASE_URL/],
    [{ BASE_URL: "ftp://example.com" }, /^BASE_URL/],
    [{ BASE_URL: "http://" }, /^BASE_URL/],
    [{ BASE_URL: "https://example.com/api/?x=1" }, /^BASE_URL/],
    [{ BASE_URL: "http://user@example.com" }, /^BASE_URL/],
    [{ BASE_URL: "http://exa[mple.com" }, /^BASE_URL/],
    [{ BASE_URL: "https://example.com\\api" }, /^BASE_URL/],
    [{ BASE_URL: 'https://a"b.example/' }, /^BASE_URL/],
    [{ DATA_DIR: "etcd://a:2379/zoo" }, /^DATA_DIR: .*not a URL: STORE/],
    [{ PORT: "65536" }, /^PORT: "65536".*0 to 65535/],
    [{ PORT: "0x10" }, /^PORT/],
    [{ PORT: "abc" }, /^PORT/],
    [{ PORT: "-1" }, /^PORT/],
    [{ PORT: "1.5" }, /^PORT/],
    [{ PORT: " 1" }, /^PORT/],
    [{ HOST: "a b" }, /^HOST/],
    [{ LOG: "info,debug" }, /^LOG/],
    [{ LOG: "verbose" }, /^LOG: "verbose".*silent, error, info, debug/],
    [{ ADMIN_PASSWORD: "short" }, /^ADMIN_PASSWORD: its value.*10 to 128/],
    [{ ADMIN_PASSWORD: "correct\thorse" }, /in one line, without control char/],
    [{ JWT_SECRET: "short" }, /^JWT_SECRET: its value.*32 bytes/],
    [{ JWT_SECRET: `${"x".repeat(32)},` }, /^JWT_SECRET/],
    [{ JWT_SECRET: `${"x".repeat(32)},hidden` }, /^JWT_SECRET(?!.*hidden)/],
    [{ SEED: "/nowhere/seed.json" }, /^SEED.*ENOENT/],
  ];
  for (const [environment, message] of table) {
    assert.throws(() => ({ ...readConfig(none, environment) }), {
      name: "UsageError",
      message,
    }, JSON.stringify(environment));
  }
});

test("an invalid value of a feature's setting is reported in the same way", async () => {
  const table: readonly [string, string, RegExp][] = [
    ["RATE_LIMIT", "1.5", /^RATE_LIMIT: "1.5".*0 to 1000000/],
    ["METRICS", "constructor", /^METRICS: .*off or local$/],
    ["REQUIRE_IF_MATCH", "constructor", /^REQUIRE_IF_MATCH: .*0 or 1$/],
    ["TRUST_PROXY", "2", /^TRUST_PROXY: "2".*IP addresses or networks/],
    ["CORS_ORIGINS", "https://a.example/", /^CORS_ORIGINS: .* origins such/],
    ["CORS_ORIGINS", "https://*.a.example", /^CORS_ORIGINS: .*wildcards$/],
    ["CORS_ORIGINS", "*,https://a*.example", /^CORS_ORIGINS: .*wildcards$/],
  ];
  for (const [name, value, message] of table) {
    const feature = await featureOf(name);
    if (feature === undefined) continue;
    const { read } = createReader(none, { [name]: value });
    assert.throws(() => ({ ...read(feature.settings ?? {}) }), {
      name: "UsageError",
      message,
    });
  }
});

test("a message never repeats the password in a URL", () => {
  const table: readonly [string, string][] = [
    ["BASE_URL", "https://me:secret@a.example/?x"],
    ["BASE_URL", "https://me:sec@ret@a.example/?x"],
    ["BASE_URL", "https://secret@a.example/?x"],
    ["BASE_URL", "//me:sec/ret@a.example/"],
  ];
  for (const [name, value] of table) {
    assert.throws(() => ({ ...readConfig(none, { [name]: value }) }), {
      message:
        /^BASE_URL: "(?:https:)?\/\/…@a\.example\/(?:\?x)?" is not allow/,
    }, value);
  }
  const STORE = "etcd://root:secret@a:1/zoo";
  assert.throws(() => createReader(none, { STORE }).read(etcdSettings).STORE, {
    message: /^STORE: "etcd:\/\/…@a:1\/zoo" .* belongs in ETCD_USER/,
  });
});

test("the password for etcd is in a file that a flag or a variable names", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "password");
  await writeFile(file, "secret\n");
  const STORE = "etcd://a/zoo";
  const flags = new Map([["etcd-password-file", file]]);
  for (
    const reader of [
      createReader(flags, { STORE }),
      createReader(none, { STORE, ETCD_PASSWORD_FILE: file }),
      createReader(none, { STORE, ETCD_PASSWORD: "secret" }),
    ]
  ) {
    assert.equal((await findEtcd(reader))?.password, "secret");
  }
  const missing = { STORE, ETCD_PASSWORD_FILE: join(folder, "none") };
  await assert.rejects(findEtcd(createReader(none, missing)), {
    message: /^ETCD_PASSWORD_FILE: .*none/,
  });
});

test("the other secrets too are in files that a flag or a variable names", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "secret");
  const secret = "x".repeat(32);
  await writeFile(file, `${secret}\n`);
  const read = (flags: Flags, environment: Environment) => {
    const { JWT_SECRET, ADMIN_PASSWORD } = readConfig(flags, environment);
    return [JWT_SECRET, ADMIN_PASSWORD];
  };
  const expected = [[secret], secret];
  const variables = { JWT_SECRET_FILE: file, ADMIN_PASSWORD_FILE: file };
  const others = { JWT_SECRET: "short", ADMIN_PASSWORD: "short" };
  assert.deepEqual(read(none, variables), expected);
  assert.deepEqual(read(none, { ...others, ...variables }), expected);
  const flags = new Map([
    ["jwt-secret-file", file],
    ["admin-password-file", file],
  ]);
  const overridden = { JWT_SECRET_FILE: "none", ADMIN_PASSWORD_FILE: "none" };
  assert.deepEqual(read(flags, overridden), expected);
  assert.throws(() => read(none, { JWT_SECRET_FILE: folder }), {
    message: /^JWT_SECRET_FILE: cannot read .*EISDIR/,
  });
  await writeFile(file, "short");
  assert.throws(() => read(none, variables), {
    message: /^JWT_SECRET_FILE: what ".*" contains is not allowed/,
  });
  // No other setting is read from a file that such a variable names.
  assert.equal(readConfig(none, { PORT_FILE: file }).PORT, 3000);
});

test("a file is read without what an editor adds: a byte-order mark, and the newline at its end", async (t) => {
  const folder = await temporaryFolder();
  t.after(() => removeFolder(folder));
  const file = join(folder, "password");
  for (const start of ["", "\ufeff"]) {
    for (const end of ["", "\n", "\r\n"]) {
      await writeFile(file, `${start} a password ${end}`);
      assert.equal(readText("X", file), " a password ");
    }
    await writeFile(file, `${start}password\n\n`);
    assert.equal(readText("X", file), "password\n");
  }
});

test("a setting that is not used is not read", async () => {
  const environment = { READS: "never", PORT: "7", HOST: "a b" };
  assert.equal(readConfig(none, environment).PORT, 7);
  assert.equal(await findEtcd(createReader(none, environment)), undefined);
  const STORE = "etcd://a:1/b";
  await assert.rejects(
    findEtcd(createReader(none, { ...environment, STORE })),
    { message: /^READS: "never"/ },
  );
});

test("an empty variable counts as unset, and a flag overrides its variable", () => {
  const names = ["PORT", "HOST", "BASE_URL", "LOG", "SEED", "JWT_SECRET"];
  const empty = Object.fromEntries(names.map((name) => [name, ""]));
  assert.deepEqual(
    { ...readConfig(none, empty) },
    { ...readConfig(none, {}) },
  );
  assert.equal(readConfig(none, empty).PORT, 3000);
  const { flags } = parseAnyCommandLine(["--port", "0"]);
  assert.equal(readConfig(flags, { PORT: "nonsense" }).PORT, 0);
});

test("a command line is parsed, and its mistakes are reported", () => {
  const { positionals, flags } = parseAnyCommandLine([
    "user",
    "--role=admin",
    "add",
    "--",
    "--ada",
  ]);
  assert.deepEqual(positionals, ["user", "add", "--ada"]);
  assert.deepEqual([...flags], [["role", "admin"]]);
  for (const words of [["-h"], ["serve", "--help"], ["--help", "serve"]]) {
    const { positionals } = parseAnyCommandLine(words);
    assert.deepEqual(positionals, ["help"]);
  }
  const table: readonly [string[], RegExp][] = [
    [["--nope"], /^Unknown option '--nope'$/],
    [["--prot", "1"], /^Unknown option '--prot': did you mean --port\?$/],
    [["--dat-adir", "x"], /: did you mean --data-dir\?$/],
    [["--admin-password", "x"], /: did you mean --admin-password-file\?$/],
    [["-x"], /^Unknown option '-x'$/],
    [["--port"], /^--port must be given once, with a value: --port=…/],
    [["--port", "-1"], /^--port must be .*: --port=… if it begins with "-"$/],
    [["--port="], /--port must be given once, with a value/],
    [["--host", "--port", "1"], /^--host must be given once, with a value/],
    [["--port", "1", "--port", "2"], /--port must be given once, with a value/],
    [["--help=yes"], /^--help takes no value$/],
    [["-h=1"], /^Unknown option '-='$/],
    [["repair", "--dry-run=1"], /^--dry-run takes no value$/],
    [["--__proto__", "x"], /Unknown option '--__proto__'/],
  ];
  for (const [args, message] of table) {
    assert.throws(() => parseAnyCommandLine(args), {
      name: "UsageError",
      message,
    }, args.join(" "));
  }
});

test("networks are addresses with or without a length", async (t) => {
  const feature = await featureOf("TRUST_PROXY");
  if (feature === undefined) return t.skip("no feature trust-proxy");
  const accepted = ["10.0.0.1", "10.0.0.0/8, ::1", "fd00::/8", "0.0.0.0/0"];
  const parse = (TRUST_PROXY: string) =>
    createReader(none, { TRUST_PROXY }).read(feature.settings ?? {})
      .TRUST_PROXY;
  for (const value of accepted) assert.ok(parse(value), value);
  const refused = [
    "1",
    "10.0.0.0/33",
    "10.0.0.0/",
    "10.0.0.0/8/8",
    "10.0.0.0/x",
    "::1/129",
    "10.0.0.1,",
    "fe80::1%eth0",
    "localhost",
    "10.0.0.0/-1",
  ];
  for (const value of refused) {
    assert.throws(() => parse(value), {
      name: "UsageError",
      message: /^TRUST_PROXY: /,
    }, value);
  }
});

test("a store is files, or the URL of a prefix in etcd", () => {
  const storeOf = (STORE: string) =>
    createReader(none, { STORE }).read(etcdSettings).STORE;
  assert.equal(storeOf("file"), null);
  assert.deepEqual(storeOf("etcd://a:1,[::1]:2/zoo/b/"), {
    endpoints: ["http://a:1", "http://[::1]:2"],
    prefix: "zoo/b/",
  });
  assert.deepEqual(storeOf("etcds://a.example/zoo"), {
    endpoints: ["https://a.example:2379"],
    prefix: "zoo/",
  });
  assert.deepEqual(storeOf("etcd://a,b:80,[::1]/zoo")?.endpoints, [
    "http://a:2379",
    "http://b:80",
    "http://[::1]:2379",
  ]);
  const refused = [
    "files",
    "etcd://a:1",
    "etcd://a:1/",
    "etcd:///zoo",
    "etcd://a:1,/zoo",
    "etcd://a:99999/zoo",
    "etcd://me@a:1/zoo",
    "etcd://a:1?/zoo",
    "etcd://a:1/zoo//b",
    "http://a:1/zoo",
  ];
  for (const value of refused) {
    const message = /^STORE: /;
    assert.throws(() => storeOf(value), { name: "UsageError", message }, value);
  }
});
