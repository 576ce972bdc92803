import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { decodeFrame } from "../src/frames.js";
import { BadgedError, type LocksLike } from "../src/index.js";
import type { TabMessage } from "../src/tabs.js";
import { FakeBrowser, FakeChannel, pair, state } from "./browser.js";
import { Bench, changes, conversation, settled, snapshot } from "./fakes.js";

describe("tabs of one user", () => {
  test("share one connection, its state and its status", async () => {
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

  test("a tab opened before the first state receives it with the others", async () => {
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

  test("of different users have separate connections", async () => {
    const browser = new FakeBrowser();
    const [ada, ben] = [browser.tab("ada"), browser.tab("ben")];
    await ada.online(state);
    await ben.online(snapshot());
    assert.equal(ada.client.badge?.total, 3);
    assert.equal(ben.client.badge?.total, 0);
  });

  test("a tab that missed a change asks for the whole state", async () => {
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

describe("a command in a follower", () => {
  test("is sent by the leader, which passes the answer back", async () => {
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
    assert.equal(follower.client.waiting.length + leader.client.waiting.length, 0);
  });

  test("is sent by the leader even if the follower has closed", async () => {
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

  test("stays in order behind others of its conversation, even if the follower has closed", async () => {
    const [leader, follower] = await pair();
    leader.socket.drop();
    await settled();
    void follower.client.read("a", 2);
    void follower.client.markUnread("a");
    void follower.client.markUnread("a");
    void follower.client.read("a", 3);
    await settled();
    for (const { client } of [leader, follower]) {
      assert.deepEqual(
        client.waiting.map(({ t }) => t),
        ["read", "mark_unread", "read"],
      );
    }
    follower.client.stop();
    const socket = await leader.retried();
    socket.accept();
    socket.serve(changes(7, 3, []));
    for (const expected of ["read a 2", "mark_unread a", "read a 3"]) {
      const [sent, ...others] = socket.takeCommands();
      assert.equal(others.length, 0);
      const text = [sent?.t, sent?.conversation_id, sent?.up_to_seq].filter(Boolean).join(" ");
      assert.equal(text, expected);
      socket.serve({ t: "ok", id: sent?.id });
    }
  });

  test("is kept by the leader, however many there are", async () => {
    const [leader, follower] = await pair();
    leader.socket.drop();
    await settled();
    for (let i = 0; i < 40; i++) void follower.client.read(`c${i}`, 1);
    await settled();
    follower.client.stop();
    assert.equal(leader.client.waiting.length, 40);
  });

  test("is sent again under its id if the leader closes before the answer", async () => {
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

  test("read_all covers what the follower held", async () => {
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

test("a command of another release that the leader does not know is refused, and no other", async () => {
  const browser = new FakeBrowser();
  const [leader, follower] = await pair(browser);
  const [channels] = browser.channels.values();
  const answers: unknown[] = [];
  const other = new FakeChannel("other", new Map([["other", channels ?? new Set()]]));
  other.onmessage = ({ data }: { data: TabMessage }) => {
    if (data.m === "answer") answers.push({ ...data.answer, message: "" });
  };
  const id = "5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77";
  for (const command of [
    { t: "pin", id, conversationId: "a" },
    { t: "read", id, conversationId: 123, upToSeq: 5 },
  ]) {
    other.postMessage({ m: "command", command, reads: [] });
  }
  other.postMessage({ m: "command", command: { t: "read_all", id }, reads: [{ t: "read", id }] });
  await settled();
  assert.deepEqual(leader.socket.commands(), []);
  const refused = { t: "error", id, code: "invalid", message: "", retryMs: 0 };
  assert.deepEqual(answers, [refused, refused, refused]);
  void follower.client.markUnread("b");
  await settled();
  assert.deepEqual(leader.socket.commands(), ["mark_unread b"]);
  assert.equal(leader.client.status.state, "online");
});

describe("when the leader stops", () => {
  test("another tab takes over, and resumes from what it holds", async () => {
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

  test("a third tab follows the new leader", async () => {
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

  test("the next leader sends its pending commands", async () => {
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

  test("because it was refused, the next leader tries its own token", async () => {
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

  test("a tab stopped while it waits for the lock does not connect", async () => {
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

describe("a command in one tab shows in all", () => {
  test("at once, and is undone in all", async () => {
    const browser = new FakeBrowser();
    const [leader, follower] = await pair(browser);
    for (const tab of [follower, leader]) {
      void tab.client.read("a", 2);
      await settled();
      assert.deepEqual([leader.client.badge?.total, follower.client.badge?.total], [1, 1]);
      assert.deepEqual(
        [leader.client.waiting.length, follower.client.waiting.length],
        [1, 1],
        "both say that it waits",
      );
      const [{ id } = {}] = leader.socket.takeCommands();
      leader.socket.serve({ t: "error", id, code: "invalid", message: "no" });
      await settled();
      assert.deepEqual([leader.client.badge?.total, follower.client.badge?.total], [3, 3]);
      assert.equal(follower.client.waiting.length, 0);
    }
  });

  test("until the state shows it, whether answer or change comes first", async () => {
    const [leader, follower] = await pair();
    const reading = follower.client.read("a", 2);
    await settled();
    const [{ id } = {}] = leader.socket.takeCommands();
    leader.socket.serve({ t: "ok", id });
    await reading;
    assert.deepEqual([leader.client.badge?.total, follower.client.badge?.total], [1, 1]);
    const read = conversation("a", 0, 8, { read_seq: 2, last_seq: 2 });
    leader.socket.serve(changes(8, 1, [read]));
    leader.socket.serve(changes(9, 4, [conversation("a", 3, 9, { read_seq: 2, last_seq: 5 })]));
    await settled();
    assert.deepEqual([leader.client.badge?.total, follower.client.badge?.total], [4, 4]);
    assert(!follower.told.includes("total 3"));
  });
});

test("a mute reaches a tab opened later, and survives a reload", async () => {
  const browser = new FakeBrowser();
  const leader = browser.tab();
  const muted = conversation("quiet", 0, 6, { level: "none" });
  await leader.online(snapshot(7, [conversation("a", 2, 7), muted]));
  const follower = browser.tab();
  follower.client.start();
  await settled();
  assert.equal(follower.client.conversations.get("quiet")?.level, "none");
  leader.page.leave();
  assert.equal(browser.tab().client.conversations.get("quiet")?.level, "none");
});

test("a follower does not go back to an older state of a former leader", async () => {
  const browser = new FakeBrowser();
  const [leader, follower] = await pair(browser);
  leader.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
  await settled();
  const [channels] = browser.channels.values();
  const late = new FakeChannel("late", new Map([["late", channels ?? new Set()]]));
  const frame = { ...decodeFrame(JSON.stringify(state)), conversations: [] };
  late.postMessage({ m: "state", frame });
  await settled();
  assert.equal(follower.client.badge?.total, 6);
  leader.socket.serve(snapshot(5, [conversation("a", 1, 5)]));
  await settled();
  assert.equal(follower.client.badge?.total, 1, "but the server's snapshot holds for all");
});

test("forget in one tab applies to all tabs", async () => {
  const browser = new FakeBrowser();
  for (const signsOut of [0, 1]) {
    const tabs = await pair(browser);
    const dropped = assert.rejects(tabs[0].client.markUnread("a"), { code: "forgotten" });
    tabs[0].page.leave();
    assert(browser.storage.items.size > 0);
    tabs[signsOut]?.client.forget();
    await settled();
    await dropped;
    for (const { client, told } of tabs) {
      assert.deepEqual(told.slice(-3), ["conversation a 0", "conversation b 0", "total 0"]);
      assert.equal(client.status.state, "stopped");
      assert.equal(client.badge, undefined);
    }
    assert.equal(browser.storage.items.size, 0);
  }
});

test("forget reaches a tab that was refused", async () => {
  const [leader, follower] = await pair();
  leader.socket.drop(4001);
  await settled();
  assert.equal(leader.client.status.state, "refused");
  follower.client.forget();
  await settled();
  assert.equal(leader.client.status.state, "stopped");
  assert.equal(leader.client.badge, undefined);
  assert(leader.told.includes("total 0"));
});

test("without locks and channels each tab has its own connection", async () => {
  const browser = new FakeBrowser();
  const tabs = [1, 2].map(() => new Bench({ user: "ada", storage: browser.storage }));
  for (const tab of tabs) await tab.online(state);
  assert.deepEqual(
    tabs.map(({ sockets }) => sockets.length),
    [1, 1],
  );
});

test("if the browser denies locks, as to pages without cookies, each tab has its own connection", async () => {
  const browser = new FakeBrowser();
  let requests = 0;
  const locks: LocksLike = {
    request: () => {
      const denied = new DOMException("", "SecurityError");
      return requests++ < 9 ? Promise.reject(denied) : new Promise(() => {});
    },
  };
  const tabs = [1, 2].map(() => browser.tab("ada", locks));
  for (const tab of tabs) await tab.online(state);
  assert.equal(requests, 2);
  tabs[0]?.client.stop();
  assert.deepEqual(
    tabs.map(({ client }) => client.status.state),
    ["stopped", "online"],
  );
});
