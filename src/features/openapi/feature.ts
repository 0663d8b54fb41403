/**
 * The machine-readable description of the API: an OpenAPI 3.1 document
 * (https://spec.openapis.org/oas/v3.1.1), built from the routes themselves.
 */

import type { Route } from "../../api/operation.ts";
import { expandable, recordNames } from "./schemas.ts";
import { setImmediate as nextTick } from "node:timers/promises";
import type { JsonSchema } from "../../api/declaration/properties.ts";
import type { Api, Feature } from "../../api/feature.ts";
import { textRoute } from "../../api/formats/text-route.ts";
import { commonFields, Components } from "./components.ts";
import {
  describeParameters,
  describeRequestBody,
  describeResponses,
  fieldParameter,
} from "./messages.ts";
import { type DocumentedOperation, documentOperation } from "./operations.ts";
import { nameOperation, placesOf, tagOf } from "./places.ts";

export const feature: Feature = {
  open(api) {
    const route = textRoute({
      summary: "This document",
      schema: { type: "object" },
      make: () => createDocument(api),
    });
    api.add("openapi.json", route, "openapi_url");
  },
};

const introduction =
  `Filters are parameters such as \`name=Artis\`, or with an operator \`name:contains=art\`: \`ne\` is not, \`lt\`, \`lte\`, \`gt\`, \`gte\` is less, at most, greater, at least, \`in\` is one of; \`contains\` and \`starts\` trim and ignore case. Several values may be repeated or joined by commas.

Every operation can respond with 429, 431 and 500, one with a body with 408, 413 and 415, GET with 406, and one that writes, takes long or asks another server with 503: these are the response \`default\`. \
A method that a URL does not support is 405 with Allow, one that no URL supports 501; a malformed or oversized header is 400, 414, 417 or 431. \
A URL with an extra slash at the end is redirected with 308.

Wherever GET is, HEAD has the same status and header fields without content. OPTIONS is the same at every URL, and described at the root. \
With CORS, responses also have the fields of the Fetch standard. Every response can have:

${commonFields}

The examples succeed as requests, in this order, on an empty server whose first user has signed in; records that cannot be guessed have none: create them first.`;

const negotiation =
  `Errors are JSON, or problem details (RFC 9457) if Accept asks for \`application/problem+json\`: with \`type\`, \`title\`, \`status\` and \`detail\` instead of \`error\`, \`errorMsg\` and \`message\`. \
QUERY (RFC 10008) is GET with the parameters in the body; its name and body are described under \`x-query\`, as OpenAPI 3.1 has no place for it.`;

/** Notes what the schemas of collections depend on besides their declarations. */
function noteCollections(
  { collections, routes }: Api,
  components: Components,
): void {
  for (const each of collections.values()) {
    recordNames.set(each, components.reserveName(each.singular));
  }
  for (const { operations } of routes.values()) {
    const { docs, resource } = operations.get("GET") ?? {};
    const isExpandable = docs?.parameters
      ?.some(({ name }) => name === "expand");
    if (resource && isExpandable) expandable.add(resource.records.collection);
  }
}

/** Describes all routes, one in each turn of the event loop, because all of them take some 100 ms. */
async function createDocument(api: Api): Promise<string> {
  const { declaration, routes, base } = api;
  const components = new Components();
  components.add("securitySchemes", "bearer", {
    type: "http",
    scheme: "bearer",
    bearerFormat: "JWT",
    description: "A token from POST /v1/authorizations (RFC 6750).",
  });
  const paths: Record<string, JsonSchema> = {};
  const tags = new Set<string>();
  const hasQuery = [...routes.values()]
    .some(({ operations }) => operations.has("QUERY"));
  noteCollections(api, components);
  for (const { path, route, id } of placesOf(api)) {
    await nextTick();
    tags.add(tagOf(route));
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
          example: name === "id" ? id : 1,
        })),
        fieldParameter("X-Request-Id", "The id of the request in the log"),
      ]),
    };
  }
  return components.complete({
    openapi: "3.1.1",
    info: {
      title: declaration.title,
      version: "1",
      description: hasQuery
        ? `${introduction}\n\n${negotiation}`
        : introduction,
      license: { name: "MIT License", identifier: "MIT" },
    },
    servers: [{ url: (base.origin + base.path).replace(/(?<=.)\/$/, "") }],
    tags: Array.from(tags, (name) => ({
      name,
      description: `The URLs of ${name}`,
    })),
    paths,
  });
}

/** Describes the operations of a path, each under its method, but HEAD, and OPTIONS only once. */
function describeOperations(
  route: Route,
  place: Pick<DocumentedOperation, "api" | "path">,
  components: Components,
): Record<string, JsonSchema> {
  const described: Record<string, JsonSchema> = {};
  const tag = tagOf(route);
  for (const [method, operation] of route.operations) {
    if (method === "OPTIONS" && place.path !== "/v1") continue;
    const documented = documentOperation(operation, { ...place, method });
    const { parameters, responses, ...own } = describeOperation(
      documented,
      components,
    );
    const whole = { tags: [tag], ...own, parameters, responses };
    if (method === "QUERY") described["x-query"] = { tags: [tag], ...own };
    else described[method.toLowerCase()] = whole;
  }
  return described;
}

function describeOperation(
  operation: DocumentedOperation,
  components: Components,
) {
  const { access, summary, ignoresCredentials, description } = operation;
  const isPublic = access === "anyone";
  const { private: isPrivate, overseer } =
    operation.resource?.records.collection ?? {};
  const whose = isPrivate
    ? ` Each user has their own records; only the role ${overseer} has those of all.`
    : "";
  const who = isPublic ? [] : [`Requires the role ${access}.${whose}`];
  const sentences = [...who, description ?? []].flat().join(" ");
  const bearer = { bearer: [] };
  return {
    operationId: components.operationId(nameOperation(operation)),
    summary,
    ...(sentences && { description: sentences }),
    security: ignoresCredentials ? [] : isPublic ? [{}, bearer] : [bearer],
    parameters: components.parameters(describeParameters(operation)),
    ...describeRequestBody(operation, components),
    responses: describeResponses(operation, components),
  };
}
