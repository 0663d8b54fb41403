/**
 * The types of a declaration file, which stand alone:
 *
 * ```js
 * /** @type {import("zoo-api").DeclareApi} *\/
 * export default ({ collection, string }) => ({ collections: [ … ] });
 * ```
 */
declare module "zoo-api" {
  /** Any JSON value. */
  export type Json =
    | null
    | boolean
    | number
    | string
    | readonly Json[]
    | { readonly [name: string]: Json };

  /** A property of a collection, as the words of the vocabulary return it; `Value` is the type of its values. */
  export interface Property<Value extends Json = Json> {
    readonly kind: string;
    readonly parse: (text: string) => Value | undefined;
  }

  /** The properties of a collection, by their names: lower case, digits and `_`. */
  export type Properties = Readonly<Record<string, Property>>;

  /** A record with these properties, and those that the server sets. */
  export type RecordOf<Declared extends Properties> = {
    readonly [Name in keyof Declared | "id" | "created_at" | "updated_at"]:
      Declared[Name] extends Property<infer Value> ? Value
        : Name extends "id" ? number
        : string;
  };

  /** `anyone`, or a role, which includes all roles above it. */
  export type Access = "anyone" | (string & Record<never, never>);

  /** A collection of records. */
  export interface Collection<Declared extends Properties = Properties> {
    /** A plural noun in lower case: the segment in URLs. */
    readonly name: string;
    /** The same in the singular, for messages. */
    readonly singular: string;
    /** The roles that may read records, create and change them, and delete them. */
    readonly access: {
      readonly read: Access;
      readonly write: Access;
      readonly delete: Access;
    };
    readonly properties: Declared;
    /** Groups of properties: no two records share all values of a group, unless one of them is null. */
    readonly unique?: readonly (readonly (keyof Declared & string)[])[];
    /** The properties that records are sorted by if a request does not say; by default the id. */
    readonly sort?: readonly (keyof RecordOf<Declared> & string)[];
    /** A rule for a complete record: returns a message for each property that is wrong, such as "must not be before published_on". A start validates the stored records again if its text has changed, but not if a variable or function outside it has: then `zoo-api check` lists those that no longer fit. It must not depend on the time: a start with another declaration, an import and a backup would judge stored records by another day. */
    readonly check?: (
      record: RecordOf<Declared>,
    ) =>
      | { readonly [Name in keyof Declared]?: string | undefined }
      | null
      | undefined
      | void;
    /** True if each user has their own records, which only the highest role can see too. */
    readonly private?: boolean;
    /** How long records are kept: so many days from the date or timestamp of a property, by default from `created_at`. Older ones are deleted in the background. */
    readonly keep?: { readonly days: number; readonly by?: string };
    /** Its name in earlier declarations. */
    readonly renamed?: string;
  }

  /** An API. */
  export interface Api {
    /** Its name as shown to users; "API" by default. */
    readonly title?: string;
    /** The roles in ascending order, the last one manages users; by default `viewer`, `keeper` and `admin`. */
    readonly roles?: readonly string[];
    readonly collections: readonly Collection[];
  }

  interface Renamed {
    /** The name of the property in earlier declarations. */
    readonly renamed?: string;
  }

  interface Bounds extends Renamed {
    readonly minimum?: number;
    readonly exclusiveMinimum?: number;
    readonly maximum?: number;
  }

  interface Characters extends Renamed {
    /** 1 by default. */
    readonly minLength?: number;
    readonly maxLength: number;
    readonly pattern?: RegExp;
    /** The allowed texts, as a phrase that follows "must be". */
    readonly description?: string;
  }

  /** The words of a declaration. */
  export interface Vocabulary {
    collection<Declared extends Properties>(
      declaration: Collection<Declared>,
    ): Collection;
    /** A text in one line; its length counts characters. */
    string(options: Characters): Property<string>;
    /** A text in one or several lines: tabs and line feeds are allowed too. */
    text(options: Characters): Property<string>;
    number(options?: Bounds): Property<number>;
    /** A whole number. */
    integer(options?: Bounds): Property<number>;
    boolean(options?: Renamed): Property<boolean>;
    /** A calendar date, `YYYY-MM-DD`. */
    date(options?: Renamed): Property<string>;
    /** A point in time such as `2026-01-31T12:00:00Z`; stored in UTC. */
    timestamp(options?: Renamed): Property<string>;
    /** One of a fixed set of texts. */
    choice<const Options extends readonly (string | Renamed)[]>(
      ...options: Options
    ): Property<Extract<Options[number], string>>;
    /** An e-mail address. */
    email(options?: Renamed): Property<string>;
    /** An http or https URL. */
    url(options?: Renamed): Property<string>;
    /**
     * The id of a record of a collection. The property's name must end in `_id`:
     * `author_id` gives a record its `author_url`, and an author `/books`; with
     * `as: "works"`, `/works`.
     */
    reference(
      collection: string,
      options?: Renamed & { readonly as?: string },
    ): Property<number>;
    /** Makes a property optional: its default, or null. */
    optional<Value extends Json, Default extends Value | null = null>(
      of: Property<Value>,
      defaultValue?: Default,
    ): Property<Value | Default>;
    /** No two records share a value. Texts are the same whatever their case. */
    unique<Value extends Json>(of: Property<Value>): Property<Value>;
  }

  /** The default export of a declaration file. */
  export type DeclareApi = (vocabulary: Vocabulary) => Api;
}
