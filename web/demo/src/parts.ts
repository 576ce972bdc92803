import { type Badge, type Conversation, shareOf } from "@badged/sdk";

/** Checks the invariant of the product: the total is the sum of its parts. */
export interface Sum {
  readonly parts: readonly number[];
  readonly holds: boolean;
}

export function sum(badge: Badge, conversations: Iterable<Conversation>): Sum {
  const parts = [...conversations]
    .map((one) => shareOf(one, badge.levels)?.total ?? 0)
    .filter((part) => part > 0);
  return { parts, holds: parts.reduce((total, part) => total + part, 0) === badge.total };
}
