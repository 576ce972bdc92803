import assert from "node:assert/strict";
import { describe, test } from "node:test";
import {
  Bench,
  changes,
  conversation,
  type FakeSocket,
  FakeStorage,
  generator,
  settled,
  snapshot,
} from "./fakes.js";

const busy = snapshot(9, [conversation("a", 2, 9), conversation("b", 3, 8)]);
const aRead = conversation("a", 0, 10, { last_seq: 2, read_seq: 2 });

describe("a command changes the numbers at once", () => {
  test("and again only if the server disagrees", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    const timers = bench.clock.pending;
    const reading = bench.client.read("a", 2);
    assert.deepEqual(bench.told, ["conversation a 0", "total 3"]);
    assert.deepEqual(
      bench.client.waiting.map((command) => command.t === "read" && command.conversationId),
      ["a"],
    );
    const [{ id } = {}] = socket.takeCommands();
    // The answer and the change may come in either order. Between them nothing changes.
    socket.serve({ t: "ok", id });
    await reading;
    assert.deepEqual(bench.client.waiting, []);
    assert.equal(bench.client.badge?.total, 3);
    socket.serve(changes(10, 3, [aRead]));
    assert.equal(bench.client.badge?.total, 3);
    assert.equal(bench.client.badge?.version, 10);
    assert.deepEqual(bench.told.slice(2), ["conversation a 0"], "its version is new");
    assert.equal(bench.clock.pending, timers);
  });

  test("while offline too, and across a reload", async () => {
    const storage = new FakeStorage();
    const options = { user: "ada", storage };
    const bench = new Bench(options);
    (await bench.online(busy)).drop();
    void bench.client.readAll();
    assert.equal(bench.client.badge?.total, 0);
    bench.page.leave();
    const next = new Bench(options);
    assert.equal(next.client.badge?.total, 0);
    assert.equal(next.client.waiting.length, 2);
    next.client.start();
    await settled();
    next.socket.accept();
    assert.deepEqual(next.socket.take(), [{ t: "hello", epoch: "e1", version: 9 }]);
    assert(next.told.every((told) => !told.startsWith("total") || told === "total 0"));
  });

  test("and is undone if the server refuses it", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    const reading = bench.client.read("a", 2);
    bench.told.length = 0;
    const [{ id } = {}] = socket.takeCommands();
    socket.serve({ t: "error", id, code: "invalid", message: "no" });
    await assert.rejects(reading, { code: "invalid" });
    assert.deepEqual(bench.told, ["conversation a 2", "total 5"]);
  });

  test("and is undone if the server accepts it but never shows it", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    void bench.client.read("a", 2);
    const [{ id } = {}] = socket.takeCommands();
    socket.serve({ t: "ok", id });
    await bench.clock.advance(25_000);
    socket.serve({ t: "pong" });
    assert.equal(bench.client.badge?.total, 3);
    await bench.clock.advance(5_000);
    assert.equal(bench.client.badge?.total, 5);
  });

  test("and ends where the backend resets the conversation", async () => {
    const far = { last_seq: 1e15, read_seq: 40, first_unread_seq: 1e15 };
    for (const reset of [
      { last_seq: 43, read_seq: 40, first_unread_seq: 41 },
      { last_seq: 1e15, read_seq: 39, first_unread_seq: 41 },
    ]) {
      const bench = new Bench();
      const socket = await bench.online(snapshot(1, [conversation("a", 1, 9, far)]));
      const reading = bench.client.read("a", 1e15);
      const [{ id } = {}] = socket.takeCommands();
      socket.serve({ t: "ok", id });
      await reading;
      assert.equal(bench.client.badge?.total, 0);
      socket.serve(changes(10, 1, [conversation("a", 1, 10, { ...far, mentions: 1 })]));
      assert.equal(bench.client.badge?.total, 0, "it is not reset");
      socket.serve(changes(11, 3, [conversation("a", 3, 11, reset)]));
      assert.equal(bench.client.badge?.total, 3);
      assert.equal(bench.client.conversations.get("a")?.readSeq, reset.read_seq);
    }
  });

  test("and messages that arrive later still count", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    void bench.client.read("a", 2);
    socket.serve(changes(10, 6, [conversation("a", 3, 10)]));
    assert.equal(bench.client.conversations.get("a")?.unread, 1);
    assert.equal(bench.client.badge?.total, 4);
  });

  test("also from a listener: the last event has the final numbers", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    bench.client.on("conversation", ({ conversationId, unread }) => {
      if (unread > 0) void bench.client.read(conversationId, 99);
    });
    const totals: unknown[] = [];
    bench.client.on("total", ({ total }) => totals.push([total, bench.client.badge?.total]));
    socket.serve(changes(10, 9, [conversation("a", 6, 10)]));
    assert.deepEqual(totals, [
      [9, 9],
      [3, 3],
    ]);
  });

  test("except in a conversation that is not listed", async () => {
    const bench = new Bench();
    await bench.online({ ...busy, more: true, total: 50 });
    void bench.client.read("unlisted", 7);
    assert.deepEqual(bench.told, []);
    void bench.client.readAll();
    assert.equal(bench.client.badge?.total, 45, "what is listed is read");
  });
});

describe("waiting", () => {
  test("lists the pending commands, and fires an event when it changes", async () => {
    const bench = new Bench();
    const told: string[] = [];
    bench.client.on("waiting", (commands) =>
      told.push(commands.map((c) => `${c.t} ${"conversationId" in c && c.conversationId}`).join()),
    );
    const socket = await bench.online(busy);
    void bench.client.read("a", 2);
    void bench.client.markUnread("b");
    for (const { id } of socket.takeCommands()) socket.serve({ t: "ok", id });
    assert.deepEqual(told, ["read a", "read a,mark_unread b", "mark_unread b", ""]);
  });
});

describe("the promise of a command", () => {
  test("rejects at the signal, and the command stays", async () => {
    const bench = new Bench();
    const stop = new AbortController();
    const reading = bench.client.read("a", 2, { signal: stop.signal });
    const all = bench.client.readAll(undefined, { signal: AbortSignal.abort(new Error("late")) });
    await assert.rejects(all, /late/);
    stop.abort(new Error("enough"));
    await assert.rejects(reading, /enough/);
    await assert.rejects(bench.client.markUnread("a", { signal: stop.signal }), /enough/);
    assert.equal(bench.client.waiting.length, 2);
    const done = new AbortController();
    const socket = await bench.online(busy);
    const third = bench.client.read("b", 3, { signal: done.signal });
    for (const { id } of socket.takeCommands()) socket.serve({ t: "ok", id });
    await third;
    done.abort();
  });

  test("is not reported as unhandled when it rejects", async () => {
    const unhandled: unknown[] = [];
    const hear = (error: unknown) => unhandled.push(error);
    process.on("unhandledRejection", hear);
    const bench = new Bench();
    const socket = await bench.online(busy);
    void bench.client.read("a", 2);
    void bench.client.readAll();
    for (const { id } of socket.takeCommands()) {
      socket.serve({ t: "error", id, code: "not_found", message: "no" });
    }
    void bench.client.markUnread("b", { signal: AbortSignal.abort() });
    socket.drop();
    void bench.client.readAll();
    bench.client.forget();
    await settled();
    await settled();
    process.off("unhandledRejection", hear);
    assert.deepEqual(unhandled, []);
  });
});

/** The server's state of a conversation with dense seqs. */
interface Truth {
  read: number;
  last: number;
  version: number;
}

test("after any interleaving the client has the server's state", async () => {
  for (let seed = 1; seed <= 150; seed++) {
    const random = generator(seed);
    const pick = (n: number) => Math.floor(random() * n);
    const truth = new Map<string, Truth>();
    let version = 0;
    const wire = (id: string, { read, last, version }: Truth) =>
      conversation(id, last - read, version, {
        read_seq: read,
        last_seq: last,
        first_unread_seq: last > read ? read + 1 : 0,
      });
    const total = () => [...truth.values()].reduce((n, { read, last }) => n + last - read, 0);
    const newer = (since: number) =>
      [...truth].filter(([, t]) => t.version > since).map(([id, t]) => wire(id, t));
    const change = (id: string, alter: (truth: Truth) => void) => {
      const t = truth.get(id) ?? { read: 0, last: 0, version: 0 };
      truth.set(id, t);
      alter(t);
      t.version = ++version;
    };

    const bench = new Bench();
    const check = () => {
      const { badge, conversations } = bench.client;
      const all = [...conversations.values()];
      const sum = all.reduce((n, { unread }) => n + unread, 0);
      assert.equal(badge?.total, sum, `seed ${seed}: total is not the sum`);
      assert(
        all.every(({ unread }) => unread >= 0),
        `seed ${seed}: below 0`,
      );
    };
    bench.client.on("total", check);
    bench.client.on("conversation", check);
    let socket: FakeSocket = await bench.online(snapshot(0));
    let sent = 0;
    // The commands in the server's log that are not folded yet.
    const log: (() => void)[] = [];
    const push = () => {
      if (version > sent) socket.serve(changes(version, total(), newer(sent)));
      sent = version;
    };
    const answer = (most: number) => {
      for (const frame of socket.takeCommands().slice(0, most)) {
        const id = String(frame.conversation_id);
        if (pick(6) === 0) {
          socket.serve({ t: "error", id: frame.id, code: "not_found", message: "no" });
        } else {
          const upTo = Number(frame.up_to_seq);
          log.push(() => {
            const held = truth.get(id);
            if (held === undefined || Math.min(upTo, held.last) <= held.read) return;
            change(id, (t) => {
              t.read = Math.min(upTo, t.last);
            });
          });
          socket.serve({ t: "ok", id: frame.id });
        }
      }
    };
    const fold = (most: number) => {
      for (const entry of log.splice(0, most)) entry();
      push();
    };
    for (let step = 0; step < 40; step++) {
      const id = "abc".charAt(pick(3));
      const held = bench.client.conversations.get(id);
      const action = pick(7);
      if (action === 0) change(id, (t) => t.last++);
      else if (action === 1) push();
      else if (action === 2) void bench.client.read(id, Number(held?.lastSeq ?? 1));
      else if (action === 3) void bench.client.read(id, pick(8));
      else if (action === 4) answer(9);
      else if (action === 5) fold(1 + pick(3));
      else if (pick(4) === 0) {
        socket.drop();
        socket = await bench.retried();
        socket.accept();
        const since = bench.client.badge?.version ?? 0;
        socket.take();
        socket.serve(changes(version, total(), newer(since)));
        sent = version;
      }
      check();
    }
    while (bench.client.waiting.length > 0) answer(99);
    fold(99);
    await bench.clock.advance(25_000);
    socket.serve({ t: "pong" });
    await bench.clock.advance(10_000);
    assert.equal(bench.client.badge?.total, total(), `seed ${seed}: the wrong total stays`);
    for (const [id, { read, last }] of truth) {
      const unread = bench.client.conversations.get(id)?.unread;
      assert.equal(unread, last - read, `seed ${seed}: ${id}`);
    }
    bench.client.stop();
    assert.equal(bench.clock.pending, 0, `seed ${seed}: a timer is left`);
  }
});
