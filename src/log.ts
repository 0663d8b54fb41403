/** The server's own log: one JSON object a line on standard output. */

import process from "node:process";
import { type LogLevel, logLevels } from "./config.ts";

/** Writes one line, if the configured level holds it. */
export type Log = (
  level: Exclude<LogLevel, "silent">,
  message: string,
  fields?: Readonly<Record<string, unknown>>,
) => void;

/** A log that writes what is at or below a level. */
export function createLog(most: LogLevel): Log {
  const limit = logLevels.indexOf(most);
  return (level, message, fields) => {
    if (logLevels.indexOf(level) <= limit) writeLogLine(level, message, fields);
  };
}

/** Writes one line whatever the level: what someone waits for. */
export function writeLogLine(
  level: Exclude<LogLevel, "silent">,
  message: string,
  fields: Readonly<Record<string, unknown>> = {},
): void {
  const time = new Date().toISOString();
  const line = JSON.stringify({ time, level, message, ...fields });
  process.stdout.write(`${line}\n`);
}
