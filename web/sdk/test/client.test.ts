import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { Badged, showInTitle, showOnApp, showOnFavicon } from "../src/index.js";
import { Bench, changes, conversation, golden, settled, snapshot } from "./fakes.js";

describe("connecting", () => {
  test("sends the token in a subprotocol, sends hello, and emits the first state", async () => {
    const bench = new Bench();
    bench.client.start();
    await settled();
    assert.equal(bench.socket.url, "wss://badges.test/v1/ws");
    assert.deepEqual(bench.socket.protocols, ["badge.v1", "bearer.token1"]);
    assert.deepEqual(bench.socket.sent, [], "nothing before the socket is open");

    bench.socket.accept();
    assert.deepEqual(bench.socket.sent, [golden("hello-first")]);
    assert.equal(bench.client.status.state, "connecting");

    bench.socket.serve(golden("snapshot"));
    assert.deepEqual(bench.told, [
      "status connecting",
      "status online",
      "conversation design-crew 3",
      "conversation Café ☕ 1",
      "conversation releases 12",
      "conversation random 5",
      "conversation to-do 0",
      "total 6",
    ]);
    assert.equal(bench.client.badge?.total, 6);
    assert.equal(bench.client.more, false);
  });

  test("starting twice connects once", async () => {
    const bench = new Bench();
    bench.client.start();
    bench.client.start();
    await settled();
    await bench.online();
    bench.client.start();
    await settled();
    assert.equal(bench.sockets.length, 1);
  });

  test("the URL may have any scheme and path", async () => {
    const urls: [string, string][] = [
      ["http://localhost:8080", "ws://localhost:8080/v1/ws"],
      ["https://x.test/badges/?a=b#c", "wss://x.test/badges/v1/ws"],
      ["ws://x.test/", "ws://x.test/v1/ws"],
      ["wss://x.test/a/b", "wss://x.test/a/b/v1/ws"],
    ];
    for (const [url, socketURL] of urls) {
      const bench = new Bench({ url });
      bench.client.start();
      await settled();
      assert.equal(bench.socket.url, socketURL);
    }
    assert.throws(() => new Bench({ url: "/relative" }), TypeError);
    assert.throws(() => new Bench({ url: "ftp://x.test" }), /^TypeError: url must be http/);
    for (const url of ["http://x.test/v1/ws", "wss://x.test/badges/v1/ws/?a=b"]) {
      assert.throws(() => new Bench({ url }), /^TypeError: url must be the server's, without \/v1/);
    }
  });

  test("does not happen before the start, as in server-side rendering", async () => {
    const client = new Badged({ url: "https://x.test", token: async () => assert.fail() });
    const ends = [showInTitle(client), showOnFavicon(client), showOnApp(client)];
    void client.read("a", 1);
    await settled();
    assert.equal(client.status.state, "stopped");
    assert.equal(client.badge, undefined);
    for (const end of ends) end();
    client.stop();
    client.forget();
  });
});

describe("events", () => {
  test("fire at every change, after the whole state has changed", async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(1, [conversation("a", 1, 1)]));
    const sums: string[] = [];
    bench.client.on("conversation", ({ conversationId }) => {
      const sum = [...bench.client.conversations.values()].reduce((n, c) => n + c.unread, 0);
      sums.push(`${conversationId}: ${sum} = ${bench.client.badge?.total}`);
    });
    socket.serve(changes(3, 7, [conversation("a", 4, 3), conversation("b", 3, 2)]));
    assert.deepEqual(bench.told, ["conversation a 4", "conversation b 3", "total 7"]);
    assert.deepEqual(sums, ["a: 7 = 7", "b: 7 = 7"]);
  });

  test("do not fire for what is already known", async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(3, [conversation("a", 1, 3)]));
    socket.serve(changes(3, 1, [conversation("a", 1, 3)]));
    socket.serve(changes(2, 0, [conversation("a", 0, 2)]));
    assert.deepEqual(bench.told, []);
  });

  test("a listener may stop the client", async () => {
    const bench = new Bench();
    bench.client.on("status", ({ state }) => {
      if (state === "online") bench.client.stop();
    });
    await bench.online(snapshot(1, [conversation("a", 1, 1)]));
    assert.equal(bench.client.status.state, "stopped");
    assert.equal(bench.socket.closed, true);
    assert.equal(bench.clock.pending, 0);
  });
});

describe("stopping", () => {
  test("closes the socket, keeps the state and runs no timer", async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(2, [conversation("a", 2, 2)]));
    bench.client.stop();
    assert.equal(socket.closed, true);
    assert.equal(bench.client.badge?.total, 2);
    assert.deepEqual(bench.told, ["status stopped"]);
    assert.equal(bench.clock.pending, 0);

    socket.serve(changes(3, 9, [conversation("a", 9, 3)]));
    socket.drop();
    assert.equal(bench.client.badge?.total, 2, "a socket that was left is not heard");
    assert.deepEqual(bench.told, ["status stopped"]);
  });

  test("while a token is being fetched opens no socket", async () => {
    const bench = new Bench();
    bench.client.start();
    bench.client.stop();
    await settled();
    assert.equal(bench.sockets.length, 0);
    assert.equal(bench.clock.pending, 0);
  });

  test("while waiting cancels the next attempt", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    socket.drop();
    assert.equal(bench.client.status.state, "waiting");
    bench.client.stop();
    await bench.clock.advance(60_000);
    assert.equal(bench.sockets.length, 1);
    assert.equal(bench.client.status.state, "stopped");
  });
});

describe("resuming", () => {
  test("sends what it holds, and applies what changed since", async () => {
    const bench = new Bench();
    (await bench.online(JSON.parse(golden("snapshot")))).drop();
    const socket = await bench.retried();
    socket.accept();
    assert.deepEqual(socket.sent, [golden("hello-resume")]);

    bench.told.length = 0;
    socket.serve(golden("changes"));
    assert.deepEqual(bench.told, [
      "status online",
      "conversation design-crew 0",
      "conversation Café ☕ 2",
      "total 4",
    ]);
  });

  test("also works after a stop", async () => {
    const bench = new Bench();
    await bench.online(snapshot(1, [conversation("a", 1, 1)]));
    bench.client.stop();
    bench.client.start();
    await settled();
    bench.socket.accept();
    assert.deepEqual(bench.socket.take(), [{ t: "hello", epoch: "e1", version: 1 }]);
    bench.socket.serve(changes(40, 17, [conversation("a", 17, 40)]));
    assert.equal(bench.client.badge?.total, 17);
  });

  test("goes online even if nothing was missed", async () => {
    const bench = new Bench();
    (await bench.online(JSON.parse(golden("snapshot")))).drop();
    const socket = await bench.retried();
    socket.accept();
    bench.told.length = 0;
    socket.serve(golden("changes-none"));
    assert.deepEqual(bench.told, ["status online"]);
  });

  test("accepts a snapshot of another epoch", async () => {
    const bench = new Bench();
    (await bench.online(snapshot(9, [conversation("a", 5, 9)]))).drop();
    const socket = await bench.retried();
    socket.accept();
    socket.serve(snapshot(2, [conversation("b", 1, 2)], "e2"));
    assert.equal(bench.client.badge?.total, 1);
    assert.deepEqual([...bench.client.conversations.keys()], ["b"]);
  });

  test("accepts an older snapshot of the same epoch", async () => {
    const bench = new Bench();
    (await bench.online(snapshot(9, [conversation("a", 5, 9)]))).drop();
    const socket = await bench.retried();
    socket.accept();
    socket.serve(snapshot(8, [conversation("a", 4, 8)]));
    assert.equal(bench.client.badge?.total, 4);
    assert.equal(bench.client.status.state, "online");
    socket.serve(changes(9, 6, [conversation("a", 6, 9)]));
    assert.equal(bench.client.badge?.total, 6);
  });
});
