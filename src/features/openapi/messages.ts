/**
 * Requests and responses in the OpenAPI document: what follows from the way in
 * which app.ts processes every request, such as the errors for a missing token.
 */

import type { JsonSchema } from "../../api/declaration/properties.ts";
import { errorMessages, fieldErrorCodes } from "../../http/errors.ts";
import { ndjsonType } from "../../api/formats/ndjson.ts";
import { isReadMethod } from "../../http/content.ts";
import type { Components, ResponseParts } from "./components.ts";
import type { DocumentedOperation } from "./operations.ts";
import { completeSchema, objectSchema, text } from "./schemas.ts";

/**
 * Returns whether the response may omit the record (RFC 7240 section 4.2). A
 * response with a token may not, because the token is shown only once.
 */
function acceptsPrefer(operation: DocumentedOperation): boolean {
  const { method, negotiable, responses: { 201: created } } = operation;
  return negotiable === true && !isReadMethod(method) &&
    created !== undefined &&
    !created.headers?.includes("Cache-Control");
}

const validators: readonly string[] = ["ETag", "Last-Modified"];

const precondition = "A precondition (RFC 9110 section 13.1)";

/** Lists the query parameters and header fields of a request. */
export function describeParameters(
  operation: DocumentedOperation,
): JsonSchema[] {
  const { method, conditional, parameters = [], produces } = operation;
  const fields: readonly (readonly [string, string, unknown])[] = [
    ["If-Match", precondition, conditional],
    ["If-None-Match", precondition, conditional],
    ["If-Unmodified-Since", precondition, conditional],
    ["If-Modified-Since", precondition, conditional && isReadMethod(method)],
    [
      "Prefer",
      "`return=minimal` omits the record from the response (RFC 7240)",
      acceptsPrefer(operation),
    ],
    [
      "Last-Event-ID",
      "The id of the last event received: resumes after it",
      produces?.includes("text/event-stream"),
    ],
  ];
  return [
    ...(method === "QUERY" ? [] : parameters),
    ...fields.filter(([, , applies]) => applies)
      .map(([name, description]) => fieldParameter(name, description)),
  ];
}

export function fieldParameter(name: string, description: string): JsonSchema {
  return { name, in: "header", description, schema: text };
}

export function describeRequestBody(
  { consumes, method, body = {} }: DocumentedOperation,
  components: Components,
): JsonSchema {
  if (consumes === undefined) return {};
  const form = { type: "object", description: "The parameters of GET." };
  const content = contentOf(consumes, method === "QUERY" ? form : body, true);
  return {
    requestBody: { required: true, content: components.schema(content) },
  };
}

/**
 * Returns media type objects. One that has JSON has nothing else, because typed
 * clients take a choice of formats for a choice of types; the description of the
 * operation names the other formats. Lines have no schema, but an example; so do
 * requests, because Postman does not look for it in the schema.
 */
function contentOf(
  types: readonly string[],
  schema: JsonSchema,
  isRequest = false,
): JsonSchema {
  const json = types.filter((type) => /[/+]json\b|form/.test(type));
  const { examples } = Object(schema["items"] ?? schema);
  const [example] = Array.isArray(examples) ? examples : [];
  return Object.fromEntries((json.length > 0 ? json : types).map((type) => {
    const isLines = type === ndjsonType;
    const shown = isLines ? `${JSON.stringify(example)}\n` : example;
    return [type.replace(/;.*/, ""), {
      schema: json.length > 0 ? schema : text,
      ...(example !== undefined && (isRequest || isLines) &&
        { example: shown }),
    }];
  }));
}

/** Describes the responses of an operation, by status. */
export function describeResponses(
  operation: DocumentedOperation,
  components: Components,
): Record<string, JsonSchema> {
  const { produces = ["application/json"] } = operation;
  const described: Record<string, JsonSchema> = {};
  for (const [status, response] of Object.entries(successesOf(operation))) {
    const { record, headers: names = [] } = response;
    const headers = names.filter((name) =>
      operation.conditional || !validators.includes(name)
    );
    const schema = record ? completeSchema(record) : response.schema;
    const title = `${schema?.["title"] ?? "answer"} ${status}`;
    described[status] = components.response(title, {
      description: descriptions[status] ?? "",
      headers,
      content: schema && contentOf(produces, schema),
    });
  }
  for (const name of [...errorsOf(operation), "default"]) {
    const statuses = name === "default" ? generalErrors : [`${name}`];
    described[name] ??= components.shared(
      `${name}`,
      () => components.response(`error ${name}`, describeErrors(statuses)),
    );
  }
  return described;
}

/** Returns the successful responses, including those that follow from preconditions and preferences. */
function successesOf(
  operation: DocumentedOperation,
): DocumentedOperation["responses"] {
  const { method, conditional, responses } = operation;
  const isRevalidated = isReadMethod(method) && conditional;
  const hasMinimal = method !== "POST" && acceptsPrefer(operation);
  return {
    ...(isRevalidated && { 304: { headers: validators } }),
    ...(hasMinimal && { 204: { headers: responses[201]?.headers ?? [] } }),
    ...responses,
  };
}

/** The statuses of errors that all operations have, or all of a kind: the introduction says which. */
const generalErrors = ["406", "408", "413", "415", "429", "431", "500", "503"];

/** Returns the statuses of the other errors that the operation can have. */
function errorsOf(
  {
    method,
    path,
    api: { declaration: { roles } },
    access,
    consumes,
    conditional,
    requiresPrecondition,
    errors = [],
  }: DocumentedOperation,
): number[] {
  const hasId = path.includes("{");
  const isRead = isReadMethod(method);
  const groups: readonly (readonly [unknown, ...number[]])[] = [
    [true, 400, 401, ...errors],
    [access !== "anyone" && access !== roles.lowest, 403],
    [hasId, 404],
    [hasId && isRead, 410],
    [conditional, 412],
    [consumes && !isRead, 422],
    [requiresPrecondition, 428],
  ];
  return groups.flatMap(([applies, ...statuses]) => applies ? statuses : []);
}

function describeErrors(statuses: readonly string[]): ResponseParts {
  const meanings = Object.entries(errorMessages)
    .filter(([code]) => statuses.includes(code.slice(0, 3)))
    .map(([code, message]) => `${code}: ${message}`);
  const headers = statuses.flatMap((status) => errorFields[status] ?? []);
  return {
    description: meanings.join(" "),
    headers: [...new Set(headers)],
    content: contentOf(["application/json"], errorSchema),
  };
}

const errorFields: Readonly<Record<string, readonly string[]>> = {
  401: ["WWW-Authenticate"],
  415: ["Accept-Post", "Accept-Patch", "Accept-Encoding"],
  429: ["Retry-After"],
  503: ["Retry-After"],
};

const descriptions: Readonly<Record<string, string>> = {
  200: "Success.",
  201: "The record as it is now; no content if Prefer asked for that.",
  202: "Accepted; the work has begun.",
  204: "Success, without content.",
  304: "Not modified: the client's copy is current.",
  503: "The server accepts no writes.",
};

const integer = { type: "integer" };
const fieldErrors = {
  type: "array",
  items: objectSchema("field error", {
    field: text,
    code: { type: "string", enum: fieldErrorCodes },
    message: text,
    index: integer,
  }, ["field", "code", "message"]),
};
const errorSchema = objectSchema("error", {
  error: text,
  errorCode: integer,
  errorMsg: text,
  message: text,
  documentation_url: text,
  errors: fieldErrors,
}, ["error", "errorCode", "errorMsg"]);
