import assert from "node:assert/strict";
import { test } from "node:test";
import type { Badge, Conversation, Level } from "@badged/sdk";
import { adds, sum } from "../src/parts.js";

function conversation(level: Level, unread: number, mentions = 0, markedUnread = false) {
  return { level, unread, mentions, markedUnread } as Conversation;
}

function badge(total: number): Badge {
  return {
    epoch: "e1",
    version: 1,
    total,
    mentions: 0,
    categories: {},
    unreadConversations: 0,
    categoryConversations: {},
  };
}

test("the level determines what a conversation adds", () => {
  assert.equal(adds(conversation("all", 3, 1)), 3);
  assert.equal(adds(conversation("mentions", 12, 1)), 1);
  assert.equal(adds(conversation("direct_mentions", 12, 1)), 1);
  assert.equal(adds(conversation("none", 5, 2)), 0);
});

test("a mark counts at least 1, and only at the level all", () => {
  assert.equal(adds(conversation("all", 0, 0, true)), 1);
  assert.equal(adds(conversation("all", 3, 0, true)), 3);
  assert.equal(adds(conversation("mentions", 0, 0, true)), 0);
  assert.equal(adds(conversation("none", 5, 0, true)), 0);
});

test("the total is the sum of its parts, or the difference is reported", () => {
  const conversations = [
    conversation("all", 3),
    conversation("none", 5),
    conversation("all", 0, 0, true),
  ];
  assert.deepEqual(sum(badge(4), conversations), { parts: [3, 1], holds: true });
  assert.equal(sum(badge(5), conversations).holds, false);
  assert.deepEqual(sum(badge(0), []), { parts: [], holds: true });
});
