import { at, merged, NO_NUMBERS, pathsOf, shareOf, sum } from "./category.js";
import type { Badge, Command, Conversation, Numbers } from "./frames.js";
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
    if (!("conversationId" in command)) continue;
    const before = conversations.get(command.conversationId);
    const was = before && shareOf(before, badge.levels);
    if (before === undefined || was === undefined) continue;
    const after = foresee(before, command);
    conversations.set(command.conversationId, after);
    badge = adjust(badge, before.category, was, shareOf(after, badge.levels));
  }
  return { ...state, badge, conversations };
}

/** Predicts how the server folds a command. */
function foresee(conversation: Conversation, command: Command): Conversation {
  if (command.t === "mark_unread") {
    // Only the server knows which messages were recalled.
    return ofMessages(command) ? conversation : { ...conversation, markedUnread: true };
  }
  if (command.t === "read") return afterRead(conversation, command.upToSeq);
  return command.t === "seen" ? afterSeen(conversation, command.upToSeq) : conversation;
}

function afterRead(conversation: Conversation, upToSeq: Seq): Conversation {
  const { unread, mentions, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
  if (upToSeq >= lastSeq) {
    const read = { unread: 0, mentions: 0, firstUnreadSeq: 0, markedUnread: false };
    const seen = { seenSeq: 0, seen: 0, seenMentions: 0 };
    return { ...conversation, ...read, ...seen, readSeq: readSeq > lastSeq ? readSeq : lastSeq };
  }
  if (upToSeq < readSeq) return conversation;
  const read = {
    ...conversation,
    readSeq: upToSeq,
    markedUnread: false,
    seenSeq: seenSeq > upToSeq ? seenSeq : 0,
  };
  if (unread === 0 || upToSeq < firstUnreadSeq) return read;
  // If the seqs have gaps, the number of messages above upToSeq is unknown.
  if (hasGaps(conversation)) return conversation;
  const left = distance(upToSeq, lastSeq);
  const seen = seenSeq > upToSeq ? Math.min(left, distance(upToSeq, seenSeq)) : 0;
  return withSeen(
    {
      ...read,
      unread: left,
      mentions: Math.min(mentions, left),
      firstUnreadSeq: toSeq(BigInt(upToSeq) + 1n),
    },
    seen,
  );
}

function afterSeen(conversation: Conversation, upToSeq: Seq): Conversation {
  const { unread, firstUnreadSeq, readSeq, lastSeq, seenSeq } = conversation;
  const position = upToSeq < lastSeq ? upToSeq : lastSeq;
  if (position <= readSeq || position <= seenSeq) return conversation;
  const seen = { ...conversation, seenSeq: position };
  if (position >= lastSeq) return withSeen(seen, unread);
  if (position < firstUnreadSeq) return seen;
  return hasGaps(conversation)
    ? conversation
    : withSeen(seen, unread - distance(position, lastSeq));
}

/** A conversation with this number of its messages seen. Which of them are mentions is a guess. */
function withSeen(conversation: Conversation, seen: number): Conversation {
  const { unread, mentions, seenMentions } = conversation;
  const [least, most] = [Math.max(0, mentions - (unread - seen)), Math.min(seen, mentions)];
  return { ...conversation, seen, seenMentions: Math.min(most, Math.max(least, seenMentions)) };
}

/** Whether some messages from the first unread one on are not unread, as recalled ones. */
function hasGaps({ unread, firstUnreadSeq, lastSeq }: Conversation): boolean {
  return distance(firstUnreadSeq, lastSeq) + 1 !== unread;
}

function distance(from: Seq, to: Seq): number {
  return Number(BigInt(to) - BigInt(from));
}

/** The badge with another share of a conversation, also at the paths that cover its category. */
function adjust(badge: Badge, category: string, was: Numbers, is = NO_NUMBERS): Badge {
  const moved = (from: Numbers) => sum(from, is, was);
  const changed = pathsOf(category).map(
    (path) => [path, moved(at(badge.categories, path) ?? NO_NUMBERS)] as const,
  );
  return { ...badge, ...moved(badge), categories: merged(badge.categories, changed) };
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
  const { readSeq, seenSeq, markedUnread, unread, firstUnreadSeq } = conversation;
  if (command.t === "seen") return readSeq >= command.upToSeq || seenSeq >= command.upToSeq;
  if (command.t !== "read") return true;
  const marked = markedUnread || (unread > 0 && firstUnreadSeq <= readSeq);
  return readSeq >= command.upToSeq && (!marked || later);
}
