import { parseExact, type Seq, toSeq } from "./seq.js";

/** The WebSocket subprotocol. @internal */
export const PROTOCOL = "badge.v1";

/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions (`mentions`), those that mention the user by name
 * (`direct_mentions`), or nothing (`none`). Later servers may add levels.
 */
export type Level = "all" | "mentions" | "direct_mentions" | "none" | (string & {});

/** The state of one conversation for one user. */
export interface Conversation {
  readonly conversationId: string;
  /** Messages above `readSeq` that were delivered and not recalled. */
  readonly unread: number;
  /** The unread messages that mention the user. */
  readonly mentions: number;
  /** The lowest unread seq; 0 if nothing is unread. */
  readonly firstUnreadSeq: Seq;
  /** The read position. It never moves back. */
  readonly readSeq: Seq;
  /** The highest seq delivered to the user; 0 before the first. */
  readonly lastSeq: Seq;
  readonly level: Level;
  /** When the level ends, in RFC 3339; absent if it does not. */
  readonly levelUntil?: string;
  /** The category that the conversation counts in; `chat` unless the backend sets another. */
  readonly category: string;
  /** The user marked it unread: it counts at least 1 until the next read. */
  readonly markedUnread: boolean;
  /** The user has left the conversation: do not list it. */
  readonly left: boolean;
  /** The version of the badge at the conversation's last change. */
  readonly version: number;
}

/** The numbers of a user at one version. */
export interface Badge {
  /** Versions compare only within one epoch. */
  readonly epoch: string;
  /** Grows with every change visible to the user. */
  readonly version: number;
  readonly total: number;
  readonly mentions: number;
  /** The total by category. Categories that add nothing are absent. */
  readonly categories: Readonly<Record<string, number>>;
  /** True if the total has more categories than these, which are the first 500 by name. */
  readonly moreCategories?: boolean;
  /** How many conversations add something to the total; 0 with a server that does not say. */
  readonly unreadConversations: number;
  /** The same by category. */
  readonly categoryConversations: Readonly<Record<string, number>>;
}

/** A frame that carries absolute state. @internal */
export interface StateFrame {
  readonly t: "snapshot" | "changes";
  readonly badge: Badge;
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
  | { readonly t: "read"; readonly conversationId: string; readonly upToSeq: Seq }
  | { readonly t: "read_all"; readonly category?: string }
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
    case "changes":
      return {
        t,
        badge: {
          epoch: frame.string("epoch"),
          version: frame.count("version"),
          total: frame.count("total"),
          mentions: frame.count("mentions"),
          categories: frame.counts("categories"),
          unreadConversations: frame.count("unread_conversations", 0),
          categoryConversations: frame.counts("category_conversations", {}),
          ...(frame.boolean("more_categories", false) && { moreCategories: true }),
        },
        conversations: frame.list("conversations").map(decodeConversation),
        more: frame.boolean("more", false),
        pingMs: frame.count("ping_ms", 0),
        expiresInMs: frame.count("expires_in_ms", 0),
      };
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
  switch (t) {
    case "read":
      // JSON.stringify throws for a bigint.
      return `{"t":"read","id":"${id}","conversation_id":${JSON.stringify(command.conversationId)},"up_to_seq":${command.upToSeq}}`;
    case "read_all":
      return JSON.stringify({ t, id, category: command.category });
    case "mark_unread":
      return `{"t":"mark_unread","id":"${id}","conversation_id":${JSON.stringify(command.conversationId)}${marked(command)}}`;
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

/** Names fields as the server does. */
function named(fields: Badge | Conversation): Record<string, unknown> {
  return Object.fromEntries(
    Object.entries(fields).map(([name, value]) => [
      name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
      value,
    ]),
  );
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

  counts(field: string, absent?: object): Record<string, number> {
    const value = this.#json[field] ?? absent;
    if (typeof value !== "object" || value === null || !Object.values(value).every(isCount)) {
      return this.#refuse(field, "an object of counts");
    }
    // No prototype: a category may be called `toString`.
    return Object.assign(Object.create(null), value);
  }

  list(field: string): unknown[] {
    const value = this.#json[field];
    return Array.isArray(value) ? value : this.#refuse(field, "an array");
  }

  seq(field: string): Seq {
    const value = this.#json[field];
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
