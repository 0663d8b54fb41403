/** Loaded into a program before its own code: it is an hour later, or as much as `LATER` says in milliseconds. */

import process from "node:process";

const now = Date.now.bind(Date);

globalThis.Date = class extends Date {
  constructor(...values: [] | [number | string]) {
    super(values[0] ?? later());
  }

  static override now(): number {
    return later();
  }
} as DateConstructor;

const later = () => now() + Number(process.env["LATER"] ?? 3_600_000);
