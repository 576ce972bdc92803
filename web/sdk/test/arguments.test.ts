import assert from "node:assert/strict";
import { describe, type TestContext, test } from "node:test";
import { Badged, type MarkOptions } from "../src/index.js";
import { Bench, changes, conversation, FakeStorage, settled, snapshot } from "./fakes.js";

/** What no id can be. */
const BAD_IDS = [
  undefined,
  null,
  123,
  Number.NaN,
  {},
  ["a"],
  "",
  "x".repeat(129),
  "é".repeat(65),
  "x".repeat(5_000),
  "a\u0000b",
  "a\nb",
  "a\u0085b",
  "\ud800",
];

/** What is no seq of a message. */
const BAD_SEQS = [null, -1, 1.5, Number.NaN, Infinity, 2 ** 60, 2n ** 63n, true, {}, "", "abc"];

/** What no category can be. */
const BAD_CATEGORIES = [
  "",
  "a\tb",
  "/acme",
  "acme/",
  "acme//general",
  "a/b/c/d/e/f/g/h/i",
  "é".repeat(65),
];

/** A bench whose commands are stored. */
async function storing() {
  const storage = new FakeStorage();
  const bench = new Bench({ user: "ada", storage });
  const socket = await bench.online(snapshot(1, [conversation("a", 2, 1)]));
  return { storage, bench, socket };
}

describe("a command with a wrong argument", () => {
  test("is refused where it is given: nothing is stored, sent or shown", async () => {
    const { storage, bench, socket } = await storing();
    // Apps in JavaScript have no types.
    const client = bench.client as unknown as Record<string, (...args: unknown[]) => Promise<void>>;
    const refused = (call: string, ...args: unknown[]) =>
      assert.rejects(
        async () => client[call]?.(...args),
        (error: Error) => error instanceof TypeError && / must be /.test(error.message),
        `${call}(${args.map(String)})`,
      );
    for (const id of BAD_IDS) {
      await refused("read", id, 5);
      await refused("markUnread", id);
      await refused("markUnread", id, { seqs: [1] });
      await refused("markUnread", id, { fromSeq: 1 });
      await refused("open", id);
    }
    for (const seq of BAD_SEQS) {
      await refused("read", "a", seq);
      await refused("seen", "a", seq);
      await refused("markUnread", "a", { seqs: [1, seq] });
      await refused("markUnread", "a", { seqs: seq });
      await refused("markUnread", "a", { fromSeq: seq });
    }
    for (const seq of [undefined, [5], "-1"]) await refused("read", "a", seq);
    await refused("markUnread", "a", { fromSeq: 0 });
    await refused("markUnread", "a", { seqs: [0] });
    await refused("markUnread", "a", { seqs: [] });
    await refused("markUnread", "a", { seqs: Array(1001).fill(1) });
    await refused("markUnread", "a", { fromSeq: 1, seqs: [2] });
    for (const category of [null, 5, {}, new Event("click"), ...BAD_CATEGORIES]) {
      await refused("readAll", category);
      await refused("seenAll", category);
      await refused("setLevel", category, "none");
      await refused("openCategory", category);
    }
    for (const level of [undefined, null, "", "some", "All", {}]) {
      await refused("setLevel", "acme", level);
    }
    await refused("setLevel", undefined, "none");
    for (const signal of [5, "x", {}]) await refused("read", "a", 1, { signal });
    bench.clock.advance(60_000);
    assert.deepEqual(socket.commands(), []);
    assert.deepEqual(bench.client.waiting, []);
    assert.equal(bench.client.badge?.total, 2);
    assert(![...storage.items.keys()].some((key) => key.endsWith(" commands")));
    assert.equal(bench.client.status.state, "online");
  });

  test("names the argument and what was given", async () => {
    const { client } = new Bench();
    const said = (promise: Promise<void>) => promise.catch(({ message }) => message);
    assert.match(
      await said(client.read(undefined as never, 5)),
      /^conversationId must .* undefined/,
    );
    assert.match(await said(client.read(123 as never, 5)), /^conversationId must .* is 123$/);
    assert.match(await said(client.read("a", 1.5)), /^upToSeq must be .* is 1\.5$/);
    assert.match(await said(client.markUnread("a", { seqs: [1, "x"] })), /^seqs\[1\] must .* "x"$/);
  });

  test("does not end the reading of an open conversation", async () => {
    const { bench, socket } = await storing();
    bench.client.open("a");
    const [read] = socket.takeCommands();
    assert.equal(read?.up_to_seq, 2);
    await assert.rejects(bench.client.markUnread("a", { seqs: "all" } as unknown as MarkOptions));
    await bench.clock.advance(1_000);
    socket.serve(changes(2, 3, [conversation("a", 3, 2)]));
    assert.deepEqual(socket.commands(), []);
    socket.serve({ t: "ok", id: read?.id });
    assert.deepEqual(socket.commands(), ["read a 3"]);
  });

  test("the longest that the server takes is taken, in a frame that is not too long", async () => {
    const { bench, socket } = await storing();
    const id = '"\\'.repeat(64);
    const seqs = Array.from({ length: 150 }, (_, i) => 2n ** 63n - 1n - BigInt(i));
    void bench.client.markUnread(id, { seqs });
    void bench.client.read("é".repeat(64), "9223372036854775807");
    void bench.client.readAll(`${"é".repeat(63)}/${"é".repeat(63)}`);
    const sent = [...socket.sent];
    assert.equal(sent.length, 2, "read_all waits for the others");
    for (const frame of sent) assert(new TextEncoder().encode(frame).length <= 4096);
  });
});

test("a room without messages that is marked can be read", async () => {
  const bench = new Bench();
  const marked = conversation("hall", 0, 3, { marked_unread: true });
  const socket = await bench.online(snapshot(3, [marked]));
  bench.client.open("hall");
  const [{ id } = {}] = socket.takeCommands();
  socket.serve({ t: "error", id, code: "unavailable", message: "" });
  void bench.client.read("hall", bench.client.conversations.get("hall")?.lastSeq ?? -1);
  assert.deepEqual(socket.commands(), ["read hall 1"]);
});

test("wrong options and listeners are refused", () => {
  const options = { url: "https://badges.test", token: async () => "token" };
  for (const wrong of [
    { url: undefined },
    { url: "ftp://badges.test" },
    { token: undefined },
    { token: "a token" },
    { user: "" },
    { user: 42 },
    { user: null },
    { device: "" },
    { device: "x".repeat(129) },
    { minBackoffMs: 0 },
    { minBackoffMs: Number.NaN },
    { maxBackoffMs: -1 },
  ]) {
    const all = { ...options, ...wrong } as unknown as typeof options;
    assert.throws(() => new Badged(all), TypeError, JSON.stringify(wrong));
  }
  for (const missing of [undefined, null, {}, { url: "" }]) {
    assert.throws(() => new Badged(missing as never), {
      name: "TypeError",
      message: "url is required, such as https://badged.example.com",
    });
  }
  const client = new Badged(options);
  assert.throws(() => client.on("total", undefined as never), /listener must be a function/);
});

describe("field case corrupt-storage (twenty#21503, metaflow-ui#186): stored commands", () => {
  const good = { t: "read", id: "5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77", conversationId: "a" };
  const bad = [
    { ...good, upToSeq: 0 },
    { ...good, conversationId: 123, upToSeq: 5 },
    { ...good, conversationId: "x".repeat(5_000), upToSeq: 5 },
    { ...good, id: '","t":"read_all', upToSeq: 5 },
    { ...good, t: "pin", upToSeq: 5 },
    { ...good, t: "mark_unread", seqs: Array(1_000).fill(9_007_199_254_740_991) },
    null,
    7,
  ];

  /** Runs a client that finds commands in its storage. */
  async function visit(t: TestContext, stored: unknown) {
    const warn = t.mock.method(console, "warn", () => {});
    const storage = new FakeStorage();
    const key = "badged https://badges.test/ ada commands";
    storage.items.set(key, typeof stored === "string" ? stored : JSON.stringify(stored));
    const bench = new Bench({ user: "ada", storage });
    const socket = await bench.online(snapshot(1, [conversation("a", 2, 1)]));
    await settled();
    return { bench, socket, warn, stored: () => storage.items.get(key) };
  }

  test("that no release can send are dropped and reported once each, and the others are sent", async (t) => {
    const read = { ...good, upToSeq: 2 };
    const { bench, socket, warn, stored } = await visit(t, [
      ...bad.slice(0, 4),
      read,
      ...bad.slice(4),
    ]);
    const [sent] = socket.takeCommands();
    assert.equal(sent, undefined, "online took it");
    assert.deepEqual(bench.client.waiting, [read]);
    assert.equal(warn.mock.callCount(), bad.length);
    assert.match(
      String(warn.mock.calls[0]?.arguments[0]),
      /^badged: .* dropped: .*upToSeq must be/,
    );
    assert.deepEqual(JSON.parse(stored() ?? ""), [read]);
    assert.equal(bench.client.status.state, "online");
  });

  for (const [name, stored] of [
    ["all bad", bad],
    ["not a list", { t: "read" }],
    ["not JSON", "[{"],
  ] as const) {
    test(`that are ${name} leave nothing behind`, async (t) => {
      const visited = await visit(t, stored);
      assert.deepEqual(visited.bench.client.waiting, []);
      assert.equal(visited.stored(), undefined);
    });
  }
});
