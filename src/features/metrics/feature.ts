/**
 * Metrics in the text format of Prometheus
 * (https://prometheus.io/docs/instrumenting/exposition_formats/). Counting a
 * request takes two lookups and allocates nothing; the text is built on request.
 */

import type { Operation } from "../../api/operation.ts";
import { performance } from "node:perf_hooks";
import process from "node:process";
import type { Api, Feature } from "../../api/feature.ts";
import type { RequestContext } from "../../api/request-context.ts";
import { oneOf } from "../../api/settings/switch.ts";
import type { IncomingRequest } from "../../http/connection.ts";
import { implementedMethods } from "../../http/errors.ts";
import { asShared } from "../../store/shared.ts";
import type { Memory } from "../../store/store.ts";

const mediaType = "text/plain; version=0.0.4; charset=utf-8";

/** The upper bounds of the buckets, in seconds; also for fsync, from a good SSD to a bad SD card. */
const bounds = [0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 2, 5];

/** Durations, counted in buckets as Prometheus expects. */
class Histogram {
  /** The number of durations in each bucket; the last has all above the bounds. */
  readonly counts: number[] = new Array(bounds.length + 1).fill(0);
  /** The sum of all durations, in seconds. */
  sum = 0;

  observe(milliseconds: number): void {
    const seconds = milliseconds / 1000;
    const { counts } = this;
    let at = 0;
    while (at < bounds.length && seconds > (bounds[at] ?? 0)) at++;
    counts[at] = (counts[at] ?? 0) + 1;
    this.sum += seconds;
  }
}

/** The counters of one route. */
interface RouteMetrics {
  /** By method and status: the index of the method × 1000 + the status. */
  readonly responses: Map<number, number>;
  readonly latency: Histogram;
}

/** Metric families by name: one value, or a sample for each set of labels. */
type Families = Readonly<
  Record<
    string,
    readonly [help: string, value: number | boolean | readonly Sample[]]
  >
>;

/** A sample without its family's name: `{collection="zoos"} 3`. No label's value comes from a client, so none needs escaping. */
type Sample = string;

/** Counts requests by route. */
class RequestMetrics {
  /** The counters of each route, compared by identity; undefined stands for all unknown URLs. */
  readonly #routes = new Map<object | undefined, RouteMetrics>();

  count(
    { route, method, start }: Pick<
      RequestContext,
      "route" | "method" | "start"
    >,
    status: number,
  ): void {
    let metrics = this.#routes.get(route);
    if (metrics === undefined) {
      metrics = { responses: new Map(), latency: new Histogram() };
      this.#routes.set(route, metrics);
    }
    const { responses, latency } = metrics;
    // An unknown method is -1, so that clients cannot create counters.
    const key = implementedMethods.indexOf(method) * 1000 + status;
    responses.set(key, (responses.get(key) ?? 0) + 1);
    latency.observe(performance.now() - start);
  }

  families({ routes }: Api): Families {
    // Reversed, so that the first pattern of each route is the last to be set.
    const patterns = new Map<unknown, string>(
      [...routes].reverse().map(([pattern, route]) => [route, pattern]),
    );
    const requests: Sample[] = [];
    const durations: Sample[] = [];
    for (const [key, { responses, latency }] of this.#routes) {
      const route = patterns.get(key) ?? "none";
      for (const [key, count] of responses) {
        const method = implementedMethods[Math.floor(key / 1000)] ?? "other";
        const status = (key + 1000) % 1000;
        requests.push(
          `{method="${method}",route="${route}",status="${status}"} ${count}`,
        );
      }
      durations.push(...histogramSamples(latency, `route="${route}"`));
    }
    return {
      http_requests_total: ["Responses sent.", requests],
      http_request_duration_seconds: [
        "Time from the request's header to the response.",
        durations,
      ],
    };
  }
}

function memoryFamilies({ used, limit, isFull }: Memory): Families {
  return {
    store_memory_bytes: [
      "Memory of the records and of what is stored beside them.",
      used,
    ],
    store_memory_limit_bytes: ["Limit of that memory.", limit],
    store_memory_full: ["1 if the memory is full.", isFull],
  };
}

function serverFamilies(
  { store, collections }: Api,
  syncs: Histogram,
): Families {
  const sizes = Array.from(
    collections.keys(),
    (name) => `{collection="${name}"} ${store.table(name).size}`,
  );
  const { rss, heapUsed, heapTotal } = process.memoryUsage();
  const { user, system } = process.cpuUsage();
  return {
    records: ["Stored records.", sizes],
    store_log_bytes: ["Write-ahead log size.", store.log.offset],
    store_seq: ["Last sequence number in memory.", store.seq],
    store_durable_seq: [
      "Last sequence number on the disk.",
      store.durableSeq,
    ],
    store_full: ["1 if the disk is full.", store.fullDisk?.isFull ?? false],
    ...(store.memory && memoryFamilies(store.memory)),
    store_writable: [
      "1 if the store accepts writes.",
      store.isWritable,
    ],
    ...asShared(store)?.gauges,
    store_sync_duration_seconds: [
      "Time that fsync took.",
      histogramSamples(syncs),
    ],
    process_resident_memory_bytes: ["Resident memory.", rss],
    nodejs_heap_used_bytes: [
      "Heap memory in use, including garbage not yet collected.",
      heapUsed,
    ],
    nodejs_heap_size_bytes: ["Heap memory allocated.", heapTotal],
    process_start_time_seconds: [
      "Start time since 1970.",
      performance.timeOrigin / 1000,
    ],
    process_cpu_seconds_total: ["CPU time used.", (user + system) / 1e6],
    nodejs_eventloop_active_seconds_total: [
      "Time that the event loop was busy.",
      performance.eventLoopUtilization().active / 1000,
    ],
  };
}

function histogramSamples(
  { counts, sum }: Histogram,
  label = "",
): Sample[] {
  let total = 0;
  const buckets = counts.map((count, index) => {
    total += count;
    const le = `le="${bounds[index] ?? "+Inf"}"`;
    return `_bucket{${label && `${label},`}${le}} ${total}`;
  });
  const labels = label && `{${label}}`;
  return [...buckets, `_sum${labels} ${sum}`, `_count${labels} ${total}`];
}

function format(families: Families, title: string): string {
  const prefix = title.toLowerCase().replace(/^(?=\d)|[^a-z0-9]+/g, "_");
  let text = "";
  for (const [key, [help, value]] of Object.entries(families)) {
    const name = /^(?:process|nodejs)_/.test(key) ? key : `${prefix}_${key}`;
    const type = name.endsWith("_total")
      ? "counter"
      : name.endsWith("_duration_seconds")
      ? "histogram"
      : "gauge";
    text += `# HELP ${name} ${help}\n# TYPE ${name} ${type}\n`;
    const samples = typeof value === "object" ? value : [` ${Number(value)}`];
    for (const sample of samples) text += `${name}${sample}\n`;
  }
  return text;
}

/**
 * Returns whether a request comes from a program on this machine, but not
 * through a proxy that says so, not from a script of a web page, and not from a
 * web page whose host name resolves to this machine. An nginx with only a `proxy_pass` adds no such
 * field, and names this machine in Host: it must refuse the path itself.
 */
function isFromLoopback(
  { socket, headers, url = "" }: IncomingRequest,
): boolean {
  const host = /^(?:localhost|\[::1\]|127(?:\.\d+){3})(?::\d+)?$/i;
  const forwarding =
    /^(?:origin|forwarded|via|cdn-loop|x-forwarded.*|x-real-ip|.*client-ip|.*connecting-ip)$/;
  return /^(?:::ffff:)?127\.|^::1$/.test(socket.remoteAddress ?? "") &&
    // A target with an authority counts in place of Host (RFC 9112 section 3.2.2).
    url.startsWith("/") && host.test(headers.host ?? "") &&
    !Object.keys(headers).some((name) => forwarding.test(name));
}

const settings = {
  METRICS: {
    description:
      "local: programs on this machine read /metrics without a token",
    ...oneOf("off", "local"),
  },
};

export const feature: Feature = {
  settings,
  open(api) {
    const { METRICS: isLocal } = api.settings.read(settings);
    const requests = new RequestMetrics();
    const syncs = new Histogram();
    api.store.advanceListeners.add((syncMs) => syncs.observe(syncMs));
    const GET: Operation = {
      access: api.declaration.roles.highest,
      isPublicFor: isLocal ? isFromLoopback : undefined,
      run: () => ({
        status: 200,
        headers: ["Cache-Control", "no-store"],
        body: format({
          ...requests.families(api),
          ...serverFamilies(api, syncs),
        }, api.declaration.title),
        type: mediaType,
        seq: 0,
      }),
      produces: [mediaType],
      docs: {
        summary: "Metrics for Prometheus",
        responses: { 200: { schema: { type: "string" } } },
      },
    };
    api.add(`${api.base.path}metrics`, { methods: { GET } });
    return {
      onResponse: (request, { status }) => requests.count(request, status),
    };
  },
};
