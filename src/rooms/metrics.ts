/**
 * Figures for monitoring, in the text format of Prometheus
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Counting a
 * request costs two lookups and makes nothing; all text is made when asked for.
 */

import { performance } from "node:perf_hooks";
import process from "node:process";
import {
  none,
  type Operation,
  type Room,
  type Route,
  route,
} from "../api/routes.ts";
import { implemented } from "../http/server.ts";
import { Histogram, type Store } from "../store/store.ts";

/** The media type of the text. */
export const metricsType = "text/plain; version=0.0.4; charset=utf-8";

const latencies = [0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 1, 5];

/** What is measured beside the requests. */
export interface Measured {
  readonly store: Store;
  /** By pattern. */
  readonly routes: ReadonlyMap<string, object>;
  readonly collections: readonly string[];
}

/** What is counted of one route. */
class RouteFigures {
  /** By method and status: see {@linkcode Metrics.count}. */
  readonly answers = new Map<number, number>();
  readonly latency = new Histogram(latencies);
}

/** Counts requests; a route is known by its object. */
export class Metrics {
  readonly #figures = new Map<object | undefined, RouteFigures>();

  /** @param route undefined where the address is unknown */
  count(
    route: object | undefined,
    method: string,
    { status, milliseconds }: {
      readonly status: number;
      readonly milliseconds: number;
    },
  ): void {
    let figures = this.#figures.get(route);
    if (figures === undefined) {
      this.#figures.set(route, figures = new RouteFigures());
    }
    // -1 is any other method: what clients make up must not make new counters.
    const key = implemented.indexOf(method) * 1000 + status;
    figures.answers.set(key, (figures.answers.get(key) ?? 0) + 1);
    figures.latency.observe(milliseconds);
  }

  /** All figures as text. */
  write({ store, routes, collections }: Measured): string {
    const text = new Text();
    this.#writeRequests(text, routes);
    writeStore(text, store, collections);
    writeProcess(text);
    return text.toString();
  }

  #writeRequests(text: Text, routes: ReadonlyMap<string, object>): void {
    const patterns = new Map<object | undefined, string>([[undefined, "none"]]);
    for (const [pattern, route] of routes) {
      if (!patterns.has(route)) patterns.set(route, pattern);
    }
    const name = "zoo_api_http_requests_total";
    text.family(name, "counter", "Requests that were answered.");
    for (const [of, { answers }] of this.#figures) {
      const route = patterns.get(of);
      for (const [key, count] of answers) {
        const method = implemented[Math.floor(key / 1000)] ?? "other";
        const status = (key + 1000) % 1000;
        text.sample(name, count, { method, route, status });
      }
    }
    const latency = "zoo_api_http_request_duration_seconds";
    text.family(latency, "histogram", "From a request's head to its answer.");
    for (const [of, figures] of this.#figures) {
      text.histogram(latency, figures.latency, { route: patterns.get(of) });
    }
  }
}

function writeStore(
  text: Text,
  store: Store,
  collections: readonly string[],
): void {
  const records = "zoo_api_records";
  text.family(records, "gauge", "Records that there are.");
  for (const collection of collections) {
    text.sample(records, store.table(collection).size, { collection });
  }
  const gauges: [name: string, help: string, value: number | boolean][] = [
    ["store_log_bytes", "Length of the write-ahead log.", store.logBytes],
    ["store_seq", "The last sequence in memory.", store.seq],
    ["store_durable_seq", "The last on the disk.", store.durableSeq],
    ["store_full", "Whether the disk is full.", store.full],
    ["store_writable", "Whether writes are taken.", store.writable],
  ];
  for (const [name, help, value] of gauges) {
    text.single(`zoo_api_${name}`, "gauge", { help, value: Number(value) });
  }
  const syncs = "zoo_api_store_sync_duration_seconds";
  text.family(syncs, "histogram", "How long the disk took to make durable.");
  text.histogram(syncs, store.syncs, {});
}

function writeProcess(text: Text): void {
  const { rss, heapUsed, heapTotal } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  const { active } = performance.eventLoopUtilization();
  const start = performance.timeOrigin / 1000;
  const cpu = (user + system) / 1e6;
  const figures: [name: string, help: string, value: number][] = [
    ["process_resident_memory_bytes", "Memory in all.", rss],
    ["nodejs_heap_used_bytes", "Memory of live and dead objects.", heapUsed],
    ["nodejs_heap_size_bytes", "Memory kept for objects.", heapTotal],
    ["process_start_time_seconds", "Since 1970.", start],
    ["process_cpu_seconds_total", "Time that it ran.", cpu],
    [
      "nodejs_eventloop_active_seconds_total",
      "Time in which the event loop did not wait.",
      active / 1000,
    ],
  ];
  for (const [name, help, value] of figures) {
    const type = name.endsWith("_total") ? "counter" : "gauge";
    text.single(name, type, { help, value });
  }
}

type Labels = Readonly<Record<string, string | number | undefined>>;

/** The text as it grows. */
class Text {
  #text = "";

  family(name: string, type: "counter" | "gauge" | "histogram", help: string) {
    this.#text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
  }

  /** Values of labels are our own words, with nothing to be escaped. */
  sample(name: string, value: number, labels: Labels): void {
    const list = Object.entries(labels)
      .map(([label, value]) => `${label}="${value}"`).join();
    this.#text += `${name}${list && `{${list}}`} ${value}\n`;
  }

  single(
    name: string,
    type: "counter" | "gauge",
    { help, value }: { readonly help: string; readonly value: number },
  ): void {
    this.family(name, type, help);
    this.sample(name, value, {});
  }

  histogram(name: string, { bounds, counts, sum }: Histogram, labels: Labels) {
    let total = 0;
    for (const [at, count] of counts.entries()) {
      total += count;
      this.sample(`${name}_bucket`, total, {
        ...labels,
        le: bounds[at] ?? "+Inf",
      });
    }
    this.sample(`${name}_sum`, sum, labels);
    this.sample(`${name}_count`, total, labels);
  }

  toString(): string {
    return this.#text;
  }
}

function metricsRoute(figures: () => string): Route {
  const get: Operation = {
    summary: "Figures for Prometheus, for a program on this machine too",
    access: "admin",
    freeOnThisMachine: true,
    parse: none,
    run: () => ({
      status: 200,
      headers: ["Cache-Control", "no-store"],
      body: figures(),
      type: metricsType,
      seq: 0,
    }),
    offers: [metricsType],
    told: { answers: { 200: { schema: { type: "string" } } } },
  };
  return route({ GET: get });
}

/** Figures for monitoring. */
export const metrics: Room = {
  open({ add, base, store, routes, collections }) {
    const metrics = new Metrics();
    const measured = { store, routes, collections: [...collections.keys()] };
    add(`${base.path}metrics`, metricsRoute(() => metrics.write(measured)));
    return {
      answered({ route, method, status, start }) {
        const milliseconds = performance.now() - start;
        metrics.count(route, method, { status, milliseconds });
      },
    };
  },
};
