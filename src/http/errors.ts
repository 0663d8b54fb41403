/**
 * Every error that the API can answer: one table of codes, and the one place
 * that writes error bodies. The first three digits of a code are the HTTP
 * status, the last two tell cases of one status apart.
 */

import { negotiate } from "./headers.ts";

/** What each code means; the texts are the default messages. */
export const errorMessages = {
  40000: "The request is malformed.",
  40001: "The body is missing or is not valid JSON.",
  40002: "The body must be a JSON object.",
  40003: "A parameter is unknown or given twice.",
  40004: "The value of a parameter is not allowed.",
  40100: "This address needs authentication.",
  40101: "The user name or the password is wrong.",
  40102: "The token is not valid.",
  40103: "The token has expired.",
  40104: "The token has been revoked.",
  40300: "Your role does not suffice.",
  40400: "There is no such address.",
  40401: "There is no such record.",
  40500: "The method is not allowed here.",
  40600: "The format asked for is not available.",
  40800: "The request took too long to arrive.",
  40900: "The record still has related records.",
  40901: "The last admin must stay.",
  40902: "A request with this Idempotency-Key is still running.",
  41000: "The record was deleted for good.",
  41200: "A precondition failed; nothing was changed.",
  41300: "The body is too large.",
  41500: "The media type or its encoding is not supported.",
  42200: "The validation failed.",
  42201: "The Idempotency-Key was used with another body.",
  42800:
    "A precondition is required: send If-Match with the ETag of the record.",
  43100: "The header fields are too large.",
  50000: "Internal error; whether the request succeeded is not known.",
  50100: "The method is not implemented.",
  50300: "The store is read-only after a disk fault; nothing was changed.",
  50301: "The disk is full; nothing was changed.",
  50302: "Too much is waiting; nothing was changed.",
} as const;

/** One code of the {@linkcode errorMessages}. */
export type ErrorCode = keyof typeof errorMessages;

/** In which ways a property can fail its validation. */
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
] as const;

/** One property that failed its validation, as a 422 body lists it. */
export interface FieldError {
  readonly field: string;
  readonly code: (typeof fieldErrorCodes)[number];
  readonly message: string;
}

/** What an {@linkcode ApiError} may carry besides its code and message. */
export interface ApiErrorDetails {
  /** The failing properties of a 422. */
  readonly errors?: readonly FieldError[];
  /** Header fields for the answer: name, value, name, value, … */
  readonly headers?: readonly string[];
}

/** A request that cannot be answered with success, and why. */
export class ApiError extends Error {
  override readonly name = "ApiError";
  readonly code: ErrorCode;
  readonly errors: readonly FieldError[] | undefined;
  readonly headers: readonly string[];

  constructor(
    code: ErrorCode,
    message: string = errorMessages[code],
    details: ApiErrorDetails = {},
  ) {
    super(message);
    this.code = code;
    this.errors = details.errors;
    this.headers = details.headers ?? [];
  }

  /** The HTTP status, 400 to 599. */
  get status(): number {
    return Math.floor(this.code / 100);
  }
}

// Where a client's author finds the rule behind a 401 or 403.
const documentation: Readonly<Record<number, string>> = {
  401: "https://www.rfc-editor.org/rfc/rfc6750#section-3",
  403: "https://www.rfc-editor.org/rfc/rfc9110#section-15.5.4",
};

/** The JSON body of an error. */
export function errorBody(error: ApiError): string {
  const { code, message, errors, status } = error;
  const documentation_url = documentation[status];
  return JSON.stringify({
    error: message,
    errorCode: code,
    errorMsg: message,
    ...(documentation_url && { message, documentation_url }),
    ...(errors && { errors }),
  });
}

/** What error bodies can be: our own shape, or the one of RFC 9457. */
export type ErrorType = "application/json" | "application/problem+json";

/**
 * Which of the two a client gets: RFC 9457 where it names that and does not
 * like JSON better. A wildcard is not enough, and who likes neither gets JSON.
 */
export function errorType(accept: string | undefined): ErrorType {
  const types = ["application/problem+json", "application/json"] as const;
  const named = accept?.toLowerCase().includes(types[0]) ?? false;
  return named && negotiate(accept, types) || "application/json";
}

/**
 * The body of an error as `application/problem+json` (RFC 9457 section 3). Its
 * type is `about:blank`, the HTTP status itself (section 4.2.1); `errorCode`
 * tells more.
 */
export function problemBody(
  error: ApiError,
  { title, instance }: {
    /** The phrase of the status, as section 4.2.1 has it. */
    readonly title: string;
    /** An address of this occurrence (section 3.1.5). */
    readonly instance?: string;
  },
): string {
  const { code, message, errors, status } = error;
  const documentation_url = documentation[status];
  return JSON.stringify({
    type: "about:blank",
    title,
    status,
    detail: message,
    ...(instance !== undefined && { instance }),
    errorCode: code,
    ...(documentation_url && { documentation_url }),
    ...(errors && { errors }),
  });
}
