import assert from "node:assert/strict";
import { test } from "node:test";
import { type Badged, BadgedError, type Conversation, type Seq } from "@badged/sdk";
import { Reader } from "../src/reader.js";

/** A client with answers from the test. */
class FakeClient {
  readonly conversations = new Map<string, Conversation>();
  readonly reads: string[] = [];
  readonly #answers: { resolve: () => void; reject: (error: Error) => void }[] = [];

  set(conversationId: string, unread: number, firstUnreadSeq: Seq, version: number, more = {}) {
    this.conversations.set(conversationId, {
      conversationId,
      unread,
      mentions: 0,
      firstUnreadSeq,
      readSeq: 0,
      lastSeq: 0,
      level: "all",
      category: "chat",
      markedUnread: false,
      left: false,
      version,
      ...more,
    });
  }

  read: Badged["read"] = (conversationId, seq) => {
    this.reads.push(`${conversationId} ${seq}`);
    return new Promise((resolve, reject) => this.#answers.push({ resolve, reject }));
  };

  async answer(error?: Error): Promise<void> {
    const answer = this.#answers.shift();
    assert(answer, "no read is under way");
    if (error === undefined) answer.resolve();
    else answer.reject(error);
    await new Promise((resolve) => setImmediate(resolve));
  }
}

test("an open conversation is read up to the newest visible message", () => {
  const client = new FakeClient();
  client.set("a", 3, 5, 1);
  new Reader(client).show({ conversationId: "a", seq: 7 });
  assert.deepEqual(client.reads, ["a 7"]);
});

test("a read conversation is not read again", () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  reader.show({ conversationId: "unheard of", seq: 7 });
  client.set("a", 0, 0, 1);
  reader.show({ conversationId: "a", seq: 7 });
  assert.deepEqual(client.reads, []);
});

test("opening a conversation clears its mark", () => {
  const client = new FakeClient();
  client.set("a", 0, 0, 1, { markedUnread: true });
  new Reader(client).show({ conversationId: "a", seq: 7 });
  assert.deepEqual(client.reads, ["a 7"]);
});

test("a message counted before it is visible is read once it is visible", () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  client.set("a", 1, 8, 1);
  reader.show({ conversationId: "a", seq: 7 });
  assert.deepEqual(client.reads, []);
  reader.show({ conversationId: "a", seq: 8 });
  assert.deepEqual(client.reads, ["a 8"]);
});

test("a message visible before it is counted is read once it is counted", async () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  client.set("a", 1, 7, 1);
  reader.show({ conversationId: "a", seq: 8 });
  await client.answer();
  assert.deepEqual(client.reads, ["a 8"], "once, while its effect is on the way");

  // The server applied the read to 7, and then delivered 8.
  client.set("a", 1, 8, 3);
  reader.check();
  assert.deepEqual(client.reads, ["a 8", "a 8"]);
});

test("a pending read is not sent again, a new one is", () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  client.set("a", 2, 7, 1);
  client.set("b", 1, 3, 2);
  reader.show({ conversationId: "a", seq: 7 });
  reader.show({ conversationId: "b", seq: 3 });
  reader.show({ conversationId: "a", seq: 7 });
  reader.show({ conversationId: "a", seq: 8 });
  assert.deepEqual(client.reads, ["a 7", "b 3", "a 8"]);
});

test("a refused read is sent again only for a new state", async () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  client.set("a", 1, 7, 1);
  reader.show({ conversationId: "a", seq: 7 });
  await client.answer(new BadgedError("not_found", "nothing was delivered"));
  reader.check();
  assert.deepEqual(client.reads, ["a 7"]);
  client.set("a", 1, 7, 2);
  reader.check();
  assert.deepEqual(client.reads, ["a 7", "a 7"]);
});

test("a closed conversation is not read", () => {
  const client = new FakeClient();
  const reader = new Reader(client);
  reader.show({ conversationId: "a", seq: 7 });
  reader.show(undefined);
  client.set("a", 1, 7, 1);
  reader.check();
  assert.deepEqual(client.reads, []);
});
