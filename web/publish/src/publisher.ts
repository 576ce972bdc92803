import { PublishError } from "./error.js";
import type { BadgedEvent } from "./events.js";
import { type Outcome, post } from "./request.js";

/** Settings of a {@link Publisher}. */
export interface PublisherOptions {
  /** Where badged listens, such as `http://badged:8080`. */
  url: string;
  /** A publisher key. */
  key: string;
  /** The source of events that name none. */
  source?: string;
  /** For how long events are sent again while badged is away or busy; by default 60,000. */
  giveUpAfterMs?: number;
  /** How long a request may take; by default 10,000. */
  timeoutMs?: number;
  /** How many events a request has at most; by default 1,000, and never more than 10,000. */
  maxBatch?: number;
  /** How many events may wait; by default 100,000. Beyond that `publish` fails at once. */
  maxWaiting?: number;
  /** Sends the requests; by default the global `fetch`. */
  fetch?: typeof fetch;
}

/** Says that events are durable in the log. */
export interface Receipt {
  /** For `at_least`, to read a badge that includes the events. */
  position: string;
}

/** A call of `publish`. Its events are sent in one request. */
interface Call {
  events: string[];
  bytes: number;
  giveUpAt: number;
  resolve(receipt: Receipt): void;
  reject(error: PublishError): void;
}

/** A request has at most 8 MiB. A call that is longer is sent alone, and refused. */
const MAX_BYTES = 4 * 1024 * 1024;
const encoder = new TextEncoder();
const MIN_PAUSE_MS = 100;
const MAX_PAUSE_MS = 10_000;

/**
 * Publishes events in order. What is published while a request is under way shares the
 * next one. While badged is away or busy, the events are sent again: an event counts once.
 */
export class Publisher {
  readonly #options: Required<Omit<PublisherOptions, "source">> & { source: string | undefined };
  readonly #url: URL;
  readonly #queue: Call[] = [];
  #waiting = 0;
  #sending: Promise<void> | undefined;
  #closed = false;

  constructor(options: PublisherOptions) {
    if (!options?.url) throw new TypeError("url is required, such as https://badged.example.com");
    const { url, key, source } = options;
    if (!URL.canParse(url)) throw new TypeError(`url: ${JSON.stringify(url)} is no URL`);
    if (typeof key !== "string" || !/^[!-~]+$/.test(key)) {
      throw new TypeError("key: give a publisher key, without spaces");
    }
    this.#url = new URL("v1/events", url.endsWith("/") ? url : `${url}/`);
    this.#options = {
      url,
      key,
      source,
      giveUpAfterMs: positive("giveUpAfterMs", options.giveUpAfterMs ?? 60_000),
      timeoutMs: positive("timeoutMs", options.timeoutMs ?? 10_000),
      maxBatch: Math.min(positive("maxBatch", options.maxBatch ?? 1_000), 10_000),
      maxWaiting: positive("maxWaiting", options.maxWaiting ?? 100_000),
      fetch: options.fetch ?? fetch,
    };
  }

  /**
   * Publishes an event, or several: all or none. It resolves when they are durable in the
   * log, and rejects with a {@link PublishError}, or with a TypeError for what JSON cannot
   * say, such as a seq that was rounded.
   */
  async publish(events: BadgedEvent | readonly BadgedEvent[]): Promise<Receipt> {
    const all = (Array.isArray(events) ? events : [events]).map((event) => this.#encode(event));
    if (all.length === 0) throw new TypeError("publish: give at least one event");
    if (this.#closed) throw new PublishError("the publisher is closed");
    const { maxWaiting, giveUpAfterMs } = this.#options;
    if (this.#waiting > 0 && this.#waiting + all.length > maxWaiting) {
      throw new PublishError(`${this.#waiting} events are waiting, the limit is ${maxWaiting}`, {
        retryable: true,
      });
    }
    const bytes = all.reduce((sum, event) => sum + encoder.encode(event).length + 1, 0);
    this.#waiting += all.length;
    try {
      return await new Promise<Receipt>((resolve, reject) => {
        const giveUpAt = performance.now() + giveUpAfterMs;
        this.#queue.push({ events: all, bytes, giveUpAt, resolve, reject });
        this.#sending ??= this.#sendAll();
      });
    } finally {
      this.#waiting -= all.length;
    }
  }

  /** Waits for what was published, and publishes nothing more. */
  async close(): Promise<void> {
    this.#closed = true;
    await this.#sending;
  }

  #encode(event: BadgedEvent): string {
    if (typeof event !== "object" || event === null) throw new TypeError("an event is an object");
    const { source } = this.#options;
    const whole = { specversion: "1.0", ...(source === undefined ? {} : { source }), ...event };
    return JSON.stringify(whole, exact);
  }

  async #sendAll(): Promise<void> {
    await undefined; // calls of the same turn share a request
    while (this.#queue.length > 0) await this.#send(this.#take());
    this.#sending = undefined;
  }

  /** Takes the calls of the next request. */
  #take(): Call[] {
    let [events, bytes, calls] = [0, 0, 0];
    for (const call of this.#queue) {
      events += call.events.length;
      bytes += call.bytes;
      if (calls > 0 && (events > this.#options.maxBatch || bytes > MAX_BYTES)) break;
      calls++;
    }
    return this.#queue.splice(0, calls);
  }

  /** Sends calls as one request until each is stored, refused or given up. */
  async #send(calls: Call[]): Promise<void> {
    for (let failures = 0; calls.length > 0; failures++) {
      const { fetch, key, timeoutMs } = this.#options;
      const body = `[${calls.map(({ events }) => events.join()).join()}]`;
      const outcome = await post(fetch, this.#url, key, body, timeoutMs);
      if (outcome.kind === "stored") {
        for (const { resolve } of calls) resolve({ position: outcome.position });
        return;
      }
      if (outcome.kind === "refused") return await this.#refused(calls, outcome);
      const bound = Math.min(MAX_PAUSE_MS, MIN_PAUSE_MS * 2 ** failures);
      const pause = outcome.afterMs + Math.random() * bound;
      const { message, status } = outcome;
      const error = new PublishError(message, {
        ...(status === undefined ? {} : { status }),
        retryable: true,
      });
      const until = performance.now() + pause;
      for (const call of calls) if (call.giveUpAt < until) call.reject(error);
      calls = calls.filter(({ giveUpAt }) => giveUpAt >= until);
      if (calls.length > 0) await new Promise((resolve) => setTimeout(resolve, pause));
    }
  }

  /** Rejects the calls at fault, and sends the others. Nothing of the request was stored. */
  async #refused(calls: Call[], { message, status, errors }: Refusal): Promise<void> {
    const good: Call[] = [];
    let first = 0;
    for (const call of calls) {
      const of = errors
        .map((error) => ({ ...error, index: error.index - first }))
        .filter(({ index }) => index >= 0 && index < call.events.length);
      first += call.events.length;
      if (of.length === 0 && calls.length > 1) {
        good.push(call);
        continue;
      }
      const says = of.map((e) => `event ${e.index}: ${e.field ? `${e.field}: ` : ""}${e.message}`);
      call.reject(new PublishError([message, ...says].join("; "), { status, errors: of }));
    }
    if (good.length < calls.length) return await this.#send(good);
    // The answer names no event: each call gets its own.
    for (const call of good) await this.#send([call]);
  }
}

type Refusal = Extract<Outcome, { kind: "refused" }>;

function positive(name: string, value: number): number {
  if (!(value > 0)) throw new TypeError(`${name}: ${value} is not positive`);
  return value;
}

/** Writes whole numbers as they are: bigints as digits. It fails for those that were rounded. */
function exact(name: string, value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new TypeError(`${name}: ${value} is not exact: give a bigint, or the digits as a string`);
  }
  return value;
}
