import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { BadgedError, type ChannelLike, type LocksLike } from "../src/index.js";
import {
  Bench,
  changes,
  conversation,
  FakeClock,
  FakeStorage,
  settled,
  snapshot,
} from "./fakes.js";

/** The tabs of one browser: locks, channels and storage that they share. */
class FakeBrowser implements LocksLike {
  readonly storage = new FakeStorage();
  readonly clock = new FakeClock();
  readonly channels = new Map<string, Set<FakeChannel>>();
  readonly #queues = new Map<string, Promise<unknown>>();

  request(
    name: string,
    { signal }: { signal: AbortSignal },
    granted: () => Promise<void>,
  ): Promise<unknown> {
    const before = this.#queues.get(name) ?? Promise.resolve();
    const turn = before.then(() => {
      if (signal.aborted) throw new DOMException("aborted", "AbortError");
      return granted();
    });
    this.#queues.set(
      name,
      turn.catch(() => {}),
    );
    return turn;
  }

  tab(user = "ada"): Bench {
    const { storage, clock, channels } = this;
    return new Bench({
      user,
      storage,
      clock,
      locks: this,
      BroadcastChannel: class extends FakeChannel {
        constructor(name: string) {
          super(name, channels);
        }
      },
    });
  }
}

class FakeChannel implements ChannelLike {
  onmessage: ((event: never) => unknown) | null = null;
  readonly #peers: Set<FakeChannel>;

  constructor(name: string, channels: Map<string, Set<FakeChannel>>) {
    this.#peers = channels.get(name) ?? new Set();
    channels.set(name, this.#peers);
    this.#peers.add(this);
  }

  postMessage(message: unknown): void {
    assert(this.#peers.has(this), "the channel is closed");
    const data = structuredClone(message);
    for (const peer of this.#peers) {
      if (peer === this) continue;
      queueMicrotask(() => this.#peers.has(peer) && peer.onmessage?.({ data } as never));
    }
  }

  close(): void {
    this.#peers.delete(this);
  }
}

const state = snapshot(7, [conversation("a", 2, 7), conversation("b", 1, 5)]);

/** Two tabs of a user, of which the first leads. */
async function pair(browser = new FakeBrowser()): Promise<[Bench, Bench]> {
  const leader = browser.tab();
  await leader.online(state);
  const follower = browser.tab();
  follower.client.start();
  await settled();
  follower.told.length = 0;
  return [leader, follower];
}

describe("tabs of one user", () => {
  test("share one connection, and all see its state and status", async () => {
    const [leader, follower] = await pair();
    assert.equal(leader.sockets.length, 1);
    assert.equal(follower.sockets.length, 0);
    assert.equal(follower.client.status.state, "online");
    assert.equal(follower.client.badge?.total, 3);

    leader.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
    await settled();
    assert.deepEqual(follower.told, ["conversation a 5", "total 6"]);
    leader.socket.drop();
    await settled();
    assert.equal(follower.client.status.state, "waiting");
  });

  test("a tab that opens before the first state hears it with the others", async () => {
    const browser = new FakeBrowser();
    const [leader, follower] = [browser.tab(), browser.tab()];
    leader.client.start();
    follower.client.start();
    await settled();
    assert.equal(follower.client.status.state, "connecting");
    leader.socket.accept();
    leader.socket.serve(state);
    await settled();
    assert.equal(follower.client.badge?.total, 3);
    assert.equal(follower.client.status.state, "online");
    assert.equal(follower.sockets.length, 0);
  });

  test("of different users have a connection each", async () => {
    const browser = new FakeBrowser();
    const [ada, ben] = [browser.tab("ada"), browser.tab("ben")];
    await ada.online(state);
    await ben.online(snapshot());
    assert.equal(ada.client.badge?.total, 3);
    assert.equal(ben.client.badge?.total, 0);
  });

  test("a tab that missed a change asks for all of it", async () => {
    const browser = new FakeBrowser();
    const [leader, follower] = await pair(browser);
    const [channels] = browser.channels.values();
    const channel = [...(channels ?? [])].at(-1);
    assert(channel?.onmessage);
    const { onmessage } = channel;
    channel.onmessage = null;
    leader.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
    await settled();
    channel.onmessage = onmessage;
    leader.socket.serve(changes(9, 9, [conversation("b", 4, 9)]));
    await settled();
    assert.equal(follower.client.badge?.total, 9);
    assert.equal(follower.client.conversations.get("a")?.unread, 5);
  });
});

describe("what the user does in a tab that follows", () => {
  test("goes through the leader, and its answer comes back", async () => {
    const [leader, follower] = await pair();
    const marking = follower.client.markUnread("a");
    const refused = follower.client.markUnread("nowhere");
    await settled();
    const [mark, bad] = leader.socket.takeCommands();
    assert.equal(mark?.conversation_id, "a");
    leader.socket.serve({ t: "ok", id: mark?.id });
    leader.socket.serve({ t: "error", id: bad?.id, code: "not_found", message: "no message" });
    await marking;
    await assert.rejects(refused, (error) => {
      return error instanceof BadgedError && error.code === "not_found";
    });
    assert.equal(follower.client.waiting + leader.client.waiting, 0);
  });

  test("is sent by the leader even when the tab has closed", async () => {
    const [leader, follower] = await pair();
    leader.socket.drop();
    await settled();
    void follower.client.read("a", 2);
    await settled();
    follower.client.stop();
    const socket = await leader.retried();
    socket.accept();
    socket.serve(changes(7, 3, []));
    assert.deepEqual(socket.commands(), ["read a 2"]);
  });

  test("is sent again under its id when the leader goes before the answer", async () => {
    const [leader, follower] = await pair();
    const marking = follower.client.markUnread("a");
    await settled();
    const sent = leader.socket.takeCommands();
    leader.client.stop();
    await settled();
    follower.socket.accept();
    follower.socket.serve(changes(7, 3, []));
    const again = follower.socket.takeCommands();
    assert.deepEqual(again, sent);
    follower.socket.serve({ t: "ok", id: again[0]?.id });
    await marking;
  });

  test("reading all is still what the user saw, whoever sends it", async () => {
    const [leader, follower] = await pair();
    const reading = follower.client.readAll();
    await settled();
    assert.deepEqual(leader.socket.commands(), ["read_all"]);
    leader.client.stop();
    await settled();
    follower.socket.accept();
    follower.socket.serve(changes(9, 9, [conversation("a", 8, 9)]));
    const sent = follower.socket.takeCommands();
    assert.deepEqual(
      sent.map((frame) => `${frame.t} ${frame.conversation_id} ${frame.up_to_seq}`),
      ["read a 2", "read b 1"],
    );
    for (const { id } of sent) follower.socket.serve({ t: "ok", id });
    await reading;
  });
});

describe("when the leader goes", () => {
  test("another tab connects, and resumes from what it holds", async () => {
    const [leader, follower] = await pair();
    leader.client.stop();
    await settled();
    assert.equal(leader.client.status.state, "stopped");
    assert.equal(follower.client.status.state, "connecting");
    follower.socket.accept();
    assert.deepEqual(follower.socket.take(), [{ t: "hello", epoch: "e1", version: 7 }]);
    follower.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
    assert.equal(follower.client.badge?.total, 6);
    assert.equal(leader.client.badge?.total, 3, "a tab that stopped does not hear");
  });

  test("a third tab follows the new one", async () => {
    const browser = new FakeBrowser();
    const [leader, second] = await pair(browser);
    const third = browser.tab();
    third.client.start();
    await settled();
    leader.client.stop();
    await settled();
    second.socket.accept();
    second.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
    await settled();
    assert.equal(third.sockets.length, 0);
    assert.equal(third.client.badge?.total, 6);
    assert.equal(third.client.status.state, "online");
    void third.client.markUnread("b");
    await settled();
    assert.deepEqual(second.socket.commands(), ["mark_unread b"]);
  });

  test("what it still had to send is sent by its successor", async () => {
    const [leader, follower] = await pair();
    void leader.client.markUnread("a");
    const sent = leader.socket.takeCommands();
    leader.socket.drop();
    leader.client.stop();
    await settled();
    follower.socket.accept();
    follower.socket.serve(changes(7, 3, []));
    assert.deepEqual(follower.socket.takeCommands(), sent);
  });

  test("because it was refused, the next one tries with its own token", async () => {
    const [leader, follower] = await pair();
    leader.socket.drop(4001);
    await settled();
    assert.equal(leader.client.status.state, "refused");
    assert.equal(follower.client.status.state, "connecting");
    assert.deepEqual(follower.tokensAskedFor, [false]);
    follower.socket.drop(4001);
    await settled();
    assert.equal(follower.client.status.state, "refused");

    leader.client.start();
    await settled();
    assert.equal(leader.sockets.length, 2);
  });

  test("a tab that stopped while it waited for its turn does not connect", async () => {
    const [leader, follower] = await pair();
    follower.client.stop();
    leader.client.stop();
    await settled();
    assert.equal(follower.sockets.length, 0);
    follower.client.start();
    await settled();
    assert.equal(follower.sockets.length, 1);
  });
});

test("a user who signs out in one tab is forgotten by all", async () => {
  const browser = new FakeBrowser();
  for (const signsOut of [0, 1]) {
    const tabs = await pair(browser);
    const dropped = assert.rejects(tabs[0].client.markUnread("a"), { code: "forgotten" });
    tabs[0].page.leave();
    assert(browser.storage.items.size > 0);
    tabs[signsOut]?.client.forget();
    await settled();
    await dropped;
    for (const { client } of tabs) {
      assert.equal(client.status.state, "stopped");
      assert.equal(client.badge, undefined);
    }
    assert.equal(browser.storage.items.size, 0);
  }
});

test("where tabs cannot share, each has its own connection", async () => {
  const browser = new FakeBrowser();
  const tabs = [1, 2].map(() => new Bench({ user: "ada", storage: browser.storage }));
  for (const tab of tabs) await tab.online(state);
  assert.deepEqual(
    tabs.map(({ sockets }) => sockets.length),
    [1, 1],
  );
});
