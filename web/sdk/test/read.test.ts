import assert from "node:assert/strict";
import { test } from "node:test";
import { BadgedError, toSeq } from "../src/index.js";
import { Bench, golden, settled } from "./fakes.js";

const offline = (error: unknown) => error instanceof BadgedError && error.code === "offline";

test("a read is sent as the user's, and resolves once it is durable", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  let done = false;
  const reading = bench.client.read("design-crew", 42).then(() => {
    done = true;
  });
  await settled();
  assert.deepEqual(socket.sent, [golden("read")]);
  assert.equal(done, false);
  socket.serve(golden("ok"));
  await reading;
});

test("answers find their own request", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  const first = bench.client.read("a", 1);
  const second = bench.client.read("b", toSeq("1851234567890123777"));
  socket.serve({ t: "ok", id: 99 });
  socket.serve(golden("error"));
  socket.serve(golden("ok"));
  await first;
  await assert.rejects(second, {
    name: "BadgedError",
    code: "unavailable",
    message: "not saved; try again",
    retryMs: 1500,
  });
});

test("without a connection a read is refused", async () => {
  const bench = new Bench();
  await assert.rejects(bench.client.read("a", 1), offline);
  bench.client.start();
  await settled();
  bench.socket.accept();
  await assert.rejects(bench.client.read("a", 1), offline, "nor before the first state");
});

test("an answer that is lost with the connection is not waited for", async () => {
  const endings: ((bench: Bench) => void)[] = [
    ({ socket }) => socket.drop(),
    ({ socket }) => socket.drop(4001),
    ({ client }) => client.stop(),
  ];
  for (const end of endings) {
    const bench = new Bench();
    await bench.online();
    const reading = bench.client.read("a", 1);
    end(bench);
    await assert.rejects(reading, offline);
  }
});

test("what is not a seq is not sent", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  await assert.rejects(bench.client.read("a", 2 ** 60), RangeError);
  await assert.rejects(bench.client.read("a", "abc"), RangeError);
  assert.deepEqual(socket.sent, []);
});

test("ids are never used twice, across connections too", async () => {
  const bench = new Bench();
  const socket = await bench.online();
  const lost = bench.client.read("a", 1);
  socket.drop();
  await assert.rejects(lost, offline);
  const next = await bench.retried();
  next.accept();
  next.serve(golden("snapshot"));
  next.take();
  void bench.client.read("a", 1);
  assert.deepEqual(next.take(), [{ t: "read", id: 2, conversation_id: "a", up_to_seq: 1 }]);
});
