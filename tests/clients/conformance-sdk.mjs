// The TypeScript client as a program for `badged conformance`; see
// docs/conformance.md.

import { createInterface } from "node:readline";
import WebSocket from "ws";
import { Badged } from "../../web/dist/sdk/index.js";

const { BADGED_URL, BADGED_TOKEN, BADGED_FRESH_TOKEN, BADGED_AUTH, BADGED_BACKOFF_MS } = process.env;

const print = (line) => console.log(JSON.stringify(line));

// A WebSocket of browsers has no headers, and the SDK is the same everywhere.
if (BADGED_AUTH === "header" || BADGED_AUTH === "hello") print({ unsupported: `a token by the way ${BADGED_AUTH}` });

let token = BADGED_TOKEN;
const client = new Badged({
  url: BADGED_URL,
  token: async ({ expired }) => {
    if (expired) token = BADGED_FRESH_TOKEN;
    return token;
  },
  minBackoffMs: Number(BADGED_BACKOFF_MS),
  maxBackoffMs: Number(BADGED_BACKOFF_MS),
  fallback: false,
  WebSocket,
});

function show() {
  const { badge } = client;
  if (badge === undefined) return;
  const conversations = {};
  for (const [id, { unread, mentions, markedUnread }] of client.conversations) {
    conversations[id] = { unread, mentions, marked_unread: markedUnread };
  }
  print({ version: badge.version, total: badge.total, unread_conversations: badge.unreadConversations, conversations });
}
client.on("total", show);
client.on("conversation", show);
client.on("status", ({ state, code }) => state === "refused" && print({ refused: code }));
client.start();

const commands = {
  read: ({ conversation_id, up_to_seq }) => client.read(conversation_id, up_to_seq),
  read_all: ({ category }) => client.readAll(category),
  mark_unread: ({ conversation_id }) => client.markUnread(conversation_id),
};
for await (const line of createInterface({ input: process.stdin })) {
  const command = JSON.parse(line);
  commands[command.do](command).then(
    () => print({ done: command.n }),
    ({ code }) => print({ failed: command.n, code }),
  );
}
client.stop();
