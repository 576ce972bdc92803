import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { FakeBrowser, pair, state, TabClock } from "./browser.js";
import { changes, conversation, settled } from "./fakes.js";

describe("a frozen leader", () => {
  /** Two tabs with a frozen leader. */
  async function frozen() {
    const browser = new FakeBrowser();
    const [leader, follower] = await pair(browser);
    const [channels] = browser.channels.values();
    const [channel] = channels ?? [];
    assert(channel);
    channel.freeze();
    return { browser, leader, follower, channel };
  }

  test("is replaced by one tab, and no other connects", async () => {
    const { browser, follower } = await frozen();
    const third = browser.tab();
    third.client.start();
    void follower.client.read("a", 2);
    await browser.clock.advance(7_499);
    assert.equal(follower.sockets.length, 0);
    await browser.clock.advance(2_501);
    const [next, other] = follower.sockets.length > 0 ? [follower, third] : [third, follower];
    assert.deepEqual([next.sockets.length, other.sockets.length], [1, 0]);
    next.socket.accept();
    next.socket.take();
    next.socket.serve(state);
    await settled();
    assert.deepEqual(next.socket.commands(), ["read a 2"]);
    assert.deepEqual([follower.client.badge?.total, third.client.badge?.total], [1, 1]);
    assert.equal(other.client.status.state, "online");
  });

  test("follows once it runs again", async () => {
    const { browser, leader, follower, channel } = await frozen();
    void leader.client.markUnread("b");
    const [{ id } = {}] = leader.socket.takeCommands();
    await browser.clock.advance(16_000);
    follower.socket.accept();
    follower.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
    channel.thaw();
    await settled();
    assert.equal(leader.socket.closed, true);
    assert.equal(leader.client.status.state, "online");
    assert.equal(leader.client.badge?.total, 6);
    const sent = follower.socket.takeCommands().filter(({ t }) => t === "mark_unread");
    assert.deepEqual(
      sent.map((frame) => frame.id),
      [id],
      "what it had not delivered is the new leader's to send",
    );
    follower.client.stop();
    await settled();
    assert.equal(leader.sockets.length, 2, "it waits for its turn");
  });

  test("is not replaced while it answers, though late, as a hidden page does", async () => {
    const browser = new FakeBrowser();
    const hidden = new TabClock(browser.clock);
    hidden.lateMs = 1_000;
    const [leader, follower] = await pair(browser, browser.tab("ada", browser, hidden));
    for (let passed = 0; passed < 60_000; passed += 5_000) {
      await browser.clock.advance(5_000);
      leader.socket.serve({ t: "pong" });
    }
    assert.equal(follower.sockets.length, 0);
    assert.equal(leader.sockets.length, 1);
    for (const { client } of [leader, follower]) client.stop();
    await browser.clock.advance(1_000);
    assert.equal(browser.clock.pending, 0);
  });

  test("field case frozen-leader (dxos#11757, kbve#15144): is replaced within ten seconds though it answers messages", async () => {
    // As browsers freeze pages: timers do not fire, but messages are heard.
    for (let frozenAt = 0; frozenAt < 3_200; frozenAt += 100) {
      const browser = new FakeBrowser();
      const clock = new TabClock(browser.clock);
      const [leader, follower] = await pair(browser, browser.tab("ada", browser, clock));
      await browser.clock.advance(frozenAt);
      clock.frozen = true;
      // Commands of the follower are no sign of life of the leader either.
      for (let passed = 0; passed < 10_000; passed += 500) {
        void follower.client.markUnread("b");
        await browser.clock.advance(500);
      }
      assert.equal(follower.sockets.length, 1, `frozen after ${frozenAt} ms`);
      follower.socket.accept();
      follower.socket.serve(changes(8, 6, [conversation("a", 5, 8)]));
      await settled();
      assert.equal(leader.socket.closed, true, "it follows as soon as it hears of the next");
      assert.equal(leader.client.badge?.total, follower.client.badge?.total);
      assert.equal(leader.sockets.length, 1);
    }
  });
});
