import type { Patch } from "../../etcd/cluster.ts";
export interface Defect extends Patch { readonly caught: RegExp }
export const defects: Readonly<Record<string, Defect>> = {};
