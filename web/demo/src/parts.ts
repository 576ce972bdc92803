import type { Badge, Conversation } from "@badged/sdk";

/** What a conversation adds to the total of its user. */
export function adds({ level, unread, mentions, markedUnread }: Conversation): number {
  switch (level) {
    case "none":
      return 0;
    case "mentions":
    case "direct_mentions":
      return mentions;
    default:
      return markedUnread ? Math.max(unread, 1) : unread;
  }
}

/** Checks the invariant of the product: the total is the sum of its parts. */
export interface Sum {
  readonly parts: readonly number[];
  readonly holds: boolean;
}

export function sum(badge: Badge, conversations: Iterable<Conversation>): Sum {
  const parts = [...conversations].map(adds).filter((part) => part > 0);
  return { parts, holds: parts.reduce((total, part) => total + part, 0) === badge.total };
}
