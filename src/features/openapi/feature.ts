/**
 * The machine-readable description of the API: an OpenAPI 3.1 document
 * (https://spec.openapis.org/oas/v3.1.1), built from the routes themselves.
 */

import type { Route } from "../../api/operation.ts";
import { setImmediate as nextTick } from "node:timers/promises";
import type { JsonSchema } from "../../api/declaration/properties.ts";
import type { Api, Feature } from "../../api/feature.ts";
import { textRoute } from "../../api/text-route.ts";
import { Components, pascalCase } from "./components.ts";
import {
  describeParameters,
  describeRequestBody,
  describeResponses,
  fieldParameter,
} from "./messages.ts";
import { type DocumentedOperation, documentOperation } from "./operations.ts";

export const feature: Feature = {
  open(api) {
    const route = textRoute({
      summary: "This document",
      schema: { type: "object" },
      make: async () => JSON.stringify(await createDocument(api)),
    });
    api.add("openapi.json", route, "openapi_url");
  },
};

const introduction =
  `Besides the responses listed here, every URL responds with 405 and Allow to a method that it does not support, and with 501 to one that no URL supports; a malformed or oversized header is 400, 414, 417 or 431. \
A URL with an extra slash at the end is redirected with 308. \
If CORS is enabled, responses also have the header fields of the Fetch standard.`;

const negotiation =
  `Errors are JSON, or problem details (RFC 9457) if Accept asks for \`application/problem+json\`. \
QUERY (RFC 10008) is described under \`x-query\`, as OpenAPI 3.1 has no place for it; the content is that of \`query\` in OpenAPI 3.2.`;

/** Describes all routes, one in each turn of the event loop, because all of them take some 100 ms. */
async function createDocument(api: Api): Promise<JsonSchema> {
  const { declaration, routes, base } = api;
  const components = new Components();
  const paths: Record<string, JsonSchema> = {};
  const tags = new Set<string>();
  const hasQuery = [...routes.values()]
    .some(({ operations }) => operations.has("QUERY"));
  for (const [pattern, route] of routes) {
    const relative = pattern.slice(base.path.length - 1);
    // Of URLs that differ only by a trailing slash, one is described.
    const isVariant = !pattern.startsWith(base.path) || /.\/$/.test(relative);
    const tag = tagOf(route);
    if (isVariant || tag === "") continue;
    await nextTick();
    tags.add(tag);
    const path = nameIds(relative, api);
    const ids = path.match(/(?<=\{)\w+/g) ?? [];
    paths[path] = {
      ...describeOperations(route, { api, path }, components),
      parameters: components.parameters([
        ...ids.map((name) => ({
          name,
          in: "path",
          required: true,
          schema: {
            type: "integer",
            minimum: 1,
            maximum: Number.MAX_SAFE_INTEGER,
          },
        })),
        fieldParameter("X-Request-Id", "The id of the request in the log"),
      ]),
    };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: declaration.title,
      version: "1",
      description: hasQuery ? `${introduction} ${negotiation}` : introduction,
      license: { name: "MIT License", identifier: "MIT" },
    },
    servers: [{ url: (base.origin + base.path).replace(/(?<=.)\/$/, "") }],
    tags: Array.from(tags, (name) => ({
      name,
      description: `The URLs of ${name}`,
    })),
    paths,
    components: {
      ...components.parts,
      securitySchemes: {
        bearer: {
          type: "http",
          scheme: "bearer",
          bearerFormat: "JWT",
          description: "A token from POST /v1/authorizations (RFC 6750).",
        },
      },
    },
  };
}

/** Names the ids of a pattern: `/zoos/{zoo_id}/animals/{id}` for `/zoos/:id/animals/:id`. */
function nameIds(pattern: string, { collections }: Api): string {
  return pattern.replace(/([^/]+)\/:id(?=(\/)?)/g, (_, name, more) => {
    const singular = collections.get(name)?.singular ?? name;
    const id = more ? `${singular.replaceAll(" ", "_")}_id` : "id";
    return `${name}/{${id}}`;
  });
}

/** Returns the heading of a URL; empty if it is not described. */
function tagOf({ described, operations }: Route): string {
  return operations.get("GET")?.docs?.tag ?? described?.name ?? "server";
}

/** Describes the operations of a path, each under its method. */
function describeOperations(
  route: Route,
  place: Pick<DocumentedOperation, "api" | "path">,
  components: Components,
): Record<string, JsonSchema> {
  const { operations } = route;
  const tag = tagOf(route);
  const get = operations.get("GET");
  const all = get ? [...operations, ["HEAD", get] as const] : operations;
  return Object.fromEntries(Array.from(all, ([method, operation]) => {
    const key = method === "QUERY" ? "x-query" : method.toLowerCase();
    const documented = documentOperation(operation, { ...place, method });
    return [key, { tags: [tag], ...describeOperation(documented, components) }];
  }));
}

function describeOperation(
  operation: DocumentedOperation,
  components: Components,
): JsonSchema {
  const { method, access, summary, ignoresCredentials } = operation;
  const isPublic = access === "anyone";
  const { private: isPrivate, overseer } =
    operation.resource?.records.collection ?? {};
  const whose = isPrivate
    ? ` Each user has their own records; only the role ${overseer} has those of all.`
    : "";
  const bearer = { bearer: [] };
  return {
    operationId: components.operationId(nameOperation(operation)),
    summary: method === "HEAD" ? `${summary}: header fields only` : summary,
    ...(!isPublic && { description: `Requires the role ${access}.${whose}` }),
    security: ignoresCredentials ? [] : isPublic ? [{}, bearer] : [bearer],
    parameters: components.parameters(describeParameters(operation)),
    ...describeRequestBody(operation, components),
    responses: describeResponses(operation, components),
  };
}

/** Names a function for the operation: `getZoosById` for GET of `/v1/zoos/{id}`. */
function nameOperation({ method, path }: DocumentedOperation): string {
  const words = path.replace(/^\/(v1\/)?|\/?\{\w+\}/g, "");
  const name = pascalCase(words) || "Root";
  return method.toLowerCase() + name + (path.endsWith("}") ? "ById" : "");
}
