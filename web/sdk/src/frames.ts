import { parseExact, type Seq, toSeq } from "./seq.js";

/** The WebSocket subprotocol that this client speaks. @internal */
export const PROTOCOL = "badge.v1";

/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions, or nothing. Later servers may know others.
 */
export type Level = "all" | "mentions" | "none" | (string & {});

/** The state of one conversation for the user of the token. */
export interface Conversation {
  readonly conversationId: string;
  /** Delivered, not recalled messages above `readSeq`. */
  readonly unread: number;
  /** How many of the unread messages mention the user. */
  readonly mentions: number;
  /** Where an app jumps to: the least unread seq, or 0 where nothing is unread. */
  readonly firstUnreadSeq: Seq;
  /** The read position; it never moves back. */
  readonly readSeq: Seq;
  /** The greatest seq delivered to the user, 0 before the first. */
  readonly lastSeq: Seq;
  readonly level: Level;
  /** The label that badges per tab go by: `chat` unless the backend says otherwise. */
  readonly category: string;
  /** The user wants the conversation to count at least 1. */
  readonly markedUnread: boolean;
  /** The version of the user's badge as of the conversation's last change. */
  readonly version: number;
}

/** The number a user sees and what it is made of, as of one version. */
export interface Badge {
  /** Names the sequence that `version` counts in. */
  readonly epoch: string;
  /** Grows with every change that this user can see. */
  readonly version: number;
  readonly total: number;
  readonly mentions: number;
  /** The total by category; categories that add nothing are absent. */
  readonly categories: Readonly<Record<string, number>>;
}

/** A frame that carries absolute state. @internal */
export interface StateFrame {
  readonly t: "snapshot" | "changes";
  readonly badge: Badge;
  readonly conversations: readonly Conversation[];
  /** A snapshot's: there are more conversations than it lists. */
  readonly more: boolean;
  /** How often to ping, in milliseconds; 0 where the frame does not say. */
  readonly pingMs: number;
  /** When the token ends, in milliseconds since 1970; 0 where the frame does not say. */
  readonly expiresAt: number;
}

/**
 * Something the user did. The id names it for good: the server takes a command
 * that comes again, over another connection too, for the one that it had.
 *
 * @internal
 */
export type Command = { readonly id: string } & (
  | { readonly t: "read"; readonly conversationId: string; readonly upToSeq: Seq }
  | { readonly t: "read_all"; readonly category?: string }
  | { readonly t: "mark_unread"; readonly conversationId: string }
);

/** The answer to a command. @internal */
export type Answer =
  | { readonly t: "ok"; readonly id: string; readonly expiresAt: number }
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

/** A frame that breaks the protocol; the message says where. @internal */
export class FrameError extends Error {
  override name = "FrameError";
}

/**
 * Reads one frame of the server. Unknown fields are ignored, and so are frames
 * of an unknown type: they give undefined.
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
        },
        conversations: frame.list("conversations").map(decodeConversation),
        more: frame.boolean("more", false),
        pingMs: frame.count("ping_ms", 0),
        expiresAt: frame.time("expires_at"),
      };
    case "ok":
      return { t, id: frame.id(), expiresAt: frame.time("expires_at") };
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
  return {
    conversationId: fields.string("conversation_id"),
    unread: fields.count("unread"),
    mentions: fields.count("mentions"),
    firstUnreadSeq: fields.seq("first_unread_seq"),
    readSeq: fields.seq("read_seq"),
    lastSeq: fields.seq("last_seq"),
    level: fields.string("level"),
    category: fields.string("category"),
    markedUnread: fields.boolean("marked_unread"),
    version: fields.count("version"),
  };
}

/** The first frame: what this client holds, if it holds anything. @internal */
export function encodeHello(held: Badge | undefined): string {
  return JSON.stringify({ t: "hello", epoch: held?.epoch, version: held?.version });
}

/** @internal */
export function encodeCommand(command: Command): string {
  const { t, id } = command;
  switch (t) {
    case "read":
      // JSON.stringify refuses a bigint, so the seq is written by hand.
      return `{"t":"read","id":"${id}","conversation_id":${JSON.stringify(command.conversationId)},"up_to_seq":${command.upToSeq}}`;
    case "read_all":
      return JSON.stringify({ t, id, category: command.category });
    case "mark_unread":
      return JSON.stringify({ t, id, conversation_id: command.conversationId });
  }
}

/** A fresh token, before the old one ends. @internal */
export function encodeAuth(id: string, token: string): string {
  return JSON.stringify({ t: "auth", id, token });
}

/**
 * A snapshot that {@link decodeFrame} reads, except that seqs are strings
 * where JSON would round them.
 *
 * @internal
 */
export function encodeSnapshot({ badge, conversations, more }: StateFrame): string {
  const listed = conversations.map((conversation) =>
    Object.fromEntries(
      Object.entries(conversation).map(([name, value]) => [
        name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`),
        value,
      ]),
    ),
  );
  return stringify({ t: "snapshot", ...badge, conversations: listed, more });
}

/** JSON.stringify, with bigints as strings of their digits. @internal */
export function stringify(value: unknown): string {
  return JSON.stringify(value, (_, part) => (typeof part === "bigint" ? String(part) : part));
}

/** @internal */
export const PING = '{"t":"ping"}';
/** @internal */
export const PONG = '{"t":"pong"}';

/** Reads the fields of one JSON object, checking each. */
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

  /** What a command was named; empty where the server speaks of none. */
  id(): string {
    const { id } = this.#json;
    return typeof id === "number" ? String(id) : this.string("id", "");
  }

  /** Milliseconds since 1970, or 0 where the field is absent or no time. */
  time(field: string): number {
    return Date.parse(String(this.#json[field])) || 0;
  }

  boolean(field: string, absent?: boolean): boolean {
    const value = this.#json[field] ?? absent;
    return typeof value === "boolean" ? value : this.#refuse(field, "a boolean");
  }

  count(field: string, absent?: number): number {
    const value = this.#json[field] ?? absent;
    return isCount(value) ? value : this.#refuse(field, "a count");
  }

  counts(field: string): Record<string, number> {
    const value = this.#json[field];
    if (typeof value !== "object" || value === null || !Object.values(value).every(isCount)) {
      return this.#refuse(field, "an object of counts");
    }
    // Without a prototype, so that a category is never mistaken for a method.
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
