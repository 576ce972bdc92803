import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { pathsOf } from "../src/category.js";
import {
  type Command,
  type Conversation,
  decodeFrame,
  type Numbers,
  type StateFrame,
} from "../src/frames.js";
import { overlay } from "../src/overlay.js";
import { NOTHING, State, type View } from "../src/state.js";
import { conversation, generator, snapshot } from "./fakes.js";

type Wire = ReturnType<typeof conversation>;

/** Levels of categories, which the conversations of the tests have by default. */
const LEVELS = { work: "mentions", "work/ci": "none", "work/ci/main": "all" };

function stateOf(...conversations: Wire[]): View {
  const state = new State();
  state.apply(decoded(snapshot(9, conversations)));
  const { badge, conversations: held } = state.view;
  assert(badge);
  const expected = { ...badge, ...expectedOf([...held.values()]), levels: LEVELS };
  return { ...state.view, badge: expected };
}

function decoded(wire: object): StateFrame {
  const frame = decodeFrame(JSON.stringify(wire));
  assert(frame?.t === "snapshot");
  return frame;
}

/** The numbers of conversations, by the table of the documentation, path by path. */
function expectedOf(all: Conversation[]) {
  const categories: Record<string, Numbers> = Object.create(null);
  const paths = new Set(all.flatMap(({ category }) => pathsOf(category)));
  for (const path of paths) {
    const numbers = tableOf(all.filter(({ category }) => `${category}/`.startsWith(`${path}/`)));
    if (Object.values(numbers).some((n) => n > 0) || numbers.muted.total > 0) {
      categories[path] = numbers;
    }
  }
  return { ...tableOf(all), categories };
}

function tableOf(all: Conversation[]): Numbers {
  const total = (of: (c: Conversation) => number) => all.reduce((n, c) => n + of(c), 0);
  const level = (c: Conversation) => {
    if (c.level !== "default") return c.level;
    if (/^work\/ci\/main($|\/)/.test(c.category)) return "all";
    if (/^work\/ci($|\/)/.test(c.category)) return "none";
    return /^work($|\/)/.test(c.category) ? "mentions" : "all";
  };
  const full = (c: Conversation) => (c.markedUnread ? Math.max(1, c.unread) : c.unread);
  const by = (c: Conversation, values: { all: number; mentions: number; none: number }) =>
    values[level(c) as "all" | "mentions" | "none"] ?? 0;
  const adds = (c: Conversation) => by(c, { all: full(c), mentions: c.mentions, none: 0 });
  const muted = (c: Conversation) =>
    by(c, { all: 0, mentions: full(c) - c.mentions, none: full(c) });
  return {
    total: total(adds),
    mentions: total((c) => by(c, { all: c.mentions, mentions: c.mentions, none: 0 })),
    unreadConversations: total((c) => (adds(c) > 0 ? 1 : 0)),
    unseen: total((c) =>
      by(c, { all: c.unread - c.seen, mentions: c.mentions - c.seenMentions, none: 0 }),
    ),
    muted: { total: total(muted), conversations: total((c) => (muted(c) > 0 ? 1 : 0)) },
    marked: total((c) =>
      by(c, { all: c.markedUnread && c.unread === 0 ? 1 : 0, mentions: 0, none: 0 }),
    ),
  };
}

function read(conversationId: string, upToSeq: number | bigint): Command {
  return { t: "read", id: "r", conversationId, upToSeq };
}

function mark(conversationId: string): Command {
  return { t: "mark_unread", id: "m", conversationId };
}

function see(conversationId: string, upToSeq: number): Command {
  return { t: "seen", id: "s", conversationId, upToSeq };
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
    const state = stateOf(conversation("a", 1, 9, { category: "constructor/__proto__" }));
    const plain = { ...state, badge: structuredClone(state.badge) };
    assert.deepEqual(Object.keys(overlay(plain, [read("a", 1)]).badge?.categories ?? {}), []);
    const marked = overlay(plain, [read("a", 1), mark("a")]).badge;
    assert.deepEqual(
      Object.entries(marked?.categories ?? {})
        .reverse()
        .map(([path, { total, marked }]) => [path, total, marked]),
      [
        ["constructor", 1, 1],
        ["constructor/__proto__", 1, 1],
      ],
    );
  });

  test("does not make the numbers of a category that the client does not hold negative", () => {
    const state = stateOf(conversation("a", 3, 9, { category: "acme/general" }));
    assert(state.badge);
    const cut = { ...state, badge: { ...state.badge, categories: {}, moreCategories: true } };
    const { badge } = overlay(cut, [read("a", 1)]);
    assert.deepEqual([badge?.total, { ...badge?.categories }], [2, {}]);
  });

  test("has no effect before the first state", () => {
    assert.equal(overlay(NOTHING, [read("a", 1)]), NOTHING);
  });
});

describe("a seen applied to the server's state", () => {
  const dense = { first_unread_seq: 6, last_seq: 10, read_seq: 5, mentions: 2 };
  const cases: [string, object, Command[], number, number | bigint][] = [
    ["up to the last message sees all", {}, [see("a", 10)], 0, 10],
    ["is cut to the last message", {}, [see("a", 99)], 0, 10],
    ["up to a part leaves the rest", {}, [see("a", 7)], 3, 7],
    ["only moves forward", { seen: 4, seen_mentions: 1, seen_seq: 9 }, [see("a", 7)], 1, 9],
    ["below the read position does nothing", {}, [see("a", 5)], 5, 0],
    ["up to a part has no effect if seqs have gaps", { last_seq: 12 }, [see("a", 7)], 5, 0],
    ["moves along with a read", {}, [see("a", 7), read("a", 8)], 2, 0],
    ["keeps what is seen above a read", {}, [see("a", 9), read("a", 7)], 1, 9],
    ["is not undone by a mark", {}, [see("a", 10), mark("a")], 0, 10],
    ["of messages that do not count changes none", { level: "none" }, [see("a", 10)], 0, 10],
  ];
  for (const [name, more, commands, unseen, seenSeq] of cases) {
    test(name, () => {
      const view = overlay(stateOf(conversation("a", 5, 9, { ...dense, ...more })), commands);
      const held = view.conversations.get("a");
      assert(held);
      assert.equal(view.badge?.unseen, unseen);
      assert.equal(held.seenSeq, seenSeq);
      assert(held.mentions - held.seenMentions <= held.unread - held.seen);
    });
  }
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
        ...seenOf(pick, unread, first),
        level: ["default", "all", "mentions", "none"][pick(4)],
        category: ["chat", "chat/x", "work", "work/ci/x", "work/ci/main/y"][pick(5)],
        marked_unread: pick(3) === 0,
      });
    });
    const state = stateOf(...wires);
    const before = structuredClone([...state.conversations.values()]);
    const commands = Array.from({ length: pick(8) }, () => {
      const id = `c${pick(wires.length + 1)}`;
      if (pick(4) === 0) return mark(id);
      return pick(2) === 0 ? see(id, 1 + pick(14)) : read(id, pick(14));
    });
    const { badge, conversations } = overlay(state, commands);
    assert(badge);

    const all = [...conversations.values()];
    const told = `seed ${seed}`;
    for (const c of all) {
      assert(c.unread >= 0 && c.mentions >= 0 && c.mentions <= c.unread, told);
      assert(c.seen >= 0 && c.seen <= c.unread && c.seenMentions >= 0, told);
      assert(c.mentions - c.seenMentions <= c.unread - c.seen, told);
      const held = state.conversations.get(c.conversationId);
      assert(held && c.unread <= held.unread && c.readSeq >= held.readSeq, told);
      assert.equal(c.version, held.version, told);
    }
    const { epoch, version, levels, ...numbers } = badge;
    assert.deepEqual(numbers, expectedOf(all), told);
    assert.deepEqual([epoch, version, levels], ["e1", 9, LEVELS], told);
    assert.deepEqual([...state.conversations.values()], before, `${told}: the state has changed`);
  }
});

/** A seen position and what is seen and mentioned, of `unread` messages without gaps from `first` on. */
function seenOf(pick: (n: number) => number, unread: number, first: number) {
  const mentioned = Array.from({ length: unread }, () => pick(2));
  const seen = pick(unread + 1);
  const count = (flags: number[]) => flags.reduce((n, flag) => n + flag, 0);
  return {
    mentions: count(mentioned),
    ...(seen > 0 && {
      seen,
      seen_mentions: count(mentioned.slice(0, seen)),
      seen_seq: first + seen - 1,
    }),
  };
}
