/**
 * The API described for programs that know nothing but the host: an OpenAPI
 * document, and the API catalog (RFC 9727) that leads to it.
 */

import type { Feature } from "../../api/feature.ts";
import { type Route, textRoute } from "../../api/operations.ts";
import { type ApiDescription, createDocument } from "./document.ts";
import { objectSchema } from "./schemas.ts";

export const feature: Feature = {
  open(api) {
    api.add("/.well-known/api-catalog", catalogRoute(api.base));
    const route = textRoute({
      summary: "This document",
      schema: { type: "object" },
      make: () => JSON.stringify(createDocument(api)),
    });
    api.add("openapi.json", route, "openapi_url");
  },
};

/** Returns the route of the API catalog, a linkset (RFC 9264). */
function catalogRoute({ origin, path }: ApiDescription["base"]): Route {
  const root = origin + path;
  const url = `${origin}/.well-known/api-catalog`;
  const link = (path: string) => [
    { href: root + path, type: "application/json" },
  ];
  const description = link("v1/openapi.json");
  const linkset = [
    { anchor: url, item: [{ href: root }] },
    { anchor: root, "service-desc": description, status: link("health") },
  ];
  const profile = "https://www.rfc-editor.org/info/rfc9727";
  return textRoute({
    summary: "The API catalog (RFC 9727)",
    schema: objectSchema("linkset", {
      linkset: { type: "array", items: { type: "object" } },
    }),
    type: `application/linkset+json; profile="${profile}"`,
    headers: ["Link", `<${url}>; rel="api-catalog"`],
    make: () => JSON.stringify({ linkset }),
  });
}
