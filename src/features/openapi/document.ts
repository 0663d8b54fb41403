/**
 * The OpenAPI 3.1 document (https://spec.openapis.org/oas/v3.1.1), built from
 * the routes themselves: each path with its operations and path parameters.
 */

import type { JsonSchema } from "../../api/declaration/properties.ts";
import type { Api } from "../../api/feature.ts";
import type { Route } from "../../api/operations.ts";
import { Components, pascalCase } from "./components.ts";
import {
  describeParameters,
  describeRequestBody,
  describeResponses,
  fieldParameter,
} from "./messages.ts";
import { type DocumentedOperation, documentOperation } from "./operations.ts";

/** The parts of the API that the document depends on. */
export type ApiDescription = Pick<
  Api,
  "routes" | "collections" | "base" | "requireIfMatch"
>;

interface Context extends ApiDescription {
  readonly components: Components;
}

const introduction =
  `Errors are JSON, or problem details (RFC 9457) if Accept asks for \`application/problem+json\`. \
Besides the responses listed here, every URL answers 405 with Allow to a method that it does not support, and 501 to one that no URL supports. \
A URL with an extra slash at the end is redirected with 308. \
If CORS is enabled, responses also have the header fields of the Fetch standard. \
QUERY (RFC 10008) is described under \`x-query\`, as OpenAPI 3.1 has no place for it; the content is that of \`query\` in OpenAPI 3.2.`;

/** Describes all routes. */
export function createDocument(api: ApiDescription): JsonSchema {
  const { routes, collections, base } = api;
  const components = new Components();
  const paths: Record<string, JsonSchema> = {};
  const tags = new Set<string>();
  for (const [pattern, route] of routes) {
    const isInBase = pattern.startsWith(base.path);
    const relative = isInBase ? pattern.slice(base.path.length - 1) : pattern;
    // Of URLs that differ only by a slash at the end, one is described.
    if (!/^\/.*[^/]$|^\/$/.test(relative)) continue;
    tags.add(route.tag);
    const { path, ids } = nameIds(relative, collections);
    paths[path] = {
      ...(!isInBase && { servers: [{ url: base.origin || "/" }] }),
      ...describeOperations(path, route, { ...api, components }),
      parameters: [
        ...ids.map(idParameter),
        fieldParameter("X-Request-Id", "The id of the request in the log"),
      ].map((parameter) => components.parameter(parameter)),
    };
  }
  return {
    openapi: "3.1.1",
    info: {
      title: "zoo-api",
      version: "1",
      description: introduction,
      license: { name: "MIT License", identifier: "MIT" },
    },
    servers: [{ url: (base.origin + base.path).replace(/(?<=.)\/$/, "") }],
    tags: Array.from(tags, (name) => ({
      name,
      description: `The ${name} of this API.`,
    })),
    paths,
    components: {
      ...components.toJson(),
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

/** Names the ids of a pattern: `/zoos/:id/animals/:id` has `zoo_id` and `id`. */
function nameIds(
  pattern: string,
  collections: ApiDescription["collections"],
): { readonly path: string; readonly ids: readonly string[] } {
  const ids: string[] = [];
  const path = pattern.replace(/([^/]+)\/:id(?=(\/)?)/g, (_, of, more) => {
    const singular = collections.get(of)?.singular ?? of;
    const name = more ? `${singular.replaceAll(" ", "_")}_id` : "id";
    ids.push(name);
    return `${of}/{${name}}`;
  });
  return { path, ids };
}

function idParameter(name: string): JsonSchema {
  const maximum = Number.MAX_SAFE_INTEGER;
  const schema = { type: "integer", minimum: 1, maximum };
  return { name, in: "path", required: true, schema };
}

/** Describes the methods of a path, each under its key. */
function describeOperations(
  path: string,
  { tag, operations }: Route,
  context: Context,
): Record<string, JsonSchema> {
  const described: Record<string, JsonSchema> = {};
  for (const [method, operation] of operations) {
    const facts = { method, path, tag };
    const get = documentOperation(operation, facts, context.collections);
    const key = method === "QUERY" ? "x-query" : method.toLowerCase();
    described[key] = describeOperation(get, context);
    if (method !== "GET") continue;
    const summary = `${get.summary}: header fields only`;
    const head = { ...get, method: "HEAD", summary };
    described["head"] = describeOperation(head, context);
  }
  return described;
}

function describeOperation(
  operation: DocumentedOperation,
  { components, requireIfMatch }: Context,
): JsonSchema {
  const { tag, access, summary, ignoresCredentials } = operation;
  const isPublic = access === "anyone";
  const bearer = { bearer: [] };
  return {
    operationId: nameOperation(operation),
    tags: [tag],
    summary,
    ...(!isPublic && { description: `Requires the role ${access}.` }),
    security: ignoresCredentials ? [] : isPublic ? [{}, bearer] : [bearer],
    parameters: describeParameters(operation)
      .map((parameter) => components.parameter(parameter)),
    ...describeRequestBody(operation, components),
    responses: describeResponses(operation, { components, requireIfMatch }),
  };
}

/** Names a function for the operation: `getZoosById` for GET of `/v1/zoos/{id}`. */
function nameOperation({ method, path }: DocumentedOperation): string {
  const words = path.replace(/^\/v1\//, "").split("/")
    .filter((word) => /^[^{]/.test(word));
  const name = pascalCase(words.join("-")) || "Root";
  return method.toLowerCase() + name + (path.endsWith("}") ? "ById" : "");
}
