import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeFrame, type StateFrame } from "../src/frames.js";
import { type Difference, difference, listed, State } from "../src/state.js";
import { changes, conversation, generator, golden, numbers, snapshot } from "./fakes.js";

function frame(wire: object | string): StateFrame {
  const decoded = decodeFrame(typeof wire === "string" ? wire : JSON.stringify(wire));
  assert(decoded?.t === "snapshot" || decoded?.t === "changes");
  return decoded;
}

/** A state, with what each frame changed. */
class Held {
  readonly #state = new State();

  get view() {
    return this.#state.view;
  }

  apply(frame: StateFrame): Difference | "stale" | "foreign" {
    const before = this.view;
    const applied = this.#state.apply(frame);
    return applied === "applied" ? difference(before, this.view) : applied;
  }

  get snapshot(): StateFrame {
    assert(this.#state.snapshot);
    return this.#state.snapshot;
  }
}

/** The conversations that a frame changed, each as `id unread`. */
function changed(applied: Difference | string): string[] {
  assert(typeof applied === "object", `frame was ${applied}`);
  return applied.conversations.map((c) => `${c.conversationId} ${c.unread}`);
}

describe("changes apply only if they are newer", () => {
  test("newer ones apply", () => {
    const state = new Held();
    state.apply(frame(golden("snapshot")));
    const applied = state.apply(frame(golden("changes")));
    assert.deepEqual(changed(applied), ["design-crew 0", "Café ☕ 2"]);
    assert.equal(state.view.badge?.total, 4);
    assert.equal(state.view.conversations.get("releases")?.mentions, 1);
  });

  test("older and equal ones do not", () => {
    const state = new State();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    for (const old of [
      changes(5, 9, [conversation("a", 9, 5)]),
      changes(1, 1, [conversation("a", 1, 1)]),
    ]) {
      assert.equal(state.apply(frame(old)), "stale");
    }
    assert.equal(state.view.badge?.total, 2);
    assert.equal(state.view.conversations.get("a")?.unread, 2);
  });

  test("an older conversation in a newer frame does not", () => {
    const state = new Held();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    const applied = state.apply(
      frame(changes(6, 5, [conversation("b", 3, 6), conversation("a", 9, 3)])),
    );
    assert.deepEqual(changed(applied), ["b 3"]);
    assert.equal(state.view.conversations.get("a")?.unread, 2);
  });
});

describe("versions of different epochs do not compare", () => {
  test("a snapshot of another epoch replaces everything, also with a lower version", () => {
    const state = new Held();
    state.apply(frame(snapshot(50, [conversation("a", 2, 50), conversation("b", 1, 49)])));
    const applied = state.apply(frame(snapshot(3, [conversation("a", 2, 3)], "e2")));
    assert.deepEqual(changed(applied), ["a 2", "b 0"]);
    assert.deepEqual([...state.view.conversations.keys()], ["a"]);
    assert.equal(state.view.badge?.version, 3);
  });

  test("a conversation of another epoch replaces one of the same version", () => {
    const state = new Held();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    const applied = state.apply(frame(snapshot(5, [conversation("a", 3, 5)], "e2")));
    assert.deepEqual(changed(applied), ["a 3"]);
  });

  test("changes of another epoch, or without a state, do not apply", () => {
    const state = new Held();
    assert.equal(state.apply(frame(changes(6, 1, []))), "foreign");
    assert.equal(state.view.badge, undefined);
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    assert.equal(state.apply(frame(changes(6, 1, [conversation("a", 1, 6)], "e2"))), "foreign");
    assert.equal(state.view.conversations.get("a")?.unread, 2);
  });
});

describe("a snapshot", () => {
  test("replaces a newer state, which the server no longer has", () => {
    const state = new Held();
    state.apply(frame(snapshot(100, [conversation("a", 9, 100), conversation("b", 1, 4)])));
    const applied = state.apply(
      frame(snapshot(7, [conversation("a", 2, 5), conversation("b", 1, 4)])),
    );
    assert.deepEqual(changed(applied), ["a 2"], "b is as it was");
    assert.deepEqual([state.view.badge?.version, state.view.badge?.total], [7, 3]);
    state.apply(frame(changes(8, 4, [conversation("a", 3, 8)])));
    assert.equal(state.view.badge?.total, 4);
  });

  test("replaces different numbers of the same version", () => {
    const state = new Held();
    state.apply(frame(snapshot(5, [conversation("a", 9, 5)])));
    assert.deepEqual(changed(state.apply(frame(snapshot(5, [conversation("a", 2, 5)])))), ["a 2"]);
    assert.equal(state.view.badge?.total, 2);
  });

  test("changes nothing if it equals what is held", () => {
    const state = new Held();
    const held = snapshot(5, [conversation("a", 2, 5)]);
    state.apply(frame(held));
    const applied = state.apply(frame(held));
    assert.deepEqual(changed(applied), []);
    assert(typeof applied === "object" && applied.badge === undefined);
  });

  test("of the held state includes the levels of read conversations", () => {
    const state = new Held();
    const muted = conversation("muted", 0, 4, { level: "none" });
    const heard = conversation("heard", 0, 3, {
      level: "all",
      level_until: "2026-03-02T09:00:00Z",
    });
    state.apply(frame(snapshot(5, [conversation("a", 2, 5), muted, heard])));
    state.apply(frame(changes(6, 0, [conversation("a", 0, 6)])));
    assert.deepEqual(
      state.snapshot.conversations.map((c) => [c.conversationId, c.level, c.levelUntil]),
      [
        ["muted", "none", undefined],
        ["heard", "all", "2026-03-02T09:00:00Z"],
      ],
    );
  });

  test("of the held state is cut to the latest conversations, and sets more", () => {
    const state = new Held();
    const many = Array.from({ length: 1_200 }, (_, i) =>
      conversation(`c${i}`, 1, i + 1, { level: "mentions" }),
    );
    state.apply(frame(snapshot(1_200, many)));
    const { conversations, more } = state.snapshot;
    assert.equal(conversations.length, 1_000);
    assert.equal(Math.min(...conversations.map(({ version }) => version)), 201);
    assert.equal(more, true);
  });

  test("resets the level of a conversation that it omits, unless it is cut", () => {
    for (const more of [false, true]) {
      const state = new Held();
      state.apply(frame(snapshot(5, [conversation("a", 0, 5, { level: "none" })])));
      const applied = state.apply(frame({ ...snapshot(6), more }));
      assert(typeof applied === "object");
      assert.deepEqual(
        applied.conversations.map(({ level }) => level),
        more ? [] : ["default"],
      );
    }
  });

  test("empties the conversations that it does not list", () => {
    const state = new Held();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5), conversation("b", 1, 4)])));
    const applied = state.apply(frame(snapshot(7, [conversation("b", 1, 4)])));
    assert.deepEqual(changed(applied), ["a 0"], "b is as it was");
    assert(typeof applied === "object");
    assert.deepEqual(applied.conversations[0], {
      conversationId: "a",
      unread: 0,
      mentions: 0,
      firstUnreadSeq: 0,
      readSeq: 0,
      lastSeq: 2,
      seenSeq: 0,
      seen: 0,
      seenMentions: 0,
      level: "default",
      category: "chat",
      markedUnread: false,
      left: false,
      version: 5,
    });
    assert.equal(state.view.conversations.has("a"), false);
  });

  test("omits a conversation that the user has left, and reports the change", () => {
    const state = new State();
    state.apply(frame(golden("snapshot")));
    state.apply(frame(golden("changes")));
    const before = state.view;
    assert.equal(listed(before.conversations).has("design-crew"), true);
    state.apply(frame(golden("changes-left")));
    assert.deepEqual(
      difference(before, state.view).conversations.map(({ conversationId, left }) => [
        conversationId,
        left,
      ]),
      [["design-crew", true]],
    );
    assert.equal(listed(state.view.conversations).has("design-crew"), false);
    assert.equal(
      state.snapshot?.conversations.some(({ left }) => left),
      false,
    );
  });

  test("sets more if there are conversations that it does not list", () => {
    const state = new Held();
    state.apply(frame(golden("snapshot-large-seqs")));
    assert.equal(state.view.more, true);
    state.apply(frame(golden("snapshot")));
    assert.equal(state.view.more, false);
  });
});

test("the badge counts as changed only if one of its numbers did", () => {
  const state = new Held();
  const badgeAfter = (wire: object) => {
    const applied = state.apply(frame(wire));
    assert(typeof applied === "object");
    return applied.badge?.total;
  };
  assert.equal(badgeAfter(snapshot(1)), 0, "the first state is news");
  assert.equal(badgeAfter(changes(2, 1, [conversation("a", 1, 2)])), 1);
  assert.equal(badgeAfter(changes(3, 1, [conversation("b", 4, 3, { level: "none" })])), undefined);
  assert.equal(state.view.badge?.version, 3);
  let version = 3;
  const changed = (more: object) => badgeAfter({ ...changes(++version, 1, []), ...more });
  let same = {};
  for (const more of [
    { mentions: 1 },
    { unread_conversations: 7 },
    { unseen: 0 },
    { muted: { total: 2, conversations: 1 } },
    { marked: 1 },
    { categories: { x: numbers(1) } },
    { categories: { x: numbers(1), "x/y": numbers(0, { muted: { total: 2, conversations: 1 } }) } },
    { levels: { x: "none" } },
  ]) {
    same = { ...same, ...more };
    assert.equal(changed(same), 1, JSON.stringify(more));
    assert.equal(changed(same), undefined, JSON.stringify(more));
  }
  assert.equal(changed({ ...same, all_categories: true, more_categories: true }), 1);
  assert.equal(changed({ ...same, levels: undefined }), undefined, "they are as before");
});

describe("categories and levels", () => {
  const held = () => {
    const state = new Held();
    state.apply(frame(golden("snapshot-paths")));
    return state;
  };
  const paths = (state: Held) => Object.keys(state.view.badge?.categories ?? {});
  const levels = (state: Held) => ({ ...state.view.badge?.levels });

  test("of changes are merged: what has nothing left is gone, what is not named stays", () => {
    const state = held();
    const before = state.view.badge?.categories.acme;
    state.apply(frame(golden("changes-paths")));
    assert.deepEqual(paths(state), ["acme", "acme/general", "acme/random", "games", "games/lfg"]);
    assert.equal(state.view.badge?.categories.acme, before);
    assert.equal(state.view.badge?.categories.games?.muted.total, 0);
    assert.deepEqual(levels(state), { acme: "mentions", "acme/general": "all", games: "none" });
  });

  test("levels are replaced if changes have them", () => {
    const state = held();
    state.apply(frame(golden("changes-paths")));
    state.apply(frame(golden("changes-paths-levels")));
    assert.deepEqual(levels(state), { "acme/general": "all", games: "none" });
    state.apply(frame({ ...changes(15, 8, []), levels: {} }));
    assert.deepEqual(levels(state), {});
  });

  test("are replaced by changes that have all", () => {
    const state = held();
    state.apply(frame(golden("changes-paths-all")));
    assert.deepEqual(paths(state), ["acme", "acme/random"]);
    assert.deepEqual(levels(state), {});
  });

  test("that there are more is kept until changes have all", () => {
    const state = new Held();
    state.apply(frame({ ...snapshot(1), more_categories: true }));
    state.apply(frame(changes(2, 1, [])));
    assert.equal(state.view.badge?.moreCategories, true);
    assert.equal(state.snapshot.badge.moreCategories, true);
    state.apply(frame({ ...changes(3, 1, []), all_categories: true }));
    assert.equal(state.view.badge?.moreCategories, undefined);
  });
});

/** A server with one user that answers and pushes like badged. */
class ModelServer {
  version = 0;
  epoch = 1;
  readonly conversations = new Map<string, ReturnType<typeof conversation>>();

  change(id: string, unread: number): void {
    this.version++;
    this.conversations.set(id, conversation(id, unread, this.version));
  }

  /** Starts a new epoch, as a rebuild does. */
  rebuild(): void {
    this.epoch++;
    this.version = 0;
    for (const [id, { unread }] of this.conversations) this.change(id, unread);
  }

  answer(held: { epoch: string; version: number } | undefined): object {
    if (held?.epoch === `e${this.epoch}`) return this.since(held.version);
    const shown = [...this.conversations.values()].filter(({ unread }) => unread > 0);
    return snapshot(this.version, shown, `e${this.epoch}`);
  }

  since(version: number): object {
    const all = [...this.conversations.values()];
    const total = all.reduce((sum, { unread }) => sum + unread, 0);
    const newer = all.filter((c) => c.version > version);
    return changes(this.version, total, newer, `e${this.epoch}`);
  }
}

test("after any losses, repeats and delays the client has the server's state", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = generator(seed);
    const pick = (n: number) => Math.floor(random() * n);
    const server = new ModelServer();
    const client = new Held();
    const delayed: object[] = [];

    const receive = (wire: object) => {
      client.apply(frame(wire));
      assert.equal(
        client.view.badge?.total,
        [...client.view.conversations.values()].reduce((sum, { unread }) => sum + unread, 0),
        `seed ${seed}: total is not the sum`,
      );
    };
    // Each round is one connection: an answer, pushes, and the loss.
    for (let round = 0; round < 6; round++) {
      receive(server.answer(client.view.badge));
      let sent = server.version;
      for (let step = pick(8); step > 0; step--) {
        for (let n = pick(3); n >= 0; n--) server.change("abcde".charAt(pick(5)), pick(4));
        const push = server.since(sent);
        sent = server.version;
        receive(push);
        delayed.push(push);
        if (pick(3) === 0) receive(push);
        if (pick(3) === 0) receive(delayed[pick(delayed.length)] as object);
      }
      for (let n = pick(4); n > 0; n--) server.change("abcde".charAt(pick(5)), pick(4));
      if (pick(5) === 0) {
        server.rebuild();
        delayed.length = 0;
      }
    }
    receive(server.answer(client.view.badge));

    for (const [id, { unread }] of server.conversations) {
      assert.equal(client.view.conversations.get(id)?.unread ?? 0, unread, `seed ${seed}: ${id}`);
    }
  }
});
