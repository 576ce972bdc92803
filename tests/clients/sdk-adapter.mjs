// What the programs of the TypeScript client for `badged conformance` share, in Node
// and in a page.

/** A WebSocket behind a proxy that swallows it. */
class Swallowed {
  send() {}
  close() {}
}

/**
 * Starts a client. `variables` are those that the kit sets, `storage` is that of the
 * platform, `environment` has what else the client needs there. Returns what executes a
 * command, and what stops the client.
 */
export function adapt(Badged, variables, storage, environment, print) {
  const { BADGED_URL, BADGED_TRANSPORT, BADGED_TOKEN, BADGED_FRESH_TOKEN, BADGED_AUTH, BADGED_BACKOFF_MS, BADGED_STORE, BADGED_USER } = variables;
  const streams = BADGED_TRANSPORT === "sse";
  // A WebSocket of browsers has no headers, and the SDK is the same everywhere.
  if (!streams && (BADGED_AUTH === "header" || BADGED_AUTH === "hello")) {
    print({ unsupported: `a token by the way ${BADGED_AUTH}` });
    return { command() {}, stop() {} };
  }
  // The client prefers streams for an hour after one has won, and remembers it there.
  if (streams) storage.setItem(`badged ${BADGED_URL}/ streams until`, String(Date.now() + 3_600_000));

  let token = BADGED_TOKEN;
  const client = new Badged({
    ...environment,
    ...(streams && { WebSocket: Swallowed }),
    url: BADGED_URL,
    token: async ({ expired }) => {
      if (expired) token = BADGED_FRESH_TOKEN;
      return token;
    },
    minBackoffMs: Number(BADGED_BACKOFF_MS),
    maxBackoffMs: Number(BADGED_BACKOFF_MS),
    fallback: streams,
    storage,
    user: BADGED_STORE ? BADGED_USER : undefined,
  });

  let showing = false;
  function show() {
    // A frame changes up to 500 conversations, each with an event.
    if (!showing) queueMicrotask(showAll);
    showing = true;
  }
  function showAll() {
    showing = false;
    const { badge } = client;
    if (badge === undefined) return;
    const conversations = {};
    for (const [id, { unread, mentions, markedUnread, levelUntil }] of client.conversations) {
      conversations[id] = { unread, mentions, marked_unread: markedUnread, level_until: levelUntil };
    }
    const categories = {};
    for (const [path, { unreadConversations, ...numbers }] of Object.entries(badge.categories)) {
      categories[path] = { ...numbers, unread_conversations: unreadConversations };
    }
    print({
      version: badge.version,
      total: badge.total,
      unread_conversations: badge.unreadConversations,
      conversations,
      categories,
      levels: badge.levels,
    });
  }
  client.on("total", show);
  client.on("conversation", show);
  client.on("status", ({ state, code }) => state === "refused" && print({ refused: code }));
  client.start();

  const commands = {
    read: ({ conversation_id, up_to_seq }) => client.read(conversation_id, up_to_seq),
    read_all: ({ category }) => client.readAll(category),
    mark_unread: ({ conversation_id }) => client.markUnread(conversation_id),
    seen: ({ conversation_id, up_to_seq }) => client.seen(conversation_id, up_to_seq),
    seen_all: ({ category }) => client.seenAll(category),
    level: ({ category, level }) => client.setLevel(category, level),
  };
  return {
    command(command) {
      commands[command.do](command).then(
        () => print({ done: command.n }),
        // A TypeError is of the client: an argument is wrong.
        ({ code = "invalid" }) => print({ failed: command.n, code }),
      );
    },
    stop: () => client.stop(),
  };
}
