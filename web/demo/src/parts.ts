import type { Badge, Conversation } from "@badged/sdk";

/** What a conversation adds to its user's total. */
export function adds({ level, unread, mentions, markedUnread }: Conversation): number {
  switch (level) {
    case "none":
      return 0;
    case "mentions":
      return mentions;
    default:
      return markedUnread ? Math.max(unread, 1) : unread;
  }
}

/** The promise of the product, as this client can see it: what the total is the sum of. */
export interface Sum {
  readonly parts: readonly number[];
  readonly holds: boolean;
}

export function sum(badge: Badge, conversations: Iterable<Conversation>): Sum {
  const parts = [...conversations].map(adds).filter((part) => part > 0);
  return { parts, holds: parts.reduce((total, part) => total + part, 0) === badge.total };
}
