import assert from "node:assert/strict";
import { readdirSync } from "node:fs";
import { describe, test } from "node:test";
import type { Command } from "../src/frames.js";
import {
  decodeFrame,
  encodeAuth,
  encodeCommand,
  encodeHello,
  encodeSnapshot,
  FrameError,
  PING,
  PONG,
  type StateFrame,
} from "../src/frames.js";
import { toSeq } from "../src/index.js";
import { golden } from "./fakes.js";

function decodeState(name: string): StateFrame {
  const frame = decodeFrame(golden(name));
  assert(frame?.t === "snapshot" || frame?.t === "changes");
  return frame;
}

describe("golden frames", () => {
  test("every file is one frame of its type, on one line", () => {
    const files = readdirSync("sdk/testdata/frames");
    assert(files.length > 0);
    for (const file of files) {
      const name = file.replace(/\.json$/, "");
      const text = golden(name);
      assert(!text.includes("\n"), file);
      assert.equal(JSON.parse(text).t, name.split("-")[0], file);
    }
  });

  test("client frames are encoded byte for byte", () => {
    assert.equal(encodeHello(undefined), golden("hello-first"));
    assert.deepEqual(JSON.parse(encodeHello(undefined, "phone")), { t: "hello", device: "phone" });
    assert.equal(encodeHello(decodeState("snapshot").badge), golden("hello-resume"));
    const commands: [string, Command][] = [
      [
        "read-uuid",
        {
          t: "read",
          id: "0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10",
          conversationId: "design-crew",
          upToSeq: 42,
        },
      ],
      [
        "read-uuid-large-seq",
        {
          t: "read",
          id: "5e1f0f6e-6f2b-4f0a-8a35-2f9f6f1d9b77",
          conversationId: "snowflakes",
          upToSeq: toSeq("1851234567890123777"),
        },
      ],
      ["read_all", { t: "read_all", id: "3c9a1f58-93f5-4a51-8a1e-0f5d7e0f6b21" }],
      [
        "read_all-category",
        { t: "read_all", id: "7d2e4b90-5c1d-4e0f-b3a6-9c8e7f6a5b43", category: "updates" },
      ],
      [
        "mark_unread",
        { t: "mark_unread", id: "c4b8e2d7-0a6f-4d39-9e15-7b3f2c1d8e64", conversationId: "Café ☕" },
      ],
      [
        "mark_unread-seqs",
        {
          t: "mark_unread",
          id: "5f0a1c3e-7b2d-4c86-a1f4-0d9e8b7c6a52",
          conversationId: "general",
          seqs: [41, toSeq("9007199254740993")],
        },
      ],
    ];
    commands.push([
      "mark_unread-from",
      {
        t: "mark_unread",
        id: "1d8f3b52-6c0a-4f7e-b3d9-2a5c7e914f60",
        conversationId: "town-hall",
        fromSeq: toSeq("9007199254740993"),
      },
    ]);
    commands.push(
      [
        "seen",
        {
          t: "seen",
          id: "8a4f0d2c-3b7e-4f19-9c65-1e2d3c4b5a60",
          conversationId: "general",
          upToSeq: 9,
        },
      ],
      ["seen_all", { t: "seen_all", id: "2f6b9d1e-8c4a-4e73-b5d0-7a9c8e6f1b32" }],
      [
        "seen_all-category",
        { t: "seen_all", id: "64c1e8f7-2a5d-4b90-8e3f-0d9b7c5a1f48", category: "acme" },
      ],
      [
        "level",
        {
          t: "level",
          id: "b7e2d9c4-5f10-4a8b-9d36-3c1e0f8a7b25",
          category: "acme/general",
          level: "none",
        },
      ],
    );
    for (const [name, command] of commands) assert.equal(encodeCommand(command), golden(name));
    const { token } = JSON.parse(golden("auth"));
    assert.equal(encodeAuth("auth", token), golden("auth"));
    assert.equal(PING, golden("ping"));
    assert.equal(PONG, golden("pong"));
  });

  test("snapshot", () => {
    const { badge, conversations, more, pingMs, expiresInMs } = decodeState("snapshot");
    assert.equal(badge.epoch, "e1");
    assert.equal(badge.version, 57);
    assert.equal(badge.total, 6);
    assert.equal(badge.mentions, 2);
    assert.deepEqual(
      { ...badge.categories },
      {
        chat: {
          total: 5,
          mentions: 1,
          unreadConversations: 3,
          unseen: 4,
          muted: { total: 5, conversations: 1 },
          marked: 1,
        },
        updates: {
          total: 1,
          mentions: 1,
          unreadConversations: 1,
          unseen: 1,
          muted: { total: 11, conversations: 1 },
          marked: 0,
        },
      },
    );
    assert.equal(badge.unreadConversations, 4);
    assert.equal(badge.unseen, 5);
    assert.deepEqual(badge.muted, { total: 16, conversations: 2 });
    assert.equal(badge.marked, 1);
    assert.deepEqual({ ...badge.levels }, {});
    assert.equal(more, false);
    assert.equal(pingMs, 25_000);
    assert.equal(expiresInMs, 900_000);
    assert.deepEqual(
      conversations.map(({ conversationId }) => conversationId),
      ["design-crew", "Café ☕", "releases", "random", "to-do"],
    );
    assert.deepEqual(conversations[0], {
      conversationId: "design-crew",
      unread: 3,
      mentions: 1,
      firstUnreadSeq: 40,
      readSeq: 39,
      lastSeq: 42,
      seenSeq: 0,
      seen: 0,
      seenMentions: 0,
      level: "default",
      category: "chat",
      markedUnread: false,
      left: false,
      version: 57,
    });
    assert.equal(conversations[4]?.markedUnread, true);
  });

  test("snapshot of a user without conversations", () => {
    const { badge, conversations } = decodeState("snapshot-empty");
    assert.equal(badge.version, 0);
    assert.equal(badge.total, 0);
    assert.deepEqual(conversations, []);
  });

  test("a level that ends has the time, until it has ended", () => {
    const levels = (name: string) =>
      decodeState(name).conversations.map(({ level, levelUntil }) => [level, levelUntil]);
    assert.deepEqual(levels("snapshot-muted-until"), [
      ["none", "2026-03-02T09:00:00Z"],
      ["all", "2026-03-01T18:30:00.25Z"],
    ]);
    assert.deepEqual(levels("changes-level-ended"), [["default", undefined]]);
    const stored = decodeFrame(encodeSnapshot(decodeState("snapshot-muted-until")));
    assert(stored?.t === "snapshot");
    assert.equal(stored.conversations[0]?.levelUntil, "2026-03-02T09:00:00Z");
  });

  test("snapshot of a user who has muted conversations and read everything", () => {
    const { badge, conversations } = decodeState("snapshot-muted");
    assert.equal(badge.total, 0);
    assert.deepEqual(
      conversations.map(({ conversationId, unread, level }) => [conversationId, unread, level]),
      [
        ["random", 0, "none"],
        ["releases", 0, "mentions"],
      ],
    );
  });

  test("snapshot with seqs above 2^53", () => {
    const { conversations, more } = decodeState("snapshot-large-seqs");
    assert.equal(conversations[0]?.firstUnreadSeq, 1851234567890123777n);
    assert.equal(conversations[0]?.lastSeq, 9223372036854775807n);
    assert.equal(more, true);
  });

  test("snapshot with levels of categories and seen messages", () => {
    const { badge, conversations, allCategories, allLevels } = decodeState("snapshot-paths");
    assert.deepEqual(
      { ...badge.levels },
      { acme: "mentions", "acme/general": "all", games: "none" },
    );
    assert.deepEqual(Object.keys(badge.categories), [
      "acme",
      "acme/general",
      "acme/random",
      "games",
      "games/lfg",
      "games/lfg/eu",
    ]);
    const [{ seenSeq, seen, seenMentions } = assert.fail()] = conversations;
    assert.deepEqual([seenSeq, seen, seenMentions], [8, 2, 1]);
    assert.deepEqual([allCategories, allLevels], [true, true]);
  });

  test("changes say what they have of categories and levels", () => {
    const parts = (name: string) => {
      const { badge, allCategories, allLevels } = decodeState(name);
      return [Object.keys(badge.categories).length, allCategories, allLevels];
    };
    assert.deepEqual(parts("changes-paths"), [3, false, false]);
    assert.deepEqual(parts("changes-paths-levels"), [2, false, true]);
    assert.deepEqual(parts("changes-paths-all"), [2, true, true]);
  });

  test("a badge that does not have all categories says so", () => {
    assert.equal(decodeState("changes-many").badge.moreCategories, true);
    assert.equal("moreCategories" in decodeState("changes").badge, false);
  });

  test("changes", () => {
    const { badge, conversations, pingMs } = decodeState("changes");
    assert.equal(badge.version, 59);
    assert.deepEqual(
      conversations.map(({ unread }) => unread),
      [0, 2],
    );
    assert.equal(pingMs, 0);
    assert.deepEqual(decodeState("changes-none").conversations, []);
    assert.deepEqual(
      decodeState("changes-left").conversations.map(({ conversationId, left }) => [
        conversationId,
        left,
      ]),
      [["design-crew", true]],
    );
  });

  test("answers, pings and pongs", () => {
    assert.deepEqual(decodeFrame(golden("ok")), { t: "ok", id: "1", expiresInMs: 0 });
    assert.deepEqual(decodeFrame(golden("ok-uuid")), {
      t: "ok",
      id: "0b7d5a4e-1f3c-4c7e-9a52-6f6d1f3f7c10",
      expiresInMs: 0,
    });
    assert.deepEqual(decodeFrame(golden("ok-auth")), {
      t: "ok",
      id: "auth",
      expiresInMs: 3_600_000,
    });
    assert.deepEqual(decodeFrame(golden("error")), {
      t: "error",
      id: "2",
      code: "unavailable",
      message: "not saved; try again",
      retryMs: 1500,
    });
    assert.deepEqual(decodeFrame(golden("error-final")), {
      t: "error",
      id: "3",
      code: "not_found",
      message: "no message of this conversation was delivered to you",
      retryMs: 0,
    });
    assert.deepEqual(decodeFrame(golden("error-rate-limited")), {
      t: "error",
      id: "3",
      code: "rate_limited",
      message: "too many commands; try again",
      retryMs: 501,
    });
    assert.deepEqual(decodeFrame(golden("bye-too-many")), {
      t: "bye",
      code: 4102,
      reconnectMs: 12000,
    });
    assert.deepEqual(decodeFrame(golden("ping")), { t: "ping" });
    assert.deepEqual(decodeFrame(golden("pong")), { t: "pong" });
    assert.deepEqual(decodeFrame(golden("bye")), { t: "bye", code: 4200, reconnectMs: 3700 });
  });
});

test("an encoded snapshot decodes to the same, large seqs included", () => {
  for (const name of [
    "snapshot",
    "snapshot-empty",
    "snapshot-large-seqs",
    "changes-many",
    "snapshot-paths",
  ]) {
    const frame = { ...decodeState(name), t: "snapshot" as const };
    const again = decodeFrame(encodeSnapshot(frame));
    assert.deepEqual(again, { ...frame, pingMs: 0, expiresInMs: 0 }, name);
  }
});

test("fields and types of later servers are ignored", () => {
  assert.equal(decodeFrame('{"t":"confetti","amount":9000}'), undefined);
  assert.deepEqual(decodeFrame('{"t":"ok","id":1,"took_ms":3}'), {
    t: "ok",
    id: "1",
    expiresInMs: 0,
  });
  const later = golden("snapshot").replace('"level":"none"', '"level":"weekends","colour":"red"');
  const frame = decodeFrame(later);
  assert(frame?.t === "snapshot");
  assert.equal(frame.conversations[3]?.level, "weekends");
});

test("a category may have the name of an object method", () => {
  const text = golden("snapshot").replace('"chat":{', '"__proto__":{');
  const frame = decodeFrame(text.replace('"conversations":[', '"levels":{"__proto__":"none"},$&'));
  assert(frame?.t === "snapshot");
  const { categories, levels } = frame.badge;
  assert.deepEqual(Object.keys(categories), ["__proto__", "updates"]);
  assert.equal(categories.toString, undefined);
  assert.deepEqual(Object.entries(levels), [["__proto__", "none"]]);
});

test("the error of an invalid frame names the field", () => {
  const cases: [string, RegExp][] = [
    ["{", /not JSON/],
    ["null", /frame is not an object/],
    ["[]", /frame is not an object/],
    ['{"id":1}', /t of frame is not a string/],
    ['{"t":"ok","id":{}}', /id of frame is not a string/],
    ['{"t":"bye","code":4200,"reconnect_ms":-1}', /reconnect_ms of frame/],
    [golden("changes").replace('"total":4', '"total":-4'), /total of frame is not a count/],
    [golden("changes").replace('"total":4', '"total":9007199254740993'), /total of frame/],
    [
      golden("changes").replace('"chat":{', '"chat":[],"x":{'),
      /chat of categories of frame is not an object/,
    ],
    [
      golden("changes").replace('"total":3,', '"total":-3,'),
      /total of chat of categories of frame/,
    ],
    [golden("changes").replace('"categories":', '"kinds":'), /categories of frame/],
    [golden("changes").replace('"unseen":3,', ""), /unseen of frame/],
    [golden("changes").replace('{"total":16', '{"total":"16"'), /total of muted of frame/],
    [golden("changes-paths-levels").replace('"none"', "0"), /games of levels of frame/],
    [golden("changes").replace('"read_seq":42', '"read_seq":4.2'), /read_seq of conversation/],
    [golden("changes").replace('"unread":0', '"unread":null'), /unread of conversation/],
    [golden("changes-none").replace("[]", "{}"), /conversations of frame is not an array/],
  ];
  for (const [text, message] of cases) {
    assert.throws(
      () => decodeFrame(text),
      (error) => error instanceof FrameError && message.test(error.message),
      text,
    );
  }
});
