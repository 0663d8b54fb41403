/** The progress bar of the commands that take long. */

import process from "node:process";

const intervalMs = 200;
const width = 40;

/**
 * Draws a progress bar on standard error if that is a terminal.
 *
 * @param fraction returns how much is done, from 0 to 1
 * @returns a function that draws the bar a last time and ends its line
 */
export function showProgress(fraction: () => number): () => void {
  const { stderr } = process;
  if (!stderr.isTTY) return () => {};
  const draw = () => {
    const done = Math.min(fraction() || 0, 1);
    const bar = "#".repeat(done * width).padEnd(width);
    stderr.write(`\r[${bar}] ${Math.floor(done * 100)} %`);
  };
  const timer = setInterval(draw, intervalMs);
  return () => {
    clearInterval(timer);
    draw();
    stderr.write("\n");
  };
}
