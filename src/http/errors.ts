/**
 * The errors of the API: one table of all codes, and the one function that
 * writes their bodies. The first three digits of a code are the HTTP status, and
 * the last two distinguish the errors of that status.
 */

/** All error codes with their default messages. */
export const errorMessages = {
  40000: "The request is malformed.",
  40001: "The body is missing or is not valid JSON.",
  40002: "The body must be a JSON object.",
  40003: "A parameter is unknown or is given twice.",
  40004: "The value of a parameter is not allowed.",
  40100: "This request requires authentication.",
  40101: "The username or the password is wrong.",
  40102: "The token is not valid.",
  40103: "The token has expired.",
  40104: "The token has been revoked.",
  40300: "Your role does not permit this.",
  40400: "There is no such URL.",
  40401: "There is no such record.",
  40500: "The method is not allowed for this URL.",
  40600: "The requested format is not available.",
  40800: "The request took too long to arrive.",
  40900: "Other records still refer to this record.",
  40901: "The last user with the highest role cannot be removed.",
  40902: "A request with this Idempotency-Key is still in progress.",
  41000: "The record has been permanently deleted.",
  41200: "A precondition failed; nothing was changed.",
  41300: "The body is too large.",
  41400: "The URL is too long: at most 8192 bytes are allowed.",
  41500: "The media type or the content encoding is not supported.",
  41700: "The expectation cannot be met: only 100-continue is supported.",
  42200: "The validation failed.",
  42201: "The Idempotency-Key was already used with another body.",
  42800: "A precondition is required: send If-Match with the record's ETag.",
  42900: "There are too many requests.",
  43100: "The header is too large: at most 64 fields and 16 KiB are allowed.",
  50000: "Internal error; the request may or may not have succeeded.",
  50100: "The method is not implemented.",
  50300: "The store is read-only after a disk error; nothing was changed.",
  50301: "The disk is full; nothing was changed.",
  50302: "The server cannot do this now; nothing was changed.",
  50303:
    "The memory is full; nothing was changed: delete records, or start the server with more memory.",
} as const;

/** One code of {@linkcode errorMessages}. */
export type ErrorCode = keyof typeof errorMessages;

/** The ways in which a property can be invalid. */
export const fieldErrorCodes = [
  "required",
  "type",
  "length",
  "format",
  "range",
  "enum",
  "unknown",
  "reference",
  "unique",
  "read_only",
  "rule",
] as const;

/** An invalid property, as listed in the body of a 422. */
export interface FieldError {
  /** The place of the record in a batch, from 0. */
  readonly index?: number;
  readonly field: string;
  readonly code: (typeof fieldErrorCodes)[number];
  readonly message: string;
}

/** An error to respond with. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly code: ErrorCode;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: readonly string[];

  constructor(
    code: ErrorCode,
    message: string = errorMessages[code],
    { errors, headers = [] }: {
      /** The invalid properties of a 422. */
      readonly errors?: readonly FieldError[];
      /** Header fields of the response: name, value, name, value, … */
      readonly headers?: readonly string[];
    } = {},
  ) {
    super(message);
    this.code = code;
    this.errors = errors;
    this.headers = headers;
  }

  /** The HTTP status, 400 to 599. */
  get status(): number {
    return Math.floor(this.code / 100);
  }
}

/** The methods that at least one URL of this server supports. */
export const implementedMethods: readonly string[] = [
  "GET",
  "HEAD",
  "QUERY",
  "OPTIONS",
  "POST",
  "PUT",
  "PATCH",
  "DELETE",
];

// The specification that explains a 401 or 403 where the server itself has no documentation.
const specifications: Readonly<Record<number, string>> = {
  401: "https://www.rfc-editor.org/rfc/rfc6750#section-3",
  403: "https://www.rfc-editor.org/rfc/rfc9110#section-15.5.4",
};

/**
 * Creates the response to a request that failed.
 *
 * @param documentationUrl where each error has a fragment, its code
 */
export function errorResponse(error: ApiError, documentationUrl?: string) {
  const { status, headers, code, message, errors } = error;
  const specification = specifications[status];
  // JSON.stringify omits what is undefined.
  const body = JSON.stringify({
    error: message,
    errorCode: code,
    errorMsg: message,
    message: specification && message,
    documentation_url: documentationUrl
      ? `${documentationUrl}#${code}`
      : specification,
    errors,
  });
  return { error, status, headers, body };
}
