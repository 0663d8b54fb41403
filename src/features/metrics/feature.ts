/**
 * Figures for monitoring, in the text format of Prometheus
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Counting a
 * request costs two lookups and makes nothing; all text is made when asked for.
 */

import { performance } from "node:perf_hooks";
import process from "node:process";
import type { Api, Feature, SentResponse } from "../../api/feature.ts";
import { noParameters, type Operation, route } from "../../api/operations.ts";
import { implementedMethods } from "../../http/methods.ts";
import { Histogram } from "../../store/store.ts";

/** The media type of the text. */
const metricsType = "text/plain; version=0.0.4; charset=utf-8";

const latencies = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

/** What is counted of one route. */
interface RouteFigures {
  /** By the place of the method and the status. */
  readonly answers: Map<number, number>;
  readonly latency: Histogram;
}

/** Counts requests; a route is known by its object. */
export class Metrics {
  readonly #figures = new Map<object | undefined, RouteFigures>();

  count({ route, method, status, start }: SentResponse): void {
    let figures = this.#figures.get(route);
    if (figures === undefined) {
      figures = { answers: new Map(), latency: new Histogram(latencies) };
      this.#figures.set(route, figures);
    }
    const { answers, latency } = figures;
    // -1 is any other method: what clients make up must not make new counters.
    const key = implementedMethods.indexOf(method) * 1000 + status;
    answers.set(key, (answers.get(key) ?? 0) + 1);
    latency.observe(performance.now() - start);
  }

  /** All figures as text. */
  write(
    { store, routes, collections }: Pick<
      Api,
      "store" | "routes" | "collections"
    >,
  ): string {
    const patterns = new Map<object | undefined, string>([[undefined, "none"]]);
    for (const [pattern, route] of routes) {
      if (!patterns.has(route)) patterns.set(route, pattern);
    }
    const figures = Array.from(this.#figures, ([of, figures]) => ({
      route: patterns.get(of) ?? "",
      ...figures,
    }));
    const requests = figures.flatMap(({ route, answers }) =>
      Array.from(answers, ([key, count]): Sample => {
        const method = implementedMethods[Math.floor(key / 1000)] ?? "other";
        const status = (key + 1000) % 1000;
        return ["", { method, route, status }, count];
      })
    );
    const durations = figures.flatMap(({ route, latency }) =>
      samplesOf(latency, { route })
    );
    const sizes = Array.from(collections.keys(), (collection): Sample => [
      "",
      { collection },
      store.table(collection).size,
    ]);
    const { rss, heapUsed, heapTotal } = process.memoryUsage();
    const { user, system } = process.cpuUsage();
    const { active } = performance.eventLoopUtilization();
    const families: readonly Family[] = [
      ["zoo_api_http_requests_total", "Requests that were answered.", requests],
      [
        "zoo_api_http_request_duration_seconds",
        "From a request's head to its answer.",
        durations,
      ],
      ["zoo_api_records", "Records that there are.", sizes],
      [
        "zoo_api_store_log_bytes",
        "Length of the write-ahead log.",
        store.position.offset,
      ],
      ["zoo_api_store_seq", "The last sequence in memory.", store.seq],
      ["zoo_api_store_durable_seq", "The last on the disk.", store.durableSeq],
      ["zoo_api_store_full", "Whether the disk is full.", store.isDiskFull],
      ["zoo_api_store_writable", "Whether writes are taken.", store.isWritable],
      [
        "zoo_api_store_sync_duration_seconds",
        "How long the disk took to make durable.",
        samplesOf(store.syncs, {}),
      ],
      ["process_resident_memory_bytes", "Memory in all.", rss],
      ["nodejs_heap_used_bytes", "Memory of live and dead objects.", heapUsed],
      ["nodejs_heap_size_bytes", "Memory kept for objects.", heapTotal],
      [
        "process_start_time_seconds",
        "Since 1970.",
        performance.timeOrigin / 1000,
      ],
      ["process_cpu_seconds_total", "Time that it ran.", (user + system) / 1e6],
      [
        "nodejs_eventloop_active_seconds_total",
        "Time in which the event loop did not wait.",
        active / 1000,
      ],
    ];
    return families.map(textOf).join("");
  }
}

/** What is measured under one name: one figure, or several with labels. */
type Family = readonly [
  name: string,
  help: string,
  value: number | boolean | readonly Sample[],
];

/** A figure, with what is behind its family's name. Values of labels are our own words, with nothing to be escaped. */
type Sample = readonly [
  suffix: string,
  labels: Readonly<Record<string, string | number>>,
  value: number,
];

function samplesOf(
  { bounds, counts, sum }: Histogram,
  labels: Sample[1],
): Sample[] {
  let total = 0;
  const buckets = counts.map((count, at): Sample => {
    const le = bounds[at] ?? "+Inf";
    return ["_bucket", { ...labels, le }, total += count];
  });
  return [...buckets, ["_sum", labels, sum], ["_count", labels, total]];
}

function textOf([name, help, value]: Family): string {
  const type = name.endsWith("_total")
    ? "counter"
    : name.endsWith("_duration_seconds")
    ? "histogram"
    : "gauge";
  const samples: readonly Sample[] = typeof value === "object"
    ? value
    : [["", {}, Number(value)]];
  let text = `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  for (const [suffix, labels, value] of samples) {
    const list = Object.entries(labels)
      .map(([label, value]) => `${label}="${value}"`).join();
    text += `${name}${suffix}${list && `{${list}}`} ${value}\n`;
  }
  return text;
}

/** Figures for monitoring. */
export const feature: Feature = {
  open(api) {
    const metrics = new Metrics();
    const get: Operation = {
      summary: "Figures for Prometheus, for a program on this machine too",
      access: "admin",
      publicFromLoopback: true,
      parse: noParameters,
      run: () => ({
        status: 200,
        headers: ["Cache-Control", "no-store"],
        body: metrics.write(api),
        type: metricsType,
        seq: 0,
      }),
      produces: [metricsType],
      docs: { responses: { 200: { schema: { type: "string" } } } },
    };
    api.add(`${api.base.path}metrics`, route({ GET: get }));
    return { onResponse: (answered) => metrics.count(answered) };
  },
};
