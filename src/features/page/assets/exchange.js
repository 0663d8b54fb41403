// @ts-check
/** The meaning of exchanges, which is part of the first view. */

export { meaningOf, showProblem } from "./page.js";
