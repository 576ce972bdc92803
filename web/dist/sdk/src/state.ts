import { merged, NO_NUMBERS, same } from "./category.js";
import type { Badge, Conversation, StateFrame } from "./frames.js";

// The most conversations in a stored state: about 250 KB.
const MAX_STORED = 1_000;

/** The badge and conversations of one user. @internal */
export interface View {
  /** Undefined before the first snapshot. */
  readonly badge: Badge | undefined;
  readonly conversations: ReadonlyMap<string, Conversation>;
  /** The user has more non-empty conversations than these; the total counts them. */
  readonly more: boolean;
}

/** @internal */
export const NOTHING: View = { badge: undefined, conversations: new Map(), more: false };

/**
 * The result of applying a state frame: `stale` if the held state is as new or
 * newer; `foreign` if it has another epoch or is missing, so that a snapshot is
 * needed.
 *
 * @internal
 */
export type Applied = "applied" | "stale" | "foreign";

/**
 * The server's state of one user. Connections may lose, repeat and reorder
 * changes: changes only move the state forward, and a snapshot replaces it.
 *
 * @internal
 */
export class State {
  #view = NOTHING;

  get view(): View {
    return this.#view;
  }

  /**
   * The state as a frame, with the conversations that a snapshot of the server
   * lists, at most MAX_STORED. Undefined before the first snapshot.
   */
  get snapshot(): StateFrame | undefined {
    const { badge, conversations, more } = this.#view;
    if (badge === undefined) return undefined;
    const shown = [...conversations.values()].filter(
      ({ unread, markedUnread, level, left }) =>
        !left && (unread > 0 || markedUnread || level !== "default"),
    );
    const kept =
      shown.length > MAX_STORED
        ? shown.sort((a, b) => b.version - a.version).slice(0, MAX_STORED)
        : shown;
    return {
      t: "snapshot",
      badge,
      allCategories: true,
      allLevels: true,
      conversations: kept,
      more: more || kept.length < shown.length,
      pingMs: 0,
      expiresInMs: 0,
    };
  }

  /**
   * Applies a snapshot always, and changes if they are newer and of the same
   * epoch.
   */
  apply(frame: StateFrame): Applied {
    const { badge, conversations, more } = this.#view;
    if (frame.t === "snapshot") {
      this.#view = {
        badge: frame.badge,
        conversations: new Map(frame.conversations.map((c) => [c.conversationId, c])),
        more: frame.more,
      };
      return "applied";
    }
    // Changes list only the conversations that changed.
    if (badge?.epoch !== frame.badge.epoch) return "foreign";
    if (frame.badge.version <= badge.version) return "stale";

    const newest = new Map(conversations);
    for (const conversation of frame.conversations) {
      const { conversationId, version } = conversation;
      if (version > (newest.get(conversationId)?.version ?? -1))
        newest.set(conversationId, conversation);
    }
    this.#view = { badge: completed(frame, badge), conversations: newest, more };
    return "applied";
  }
}

/** The badge of changes, with what they leave out because it is as before. */
function completed({ badge, allCategories, allLevels }: StateFrame, held: Badge): Badge {
  const levels = allLevels ? badge.levels : held.levels;
  if (allCategories) return { ...badge, levels };
  const { moreCategories } = held;
  return {
    ...badge,
    categories: merged(held.categories, Object.entries(badge.categories)),
    ...(moreCategories && { moreCategories }),
    levels,
  };
}

/** The conversations without those that the user has left. @internal */
export function listed(
  conversations: ReadonlyMap<string, Conversation>,
): ReadonlyMap<string, Conversation> {
  const staying = [...conversations].filter(([, { left }]) => !left);
  return staying.length === conversations.size ? conversations : new Map(staying);
}

/** The difference between two views. @internal */
export interface Difference {
  /** The new view. An unchanged conversation is the same object as before. */
  readonly view: View;
  /** The changed conversations. Those that are gone have zero counts. */
  readonly conversations: readonly Conversation[];
  /** The badge, if one of its numbers changed. */
  readonly badge: Badge | undefined;
}

/** Compares two views. @internal */
export function difference(before: View, after: View): Difference {
  const conversations = new Map<string, Conversation>();
  const changed: Conversation[] = [];
  for (const [id, conversation] of after.conversations) {
    const held = before.conversations.get(id);
    const kept = held !== undefined && same(held, conversation);
    conversations.set(id, kept ? held : conversation);
    if (!kept) changed.push(conversation);
  }
  for (const [id, held] of before.conversations) {
    if (conversations.has(id)) continue;
    // A complete snapshot omits only empty conversations without a level of their own.
    const level = after.more ? held.level : "default";
    const { levelUntil, ...rest } = held;
    const empty = {
      ...rest,
      unread: 0,
      mentions: 0,
      firstUnreadSeq: 0,
      seen: 0,
      seenMentions: 0,
      markedUnread: false,
      level,
      ...(after.more && levelUntil && { levelUntil }),
    };
    if (!same(held, empty)) changed.push(empty);
  }

  const { badge, more } = after;
  // After forget there is no badge: listeners get zeros, to clear what they show.
  const told =
    badge ?? (before.badge && { ...before.badge, ...NO_NUMBERS, categories: {}, levels: {} });
  const unchanged = before.badge && told && sameNumbers(before.badge, told);
  return {
    view: { badge, conversations, more },
    conversations: changed,
    badge: unchanged ? undefined : told,
  };
}

function sameNumbers(a: Badge, b: Badge): boolean {
  const { epoch, version } = a;
  return same(a, { ...b, epoch, version });
}
