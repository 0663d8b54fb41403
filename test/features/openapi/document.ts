/** Parts of an OpenAPI document, as the tests of it and third-party checks need them. */

import type {
  DocumentedParameter,
  OpenApiDocument,
  Operation,
  Referable,
} from "../../replay.ts";

/** Returns the part of a document that a reference names. */
export function resolve<Part extends Referable>(
  document: OpenApiDocument,
  part: Part,
): Part {
  if (part.$ref === undefined) return part;
  const found = part.$ref.slice(2).split("/").reduce(
    (at: object, key) => Reflect.get(at, key),
    document,
  );
  return found as Part;
}

/** Returns the parameters of a path or operation. */
export function parametersOf(
  document: OpenApiDocument,
  parameters: unknown,
): readonly DocumentedParameter[] {
  const all = (parameters ?? []) as readonly DocumentedParameter[];
  return all.map((each) => resolve(document, each));
}

/** An operation of a document, with everything that a request needs. */
export interface Sendable {
  readonly method: string;
  readonly path: string;
  /** The path with the examples of its parameters. */
  readonly url: string;
  readonly operation: Operation;
  /** The media types of the body, each with its example. */
  readonly bodies: readonly (readonly [type: string, example: string])[];
}

const methods = ["post", "get", "put", "patch", "delete"];

/** Yields the operations in the order of the document, those of a path by their methods. */
export function* operationsOf(document: OpenApiDocument): Generator<Sendable> {
  for (const [path, item] of Object.entries(document.paths)) {
    const parameters = parametersOf(document, item["parameters"]);
    const url = path.replace(
      /\{(\w+)\}/g,
      (_, id) => String(parameters.find(({ name }) => name === id)?.example),
    );
    for (const method of methods) {
      const operation = item[method];
      if (!operation) continue;
      const { content = {} } = operation.requestBody ?? {};
      const bodies = Object.entries(content)
        .map(([type, { schema, example }]) => {
          const [first] = resolve(document, schema).examples ?? [];
          const shown = example ?? first;
          const text = typeof shown === "string"
            ? shown
            : JSON.stringify(shown);
          return [type, text] as const;
        });
      yield { method: method.toUpperCase(), path, url, operation, bodies };
    }
  }
}
