import assert from "node:assert/strict";
import { test } from "node:test";
import { Chat } from "../src/chat.js";
import type { Message } from "../src/server.js";

function message(conversation_id: string, seq: number): Message {
  return {
    conversation_id,
    seq,
    sender_id: "ada",
    text: "",
    mentioned_user_ids: [],
    time: "2026-11-02T10:00:00Z",
    recalled: false,
  };
}

const seqs = (chat: Chat, id: string) => chat.messages(id).map(({ seq }) => seq);

test("messages are in order and unique, even if the feed repeats them after a reconnect", () => {
  const chat = new Chat();
  assert.deepEqual(chat.messages("a"), []);
  const added = [2, 1, 4, 2, 3, 4].map((seq) => chat.add(message("a", seq)));
  assert.deepEqual(added, [true, true, true, false, true, false]);
  assert.deepEqual(seqs(chat, "a"), [1, 2, 3, 4]);
  assert.deepEqual(seqs(chat, "b"), []);
});

test("a returned list does not change", () => {
  const chat = new Chat();
  chat.add(message("a", 1));
  const before = chat.messages("a");
  chat.add(message("a", 2));
  assert.equal(before.length, 1);
});

test("a recall replaces its message", () => {
  const chat = new Chat();
  for (const seq of [1, 2, 3]) chat.add(message("a", seq));
  const recall = { ...message("a", 2), recalled: true };
  assert.equal(chat.add(recall), true);
  assert.equal(chat.add(recall), false);
  assert.deepEqual(seqs(chat, "a"), [1, 2, 3]);
  assert.equal(chat.messages("a")[1]?.recalled, true);
});

test("beyond 200 messages the oldest are dropped", () => {
  const chat = new Chat();
  for (let seq = 1; seq <= 205; seq++) chat.add(message("a", seq));
  assert.equal(seqs(chat, "a")[0], 6);
  assert.equal(seqs(chat, "a").length, 200);
});
