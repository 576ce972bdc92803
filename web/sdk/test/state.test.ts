import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeFrame, type StateFrame } from "../src/frames.js";
import { type Applied, State } from "../src/state.js";
import { changes, conversation, golden, snapshot } from "./fakes.js";

function frame(wire: object | string): StateFrame {
  const decoded = decodeFrame(typeof wire === "string" ? wire : JSON.stringify(wire));
  assert(decoded?.t === "snapshot" || decoded?.t === "changes");
  return decoded;
}

/** The conversations that a frame changed, as `id unread`. */
function changed(applied: Applied): string[] {
  assert(typeof applied === "object", `frame was ${applied}`);
  return applied.conversations.map((c) => `${c.conversationId} ${c.unread}`);
}

describe("a frame is applied only if it is newer", () => {
  test("a newer one is", () => {
    const state = new State();
    state.apply(frame(golden("snapshot")));
    const applied = state.apply(frame(golden("changes")));
    assert.deepEqual(changed(applied), ["design-crew 0", "Café ☕ 2"]);
    assert.equal(state.badge?.total, 4);
    assert.equal(state.conversations.get("releases")?.mentions, 1);
  });

  test("an older or equal one is not, whichever kind it is", () => {
    const state = new State();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    for (const old of [
      snapshot(5, [conversation("a", 9, 5)]),
      snapshot(4, []),
      changes(5, 9, [conversation("a", 9, 5)]),
      changes(1, 1, [conversation("a", 1, 1)]),
    ]) {
      assert.equal(state.apply(frame(old)), "stale");
    }
    assert.equal(state.badge?.total, 2);
    assert.equal(state.conversations.get("a")?.unread, 2);
  });

  test("in a newer frame, an older conversation is left alone", () => {
    const state = new State();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    const applied = state.apply(
      frame(changes(6, 5, [conversation("b", 3, 6), conversation("a", 9, 3)])),
    );
    assert.deepEqual(changed(applied), ["b 3"]);
    assert.equal(state.conversations.get("a")?.unread, 2);
  });
});

describe("versions of different epochs do not compare", () => {
  test("a snapshot of another epoch replaces everything, lower versions too", () => {
    const state = new State();
    state.apply(frame(snapshot(50, [conversation("a", 2, 50), conversation("b", 1, 49)])));
    const applied = state.apply(frame(snapshot(3, [conversation("a", 2, 3)], "e2")));
    assert.deepEqual(changed(applied), ["a 2", "b 0"]);
    assert.deepEqual([...state.conversations.keys()], ["a"]);
    assert.equal(state.badge?.version, 3);
  });

  test("a conversation whose versions happen to be equal is news all the same", () => {
    const state = new State();
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    const applied = state.apply(frame(snapshot(5, [conversation("a", 3, 5)], "e2")));
    assert.deepEqual(changed(applied), ["a 3"]);
  });

  test("changes of another epoch, or to nothing, are of no use", () => {
    const state = new State();
    assert.equal(state.apply(frame(changes(6, 1, []))), "foreign");
    assert.equal(state.badge, undefined);
    state.apply(frame(snapshot(5, [conversation("a", 2, 5)])));
    assert.equal(state.apply(frame(changes(6, 1, [conversation("a", 1, 6)], "e2"))), "foreign");
    assert.equal(state.conversations.get("a")?.unread, 2);
  });
});

describe("a snapshot", () => {
  test("empties what it does not list", () => {
    const state = new State();
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
      level: "all",
      category: "chat",
      markedUnread: false,
      version: 5,
    });
    assert.equal(state.conversations.has("a"), false);
  });

  test("says whether there are conversations that it does not list", () => {
    const state = new State();
    state.apply(frame(golden("snapshot-large-seqs")));
    assert.equal(state.more, true);
    state.apply(frame(golden("snapshot")));
    assert.equal(state.more, false);
  });
});

test("the badge counts as changed only where one of its numbers did", () => {
  const state = new State();
  const badgeAfter = (wire: object) => {
    const applied = state.apply(frame(wire));
    assert(typeof applied === "object");
    return applied.badge?.total;
  };
  assert.equal(badgeAfter(snapshot(1)), 0, "the first state is news");
  assert.equal(badgeAfter(changes(2, 1, [conversation("a", 1, 2)])), 1);
  assert.equal(badgeAfter(changes(3, 1, [conversation("b", 4, 3, { level: "none" })])), undefined);
  assert.equal(state.badge?.version, 3);
  assert.equal(badgeAfter({ ...changes(4, 1, []), mentions: 1 }), 1);
  assert.equal(badgeAfter({ ...changes(5, 1, []), mentions: 1, categories: { x: 1 } }), 1);
  assert.equal(badgeAfter({ ...changes(6, 1, []), mentions: 1, categories: { x: 1, y: 0 } }), 1);
});

/** A server that keeps one user, and answers and pushes as badged does. */
class ModelServer {
  version = 0;
  epoch = 1;
  readonly conversations = new Map<string, ReturnType<typeof conversation>>();

  change(id: string, unread: number): void {
    this.version++;
    this.conversations.set(id, conversation(id, unread, this.version));
  }

  /** Starts versions afresh, as a rebuild does. */
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

test("whatever connections lose, repeat and delay, the client ends up right", () => {
  for (let seed = 1; seed <= 300; seed++) {
    const random = generator(seed);
    const pick = (n: number) => Math.floor(random() * n);
    const server = new ModelServer();
    const client = new State();
    const delayed: object[] = [];

    const receive = (wire: object) => {
      client.apply(frame(wire));
      assert.equal(
        client.badge?.total,
        [...client.conversations.values()].reduce((sum, { unread }) => sum + unread, 0),
        `seed ${seed}: total is not the sum`,
      );
    };
    // Each round is one connection: its answer, pushes, and a loss at its end.
    for (let round = 0; round < 6; round++) {
      receive(server.answer(client.badge));
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
    receive(server.answer(client.badge));

    for (const [id, { unread }] of server.conversations) {
      assert.equal(client.conversations.get(id)?.unread ?? 0, unread, `seed ${seed}: ${id}`);
    }
  }
});

/** Numbers from 0 to 1 that a seed decides (mulberry32). */
function generator(seed: number): () => number {
  let a = seed;
  return () => {
    a = (a + 0x6d2b79f5) | 0;
    let t = Math.imul(a ^ (a >>> 15), 1 | a);
    t = (t + Math.imul(t ^ (t >>> 7), 61 | t)) ^ t;
    return ((t ^ (t >>> 14)) >>> 0) / 4294967296;
  };
}
