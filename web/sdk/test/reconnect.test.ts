import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type BadgedOptions, CloseCode, type Status } from "../src/index.js";
import { Bench, changes, conversation, golden, settled, snapshot } from "./fakes.js";

/** The pause before the next attempt. */
function pause({ status }: { status: Status }): number {
  assert(status.state === "waiting", `status is ${status.state}`);
  return status.retryMs;
}

describe("close codes", () => {
  const refusals: [number, string][] = [
    [4001, "bad token"],
    [4002, "protocol error"],
    [4003, "forbidden"],
    [4004, "no common subprotocol"],
  ];
  for (const [code, reason] of refusals) {
    test(`${code} is final`, async () => {
      const bench = new Bench();
      (await bench.online()).drop(code);
      assert.deepEqual(bench.client.status, { state: "refused", code, reason });
      assert.equal(bench.clock.pending, 0);
      await bench.clock.advance(3_600_000);
      assert.equal(bench.sockets.length, 1);
    });
  }

  const others = [
    1000, 1001, 1006, 1011, 1012, 4100, 4101, 4102, 4103, 4200, 4201, 4202, 4203, 4999,
  ];
  for (const code of others) {
    test(`${code} reconnects`, async () => {
      const bench = new Bench();
      (await bench.online()).drop(code);
      const { status } = bench.client;
      assert(status.state === "waiting");
      assert.equal(status.code, code);
      assert.notEqual(status.reason, "");
      await bench.retried();
      assert.equal(bench.sockets.length, 2);
    });
  }

  test("the server's reason is passed on", async () => {
    const bench = new Bench();
    (await bench.online()).drop(4003, "user ada is suspended");
    assert.deepEqual(bench.client.status, {
      state: "refused",
      code: CloseCode.Forbidden,
      reason: "user ada is suspended",
    });
  });

  test("a refused client can be started again", async () => {
    const bench = new Bench();
    (await bench.online(snapshot(3, [conversation("a", 1, 3)]))).drop(4001);
    bench.client.start();
    await settled();
    bench.socket.accept();
    assert.deepEqual(bench.socket.take(), [{ t: "hello", epoch: "e1", version: 3 }]);
  });
});

describe("bye", () => {
  test("ends the connection at once and sets the pause", async () => {
    const bench = new Bench({ random: () => 0 });
    const socket = await bench.online();
    socket.serve(golden("bye"));
    assert.equal(socket.closed, true);
    assert.deepEqual(bench.client.status, {
      state: "waiting",
      retryMs: 3700,
      code: CloseCode.Draining,
      reason: "draining",
    });
    socket.drop(4200);
    await bench.clock.advance(3699);
    assert.equal(bench.sockets.length, 1, "the close frame that follows changes nothing");
    await bench.clock.advance(1);
    assert.equal(bench.sockets.length, 2);
  });

  test("is final if its code is", async () => {
    const bench = new Bench();
    (await bench.online()).serve({ t: "bye", code: 4001, reconnect_ms: 100 });
    assert.equal(bench.client.status.state, "refused");
  });
});

describe("backoff", () => {
  test("doubles with each failure, and starts over after a connection that lasted", async () => {
    const bench = new Bench({ minBackoffMs: 100, maxBackoffMs: 500 });
    const pauses: number[] = [];
    (await bench.online()).drop();
    for (let attempt = 0; attempt < 4; attempt++) {
      pauses.push(pause(bench.client));
      (await bench.retried()).drop();
    }
    assert.deepEqual(pauses, [99, 199, 399, 499]);

    let socket = await bench.retried();
    socket.accept();
    socket.serve(snapshot());
    await bench.clock.advance(9_999);
    socket.drop();
    assert.equal(pause(bench.client), 499, "a short connection is no success");

    socket = await bench.retried();
    socket.accept();
    socket.serve(snapshot());
    await bench.clock.advance(10_000);
    socket.drop();
    assert.equal(pause(bench.client), 99);
  });

  test("defaults to 0.5 and 30 seconds", async () => {
    const bench = new Bench();
    (await bench.online()).drop();
    assert.equal(pause(bench.client), 499);
    for (let attempt = 0; attempt < 10; attempt++) (await bench.retried()).drop();
    assert.equal(pause(bench.client), 29_999);
  });

  const ends: [string, (bench: Bench) => void][] = [
    ["a stop", ({ client }) => client.stop()],
    ["a refusal", ({ socket }) => socket.drop(4003)],
  ];
  for (const [name, end] of ends) {
    test(`is reset by ${name}`, async () => {
      const bench = new Bench();
      (await bench.online()).drop();
      (await bench.retried()).drop();
      await bench.retried();
      end(bench);
      (await bench.online()).drop();
      assert.equal(pause(bench.client), 499);
    });
  }
});

test("failures before the first state say what to check, later ones do not", async () => {
  const bench = new Bench();
  const reason = () => bench.client.status.state === "waiting" && bench.client.status.reason;
  bench.client.start();
  await settled();
  bench.socket.drop();
  assert.equal(reason(), "connection lost");
  (await bench.retried()).drop();
  assert.match(String(reason()), /^cannot connect: check the url, .*--allowed-origins/);
  const socket = await bench.retried();
  socket.accept();
  socket.serve(snapshot());
  socket.drop();
  for (let attempt = 0; attempt < 3; attempt++) (await bench.retried()).drop();
  assert.equal(reason(), "connection lost");
});

describe("tokens", () => {
  test("are fetched before every connection", async () => {
    const bench = new Bench();
    (await bench.online()).drop();
    const socket = await bench.retried();
    assert.deepEqual(socket.protocols, ["badge.v1", "bearer.token2"]);
    assert.deepEqual(bench.tokensAskedFor, [false, false]);
  });

  test("are requested with expired until one is accepted", async () => {
    const bench = new Bench();
    (await bench.online()).drop(4202);
    let socket = await bench.retried();
    socket.drop(1006);
    socket = await bench.retried();
    socket.accept();
    socket.serve(snapshot());
    socket.drop(1006);
    await bench.retried();
    assert.deepEqual(bench.tokensAskedFor, [false, true, true, false]);
  });

  const failures: [string, BadgedOptions["token"]][] = [
    ["rejects", () => Promise.reject(new Error("login server is down"))],
    [
      "throws",
      () => {
        throw new Error("login server is down");
      },
    ],
  ];
  for (const [how, token] of failures) {
    test(`a function that ${how} counts as a failed attempt`, async () => {
      const bench = new Bench({ token });
      bench.client.start();
      await settled();
      assert.deepEqual(bench.client.status, {
        state: "waiting",
        retryMs: 499,
        code: 0,
        reason: "no token: login server is down",
      });
      await bench.retried().catch(() => {});
      assert.equal(pause(bench.client), 999);
      assert.equal(bench.sockets.length, 0);
    });
  }

  const page = "<html><title>Sign in</title><p>Your session is over.</p></html>";
  const wrong: [unknown, string][] = [
    ["", '""'],
    [undefined, "undefined"],
    [null, "object"],
    [false, "boolean"],
    [{ token: "t" }, "object"],
    ["a.b.c\n", '"a.b.c\\n"'],
    [page, '"<html><title>Sign in</title><p>Your sess…"'],
  ];
  for (const [none, shown] of wrong) {
    test(`that are ${JSON.stringify(none)} count as a failed attempt`, async () => {
      const bench = new Bench({ token: async () => none as never });
      bench.client.start();
      await settled();
      const { status } = bench.client;
      assert.equal(status.state, "waiting");
      assert(status.state === "waiting");
      assert.equal(status.reason, `no token: token() returned ${shown}`);
      assert.equal(bench.sockets.length, 0);
    });
  }

  test("that the WebSocket refuses count as a failed attempt", async () => {
    const bench = new Bench({
      WebSocket: class {
        constructor() {
          throw new SyntaxError("subprotocol is not a token");
        }
      } as never,
    });
    bench.client.start();
    await settled();
    assert.equal(bench.client.status.state, "waiting");
  });
});

describe("a protocol violation ends the connection, and the client resumes", () => {
  const broken: [string, object | string][] = [
    ["not JSON", "hello?"],
    ["a count that is none", { ...changes(2, 0, []), total: -1 }],
    ["changes of another epoch", changes(7, 1, [], "e2")],
  ];
  for (const [name, frame] of broken) {
    test(name, async () => {
      const bench = new Bench();
      const socket = await bench.online(snapshot(1, [conversation("a", 1, 1)]));
      socket.serve(frame);
      assert.equal(socket.closed, true);
      assert.equal(bench.client.badge?.total, 1);
      const next = await bench.retried();
      next.accept();
      assert.deepEqual(next.take(), [{ t: "hello", epoch: "e1", version: 1 }]);
    });
  }

  test("binary", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    socket.onmessage?.({ data: new ArrayBuffer(2) } as never);
    const { status } = bench.client;
    assert(status.state === "waiting");
    assert.match(status.reason, /not text/);
  });
});
