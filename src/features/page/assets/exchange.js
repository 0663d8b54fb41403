// @ts-check
/** What exchanges mean, which is part of the first view. */

export { meaningOf, showProblem } from "./page.js";
