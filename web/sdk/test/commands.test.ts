import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BadgedError, toSeq } from "../src/index.js";
import { Bench, changes, conversation, FakeStorage, settled, snapshot } from "./fakes.js";

const UUID = /^[0-9a-f]{8}-[0-9a-f]{4}-4[0-9a-f]{3}-[89ab][0-9a-f]{3}-[0-9a-f]{12}$/;

/** Two unread conversations and a read one. */
const busy = snapshot(9, [
  conversation("a", 2, 9),
  conversation("b", 3, 8, { category: "likes" }),
  conversation("to-do", 0, 7, { marked_unread: true, last_seq: 6 }),
  conversation("read", 0, 6, { last_seq: 4 }),
]);

/** Whether a promise has resolved. */
async function isSettled(promise: Promise<unknown>): Promise<boolean> {
  await settled();
  return Promise.race([promise.then(() => true), Promise.resolve(false)]);
}

describe("online", () => {
  test("a command is sent, and resolves once it is durable", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    const reading = bench.client.read("design-crew", 42);
    const [frame] = socket.take();
    assert.match(String(frame?.id), UUID);
    assert.deepEqual(frame, {
      t: "read",
      id: frame?.id,
      conversation_id: "design-crew",
      up_to_seq: 42,
    });
    assert.equal(await isSettled(reading), false);
    assert.equal(bench.client.waiting.length, 1);
    socket.serve({ t: "ok", id: frame?.id });
    await reading;
    assert.equal(bench.client.waiting.length, 0);
  });

  test("an answer settles its own command, and an error gives the reason", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    const first = bench.client.read("a", 1);
    const second = bench.client.read("b", toSeq("1851234567890123777"));
    const third = bench.client.markUnread("c");
    const ids = socket.take().map(({ id }) => id);
    assert.equal(new Set(ids).size, 3);
    socket.serve({ t: "ok", id: "somebody-elses" });
    socket.serve({ t: "error", id: ids[1], code: "not_found", message: "no such message" });
    socket.serve({ t: "ok", id: ids[2] });
    socket.serve({ t: "ok", id: ids[0] });
    await Promise.all([first, third]);
    const refused = await second.catch((error) => error);
    assert(refused instanceof BadgedError);
    assert.equal(refused.code, "not_found");
    assert.equal(refused.message, "no such message");
  });

  test("a command that was not saved is sent again under its id after the server's pause", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    const marking = bench.client.markUnread("a");
    const [first] = socket.take();
    socket.serve({
      t: "error",
      id: first?.id,
      code: "unavailable",
      message: "not saved; try again",
      retry_ms: 1500,
    });
    await bench.clock.advance(1499);
    assert.deepEqual(socket.take(), []);
    await bench.clock.advance(1);
    assert.deepEqual(socket.take(), [first]);
    socket.serve({ t: "ok", id: first?.id });
    await marking;
  });

  for (const code of ["unavailable", "rate_limited", "backpressure"]) {
    test(`a pause of ${code} is respected, and no timer overflows`, async () => {
      const bench = new Bench();
      const socket = await bench.online();
      void bench.client.markUnread("a");
      const [first] = socket.take();
      const error = { t: "error", id: first?.id, code, message: "later" };
      socket.serve({ ...error, retry_ms: 700 });
      await bench.clock.advance(699);
      assert.deepEqual(socket.take(), []);
      await bench.clock.advance(1);
      assert.deepEqual(socket.take(), [first]);
      const before = bench.clock.pending;
      socket.serve({ ...error, retry_ms: 2 ** 40 });
      assert.equal(bench.clock.pending, before + 1);
      assert(Math.max(...bench.clock.delays) < 2 ** 31);
    });
  }

  test("commands of one conversation keep their order, and others do not wait", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    void bench.client.read("a", 1);
    void bench.client.markUnread("a");
    void bench.client.read("b", 1);
    const [read, other] = socket.takeCommands();
    assert.deepEqual([read?.t, other?.conversation_id], ["read", "b"]);
    socket.serve({ t: "error", id: read?.id, code: "unavailable", message: "", retry_ms: 100 });
    assert.deepEqual(socket.commands(), [], "the mark must not overtake the read");
    await bench.clock.advance(100);
    assert.deepEqual(socket.commands(), ["read a 1"]);
    socket.serve({ t: "ok", id: read?.id });
    assert.deepEqual(socket.commands(), ["mark_unread a"]);
  });

  test("read_all is one command, which others do not overtake", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    void bench.client.read("a", 1);
    void bench.client.readAll();
    void bench.client.markUnread("a");
    for (const expected of ["read a 1", "read_all", "mark_unread a"]) {
      const [frame, ...more] = socket.takeCommands();
      assert.deepEqual(more, []);
      assert.equal(expected.split(" ")[0], frame?.t);
      socket.serve({ t: "ok", id: frame?.id });
    }
    void bench.client.readAll("likes");
    assert.deepEqual(socket.commands(), ["read_all likes"]);
  });

  test("no more commands are in flight than the server allows", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    const all = Array.from({ length: 100 }, (_, i) => bench.client.read(`c${i}`, 1));
    let sent = 0;
    for (let frames = socket.takeCommands(); frames.length > 0; frames = socket.takeCommands()) {
      assert(frames.length <= 32, `${frames.length} at once`);
      sent += frames.length;
      for (const { id } of frames) socket.serve({ t: "ok", id });
    }
    assert.equal(sent, 100);
    await Promise.all(all);
  });

  test("an invalid seq is not sent", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    await assert.rejects(bench.client.read("a", 2 ** 60), TypeError);
    await assert.rejects(bench.client.read("a", "abc"), TypeError);
    assert.deepEqual(socket.sent, []);
  });
});

describe("while disconnected", () => {
  test("commands wait, and are sent once, in order, after the reconnect", async () => {
    const bench = new Bench();
    const reading = bench.client.read("a", 1);
    const socket = await bench.online(busy).then(() => bench.socket);
    assert.equal(bench.client.waiting.length, 1);
    // Sent on the first state. The bench has already taken the hello.
    socket.drop();
    void bench.client.markUnread("b");
    void bench.client.read("a", 2);
    const next = await bench.retried();
    next.accept();
    assert.deepEqual(next.commands(), [], "not before the first state");
    next.serve(changes(9, 5, []));
    assert.deepEqual(next.commands(), ["read a 1", "mark_unread b"]);
    assert.equal(await isSettled(reading), false);
  });

  test("a retry keeps the id of the lost command, so that it counts once", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    const marking = bench.client.markUnread("a");
    const before = socket.take();
    socket.drop();
    assert.equal(await isSettled(marking), false);
    const next = await bench.retried();
    next.accept();
    next.serve(snapshot());
    assert.deepEqual(next.takeCommands(), before);
    next.serve({ t: "ok", id: before[0]?.id });
    await marking;
    next.drop();
    const last = await bench.retried();
    last.accept();
    last.serve(snapshot());
    assert.deepEqual(last.takeCommands(), [], "what was answered is not sent again");
  });

  test("a pause that outlasts its connection sends nothing twice", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    void bench.client.markUnread("a");
    const [{ id } = {}] = socket.take();
    socket.serve({ t: "error", id, code: "unavailable", message: "", retry_ms: 60_000 });
    socket.drop();
    const next = await bench.retried();
    next.accept();
    next.serve(snapshot());
    assert.equal(next.takeCommands().length, 1);
    for (let passed = 0; passed < 80_000; passed += 10_000) {
      await bench.clock.advance(10_000);
      next.serve({ t: "pong" });
    }
    assert.deepEqual(next.takeCommands(), []);
  });

  test("of several reads of a conversation the furthest is sent, and all resolve", async () => {
    const bench = new Bench();
    const reads = [3, 9, 5].map((seq) => bench.client.read("a", seq));
    const marks = [1, 2].map(() => bench.client.markUnread("b"));
    bench.client.start();
    await settled();
    bench.socket.accept();
    bench.socket.serve(snapshot());
    const sent = bench.socket.takeCommands();
    assert.deepEqual(
      sent.map(({ t, up_to_seq }) => [t, up_to_seq]),
      [
        ["read", 9],
        ["mark_unread", undefined],
      ],
    );
    for (const { id } of sent) bench.socket.serve({ t: "ok", id });
    await Promise.all([...reads, ...marks]);
  });

  test("marks of messages are not merged", () => {
    const { client } = new Bench();
    void client.markUnread("a");
    void client.markUnread("a", { seqs: [3] });
    void client.markUnread("a", { seqs: [4, "5"] });
    void client.markUnread("a", { fromSeq: "6" });
    void client.markUnread("a", { fromSeq: 7 });
    void client.markUnread("a");
    assert.deepEqual(
      client.waiting.map((command) => "seqs" in command && command.seqs),
      [false, [3], [4, 5], false, false, false],
    );
    assert.deepEqual(
      client.waiting.map((command) => "fromSeq" in command && command.fromSeq),
      [false, false, false, 6, 7, false],
    );
  });

  test("a mark of what is no seq, of none or of too many is refused", async () => {
    const { client } = new Bench();
    await assert.rejects(client.markUnread("a", { seqs: [1.5] }), TypeError);
    await assert.rejects(client.markUnread("a", { seqs: [] }), TypeError);
    await assert.rejects(client.markUnread("a", { seqs: Array(1001).fill(1) }), TypeError);
    await assert.rejects(client.markUnread("a", { fromSeq: "six" }), TypeError);
    await assert.rejects(client.markUnread("a", { fromSeq: 1, seqs: [2] }), TypeError);
    assert.deepEqual(client.waiting, []);
  });

  test("a mark of more messages than a frame holds takes several, and all must succeed", async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(1, [conversation("a", 0, 1)]));
    const last = 9_223_372_036_854_775_807n;
    const seqs = Array.from({ length: 1000 }, (_, i) => last - BigInt(i));
    let marked = false;
    const mark = bench.client.markUnread("a", { seqs }).then(() => {
      marked = true;
    });
    const sent: { id: string; seqs: string[] }[] = [];
    while (sent.flatMap((frame) => frame.seqs).length < seqs.length) {
      await settled();
      const texts = socket.sent.splice(0);
      assert(texts.length > 0, `${sent.length} frames`);
      for (const text of texts) {
        assert(new TextEncoder().encode(text).length <= 4096, text);
        const frame = JSON.parse(text.replace(/\b(\d{19})\b/g, '"$1"'));
        sent.push(frame);
        assert.equal(marked, false);
        socket.serve({ t: "ok", id: frame.id });
      }
    }
    await mark;
    assert.equal(new Set(sent.map(({ id }) => id)).size, 7);
    assert.deepEqual(
      sent.flatMap((frame) => frame.seqs),
      seqs.map(String),
    );
  });

  test("a read merges neither across a mark_unread nor into a read that was sent", async () => {
    const bench = new Bench();
    const socket = await bench.online();
    void bench.client.read("a", 1);
    socket.drop();
    void bench.client.read("a", 2);
    void bench.client.markUnread("a");
    void bench.client.read("a", 3);
    const next = await bench.retried();
    next.accept();
    next.serve(snapshot());
    const order: string[] = [];
    for (let [frame] = next.takeCommands(); frame; [frame] = next.takeCommands()) {
      order.push(`${frame.t} ${frame.up_to_seq ?? ""}`.trim());
      next.serve({ t: "ok", id: frame.id });
    }
    assert.deepEqual(order, ["read 1", "read 2", "mark_unread", "read 3"]);
  });

  test("read_all covers what the client holds, not what arrives later", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    socket.drop();
    const reading = bench.client.readAll();
    const next = await bench.retried();
    next.accept();
    next.serve(changes(12, 8, [conversation("a", 5, 12)]));
    const sent = next.takeCommands();
    assert.deepEqual(
      sent.map((frame) => `${frame.t} ${frame.conversation_id} ${frame.up_to_seq}`),
      ["read a 2", "read b 3", "read to-do 6"],
    );
    for (const { id } of sent) next.serve({ t: "ok", id });
    await reading;
  });

  test("a lost answer turns read_all into its reads", async () => {
    const bench = new Bench();
    const socket = await bench.online(busy);
    const reading = bench.client.readAll("likes");
    assert.deepEqual(socket.commands(), ["read_all likes"]);
    socket.drop();
    const next = await bench.retried();
    next.accept();
    next.serve(changes(10, 7, [conversation("b", 5, 10, { category: "likes" })]));
    const [frame, ...more] = next.takeCommands();
    assert.deepEqual(more, []);
    assert.deepEqual([frame?.conversation_id, frame?.up_to_seq], ["b", 3]);
    next.serve({ t: "ok", id: frame?.id });
    await reading;
  });

  test("read_all with nothing unread resolves at once", async () => {
    await new Bench().client.readAll();
  });

  test("pending commands survive a stop and a refusal until the next start", async () => {
    const ends: ((bench: Bench) => void)[] = [
      ({ client }) => client.stop(),
      ({ socket }) => socket.drop(4001),
    ];
    for (const end of ends) {
      const bench = new Bench();
      const socket = await bench.online();
      void bench.client.markUnread("a");
      const before = socket.take();
      end(bench);
      assert.equal(bench.client.waiting.length, 1);
      bench.client.start();
      await settled();
      bench.socket.accept();
      bench.socket.serve(snapshot());
      assert.deepEqual(bench.socket.takeCommands(), before);
    }
  });
});

describe("in the storage of the browser", () => {
  const options = (storage: FakeStorage) => ({ user: "ada", storage });

  test("pending commands survive the page, with their ids", async () => {
    const storage = new FakeStorage();
    const bench = new Bench(options(storage));
    const socket = await bench.online(busy);
    void bench.client.read("snowflakes", toSeq("1851234567890123777"));
    void bench.client.markUnread("b");
    void bench.client.markUnread("a", { seqs: [7, "1851234567890123777"] });
    const before = socket.sent.splice(0);
    socket.drop();
    bench.page.leave();

    const later = new Bench(options(storage));
    later.client.start();
    await settled();
    later.socket.accept();
    later.socket.serve(changes(9, 5, []));
    assert.equal(later.client.waiting.length, 3);
    const sent = later.socket.sent.splice(0).slice(1);
    assert.deepEqual(sent, before);
    assert.match(sent[0] ?? "", /"up_to_seq":1851234567890123777}/);
    assert.match(sent[2] ?? "", /"seqs":\[7,1851234567890123777\]}/);
    for (const text of before) later.socket.serve({ t: "ok", id: JSON.parse(text).id });
    assert.deepEqual(new Bench(options(storage)).client.waiting.length, 0);
    assert.equal([...storage.items.keys()].filter((key) => key.includes("commands")).length, 0);
  });

  test("forget drops them and rejects their promises", async () => {
    const storage = new FakeStorage();
    const bench = new Bench(options(storage));
    await bench.online(busy);
    const marking = bench.client.markUnread("b");
    bench.page.leave();
    assert.equal(storage.items.size, 2);
    bench.client.forget();
    await assert.rejects(marking, { name: "BadgedError", code: "forgotten" });
    assert.equal(storage.items.size, 0);
    assert.equal(bench.client.badge, undefined);
    assert.equal(bench.client.conversations.size, 0);
    assert.equal(bench.client.status.state, "stopped");
  });
});
