import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { type Command, decodeFrame } from "../src/frames.js";
import { overlay } from "../src/overlay.js";
import { NOTHING, State, type View } from "../src/state.js";
import { conversation, generator, snapshot } from "./fakes.js";

type Wire = ReturnType<typeof conversation>;

function stateOf(...conversations: Wire[]): View {
  const total = conversations.reduce((sum, c) => sum + part(c), 0);
  const mentions = conversations.reduce((sum, c) => sum + (c.level === "none" ? 0 : c.mentions), 0);
  const categories: Record<string, number> = Object.create(null);
  for (const c of conversations) {
    if (part(c) > 0) categories[c.category] = (categories[c.category] ?? 0) + part(c);
  }
  const state = new State();
  const frame = {
    ...snapshot(9, conversations),
    total,
    mentions,
    categories,
    unread_conversations: conversations.filter((c) => part(c) > 0).length,
    category_conversations: counted(conversations),
  };
  const decoded = decodeFrame(JSON.stringify(frame));
  assert(decoded?.t === "snapshot");
  state.apply(decoded);
  return state.view;
}

/** How many conversations of each category add something to the total. */
function counted(conversations: (Part & Parameters<typeof part>[0])[]): Record<string, number> {
  const counts: Record<string, number> = Object.create(null);
  for (const c of conversations) {
    if (part(c) > 0) counts[c.category] = (counts[c.category] ?? 0) + 1;
  }
  return counts;
}

interface Part {
  level: string;
  category: string;
  unread: number;
  mentions: number;
}

/** What a conversation of a frame or a view adds to the total. */
function part(c: Part & ({ marked_unread: boolean } | { markedUnread: boolean })): number {
  const marked = "marked_unread" in c ? c.marked_unread : c.markedUnread;
  if (c.level === "all") return Math.max(c.unread, marked ? 1 : 0);
  return c.level === "mentions" ? c.mentions : 0;
}

function read(conversationId: string, upToSeq: number | bigint): Command {
  return { t: "read", id: "r", conversationId, upToSeq };
}

function mark(conversationId: string): Command {
  return { t: "mark_unread", id: "m", conversationId };
}

/** A conversation and the total with commands applied. */
function seen(view: View, id: string): string {
  const { unread, mentions, firstUnreadSeq, markedUnread } = view.conversations.get(id) ?? {};
  const marked = markedUnread ? " marked" : "";
  return `${unread}, ${mentions} mentions, from ${firstUnreadSeq}${marked}; total ${view.badge?.total}`;
}

describe("a read applied to the server's state", () => {
  const dense = conversation("a", 5, 9, {
    first_unread_seq: 6,
    last_seq: 10,
    read_seq: 5,
    mentions: 3,
  });
  const gaps = { ...dense, unread: 4 };
  const cases: [string, Wire, Command[], string][] = [
    ["up to the last message empties it", dense, [read("a", 10)], "0, 0 mentions, from 0; total 0"],
    [
      "beyond the last message empties it",
      dense,
      [read("a", 99)],
      "0, 0 mentions, from 0; total 0",
    ],
    ["up to a part leaves the rest", dense, [read("a", 8)], "2, 2 mentions, from 9; total 2"],
    [
      "below the read position does nothing",
      dense,
      [read("a", 4)],
      "5, 3 mentions, from 6; total 5",
    ],
    [
      "up to a part has no effect if seqs have gaps",
      gaps,
      [read("a", 8)],
      "4, 3 mentions, from 6; total 4",
    ],
    [
      "up to the last message empties it despite gaps",
      gaps,
      [read("a", 10)],
      "0, 0 mentions, from 0; total 0",
    ],
    [
      "of an unlisted conversation has no effect",
      dense,
      [read("b", 10), mark("b")],
      "5, 3 mentions, from 6; total 5",
    ],
    [
      "at an unknown level has no effect",
      { ...dense, level: "sometimes" },
      [read("a", 10)],
      "5, 3 mentions, from 6; total 0",
    ],
    [
      "and then a mark_unread counts one",
      dense,
      [read("a", 10), mark("a")],
      "0, 0 mentions, from 0 marked; total 1",
    ],
    [
      "clears an earlier mark_unread",
      dense,
      [mark("a"), read("a", 10)],
      "0, 0 mentions, from 0; total 0",
    ],
    [
      "and then a mark of messages waits for the server",
      dense,
      [read("a", 10), { t: "mark_unread", id: "m", conversationId: "a", seqs: [9, 10] }],
      "0, 0 mentions, from 0; total 0",
    ],
    [
      "at the read position ends marks of messages",
      { ...dense, unread: 2, mentions: 0, first_unread_seq: 3, read_seq: 10 },
      [read("a", 10)],
      "0, 0 mentions, from 0; total 0",
    ],
    [
      "of a muted conversation keeps the total",
      { ...dense, level: "none" },
      [read("a", 10)],
      "0, 0 mentions, from 0; total 0",
    ],
    [
      "at the level mentions lowers the total by mentions",
      { ...dense, level: "mentions" },
      [read("a", 9)],
      "1, 1 mentions, from 10; total 1",
    ],
  ];
  for (const [name, wire, commands, expected] of cases) {
    test(name, () => {
      const state = stateOf(wire);
      const view = overlay(state, commands);
      assert.equal(seen(view, "a"), expected);
      assert.equal(view.badge?.version, state.badge?.version);
      assert.equal(view.conversations.get("a")?.version, 9);
      assert.equal(view.conversations.size, 1);
    });
  }

  test("counts seqs above 2^53", () => {
    const last = 9_223_372_036_854_775_807n;
    const state = stateOf(conversation("a", 3, 9, { last_seq: 3 }));
    const [held] = state.conversations.values();
    assert(held);
    const large = { ...held, firstUnreadSeq: last - 2n, lastSeq: last, readSeq: last - 9n };
    const view = overlay({ ...state, conversations: new Map([["a", large]]) }, [
      read("a", last - 1n),
    ]);
    assert.equal(seen(view, "a"), `1, 0 mentions, from ${last}; total 1`);
  });

  test("removes a category with its last message, whatever its name", () => {
    const state = stateOf(conversation("a", 1, 9, { category: "constructor" }));
    const plain = { ...state, badge: structuredClone(state.badge) };
    assert.deepEqual(Object.keys(overlay(plain, [read("a", 1)]).badge?.categories ?? {}), []);
    const marked = overlay(plain, [read("a", 1), mark("a")]).badge;
    assert.deepEqual(Object.entries(marked?.categories ?? {}), [["constructor", 1]]);
  });

  test("has no effect before the first state", () => {
    assert.equal(overlay(NOTHING, [read("a", 1)]), NOTHING);
  });
});

test("after any commands the totals equal the sum of their parts, and nothing is below 0", () => {
  for (let seed = 1; seed <= 2_000; seed++) {
    const random = generator(seed);
    const pick = (n: number) => Math.floor(random() * n);
    const wires = Array.from({ length: 1 + pick(5) }, (_, i) => {
      const [read_seq, unread] = [pick(5), pick(6)];
      const first = read_seq + 1 + pick(2);
      return conversation(`c${i}`, unread, 1 + pick(9), {
        read_seq,
        first_unread_seq: unread > 0 ? first : 0,
        last_seq: unread > 0 ? first + unread - 1 + pick(3) : read_seq + pick(2),
        mentions: pick(unread + 1),
        level: ["all", "all", "mentions", "none"][pick(4)],
        category: ["chat", "likes"][pick(2)],
        marked_unread: pick(3) === 0,
      });
    });
    const state = stateOf(...wires);
    const before = structuredClone([...state.conversations.values()]);
    const commands = Array.from({ length: pick(8) }, () => {
      const id = `c${pick(wires.length + 1)}`;
      return pick(4) === 0 ? mark(id) : read(id, pick(14));
    });
    const { badge, conversations } = overlay(state, commands);
    assert(badge);

    const all = [...conversations.values()];
    const told = `seed ${seed}`;
    const sums: Record<string, number> = {};
    for (const c of all) {
      if (part(c) > 0) sums[c.category] = (sums[c.category] ?? 0) + part(c);
      assert(c.unread >= 0 && c.mentions >= 0 && c.mentions <= c.unread, told);
      const held = state.conversations.get(c.conversationId);
      assert(held && c.unread <= held.unread && c.readSeq >= held.readSeq, told);
      assert.equal(c.version, held.version, told);
    }
    assert.equal(
      badge.total,
      all.reduce((sum, c) => sum + part(c), 0),
      told,
    );
    const mentions = all.reduce((sum, c) => sum + (c.level === "none" ? 0 : c.mentions), 0);
    assert.equal(badge.mentions, mentions, told);
    assert.deepEqual({ ...badge.categories }, sums, told);
    assert.equal(badge.unreadConversations, all.filter((c) => part(c) > 0).length, told);
    assert.deepEqual({ ...badge.categoryConversations }, { ...counted(all) }, told);
    assert.deepEqual([badge.epoch, badge.version], ["e1", 9], told);
    assert.deepEqual([...state.conversations.values()], before, `${told}: the state has changed`);
  }
});
