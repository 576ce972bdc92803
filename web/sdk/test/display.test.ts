import assert from "node:assert/strict";
import { test } from "node:test";
import {
  conversationsOf,
  countOf,
  formatCount,
  onConversations,
  onCount,
  showInTitle,
  showOnApp,
} from "../src/index.js";
import { Bench, changes, conversation, numbers, snapshot } from "./fakes.js";

/** Runs a function with a replaced global. */
async function withGlobal(name: string, value: unknown, run: () => Promise<void>): Promise<void> {
  const before = Object.getOwnPropertyDescriptor(globalThis, name);
  Object.defineProperty(globalThis, name, { value, configurable: true });
  try {
    await run();
  } finally {
    if (before === undefined) Reflect.deleteProperty(globalThis, name);
    else Object.defineProperty(globalThis, name, before);
  }
}

test("formatCount is empty for 0 and capped above the limit", () => {
  const cases: [number, string][] = [
    [-1, ""],
    [0, ""],
    [1, "1"],
    [99, "99"],
    [100, "99+"],
    [123_456, "99+"],
  ];
  for (const [count, text] of cases) assert.equal(formatCount(count), text);
  assert.equal(formatCount(999, 999), "999");
  assert.equal(formatCount(1000, 999), "999+");
});

test("conversations are listed by category, the last changed first, and told of once", async () => {
  const bench = new Bench();
  const of = (id: string, version: number, category: string) => ({
    ...conversation(id, 1, version),
    category,
  });
  const socket = await bench.online(
    snapshot(3, [of("a", 1, "acme"), of("b", 3, "acme/team"), of("c", 2, "acme2")]),
  );
  const ids = (category?: string) =>
    conversationsOf(bench.client, category).map(({ conversationId }) => conversationId);
  assert.deepEqual(
    [ids(), ids("acme"), ids("acme/team"), ids("none")],
    [["b", "c", "a"], ["b", "a"], ["b"], []],
  );
  let told = 0;
  const stop = onConversations(bench.client, () => told++);
  socket.serve(changes(5, 3, [of("a", 5, "acme"), of("c", 4, "acme2")]));
  await undefined;
  assert.equal(told, 1);
  assert.deepEqual(ids(), ["a", "c", "b"]);
  stop();
  socket.serve(changes(6, 3, [of("b", 6, "acme/team")]));
  await undefined;
  assert.equal(told, 1);
});

test("the title shows the total in front, also after the page changed it", async () => {
  const page = { title: "Inbox (2026)" };
  await withGlobal("document", page, async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(1, [conversation("a", 3, 1)]));
    const stop = showInTitle(bench.client);
    assert.equal(page.title, "(3) Inbox (2026)");
    page.title = "Settings";
    socket.serve(changes(2, 120, [conversation("a", 120, 2)]));
    assert.equal(page.title, "(99+) Settings");
    socket.serve(changes(3, 0, [conversation("a", 0, 3)]));
    assert.equal(page.title, "Settings");
    socket.serve(changes(4, 1, [conversation("a", 1, 4)]));
    stop();
    assert.equal(page.title, "Settings");
    socket.serve(changes(5, 2, [conversation("a", 2, 5)]));
    assert.equal(page.title, "Settings");
  });
});

test("a page without a title shows the last count alone", async () => {
  let title = "";
  const page = {
    get title() {
      return title;
    },
    set title(text) {
      title = text.trim(); // as browsers do
    },
  };
  await withGlobal("document", page, async () => {
    const bench = new Bench();
    const socket = await bench.online(snapshot(1, [conversation("a", 3, 1)]));
    const stop = showInTitle(bench.client);
    socket.serve(changes(2, 4, [conversation("a", 4, 2)]));
    assert.equal(title, "(4)");
    stop();
    assert.equal(title, "");
  });
});

test("the app's icon shows the total if the browser supports it", async () => {
  const bench = new Bench();
  const socket = await bench.online(snapshot(1, [conversation("a", 3, 1)]));
  const shown: number[] = [];
  const setAppBadge = (count: number) => {
    shown.push(count);
    return Promise.reject(new DOMException("not installed", "NotAllowedError"));
  };
  await withGlobal("navigator", { setAppBadge }, async () => {
    const stop = showOnApp(bench.client);
    socket.serve(changes(2, 5, [conversation("a", 5, 2)]));
    stop();
    assert.deepEqual(shown, [3, 5, 0]);
  });
  await withGlobal("navigator", {}, async () => showOnApp(bench.client)());
});

test("a part counts messages, or the conversations with some", async () => {
  const page = { title: "Inbox" };
  await withGlobal("document", page, async () => {
    const bench = new Bench();
    const muted = conversation("m", 4, 1, { level: "none" });
    const [a, b] = [conversation("a", 3, 1), conversation("b", 2, 1, { category: "work" })];
    const socket = await bench.online({
      ...snapshot(1, [a, b, muted]),
      ...numbers(5, { unread_conversations: 2, muted: { total: 4, conversations: 1 } }),
      categories: {
        chat: numbers(3, { muted: { total: 4, conversations: 1 } }),
        work: numbers(2, { unseen: 1, mentions: 1 }),
      },
    });
    const { client } = bench;
    const count = "conversations";
    showInTitle(client, { count });
    assert.equal(page.title, "(2) Inbox");
    assert.equal(countOf(client), 5);
    assert.equal(countOf(client, { category: "chat" }), 3);
    assert.equal(countOf(client, { category: "chat", count }), 1);
    assert.equal(countOf(client, { category: "toString", count }), 0);
    assert.equal(countOf(client, { conversation: "a", count }), 1);
    assert.equal(countOf(client, { conversation: "m", count }), 0);
    assert.equal(countOf(client, { count: "muted" }), 4);
    assert.equal(countOf(client, { category: "chat", count: "muted" }), 4);
    assert.equal(countOf(client, { conversation: "m", count: "muted" }), 4);
    assert.equal(countOf(client, { category: "work", count: "unseen" }), 1);
    assert.equal(countOf(client, { category: "work", count: "mentions" }), 1);
    assert.equal(countOf(client, { category: "work", count: "marked" }), 0);

    client.read("a", 3).catch(() => {}); // shown before the server answers
    assert.equal(countOf(client, { count }), 1);
    assert.equal(page.title, "(1) Inbox");

    socket.serve({ ...changes(2, 2, [conversation("a", 0, 2)]), levels: { chat: "none" } });
    client.stop();
  });
});

test("the count of a conversation changes with the level of its category", async () => {
  const bench = new Bench();
  const socket = await bench.online(snapshot(1, [conversation("a", 3, 1)]));
  const counts: number[] = [];
  const part = { conversation: "a" };
  const stop = onCount(bench.client, part, () => counts.push(countOf(bench.client, part)));
  const muted = numbers(0, { muted: { total: 3, conversations: 1 } });
  socket.serve({
    ...changes(2, 0, []),
    ...muted,
    categories: { chat: muted },
    levels: { chat: "none" },
  });
  stop();
  socket.serve({ ...changes(3, 3, []), levels: {} });
  assert.deepEqual(counts, [0]);
});
