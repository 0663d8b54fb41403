/** The README is true: what it says to type is typed, and what it says comes back does. */

import { strict as assert } from "node:assert";
import { execFile } from "node:child_process";
import { access, cp, readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import { after, before, describe, test } from "node:test";
import { promisify } from "node:util";
import {
  adminPassword,
  removeFolder,
  request,
  root,
  run,
  type Server,
  start,
  temporaryFolder,
} from "./harness.ts";

const readme = await readFile(join(root, "README.md"), "utf8");

/** The fenced blocks of one language in one section. */
function blocks(section: string, language: string): string[] {
  const from = readme.indexOf(`\n## ${section}\n`);
  assert.ok(from >= 0, `README has no section "${section}"`);
  const to = readme.indexOf("\n## ", from + 1);
  const text = readme.slice(from, to < 0 ? undefined : to);
  const fence = new RegExp("^```" + language + "\\n([^]*?)^```$", "gm");
  return Array.from(text.matchAll(fence), ([, block = ""]) => block);
}

/** Runs a script as a person's shell would; its output, error output included. */
async function shell(
  script: string,
  env: Readonly<Record<string, string>> = {},
): Promise<string> {
  const { stdout, stderr } = await promisify(execFile)(
    "bash",
    ["-c", script],
    { env: { ...process.env, ...env }, cwd: root },
  );
  return stdout + stderr;
}

describe("the tour", () => {
  let server: Server;
  before(async () => {
    server = await start({ args: ["--seed", join(root, "data/seed.json")] });
  });
  after(() => server.stop());

  test("answers every command with the status that its comment names", async () => {
    const sections = ["A tour", "The web's own rules"];
    const script = sections.flatMap((section) => blocks(section, "sh")).join(
      "\n",
    )
      .replaceAll("http://localhost:3000", server.origin)
      // Between the commands, lines that tell where an answer begins.
      .replace(/^# (\d{3}): .*$/gm, "\nprintf '\\n=== $1 ===\\n'")
      .replaceAll("curl -i", "curl -is");
    const output = await shell(script, { ADMIN_PASSWORD: adminPassword });
    const answers = output.split(/\n=== (?=\d{3} ===\n)/).slice(1);
    assert.equal(answers.length, 38);
    for (const answer of answers) {
      const [, expected, status] =
        /^(\d{3}) ===\nHTTP\/1\.1 (\d{3}) /.exec(answer) ?? [];
      assert.equal(status, expected, answer);
    }
    assert.match(
      output,
      /"errors":\[.*"country".*"tigers"|"tigers".*"country"/,
    );
    assert.match(output, /34 animals and 8 employees/);
    assert.match(output, /^Location: \/v1\/tasks\/1\r$/m);
  });
});

test("every rule's code and test is where the table says", async () => {
  const rows = readme.matchAll(
    /\| `([\w/-]+\.ts)` +\| `([\w/-]+\.test\.ts)` +\|$/gm,
  );
  let count = 0;
  for (const [, code = "", held = ""] of rows) {
    await access(join(root, "src", code));
    await access(join(root, "test", held));
    count++;
  }
  assert.equal(count, 22);
});

test("the fourth collection is served, checked, filtered and linked like the others", async () => {
  const folder = await temporaryFolder();
  try {
    await cp(join(root, "src"), join(folder, "src"), { recursive: true });
    await cp(join(root, "package.json"), join(folder, "package.json"));
    const [declaration = ""] = blocks("Serve your own collections", "ts");
    assert.ok(declaration.split("\n").length < 16);
    const file = join(folder, "src/collections.ts");
    const before = await readFile(file, "utf8");
    const list = "collections = [zoos, animals, employees";
    const served = before
      .replace("/** The collections in the order", `${declaration}\n$&`)
      .replace(list, `${list}, visits`);
    assert.notEqual(served, before);
    await writeFile(file, served);
    await tryVisits(join(folder, "src/main.ts"));
  } finally {
    await removeFolder(folder);
  }
});

async function tryVisits(main: string): Promise<void> {
  const server = await start({
    main,
    args: ["--seed", join(root, "data/seed.json")],
  });
  try {
    const token = await server.signIn();
    const { body: home } = await server.request("GET", "/");
    assert.equal(home.visits_url, "/v1/visits");

    const anonymous = await server.request("GET", home.visits_url);
    assert.equal(anonymous.status, 401);

    const made = await server.request("POST", "/v1/animals/3/visits", {
      token,
      json: { reason: "illness", visited_on: "2026-05-01", invoice: "A-1" },
    });
    assert.equal(made.status, 201, made.text);
    const { created_at, updated_at, link, ...visit } = made.body;
    assert.equal(created_at, updated_at);
    assert.equal(link.href, "/v1/animals/3/visits");
    assert.deepEqual(visit, {
      id: 1,
      animal_id: 3,
      reason: "illness",
      visited_on: "2026-05-01",
      cost: 0,
      invoice: "A-1",
      url: "/v1/visits/1",
      animal_url: "/v1/animals/3",
    });

    const wrong = await server.request("POST", "/v1/visits", {
      token,
      json: {
        animal_id: 9999,
        reason: "boredom",
        visited_on: "2026-02-30",
        cost: -1,
        invoice: "a-1",
        vet: "Ada",
      },
    });
    const codes = wrong.body.errors.map((
      { field, code }: { field: string; code: string },
    ) => `${field} ${code}`);
    assert.deepEqual(codes.sort(), [
      "animal_id reference",
      "cost range",
      "invoice unique",
      "reason enum",
      "vet unknown",
      "visited_on format",
    ]);

    const found = await server.request(
      "GET",
      "/v1/visits?reason=illness&cost:lte=0&visited_on:gt=2026-01-01&sortby=visited_on",
      { token },
    );
    assert.equal(found.headers.get("x-total-count"), "1");
    const none = await server.request("GET", "/v1/animals/3/visits?cost:gt=0", {
      token,
    });
    assert.equal(none.text, "[]");

    const { body: animal } = await server.request("GET", "/v1/animals/3");
    assert.equal(animal.visits_url, "/v1/animals/3/visits");
    const options = await server.request("OPTIONS", "/v1/visits/1", { token });
    assert.deepEqual(options.body.writable, [
      "animal_id",
      "reason",
      "visited_on",
      "cost",
      "invoice",
    ]);
    assert.equal(options.body.schema.properties.cost.default, 0);

    const kept = await server.request("DELETE", "/v1/animals/3", { token });
    assert.equal(kept.status, 409);
    assert.match(kept.body.error, /1 visit\b/);
    const zoo = new URL(animal.zoo_url, server.origin);
    const all = await request("DELETE", `${zoo}?cascade=true`, { token });
    assert.equal(all.status, 204);
    const gone = await server.request("GET", "/v1/visits/1", { token });
    assert.equal(
      gone.status,
      410,
      "a cascade reaches the visits of a zoo's animals",
    );
  } finally {
    await server.stop();
  }
}

test("what changes can be followed, and gone on with, as it says", async () => {
  const server = await start({
    args: ["--seed", join(root, "data/seed.json")],
  });
  try {
    const TOKEN = await server.signIn();
    const json = { name: "Momo" };
    for (const id of [1, 2]) {
      const path = `/v1/animals/${id}`;
      await server.request("PATCH", path, { token: TOKEN, json });
    }
    const [script = ""] = blocks("Follow what changes", "sh");
    const typed = script.replaceAll("http://localhost:3000", server.origin)
      .replaceAll("curl -N", "timeout 2 curl -sN");
    const output = await shell(`${typed}\ntrue`, { TOKEN });
    // The first began behind all changes; the second is given them again.
    assert.deepEqual(output.match(/^(?:retry|id|event): .*$/gm), [
      "retry: 1000",
      "id: 5",
      "retry: 1000",
      "id: 4",
      "event: animals.updated",
      "id: 5",
      "event: animals.updated",
    ]);
  } finally {
    await server.stop();
  }
});

test("its settings are those that help names", async () => {
  const { stdout } = await run(["help"]);
  const rows = Array.from(
    readme.matchAll(/^\| `([A-Z_]+)` +\| `(--[a-z-]+)` +\|/gm),
    ([, variable, flag]) => `${variable} ${flag}`,
  );
  const helped = Array.from(
    stdout.matchAll(/^ {2}(--[a-z-]+) .*\n +variable ([A-Z_]+),/gm),
    ([, flag, variable]) => `${variable} ${flag}`,
  );
  assert.ok(helped.length >= 8);
  assert.deepEqual(rows, helped);
});

test("its commands print what they say", async () => {
  const server = await start({
    args: ["--seed", join(root, "data/seed.json")],
  });
  try {
    const env = { DATA_DIR: server.folder };
    const [commands = ""] = blocks("Commands", "sh");
    const copy = join(server.folder, "../copy");
    const output = await shell(
      commands.replace("/tmp/zoo-copy", `'${copy}'`),
      env,
    );
    assert.match(output, /^copied 327 records up to sequence 2 to /m);
    assert.match(output, /^zoos: 16 records, highest id 16$/m);
    assert.match(output, /^no fault$/m);
    assert.match(output, /^1\tadmin\tadmin\t/m);
    assert.match(output, /^\{"id":250,/m);
    assert.match(output, /^Usage: zoo-api/m);
  } finally {
    await server.stop();
  }
});

test("what it exports can be imported", async () => {
  const folder = await temporaryFolder();
  try {
    const [, commands = ""] = blocks("Commands", "sh");
    const server = await start({
      args: ["--seed", join(root, "data/seed.json")],
      folder: join(folder, "store"),
    });
    await server.stop();
    const script = commands
      .replaceAll("zoos.jsonl", `'${join(folder, "zoos.jsonl")}'`)
      .replace("data/copy", `'${join(folder, "copy")}'`);
    const output = await shell(script, { DATA_DIR: server.folder });
    assert.match(output, /^imported 16 zoos, rejected 0$/m);
  } finally {
    await removeFolder(folder);
  }
});
