// dist/publish/src/error.ts
var PublishError = class extends Error {
  name = "PublishError";
  /** The status of the answer; absent if there was none. */
  status;
  /** Each bad event, if the server refused some. */
  errors;
  /**
   * Whether publishing the same events again may succeed: nothing is wrong with them, and
   * those that were stored after all count once.
   */
  retryable;
  constructor(message, { status, errors = [], retryable = false } = {}) {
    super(message);
    this.status = status;
    this.errors = errors;
    this.retryable = retryable;
  }
};

// dist/publish/src/request.ts
var AGAIN = /* @__PURE__ */ new Set([408, 425, 429, 500, 502, 503, 504]);
async function post(send, url, key, body, timeoutMs) {
  let answer;
  let text;
  try {
    answer = await send(url, {
      method: "POST",
      headers: { authorization: `Bearer ${key}`, "content-type": "application/json" },
      body,
      signal: AbortSignal.timeout(timeoutMs)
    });
    text = await answer.text();
  } catch (error) {
    return { kind: "again", message: `${url.origin} did not answer: ${reason(error)}`, afterMs: 0 };
  }
  const { status } = answer;
  if (status === 202)
    return { kind: "stored", position: answer.headers.get("badged-position") ?? "" };
  const problem = read(text);
  const message = `${url.origin} answered ${status}: ${problem.detail ?? answer.statusText}`;
  if (AGAIN.has(status)) {
    return { kind: "again", message, status, afterMs: pause(answer.headers.get("retry-after")) };
  }
  return { kind: "refused", message, status, errors: problem.errors ?? [] };
}
function reason(error) {
  const { cause, message } = error;
  return cause?.message || cause?.code || message;
}
function read(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}
function pause(header) {
  if (header === null) return 0;
  const seconds = Number(header);
  const ms = Number.isNaN(seconds) ? Date.parse(header) - Date.now() : seconds * 1e3;
  return Number.isNaN(ms) ? 0 : Math.max(0, ms);
}

// dist/publish/src/publisher.ts
var MAX_BYTES = 4 * 1024 * 1024;
var encoder = new TextEncoder();
var MIN_PAUSE_MS = 100;
var MAX_PAUSE_MS = 1e4;
var Publisher = class {
  #options;
  #url;
  #queue = [];
  #waiting = 0;
  #sending;
  #closed = false;
  constructor(options) {
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
      giveUpAfterMs: positive("giveUpAfterMs", options.giveUpAfterMs ?? 6e4),
      timeoutMs: positive("timeoutMs", options.timeoutMs ?? 1e4),
      maxBatch: Math.min(positive("maxBatch", options.maxBatch ?? 1e3), 1e4),
      maxWaiting: positive("maxWaiting", options.maxWaiting ?? 1e5),
      fetch: options.fetch ?? fetch
    };
  }
  /**
   * Publishes an event, or several: all or none. It resolves when they are durable in the
   * log, and rejects with a {@link PublishError}, or with a TypeError for what JSON cannot
   * say, such as a seq that was rounded.
   */
  async publish(events) {
    const all = (Array.isArray(events) ? events : [events]).map((event) => this.#encode(event));
    if (all.length === 0) throw new TypeError("publish: give at least one event");
    if (this.#closed) throw new PublishError("the publisher is closed");
    const { maxWaiting, giveUpAfterMs } = this.#options;
    if (this.#waiting > 0 && this.#waiting + all.length > maxWaiting) {
      throw new PublishError(`${this.#waiting} events are waiting, the limit is ${maxWaiting}`, {
        retryable: true
      });
    }
    const bytes = all.reduce((sum, event) => sum + encoder.encode(event).length + 1, 0);
    this.#waiting += all.length;
    try {
      return await new Promise((resolve, reject) => {
        const giveUpAt = performance.now() + giveUpAfterMs;
        this.#queue.push({ events: all, bytes, giveUpAt, resolve, reject });
        this.#sending ??= this.#sendAll();
      });
    } finally {
      this.#waiting -= all.length;
    }
  }
  /** Waits for what was published, and publishes nothing more. */
  async close() {
    this.#closed = true;
    await this.#sending;
  }
  #encode(event) {
    if (typeof event !== "object" || event === null) throw new TypeError("an event is an object");
    const { source } = this.#options;
    const whole = { specversion: "1.0", ...source === void 0 ? {} : { source }, ...event };
    return JSON.stringify(whole, exact);
  }
  async #sendAll() {
    await void 0;
    while (this.#queue.length > 0) await this.#send(this.#take());
    this.#sending = void 0;
  }
  /** Takes the calls of the next request. */
  #take() {
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
  async #send(calls) {
    for (let failures = 0; calls.length > 0; failures++) {
      const { fetch: fetch2, key, timeoutMs } = this.#options;
      const body = `[${calls.map(({ events }) => events.join()).join()}]`;
      const outcome = await post(fetch2, this.#url, key, body, timeoutMs);
      if (outcome.kind === "stored") {
        for (const { resolve } of calls) resolve({ position: outcome.position });
        return;
      }
      if (outcome.kind === "refused") return await this.#refused(calls, outcome);
      const bound = Math.min(MAX_PAUSE_MS, MIN_PAUSE_MS * 2 ** failures);
      const pause2 = outcome.afterMs + Math.random() * bound;
      const { message, status } = outcome;
      const error = new PublishError(message, {
        ...status === void 0 ? {} : { status },
        retryable: true
      });
      const until = performance.now() + pause2;
      for (const call of calls) if (call.giveUpAt < until) call.reject(error);
      calls = calls.filter(({ giveUpAt }) => giveUpAt >= until);
      if (calls.length > 0) await new Promise((resolve) => setTimeout(resolve, pause2));
    }
  }
  /** Rejects the calls at fault, and sends the others. Nothing of the request was stored. */
  async #refused(calls, { message, status, errors }) {
    const good = [];
    let first = 0;
    for (const call of calls) {
      const of = errors.map((error) => ({ ...error, index: error.index - first })).filter(({ index }) => index >= 0 && index < call.events.length);
      first += call.events.length;
      if (of.length === 0 && calls.length > 1) {
        good.push(call);
        continue;
      }
      const says = of.map((e) => `event ${e.index}: ${e.field ? `${e.field}: ` : ""}${e.message}`);
      call.reject(new PublishError([message, ...says].join("; "), { status, errors: of }));
    }
    if (good.length < calls.length) return await this.#send(good);
    for (const call of good) await this.#send([call]);
  }
};
function positive(name, value) {
  if (!(value > 0)) throw new TypeError(`${name}: ${value} is not positive`);
  return value;
}
function exact(name, value) {
  if (typeof value === "bigint") return value.toString();
  if (typeof value === "number" && !Number.isSafeInteger(value)) {
    throw new TypeError(`${name}: ${value} is not exact: give a bigint, or the digits as a string`);
  }
  return value;
}
export {
  PublishError,
  Publisher
};
//# sourceMappingURL=index.js.map
