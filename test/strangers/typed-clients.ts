/**
 * Checks that generators of clients understand the OpenAPI document: programs
 * that list, create, change and delete records, and read the errors of a 422,
 * compile without a cast and run against a server, with openapi-fetch, orval and
 * @hey-api/openapi-ts. And every request of the collection that Postman's own
 * converter makes of the document succeeds, in the order of the document. The
 * packages go to a temporary folder.
 *
 *     node --import tsx test/strangers/typed-clients.ts
 */

import { strict as assert } from "node:assert";
import { readFile, writeFile } from "node:fs/promises";
import { join } from "node:path";
import process from "node:process";
import {
  adminPassword,
  jwtSecret,
  removeFolder,
  type Server,
  start,
  temporaryFolder,
} from "../harness.ts";
import { compile, install, run, say } from "./programs.ts";

const packages = [
  "@hey-api/openapi-ts@0.95.0",
  "@types/node@20.19.43",
  "jose@6.2.17",
  "newman@6.2.2",
  "openapi-fetch@0.17.0",
  "openapi-to-postmanv2@6.3.3",
  "openapi-typescript@7.13.0",
  "orval@7.13.2",
  "typescript@5.9.3",
];

/** The command that generates each client, and the options that its own code compiles with. */
const clients: readonly {
  readonly file: string;
  readonly command: readonly string[];
  readonly options?: readonly string[];
}[] = [
  {
    file: "fetch",
    command: ["openapi-typescript", "openapi.json", "-o", "api.d.ts"],
  },
  {
    file: "orval",
    command: [
      "orval",
      "--input=openapi.json",
      "--output=generated/orval.ts",
      "--client=fetch",
    ],
    options: [],
  },
  {
    file: "hey",
    command: ["openapi-ts", "-i", "openapi.json", "-o", "generated/hey"],
    options: [],
  },
];

/** A request, or a folder of requests, of a Postman collection. */
interface Item {
  readonly item?: readonly Item[];
  readonly request?: {
    readonly method: string;
    readonly url: { readonly path: readonly string[]; query?: unknown };
  };
}

/** Returns the requests of a collection without its folders. */
function flatten(items: readonly Item[]): readonly Item[] {
  return items.flatMap((each) => each.item ? flatten(each.item) : [each]);
}

/** Sends each request of the converted document, after signing in, to a server without records. */
async function sendCollection(server: Server, cwd: string): Promise<void> {
  const options = [
    "parametersResolution=Example",
    "enableOptionalParameters=false",
  ];
  const files = ["-s", "openapi.json", "-o", "converted.json"];
  await run("npx", ["openapi2postmanv2", ...files, "-O", options.join()], {
    cwd,
  });
  const file = join(cwd, "converted.json");
  const collection = JSON.parse(await readFile(file, "utf8"));
  const document = JSON.parse(
    await readFile(join(cwd, "openapi.json"), "utf8"),
  );
  const paths = Object.keys(document.paths);
  const placeOf = ({ request }: Item) => {
    const path = `/${request?.url.path.join("/") ?? ""}`;
    return paths.indexOf(path.replace(/:(\w+)/g, "{$1}"));
  };
  const methods = ["POST", "GET", "PUT", "PATCH", "DELETE", "OPTIONS"];
  const rank = (item: Item) =>
    10 * placeOf(item) + methods.indexOf(item.request?.method ?? "");
  const item = flatten(collection.item)
    .filter((each) => each.request?.url.path.at(-1) !== "events") // endless
    .sort((one, other) => rank(one) - rank(other));
  assert.ok(item.every((each) => placeOf(each) >= 0));
  for (const { request } of item) {
    const isList = !request?.url.path.at(-1)?.startsWith(":");
    if (request?.method !== "DELETE" || !isList) continue;
    // A deletion needs a filter, of which a person ticks one.
    request.url.query = [{ key: "id", value: "999999" }];
  }
  // A request that signs in provides the token of those after it.
  const script = `
    pm.test("succeeds", () => pm.expect(pm.response.code).to.be.within(200, 299));
    const isSignIn = pm.request.method === "POST" &&
      pm.request.url.getPath().endsWith("/authorizations");
    if (isSignIn) pm.collectionVariables.set("bearerToken", pm.response.json().token);`;
  const variable = [
    { key: "baseUrl", value: server.origin },
    { key: "bearerToken", value: await server.signIn() },
  ];
  const event = [{ listen: "test", script: { exec: script.split("\n") } }];
  await writeFile(
    file,
    JSON.stringify({ ...collection, item, variable, event }),
  );
  await run("npx", ["newman", "run", "converted.json", "--color=off"], { cwd });
  say(`openapi-to-postmanv2 and newman: ${item.length} requests succeed`);
}

const folder = await temporaryFolder();
const server = await start();
try {
  await install(packages, folder);
  const { text } = await server.request("GET", "/v1/openapi.json");
  await writeFile(join(folder, "openapi.json"), text);
  // openapi-ts imports its files with an extension only if this requires that.
  const tsconfig = { compilerOptions: { module: "nodenext" } };
  await writeFile(join(folder, "tsconfig.json"), JSON.stringify(tsconfig));
  // First, because the ids of the examples are those of the first records.
  const other = await start();
  try {
    await sendCollection(other, folder);
  } finally {
    await other.stop();
  }
  for (const { file, command, options } of clients) {
    await run("npx", command, { cwd: folder });
    await compile(`${file}.ts`, folder, options);
    const args = [`out/${file}.js`, server.origin, adminPassword, jwtSecret];
    await run(process.execPath, args, { cwd: folder });
    say(`${command[0]}: a client compiles and runs`);
  }
} finally {
  await server.stop();
  await removeFolder(folder);
}
