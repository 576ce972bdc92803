import type { Badge, Command, Conversation } from "./frames.js";
import { ofMessages } from "./outbox.js";
import { type Seq, toSeq } from "./seq.js";
import type { View } from "./state.js";

/**
 * Applies commands, in order, that the server's state does not reflect yet.
 * Epoch and versions stay the server's. A command whose effect cannot be known
 * changes nothing.
 *
 * The total changes by as much as the conversations do, so it equals their sum
 * if the server's total does.
 *
 * @internal
 */
export function overlay(state: View, commands: readonly Command[]): View {
  if (state.badge === undefined || commands.length === 0) return state;
  const conversations = new Map(state.conversations);
  let badge = state.badge;
  for (const command of commands) {
    if (command.t === "read_all") continue;
    const before = conversations.get(command.conversationId);
    if (before === undefined || partOf(before) === undefined) continue;
    const after = foresee(before, command);
    conversations.set(command.conversationId, after);
    badge = adjust(badge, before, after);
  }
  return { ...state, badge, conversations };
}

/** Predicts how the server folds a command. */
function foresee(conversation: Conversation, command: Command): Conversation {
  if (command.t === "mark_unread") {
    // Only the server knows which messages were recalled.
    return ofMessages(command) ? conversation : { ...conversation, markedUnread: true };
  }
  if (command.t !== "read") return conversation;
  const { unread, mentions, firstUnreadSeq, readSeq, lastSeq } = conversation;
  const { upToSeq } = command;
  if (upToSeq >= lastSeq) {
    const read = { unread: 0, mentions: 0, firstUnreadSeq: 0, markedUnread: false };
    return { ...conversation, ...read, readSeq: readSeq > lastSeq ? readSeq : lastSeq };
  }
  if (upToSeq < readSeq) return conversation;
  const read = { ...conversation, readSeq: upToSeq, markedUnread: false };
  if (unread === 0 || upToSeq < firstUnreadSeq) return read;
  // If the seqs have gaps, the number of messages above upToSeq is unknown.
  if (distance(firstUnreadSeq, lastSeq) + 1 !== unread) return conversation;
  const left = distance(upToSeq, lastSeq);
  return {
    ...read,
    unread: left,
    mentions: Math.min(mentions, left),
    firstUnreadSeq: toSeq(BigInt(upToSeq) + 1n),
  };
}

function distance(from: Seq, to: Seq): number {
  return Number(BigInt(to) - BigInt(from));
}

/** What a conversation adds to the total; undefined for an unknown level. @internal */
export function partOf({
  level,
  unread,
  mentions,
  markedUnread,
}: Conversation): number | undefined {
  if (level === "all") return Math.max(unread, markedUnread ? 1 : 0);
  if (level === "mentions" || level === "direct_mentions") return mentions;
  return level === "none" ? 0 : undefined;
}

function adjust(badge: Badge, before: Conversation, after: Conversation): Badge {
  const [was, is] = [partOf(before) ?? 0, partOf(after) ?? 0];
  const conversations = Math.sign(is) - Math.sign(was);
  const { category, level } = before;
  return {
    ...badge,
    total: badge.total + is - was,
    mentions: badge.mentions + (level === "none" ? 0 : after.mentions - before.mentions),
    categories: moved(badge.categories, category, is - was),
    unreadConversations: Math.max(0, (badge.unreadConversations ?? 0) + conversations),
    categoryConversations: moved(badge.categoryConversations, category, conversations),
  };
}

/** Counts by category with one of them changed. */
function moved(before: Badge["categories"], category: string, by: number): Badge["categories"] {
  // No prototype: a category may be called `toString`.
  const counts: Record<string, number> = Object.assign(Object.create(null), before);
  const count = (counts[category] ?? 0) + by;
  if (count > 0) counts[category] = count;
  else delete counts[category];
  return counts;
}

/**
 * Whether the server's state reflects a command or something later. `since` is
 * the version that this client held when the server accepted the command.
 *
 * @internal
 */
export function reflects(conversation: Conversation, command: Command, since: number): boolean {
  const later = conversation.version > since;
  if (command.t === "mark_unread") {
    return ofMessages(command) || conversation.markedUnread || later;
  }
  if (command.t !== "read") return true;
  const { readSeq, markedUnread, unread, firstUnreadSeq } = conversation;
  const marked = markedUnread || (unread > 0 && firstUnreadSeq <= readSeq);
  return readSeq >= command.upToSeq && (!marked || later);
}
