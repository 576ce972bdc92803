import assert from "node:assert/strict";
import { test } from "node:test";
import type { Badge, Conversation, Level } from "@badged/sdk";
import { sum } from "../src/parts.js";

function conversation(level: Level, unread: number, markedUnread = false): Conversation {
  return {
    conversationId: "a",
    level,
    unread,
    mentions: 0,
    firstUnreadSeq: 1,
    readSeq: 0,
    lastSeq: unread,
    seenSeq: 0,
    seen: 0,
    seenMentions: 0,
    category: "chat",
    markedUnread,
    left: false,
    version: 1,
  };
}

function badge(total: number): Badge {
  return {
    epoch: "e1",
    version: 1,
    total,
    mentions: 0,
    unreadConversations: 0,
    unseen: total,
    muted: { total: 0, conversations: 0 },
    marked: 0,
    categories: {},
    levels: {},
  };
}

test("the total is the sum of its parts, or the difference is reported", () => {
  const conversations = [
    conversation("all", 3),
    conversation("none", 5),
    conversation("all", 0, true),
  ];
  assert.deepEqual(sum(badge(4), conversations), { parts: [3, 1], holds: true });
  assert.equal(sum(badge(5), conversations).holds, false);
  assert.deepEqual(sum(badge(0), []), { parts: [], holds: true });
});
