import { parseExact, type Seq, toSeq } from "./seq.js";

/** The WebSocket subprotocol. @internal */
export const PROTOCOL = "badge.v1";

/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions (`mentions`), those that mention the user by name
 * (`direct_mentions`), or nothing (`none`). With `default` the levels of the
 * categories decide. Later servers may add levels.
 */
export type Level = "default" | "all" | "mentions" | "direct_mentions" | "none" | (string & {});

/** The state of one conversation for one user. */
export interface Conversation {
  readonly conversationId: string;
  /** Messages above `readSeq` that were delivered and not recalled. */
  readonly unread: number;
  /** The unread messages that mention the user. */
  readonly mentions: number;
  /** The lowest unread seq; 0 if nothing is unread. */
  readonly firstUnreadSeq: Seq;
  /** The read position. Only a reset of the conversation can move it back. */
  readonly readSeq: Seq;
  /** The highest seq delivered to the user; 0 before the first. */
  readonly lastSeq: Seq;
  /** The seen position if it is above `readSeq`; otherwise 0. */
  readonly seenSeq: Seq;
  /** How many of `unread` the user has seen. */
  readonly seen: number;
  /** How many of `mentions` the user has seen. */
  readonly seenMentions: number;
  /** The level of the conversation itself; see {@link levelOf} for the one that applies. */
  readonly level: Level;
  /** When the level ends, in RFC 3339; absent if it does not. */
  readonly levelUntil?: string;
  /** The path that the conversation counts at; `chat` unless the backend sets another. */
  readonly category: string;
  /** The user marked it unread: it counts at least 1 until the next read. */
  readonly markedUnread: boolean;
  /** The user has left the conversation: do not list it. */
  readonly left: boolean;
  /** The version of the badge at the conversation's last change. */
  readonly version: number;
}

/** What is unread, of everything or of the conversations that a category covers. */
export interface Numbers {
  readonly total: number;
  /** Unread messages that mention the user, in conversations whose level is not `none`. */
  readonly mentions: number;
  /** How many conversations add something to the total. */
  readonly unreadConversations: number;
  /** How much of the total the user has not seen. */
  readonly unseen: number;
  /** What is unread but kept out of the total by a level: a grey number. */
  readonly muted: { readonly total: number; readonly conversations: number };
  /** How much of the total comes from conversations that are marked and have no unread message. */
  readonly marked: number;
}

/** The numbers of a user at one version. */
export interface Badge extends Numbers {
  /** Versions compare only within one epoch. */
  readonly epoch: string;
  /** Grows with every change visible to the user. */
  readonly version: number;
  /** By path, the categories with anything to show, and those above them. */
  readonly categories: Readonly<Record<string, Numbers>>;
  /** True if there are more categories than these, which were the first 500 by name. */
  readonly moreCategories?: boolean;
  /** By path, the levels of categories. */
  readonly levels: Readonly<Record<string, Level>>;
}

/** A frame that carries absolute state. @internal */
export interface StateFrame {
  readonly t: "snapshot" | "changes";
  readonly badge: Badge;
  /** `badge` has all categories. Otherwise it has those that changed, some without anything left. */
  readonly allCategories: boolean;
  /** `badge` has all levels. Otherwise it has none: they are as before. */
  readonly allLevels: boolean;
  readonly conversations: readonly Conversation[];
  /** The user has more conversations than the snapshot lists. */
  readonly more: boolean;
  /** The ping interval in milliseconds; 0 if absent. */
  readonly pingMs: number;
  /** The milliseconds until the token expires; 0 if absent. */
  readonly expiresInMs: number;
}

/**
 * Something the user did. The id, a UUID, makes it idempotent: the server
 * applies a command once, however often and over whichever connection it comes.
 */
export type Command = { readonly id: string } & (
  | { readonly t: "read" | "seen"; readonly conversationId: string; readonly upToSeq: Seq }
  | { readonly t: "read_all" | "seen_all"; readonly category?: string }
  | { readonly t: "level"; readonly category: string; readonly level: Level }
  | {
      readonly t: "mark_unread";
      readonly conversationId: string;
      readonly seqs?: readonly Seq[];
      readonly fromSeq?: Seq;
    }
);

/** The answer to a command. @internal */
export type Answer =
  | { readonly t: "ok"; readonly id: string; readonly expiresInMs: number }
  | {
      readonly t: "error";
      readonly id: string;
      readonly code: string;
      readonly message: string;
      readonly retryMs: number;
    };

/** @internal */
export type ServerFrame =
  | StateFrame
  | Answer
  | { readonly t: "ping" }
  | { readonly t: "pong" }
  | { readonly t: "bye"; readonly code: number; readonly reconnectMs: number };

/** A frame that violates the protocol. The message names the field. @internal */
export class FrameError extends Error {
  override name = "FrameError";
}

/**
 * Decodes one frame of the server. Ignores unknown fields, and returns undefined
 * for an unknown type.
 *
 * @throws FrameError if it is not a frame of `badge.v1`.
 * @internal
 */
export function decodeFrame(text: string): ServerFrame | undefined {
  let json: unknown;
  try {
    json = parseExact(text);
  } catch {
    throw new FrameError("frame is not JSON");
  }
  const frame = new Fields(json, "frame");
  const t = frame.string("t");
  switch (t) {
    case "snapshot":
    case "changes": {
      const allCategories = t === "snapshot" || frame.boolean("all_categories", false);
      return {
        t,
        badge: {
          epoch: frame.string("epoch"),
          version: frame.count("version"),
          ...decodeNumbers(frame),
          categories: frame.map("categories", (categories, path) =>
            decodeNumbers(categories.object(path)),
          ),
          ...(frame.boolean("more_categories", false) && { moreCategories: true }),
          levels: frame.map("levels", (levels, path) => levels.string(path), {}),
        },
        allCategories,
        allLevels: allCategories || frame.has("levels"),
        conversations: frame.list("conversations").map(decodeConversation),
        more: frame.boolean("more", false),
        pingMs: frame.count("ping_ms", 0),
        expiresInMs: frame.count("expires_in_ms", 0),
      };
    }
    case "ok":
      return { t, id: frame.id(), expiresInMs: frame.count("expires_in_ms", 0) };
    case "error":
      return {
        t,
        id: frame.id(),
        code: frame.string("code"),
        message: frame.string("message"),
        retryMs: frame.count("retry_ms", 0),
      };
    case "ping":
    case "pong":
      return { t };
    case "bye":
      return { t, code: frame.count("code"), reconnectMs: frame.count("reconnect_ms", 0) };
    default:
      return undefined;
  }
}

function decodeNumbers(fields: Fields): Numbers {
  const muted = fields.object("muted", {});
  return {
    total: fields.count("total"),
    mentions: fields.count("mentions"),
    unreadConversations: fields.count("unread_conversations"),
    unseen: fields.count("unseen"),
    muted: { total: muted.count("total", 0), conversations: muted.count("conversations", 0) },
    marked: fields.count("marked", 0),
  };
}

function decodeConversation(json: unknown): Conversation {
  const fields = new Fields(json, "conversation");
  const levelUntil = fields.string("level_until", "");
  return {
    conversationId: fields.string("conversation_id"),
    unread: fields.count("unread"),
    mentions: fields.count("mentions"),
    firstUnreadSeq: fields.seq("first_unread_seq"),
    readSeq: fields.seq("read_seq"),
    lastSeq: fields.seq("last_seq"),
    seenSeq: fields.seq("seen_seq", 0),
    seen: fields.count("seen", 0),
    seenMentions: fields.count("seen_mentions", 0),
    level: fields.string("level"),
    ...(levelUntil && { levelUntil }),
    category: fields.string("category"),
    markedUnread: fields.boolean("marked_unread"),
    left: fields.boolean("left", false),
    version: fields.count("version"),
  };
}

/** The first frame, with the held epoch and version and the device if there are any. @internal */
export function encodeHello(held: Badge | undefined, device?: string): string {
  return JSON.stringify({ t: "hello", epoch: held?.epoch, version: held?.version, device });
}

/** @internal */
export function encodeCommand(command: Command): string {
  const { t, id } = command;
  // JSON.stringify throws for a bigint.
  const of = (conversationId: string) =>
    `{"t":"${t}","id":"${id}","conversation_id":${JSON.stringify(conversationId)}`;
  switch (t) {
    case "read":
    case "seen":
      return `${of(command.conversationId)},"up_to_seq":${command.upToSeq}}`;
    case "read_all":
    case "seen_all":
      return JSON.stringify({ t, id, category: command.category });
    case "level":
      return JSON.stringify({ t, id, category: command.category, level: command.level });
    case "mark_unread":
      return `${of(command.conversationId)}${marked(command)}}`;
  }
}

/** The messages of a mark, as fields. */
function marked({ seqs, fromSeq }: { seqs?: readonly Seq[]; fromSeq?: Seq }): string {
  if (fromSeq !== undefined) return `,"from_seq":${fromSeq}`;
  return seqs === undefined ? "" : `,"seqs":[${seqs.join()}]`;
}

/** Renews the token of the connection. @internal */
export function encodeAuth(id: string, token: string): string {
  return JSON.stringify({ t: "auth", id, token });
}

/**
 * Encodes a snapshot for {@link decodeFrame}. Seqs that JSON would round become
 * strings.
 *
 * @internal
 */
export function encodeSnapshot({ badge, conversations, more }: StateFrame): string {
  return stringify({
    t: "snapshot",
    ...named(badge),
    conversations: conversations.map(named),
    more,
  });
}

/** Names fields as the server does. Paths stay as they are. */
function named(fields: object): Record<string, unknown> {
  const { categories, levels, ...rest } = fields as Partial<Badge>;
  return {
    ...Object.fromEntries(
      Object.entries(rest).map(([name, value]) => [
        name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        value,
      ]),
    ),
    ...(categories && {
      levels,
      categories: Object.fromEntries(
        Object.entries(categories).map(([path, numbers]) => [path, named(numbers)]),
      ),
    }),
  };
}

/** JSON.stringify, with bigints as decimal strings. @internal */
export function stringify(value: unknown): string {
  return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part));
}

/** @internal */
export const PING = '{"t":"ping"}';
/** @internal */
export const PONG = '{"t":"pong"}';

/** Reads and checks the fields of one JSON object. */
class Fields {
  readonly #json: Record<string, unknown>;
  readonly #name: string;

  constructor(json: unknown, name: string) {
    if (typeof json !== "object" || json === null || Array.isArray(json)) {
      throw new FrameError(`${name} is not an object`);
    }
    this.#json = json as Record<string, unknown>;
    this.#name = name;
  }

  string(field: string, absent?: string): string {
    const value = this.#json[field] ?? absent;
    return typeof value === "string" ? value : this.#refuse(field, "a string");
  }

  /** The id of the command that the frame answers; empty if absent. */
  id(): string {
    const { id } = this.#json;
    return typeof id === "number" ? String(id) : this.string("id", "");
  }

  boolean(field: string, absent?: boolean): boolean {
    const value = this.#json[field] ?? absent;
    return typeof value === "boolean" ? value : this.#refuse(field, "a boolean");
  }

  count(field: string, absent?: number): number {
    const value = this.#json[field] ?? absent;
    return isCount(value) ? value : this.#refuse(field, "a count");
  }

  has(field: string): boolean {
    return this.#json[field] !== undefined;
  }

  object(field: string, absent?: object): Fields {
    return new Fields(this.#json[field] ?? absent, `${field} of ${this.#name}`);
  }

  /** An object whose names are paths. */
  map<T>(
    field: string,
    decode: (fields: Fields, path: string) => T,
    absent?: object,
  ): Record<string, T> {
    const fields = this.object(field, absent);
    // No prototype: a category may be called `toString`.
    const map: Record<string, T> = Object.create(null);
    for (const path of Object.keys(fields.#json)) map[path] = decode(fields, path);
    return map;
  }

  list(field: string): unknown[] {
    const value = this.#json[field];
    return Array.isArray(value) ? value : this.#refuse(field, "an array");
  }

  seq(field: string, absent?: Seq): Seq {
    const value = this.#json[field] ?? absent;
    try {
      return toSeq(value as Seq | string);
    } catch {
      return this.#refuse(field, "a seq");
    }
  }

  #refuse(field: string, wanted: string): never {
    throw new FrameError(`${field} of ${this.#name} is not ${wanted}`);
  }
}

function isCount(value: unknown): value is number {
  return Number.isSafeInteger(value) && (value as number) >= 0;
}
