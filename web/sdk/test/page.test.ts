import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  Bench,
  changes,
  conversation,
  FakeClock,
  FakeStorage,
  golden,
  settled,
  snapshot,
} from "./fakes.js";

describe("when the user or the network comes back", () => {
  test("the client reconnects at once", async () => {
    const bench = new Bench();
    (await bench.online()).drop();
    bench.page.comeBack();
    await settled();
    assert.equal(bench.sockets.length, 2);
    assert.equal(bench.client.status.state, "connecting");
    await bench.clock.advance(14_000);
    assert.equal(bench.sockets.length, 2, "the attempt that was planned is not made");
    bench.page.comeBack();
    await settled();
    assert.equal(bench.sockets.length, 2, "one attempt at a time");
  });

  test("the client still waits for the pause of the server", async () => {
    const bench = new Bench();
    (await bench.online()).serve(golden("bye"));
    bench.page.comeBack();
    await settled();
    assert.equal(bench.sockets.length, 1);
    await bench.retried();
    assert.equal(bench.sockets.length, 2);
  });

  test("the client checks at once whether the connection died during a sleep", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    bench.page.comeBack();
    assert.deepEqual(socket.take(), [{ t: "ping" }]);
    socket.serve({ t: "pong" });
    await bench.clock.advance(24_999);
    assert.equal(bench.client.status.state, "online");
    assert.deepEqual(socket.take(), [], "the next ping is due after the interval");

    bench.page.comeBack();
    await bench.clock.advance(10_000);
    assert.equal(bench.client.status.state, "waiting");
  });

  test("a stopped or refused client stays as it is", async () => {
    const ends: ((bench: Bench) => void)[] = [
      ({ client }) => client.stop(),
      ({ socket }) => socket.drop(4003),
    ];
    for (const end of ends) {
      const bench = new Bench();
      await bench.online();
      end(bench);
      bench.page.comeBack();
      await settled();
      assert.equal(bench.sockets.length, 1);
      assert.equal(bench.page.returning.size + bench.page.leaving.size, 0);
    }
  });
});

describe("the stored state", () => {
  const state = snapshot(7, [conversation("a", 2, 7), conversation("b", 1, 5)]);

  test("is emitted at once, before the connection, and resumed from", async () => {
    const storage = new FakeStorage();
    const first = new Bench({ user: "ada", storage });
    await first.online(state);
    await first.clock.advance(1_000);

    const bench = new Bench({ user: "ada", storage });
    assert.equal(bench.client.badge?.total, 3);
    bench.client.start();
    assert.deepEqual(bench.told, [
      "conversation a 2",
      "conversation b 1",
      "total 3",
      "status connecting",
    ]);
    await settled();
    bench.socket.accept();
    assert.deepEqual(bench.socket.take(), [{ t: "hello", epoch: "e1", version: 7 }]);
    bench.client.stop();
    bench.told.length = 0;
    bench.client.start();
    assert.deepEqual(bench.told, ["status connecting"], "told once");
  });

  test("has the numbers, the categories and the levels", async () => {
    const storage = new FakeStorage();
    const first = new Bench({ user: "ada", storage });
    await first.online(JSON.parse(golden("snapshot-paths")));
    first.page.leave();
    const { client } = new Bench({ user: "ada", storage });
    assert.deepEqual(client.badge, first.client.badge);
    assert.deepEqual(client.conversations, first.client.conversations);
  });

  test("comes with its pending commands, which are older than those of this visit", async () => {
    const storage = new FakeStorage();
    const first = new Bench({ user: "ada", storage });
    await first.online(state);
    first.socket.drop();
    void first.client.read("a", 7);
    first.client.stop();

    const { client } = new Bench({ user: "ada", storage });
    void client.markUnread("a");
    client.start();
    assert.deepEqual(
      client.waiting.map(({ t }) => t),
      ["read", "mark_unread"],
    );
    assert.equal(client.badge?.total, 2, "the mark of a, and the message of b");
  });

  test("belongs to one user on one server", async () => {
    const storage = new FakeStorage();
    const first = new Bench({ user: "ada", storage });
    await first.online(state);
    first.page.leave();
    assert.equal(new Bench({ user: "ben", storage }).client.badge, undefined);
    assert.equal(new Bench({ storage }).client.badge, undefined);
    const elsewhere = { user: "ada", storage, url: "https://other.test" };
    assert.equal(new Bench(elsewhere).client.badge, undefined);
  });

  test("is written at most once a second, and when the user leaves", async () => {
    const storage = new FakeStorage();
    const clock = new FakeClock();
    const bench = new Bench({ user: "ada", storage, clock });
    const socket = await bench.online(state);
    for (let version = 8; version < 18; version++) {
      socket.serve(changes(version, version, [conversation("a", version - 1, version)]));
    }
    assert.equal(storage.writes, 0);
    await clock.advance(1_000);
    assert.equal(storage.writes, 1);
    socket.serve(changes(18, 20, [conversation("a", 19, 18)]));
    bench.page.leave();
    assert.equal(storage.writes, 2);
    bench.page.leave();
    assert.equal(storage.writes, 2, "there is nothing new to write");
    assert.equal(new Bench({ user: "ada", storage }).client.badge?.total, 20);
  });

  test("holds seqs above 2^53", async () => {
    const storage = new FakeStorage();
    const bench = new Bench({ user: "ada", storage });
    await bench.online(JSON.parse(golden("snapshot")));
    bench.client.stop();
    const large = new Bench({ user: "bea", storage });
    large.client.start();
    await settled();
    large.socket.accept();
    large.socket.serve(golden("snapshot-large-seqs"));
    large.client.stop();
    const { client } = new Bench({ user: "bea", storage });
    assert.equal(client.conversations.get("snowflakes")?.lastSeq, 9223372036854775807n);
    assert.equal(client.more, true);
  });

  test("is ignored if it is corrupt or the storage throws", async () => {
    const storage = new FakeStorage();
    const bench = new Bench({ user: "ada", storage });
    await bench.online(state);
    void bench.client.markUnread("a");
    bench.page.leave();
    for (const key of storage.items.keys()) storage.items.set(key, '{"t":"snapshot","total":-1}');
    const spoilt = new Bench({ user: "ada", storage });
    spoilt.client.start();
    assert.deepEqual(spoilt.told, ["status connecting"]);
    await spoilt.online(state);
    assert.equal(spoilt.client.badge?.total, 3);

    storage.broken = true;
    const refused = new Bench({ user: "ada", storage });
    await refused.online(state);
    assert.equal(refused.client.badge?.total, 3);
    refused.client.forget();
  });
});
