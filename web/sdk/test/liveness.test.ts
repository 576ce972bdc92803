import assert from "node:assert/strict";
import { test } from "node:test";
import { Bench, changes, settled, snapshot } from "./fakes.js";

const PING = { t: "ping" };
const PONG = { t: "pong" };

test("it pings at the server's interval, and stays online while pongs arrive", async () => {
  const bench = new Bench();
  const socket = await bench.online({ ...snapshot(), ping_ms: 4_000 });
  for (let round = 0; round < 5; round++) {
    await bench.clock.advance(3_999);
    assert.deepEqual(socket.take(), []);
    await bench.clock.advance(1);
    assert.deepEqual(socket.take(), [PING]);
    socket.serve(PONG);
  }
  assert.equal(bench.client.status.state, "online");
});

test("without a pong it reconnects", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  await bench.clock.advance(25_000);
  await bench.clock.advance(9_999);
  assert.equal(socket.closed, false);
  await bench.clock.advance(1);
  const { status } = bench.client;
  assert(status.state === "waiting");
  assert.equal(status.code, 0);
  assert.match(status.reason, /no frame/);
  assert.equal(socket.closed, true);
  await bench.retried();
  assert.equal(bench.sockets.length, 2);
});

test("any frame proves that the connection is alive", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  await bench.clock.advance(25_000);
  socket.serve(changes(1, 0, []));
  await bench.clock.advance(24_999);
  assert.equal(bench.client.status.state, "online");
});

test("with frequent pings a dead connection is found before the next ping", async () => {
  const bench = new Bench();
  const socket = await bench.online({ ...snapshot(), ping_ms: 1_000 });
  await bench.clock.advance(2_000);
  assert.equal(bench.client.status.state, "waiting");
  assert.deepEqual(socket.take(), [PING]);
});

test("without an interval from the server it pings every 25 seconds", async () => {
  const bench = new Bench();
  (await bench.online()).drop();
  const socket = await bench.retried();
  socket.accept();
  socket.serve(changes(1, 0, []));
  socket.take();
  await bench.clock.advance(25_000);
  assert.deepEqual(socket.take(), [PING]);
});

test("an interval that would overflow a timer is cut to an hour", async () => {
  const bench = new Bench();
  const socket = await bench.online({ ...snapshot(), ping_ms: 2 ** 40 });
  await bench.clock.advance(3_599_999);
  assert.deepEqual(socket.take(), []);
  await bench.clock.advance(1);
  assert.deepEqual(socket.take(), [PING]);
});

test("the server's pings are answered", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  socket.serve(PING);
  assert.deepEqual(socket.take(), [PONG]);
});

test("a server that accepts but sends no state is given up after 15 seconds", async () => {
  const bench = new Bench();
  bench.client.start();
  await settled();
  bench.socket.accept();
  bench.socket.serve(PING);
  await bench.clock.advance(14_999);
  assert.equal(bench.client.status.state, "connecting", "a ping does not answer hello");
  await bench.clock.advance(1);
  assert.equal(bench.client.status.state, "waiting");
  assert.equal(bench.socket.closed, true);
});

test("a token that does not arrive is given up after 15 seconds, and ignored later", async () => {
  let give = (_token: string) => {};
  const bench = new Bench({
    token: () =>
      new Promise((resolve) => {
        give = resolve;
      }),
  });
  bench.client.start();
  await settled();
  const giveLate = give;
  await bench.clock.advance(15_000);
  assert.equal(bench.client.status.state, "waiting");
  giveLate("late");
  await settled();
  assert.equal(bench.sockets.length, 0);
});
