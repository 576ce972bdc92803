import assert from "node:assert/strict";
import { describe, test } from "node:test";
import type { BadgedOptions } from "../src/index.js";
import {
  Bench,
  changes,
  conversation,
  FakeClock,
  FakeSocket,
  FakeStorage,
  golden,
  settled,
  snapshot,
} from "./fakes.js";

const NEVER_CONNECTED =
  "cannot connect: check the url, the server, and that the server allows this page's origin (--allowed-origins)";

/** A request of the client, answered by the test. */
class FakeRequest {
  readonly response: Promise<Response>;
  answer = (_: Response) => {};
  fail = (_: Error) => {};
  #stream: ReadableStreamDefaultController<Uint8Array> | undefined;

  constructor(
    readonly url: string,
    readonly init: RequestInit,
  ) {
    this.response = new Promise((resolve, reject) => {
      this.answer = resolve;
      this.fail = reject;
    });
    init.signal?.addEventListener("abort", () => this.fail(new Error("aborted")));
  }

  header(name: string): string | null {
    return new Headers(this.init.headers).get(name);
  }

  /** Answers with a stream of events. */
  async stream(): Promise<void> {
    const body = new ReadableStream<Uint8Array>({
      start: (controller) => {
        this.#stream = controller;
      },
    });
    this.answer(new Response(body, { headers: { "Content-Type": "text/event-stream" } }));
    await settled();
  }

  async write(text: string | Uint8Array): Promise<void> {
    this.#stream?.enqueue(typeof text === "string" ? new TextEncoder().encode(text) : text);
    await settled();
  }

  async end(): Promise<void> {
    this.#stream?.close();
    await settled();
  }
}

/** A client on a network that blocks WebSockets. */
class StreamBench extends Bench {
  readonly requests: FakeRequest[];

  constructor(options: Partial<BadgedOptions> & { clock?: FakeClock } = {}) {
    const requests: FakeRequest[] = [];
    super({
      ...options,
      fallback: true,
      fetch: (url, init = {}) => {
        const request = new FakeRequest(String(url), init);
        requests.push(request);
        return request.response;
      },
    });
    this.requests = requests;
  }

  get request(): FakeRequest {
    const request = this.requests.at(-1);
    assert(request, "nothing was requested");
    return request;
  }

  /** Fails WebSockets until the client falls back. */
  async block(): Promise<void> {
    this.client.start();
    await settled();
    this.socket.drop();
    (await this.retried()).drop();
    await settled();
  }

  async streaming(): Promise<FakeRequest> {
    await this.block();
    const request = this.request;
    await request.stream();
    await request.write(`data: ${golden("snapshot")}\n\n`);
    this.told.length = 0;
    return request;
  }
}

test("if WebSockets fail, frames come as server-sent events", async () => {
  const bench = new StreamBench();
  await bench.block();
  assert.equal(bench.sockets.length, 2);
  const { request } = bench;
  assert.equal(request.url, "https://badges.test/v1/sse");
  assert.equal(request.header("Authorization"), "Bearer token3");
  assert.equal(request.header("Last-Event-ID"), null);
  await request.stream();
  await request.write(`id: e1:57\nevent: snapshot\ndata: ${golden("snapshot")}\n\n`);
  assert.equal(bench.client.badge?.total, 6);
  assert.equal(bench.client.status.state, "online");
  await request.write(`data: ${golden("changes")}\r\n\r\n`);
  assert.equal(bench.client.badge?.total, 4);
});

test("frames may arrive in pieces or several at once", async () => {
  const bench = new StreamBench();
  const request = await bench.streaming();
  const bytes = new TextEncoder().encode(
    `data: ${golden("changes")}\n\ndata: ${JSON.stringify(
      changes(60, 9, [conversation("Café ☕", 7, 60)]),
    )}\n\n`,
  );
  for (const byte of bytes) await request.write(Uint8Array.of(byte));
  assert.deepEqual(bench.told, [
    "conversation design-crew 0",
    "conversation Café ☕ 2",
    "total 4",
    "conversation Café ☕ 7",
    "total 9",
  ]);
});

test("it resumes by Last-Event-ID over the transport that works", async () => {
  const bench = new StreamBench();
  const request = await bench.streaming();
  await request.end();
  assert.equal(bench.client.status.state, "waiting");
  await bench.retried();
  assert.equal(bench.sockets.length, 2);
  assert.equal(bench.requests.length, 2);
  assert.equal(bench.request.header("Last-Event-ID"), "e1:57");
});

test("if both transports fail, each attempt tries both", async () => {
  const bench = new StreamBench();
  await bench.block();
  for (let attempt = 1; attempt < 4; attempt++) {
    assert.equal(bench.client.status.state, "connecting");
    bench.request.answer(new Response("<html>", { status: 502 }));
    await settled();
    (await bench.retried()).drop();
    await settled();
    assert.deepEqual([bench.sockets.length, bench.requests.length], [attempt + 2, attempt + 1]);
  }
});

describe("a proxy that swallows the upgrade", () => {
  /** A client with a WebSocket that never receives anything. */
  async function swallowed(bench: StreamBench): Promise<StreamBench> {
    bench.client.start();
    await settled();
    await bench.clock.advance(3_000);
    await settled();
    return bench;
  }

  test("delays the client by three seconds, until the event stream starts beside the WebSocket", async () => {
    const bench = new StreamBench();
    bench.client.start();
    await settled();
    await bench.clock.advance(2_999);
    assert.equal(bench.requests.length, 0);
    await bench.clock.advance(1);
    assert.equal(bench.client.status.state, "connecting");
    await bench.request.stream();
    await bench.request.write(`data: ${golden("snapshot")}\n\n`);
    assert.equal(bench.client.status.state, "online");
    assert.equal(bench.socket.closed, true);
    bench.socket.serve(snapshot(99));
    assert.equal(bench.client.badge?.total, 6, "what was left is not heard");
  });

  test("does not lock out a WebSocket that was only slow", async () => {
    const bench = await swallowed(new StreamBench());
    bench.socket.accept();
    bench.socket.serve(golden("snapshot"));
    assert.equal(bench.client.status.state, "online");
    assert.equal(bench.request.init.signal?.aborted, true);
    void bench.client.markUnread("random");
    assert.deepEqual(bench.socket.commands(), ["mark_unread random"]);
    assert.equal(bench.requests.length, 1);
  });

  test("and the stream too: the attempt ends with the last of the two", async () => {
    const bench = await swallowed(new StreamBench());
    await bench.clock.advance(12_000);
    assert.equal(bench.socket.closed, true);
    assert.equal(bench.client.status.state, "connecting");
    await bench.clock.advance(3_000);
    assert.equal(bench.client.status.state, "waiting");
  });

  test("is suspected later once a WebSocket has worked", async () => {
    const bench = new StreamBench();
    (await bench.online(snapshot())).drop();
    await bench.retried();
    await bench.clock.advance(9_999);
    assert.equal(bench.requests.length, 0);
    await bench.clock.advance(1);
    assert.equal(bench.requests.length, 1);
  });

  test("is remembered for an hour, by URL, across visits", async () => {
    const storage = new FakeStorage();
    const clock = new FakeClock();
    const bench = await swallowed(new StreamBench({ storage, clock }));
    await bench.request.stream();
    await bench.request.write(`data: ${golden("snapshot")}\n\n`);
    await bench.request.end();
    await bench.retried();
    assert.equal(bench.sockets.length, 1);
    assert.equal(bench.requests.length, 2);
    bench.client.stop();

    const visit = async (url: string) => {
      const next = new StreamBench({ storage, clock, url });
      next.client.start();
      await settled();
      next.client.stop();
      return [next.sockets.length, next.requests.length];
    };
    assert.deepEqual(await visit("https://badges.test"), [0, 1]);
    assert.deepEqual(await visit("https://elsewhere.test"), [1, 0]);
    await clock.advance(3_600_000);
    assert.deepEqual(await visit("https://badges.test"), [1, 0]);
  });

  test("is no longer remembered after forget or once a WebSocket works", async () => {
    for (const end of ["forget", "works"]) {
      const storage = new FakeStorage();
      const bench = await swallowed(new StreamBench({ storage }));
      await bench.request.stream();
      await bench.request.write(`data: ${golden("snapshot")}\n\n`);
      assert.equal(storage.items.size, 1);
      if (end === "forget") {
        bench.client.forget();
      } else {
        await bench.request.end();
        await bench.retried();
        await bench.clock.advance(3_000);
        bench.socket.accept();
        bench.socket.serve(golden("snapshot"));
      }
      assert.equal(storage.items.size, 0);
    }
  });
});

test("a refusal over a WebSocket starts no event stream", async () => {
  const bench = new StreamBench();
  bench.client.start();
  await settled();
  for (let attempt = 0; attempt < 4; attempt++) {
    bench.socket.accept();
    bench.socket.serve({ t: "bye", code: 4200, reconnect_ms: 10 });
    await bench.retried();
  }
  assert.equal(bench.sockets.length, 5);
  assert.equal(bench.requests.length, 0);
});

describe("an HTTP status maps to a close code", () => {
  const cases: [number, string, string][] = [
    [401, "waiting", "token expired"],
    [403, "refused", "forbidden"],
    [404, "waiting", NEVER_CONNECTED],
    [429, "waiting", "over capacity"],
    [503, "waiting", "over capacity"],
    [500, "waiting", NEVER_CONNECTED],
  ];
  for (const [status, state, reason] of cases) {
    test(`${status}`, async () => {
      const bench = new StreamBench();
      await bench.block();
      bench.request.answer(
        Response.json({ detail: "no" }, { status, headers: { "Retry-After": "7" } }),
      );
      await settled();
      const { client } = bench;
      assert(client.status.state === "waiting" || client.status.state === "refused");
      assert.deepEqual([client.status.state, client.status.reason], [state, reason]);
      if (client.status.state === "waiting") assert(client.status.retryMs >= 7_000);
    });
  }

  test("but a 403 of a proxy is not final, and no pause is below 0", async () => {
    const bench = new StreamBench();
    await bench.block();
    const headers = { "Retry-After": "-7" };
    bench.request.answer(new Response("<h1>Blocked</h1>", { status: 403, headers }));
    await settled();
    const { status } = bench.client;
    assert(status.state === "waiting" && status.retryMs >= 0);
    assert.equal(status.reason, NEVER_CONNECTED);
  });

  test("a refused token is fetched again", async () => {
    const bench = new StreamBench();
    await bench.block();
    bench.request.answer(new Response(null, { status: 401 }));
    await settled();
    await bench.retried();
    assert.equal(bench.tokensAskedFor.at(-1), true);
  });
});

describe("commands are sent by HTTP", () => {
  test("and answered as over a WebSocket", async () => {
    const bench = new StreamBench();
    const stream = await bench.streaming();
    const reading = bench.client.read("design-crew", 42);
    const { request } = bench;
    assert.notEqual(request, stream);
    assert.equal(request.url, "https://badges.test/v1/commands");
    assert.equal(request.init.method, "POST");
    assert.equal(request.header("Authorization"), "Bearer token3");
    const { id, ...rest } = JSON.parse(String(request.init.body));
    assert.deepEqual(rest, { t: "read", conversation_id: "design-crew", up_to_seq: 42 });
    request.answer(Response.json({ t: "ok", id }));
    await reading;
  });

  test("and sent again under their id if no answer comes for half a minute", async () => {
    const bench = new StreamBench();
    const stream = await bench.streaming();
    const marking = bench.client.markUnread("a");
    const first = bench.request;
    for (let s = 0; s < 32; s++) {
      await stream.write(": ping\n\n"); // the stream is alive
      await bench.clock.advance(1_000);
    }
    assert.equal(first.init.signal?.aborted, true);
    assert.equal(bench.client.status.state, "online");
    assert.equal(bench.request.init.body, first.init.body);
    const { id } = JSON.parse(String(first.init.body));
    bench.request.answer(Response.json({ t: "ok", id }));
    await marking;
  });

  test("and wait for the pause in the body, whatever the status", async () => {
    const bench = new StreamBench();
    await bench.streaming();
    const marking = bench.client.markUnread("a");
    const first = bench.request;
    const busy = { detail: "too much at once", code: "backpressure", retry_ms: 2_345 };
    first.answer(Response.json(busy, { status: 429, headers: { "Retry-After": "3" } }));
    await settled();
    await bench.clock.advance(2_344);
    assert.equal(bench.request, first);
    await bench.clock.advance(1);
    assert.equal(bench.request.init.body, first.init.body);
    const { id } = JSON.parse(String(first.init.body));
    bench.request.answer(Response.json({ t: "ok", id }));
    await marking;
  });

  test("or refused finally", async () => {
    const bench = new StreamBench();
    await bench.streaming();
    const refusals: [number, string][] = [
      [404, "not_found"],
      [400, "invalid"],
      [422, "invalid"],
    ];
    for (const [status, code] of refusals) {
      const marking = bench.client.markUnread("nowhere");
      bench.request.answer(Response.json({ detail: "not yours" }, { status }));
      await assert.rejects(marking, { name: "BadgedError", code, message: "not yours" });
    }
  });

  const failures: [string, (request: FakeRequest) => void, number][] = [
    ["there is no answer", (r) => r.fail(new TypeError("network error")), 1_500],
    ["the answer is not JSON", (r) => r.answer(new Response("<html>", { status: 502 })), 1_500],
    [
      "the answer is JSON of a proxy",
      (r) => r.answer(Response.json({ code: 1020, detail: { no: "text" } }, { status: 403 })),
      1_500,
    ],
    [
      "the pause is below 0",
      (r) => r.answer(Response.json({ retry_ms: -5, detail: "later" }, { status: 503 })),
      1_500,
    ],
    [
      "the server is busy",
      (r) => r.answer(new Response("{}", { status: 503, headers: { "Retry-After": "4" } })),
      4_000,
    ],
  ];
  for (const [name, fail, pauseMs] of failures) {
    test(`and sent again under their id if ${name}`, async () => {
      const bench = new StreamBench();
      await bench.streaming();
      const marking = bench.client.markUnread("a");
      const first = bench.request;
      fail(first);
      await settled();
      await bench.clock.advance(pauseMs - 1);
      assert.equal(bench.request, first);
      assert.equal(bench.client.status.state, "online");
      await bench.clock.advance(1);
      assert.notEqual(bench.request, first);
      assert.equal(bench.request.init.body, first.init.body);
      const { id } = JSON.parse(String(first.init.body));
      bench.request.answer(Response.json({ t: "ok", id }));
      await marking;
    });
  }
});

describe("a silent stream", () => {
  test("is dead after two and a half intervals, even without a close", async () => {
    const bench = new StreamBench();
    const request = await bench.streaming();
    await bench.clock.advance(62_000);
    await request.write(": still here\n\n");
    await bench.clock.advance(62_499);
    assert.equal(bench.client.status.state, "online");
    assert.equal(bench.requests.length, 1, "a stream is not pinged");
    await bench.clock.advance(1);
    assert.equal(bench.client.status.state, "waiting");
    assert.equal(request.init.signal?.aborted, true);
  });

  test("is not pinged when the user comes back", async () => {
    const bench = new StreamBench();
    await bench.streaming();
    bench.page.comeBack();
    await bench.clock.advance(62_499);
    assert.equal(bench.client.status.state, "online");
  });
});

test("a stop ends the stream, and later frames are ignored", async () => {
  const bench = new StreamBench();
  const request = await bench.streaming();
  bench.client.stop();
  assert.equal(request.init.signal?.aborted, true);
  await request.write(`data: ${golden("changes")}\n\n`);
  assert.equal(bench.client.badge?.total, 6);
  assert.equal(bench.clock.pending, 0);
});

test("without a WebSocket, as in Node 20, server-sent events serve alone", async () => {
  const bench = new StreamBench({ WebSocket: null });
  bench.client.start();
  await settled();
  assert.equal(bench.requests.length, 1);
  bench.request.fail(new TypeError("network error"));
  await settled();
  await bench.clock.advance(499);
  assert.equal(bench.requests.length, 2);
  await bench.request.stream();
  await bench.request.write(`data: ${golden("snapshot")}\n\n`);
  assert.equal(bench.client.status.state, "online");
});

test("without any transport, the status says what is missing", async () => {
  const options = [{ fallback: false }, { fallback: true, fetch: null }];
  for (const option of options) {
    const bench = new Bench({ WebSocket: null, ...option });
    bench.client.start();
    await settled();
    const { status } = bench.client;
    assert(status.state === "waiting");
    assert.equal(status.reason, "cannot connect: no WebSocket: set the option WebSocket");
  }
});

test("without the fallback or fetch, only WebSockets are tried", async () => {
  const refuse = () => assert.fail("nothing is to be requested");
  for (const options of [
    { fallback: false, fetch: refuse },
    { fallback: true, fetch: null },
  ]) {
    const bench = new Bench(options);
    bench.client.start();
    await settled();
    for (let attempt = 0; attempt < 5; attempt++) {
      bench.socket.drop();
      await bench.retried();
    }
    assert.equal(bench.sockets.length, 6);
    assert(bench.socket instanceof FakeSocket);
  }
});

test("once a WebSocket works, the fallback needs new failures", async () => {
  const bench = new StreamBench();
  bench.client.start();
  await settled();
  bench.socket.drop();
  const socket = await bench.retried();
  socket.accept();
  socket.serve(snapshot());
  socket.drop();
  (await bench.retried()).drop();
  await bench.retried();
  assert.equal(bench.sockets.length, 4);
  assert.equal(bench.requests.length, 0);
});
