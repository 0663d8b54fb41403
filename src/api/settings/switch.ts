/** Settings of features that are on or off. */

/** The values of a setting that is off by default, or on. */
export function oneOf(off: string, on: string) {
  return {
    expected: `${off} or ${on}`,
    default: false,
    defaultText: off,
    parse: (value: string) =>
      value === on || value === off ? value === on : undefined,
  };
}
