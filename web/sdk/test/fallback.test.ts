import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Bench, changes, conversation, FakeSocket, golden, settled, snapshot } from "./fakes.js";

/** One request that the client has made, answered by the test. */
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

/** A client on a network where WebSockets do not get through. */
class StreamBench extends Bench {
  readonly requests: FakeRequest[];

  constructor() {
    const requests: FakeRequest[] = [];
    super({
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

  /** Lets the WebSocket fail as often as it takes. */
  async block(): Promise<void> {
    this.client.start();
    await settled();
    this.socket.drop();
    (await this.retried()).drop();
    await this.retried();
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

test("where WebSockets do not get through, the frames come as server-sent events", async () => {
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

test("a frame may come in pieces, and several at once", async () => {
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

test("it resumes by Last-Event-ID, and stays with what works", async () => {
  const bench = new StreamBench();
  const request = await bench.streaming();
  await request.end();
  assert.equal(bench.client.status.state, "waiting");
  await bench.retried();
  assert.equal(bench.sockets.length, 2);
  assert.equal(bench.requests.length, 2);
  assert.equal(bench.request.header("Last-Event-ID"), "e1:57");
});

test("what fails, too, is left again for WebSockets", async () => {
  const bench = new StreamBench();
  await bench.block();
  bench.request.fail(new TypeError("network error"));
  await settled();
  await bench.retried();
  bench.request.answer(new Response("<html>", { status: 502 }));
  await settled();
  await bench.retried();
  assert.equal(bench.requests.length, 2);
  assert.equal(bench.sockets.length, 3);
});

test("a server that says no over a WebSocket is not asked in another way", async () => {
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

describe("the status of HTTP says what a close code would", () => {
  const cases: [number, string, string][] = [
    [401, "waiting", "token expired"],
    [403, "refused", "forbidden"],
    [429, "waiting", "over capacity"],
    [503, "waiting", "over capacity"],
    [500, "waiting", "connection lost"],
  ];
  for (const [status, state, reason] of cases) {
    test(`${status}`, async () => {
      const bench = new StreamBench();
      await bench.block();
      bench.request.answer(new Response("{}", { status, headers: { "Retry-After": "7" } }));
      await settled();
      const { client } = bench;
      assert(client.status.state === "waiting" || client.status.state === "refused");
      assert.deepEqual([client.status.state, client.status.reason], [state, reason]);
      if (client.status.state === "waiting") assert(client.status.retryMs >= 7_000);
    });
  }

  test("a token that is refused is asked for anew", async () => {
    const bench = new StreamBench();
    await bench.block();
    bench.request.answer(new Response(null, { status: 401 }));
    await settled();
    await bench.retried();
    assert.equal(bench.tokensAskedFor.at(-1), true);
  });
});

describe("commands go by HTTP", () => {
  test("and are answered as over a WebSocket", async () => {
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

  test("or refused for good", async () => {
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
    ["the answer is no JSON", (r) => r.answer(new Response("<html>", { status: 502 })), 1_500],
    [
      "the server is busy",
      (r) => r.answer(new Response("{}", { status: 503, headers: { "Retry-After": "4" } })),
      4_000,
    ],
  ];
  for (const [name, fail, pauseMs] of failures) {
    test(`and are sent again under their id where ${name}`, async () => {
      const bench = new StreamBench();
      await bench.streaming();
      const marking = bench.client.markUnread("a");
      const first = bench.request;
      fail(first);
      await settled();
      await bench.clock.advance(pauseMs - 1);
      assert.equal(bench.request, first);
      await bench.clock.advance(1);
      assert.notEqual(bench.request, first);
      assert.equal(bench.request.init.body, first.init.body);
      const { id } = JSON.parse(String(first.init.body));
      bench.request.answer(Response.json({ t: "ok", id }));
      await marking;
    });
  }
});

describe("a stream that is silent", () => {
  test("for two and a half intervals is dead, whatever its end says", async () => {
    const bench = new StreamBench();
    const request = await bench.streaming();
    await bench.clock.advance(62_000);
    await request.write(": still here\n\n");
    await bench.clock.advance(62_499);
    assert.equal(bench.client.status.state, "online");
    assert.equal(bench.requests.length, 1, "there is nobody to ping");
    await bench.clock.advance(1);
    assert.equal(bench.client.status.state, "waiting");
    assert.equal(request.init.signal?.aborted, true);
  });

  test("is not disturbed when the user comes back", async () => {
    const bench = new StreamBench();
    await bench.streaming();
    bench.page.comeBack();
    await bench.clock.advance(62_499);
    assert.equal(bench.client.status.state, "online");
  });
});

test("a stop ends the stream, and what comes later is not heard", async () => {
  const bench = new StreamBench();
  const request = await bench.streaming();
  bench.client.stop();
  assert.equal(request.init.signal?.aborted, true);
  await request.write(`data: ${golden("changes")}\n\n`);
  assert.equal(bench.client.badge?.total, 6);
  assert.equal(bench.clock.pending, 0);
});

test("without the fallback, or without fetch, there are only WebSockets", async () => {
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

test("once WebSockets get through, they count as such again", async () => {
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
