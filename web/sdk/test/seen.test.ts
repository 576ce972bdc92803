import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { pair } from "./browser.js";
import { Bench, changes, conversation, FakeStorage, numbers, settled, snapshot } from "./fakes.js";

const general = { category: "acme/general" };
const conversations = [
  conversation("a", 2, 9, general),
  conversation("b", 3, 8, { category: "acme" }),
  conversation("c", 4, 7, { category: "acme2" }),
];
const state = {
  ...snapshot(9, conversations),
  categories: { acme: numbers(5), "acme/general": numbers(2), acme2: numbers(4) },
};
const aSeen = conversation("a", 2, 10, { ...general, seen: 2, seen_seq: 2 });

describe("seen", () => {
  test("lowers what is unseen at once, and leaves it unread", async () => {
    const bench = new Bench();
    const socket = await bench.online(state);
    const timers = bench.clock.pending;
    const seeing = bench.client.seen("a", 2);
    const unseen = () => [
      bench.client.badge?.unseen,
      bench.client.badge?.categories.acme?.unseen,
      bench.client.badge?.categories["acme/general"]?.unseen,
    ];
    assert.deepEqual(unseen(), [7, 3, 0]);
    assert.equal(bench.client.badge?.total, 9);
    const [{ id, ...command } = {}] = socket.takeCommands();
    assert.deepEqual(command, { t: "seen", conversation_id: "a", up_to_seq: 2 });
    socket.serve({ t: "ok", id });
    await seeing;
    assert.deepEqual(unseen(), [7, 3, 0], "it settles");
    const seen = { acme: numbers(5, { unseen: 3 }), "acme/general": numbers(2, { unseen: 0 }) };
    socket.serve({ ...changes(10, 9, [aSeen]), unseen: 7, categories: seen });
    assert.deepEqual(unseen(), [7, 3, 0]);
    assert.equal(bench.clock.pending, timers, "it is settled");
  });

  test("and a read of the same conversation do not replace each other", async () => {
    const bench = new Bench();
    const socket = await bench.online(state);
    void bench.client.read("a", 1);
    void bench.client.seen("a", 2);
    const [read] = socket.takeCommands();
    socket.serve({ t: "ok", id: read?.id });
    const [seen] = socket.takeCommands();
    assert.equal(seen?.t, "seen");
    socket.serve({ t: "ok", id: seen?.id });
    assert.deepEqual([bench.client.badge?.total, bench.client.badge?.unseen], [8, 7]);
  });

  test("several not yet sent merge into the furthest", async () => {
    const bench = new Bench();
    (await bench.online(state)).drop();
    void bench.client.seen("b", 2);
    void bench.client.seen("b", 3);
    void bench.client.seen("b", 1);
    const next = await bench.retried();
    next.serve({ ...changes(10, 9, []) });
    assert.deepEqual(next.commands(), ["seen b 3"]);
  });
});

describe("seenAll and readAll of a category", () => {
  test("cover its subtree", async () => {
    for (const [call, t] of [
      ["seenAll", "seen_all"],
      ["readAll", "read_all"],
    ] as const) {
      const bench = new Bench();
      const socket = await bench.online(state);
      void bench.client[call]("acme");
      assert.deepEqual(socket.commands(), [`${t} acme`]);
      assert.equal(bench.client.badge?.unseen, 4, "acme2 is another");
      assert.equal(bench.client.badge?.total, call === "readAll" ? 4 : 9);
    }
  });

  test("cover what the client holds if they are sent later, also after a reload", async () => {
    const storage = new FakeStorage();
    const options = { user: "ada", storage };
    const bench = new Bench(options);
    (await bench.online(state)).drop();
    void bench.client.seenAll("acme");
    assert.equal(bench.client.badge?.unseen, 4);
    bench.page.leave();
    const next = new Bench(options);
    assert.equal(next.client.badge?.unseen, 4);
    next.client.start();
    await settled();
    next.socket.accept();
    next.socket.serve(changes(10, 9, []));
    assert.deepEqual(next.socket.commands(), ["seen a 2", "seen b 3"]);
  });

  test("go through the tab that leads", async () => {
    const [leader, follower] = await pair();
    leader.socket.serve(state);
    await settled();
    void follower.client.seenAll("acme");
    await settled();
    assert.deepEqual(leader.socket.commands(), ["seen_all acme"]);
    assert.equal(leader.client.badge?.unseen, 4);
    assert.equal(follower.client.badge?.unseen, 4);
  });
});

describe("setLevel", () => {
  test("is sent as it is, also after a reload, and not overtaken", async () => {
    const storage = new FakeStorage();
    const options = { user: "ada", storage };
    const bench = new Bench(options);
    (await bench.online(state)).drop();
    void bench.client.setLevel("acme", "none");
    void bench.client.setLevel("acme", "default");
    void bench.client.read("a", 1);
    assert.equal(bench.client.badge?.total, 8, "a level waits for the server");
    bench.page.leave();
    const next = new Bench(options);
    next.client.start();
    await settled();
    next.socket.accept();
    next.socket.serve(changes(10, 9, []));
    for (const expected of ["level acme none", "level acme default", "read a 1"]) {
      const [command] = next.socket.takeCommands();
      const { t, category, level, conversation_id, up_to_seq, id } = command ?? {};
      const said = [t, conversation_id, up_to_seq, category, level].filter((part) => part);
      assert.equal(said.join(" "), expected);
      next.socket.serve({ t: "ok", id });
    }
  });
});

describe("an open list", () => {
  test("is seen while the user looks, at most once in a pause", async () => {
    const bench = new Bench();
    const socket = await bench.online(state);
    const list = bench.client.openCategory("acme");
    const [{ id, t, category } = {}] = socket.takeCommands();
    assert.deepEqual([t, category], ["seen_all", "acme"]);
    socket.serve({ t: "ok", id });
    const arrive = (version: number, unread: number) =>
      socket.serve({
        ...changes(version, 9, [conversation("b", unread, version, { category: "acme" })]),
        categories: { acme: numbers(unread + 2) },
      });
    arrive(10, 4);
    arrive(11, 5);
    assert.deepEqual(socket.commands(), []);
    await bench.clock.advance(250);
    assert.deepEqual(socket.commands(), ["seen_all acme"]);

    bench.page.look(false);
    await bench.clock.advance(250);
    arrive(12, 6);
    assert.deepEqual(socket.commands(), []);
    list.close();
    bench.page.look(true);
    await bench.clock.advance(250);
    assert.deepEqual(socket.commands(), []);
  });

  test("of everything needs no category, and sends nothing if all is seen", async () => {
    const bench = new Bench();
    const socket = await bench.online({ ...snapshot(1), categories: {} });
    bench.client.openCategory();
    assert.deepEqual(socket.commands(), []);
    socket.serve(changes(2, 1, [conversation("a", 1, 2)]));
    assert.deepEqual(socket.commands(), ["seen_all"]);
  });
});
