import type { Badge, Conversation, StateFrame } from "./frames.js";

/**
 * What became of a state frame: what it changed (`badge` where the numbers of
 * the badge did), `stale` where this client already holds that state or a
 * newer one, `foreign` where it cannot be applied to what this client holds,
 * and a snapshot is needed.
 *
 * @internal
 */
export type Applied =
  | { readonly badge: Badge | undefined; readonly conversations: readonly Conversation[] }
  | "stale"
  | "foreign";

/**
 * The badge of one user as this client holds it. State frames go in, in
 * whatever order connections lose, repeat and overtake them; the state only
 * ever moves forward.
 *
 * @internal
 */
export class State {
  #badge: Badge | undefined;
  #conversations = new Map<string, Conversation>();
  #more = false;

  /** Undefined before the first snapshot. */
  get badge(): Badge | undefined {
    return this.#badge;
  }

  get conversations(): ReadonlyMap<string, Conversation> {
    return this.#conversations;
  }

  /** The last snapshot left out conversations, so their sum is not the total. */
  get more(): boolean {
    return this.#more;
  }

  /** All of it as a frame; undefined before the first snapshot. */
  get snapshot(): StateFrame | undefined {
    if (this.#badge === undefined) return undefined;
    const conversations = [...this.#conversations.values()].filter(
      ({ unread, markedUnread }) => unread > 0 || markedUnread,
    );
    const [badge, more] = [this.#badge, this.#more];
    return { t: "snapshot", badge, conversations, more, pingMs: 0, expiresAt: 0 };
  }

  /**
   * Takes in a frame, if it is newer: versions compare within an epoch, and a
   * snapshot of another epoch replaces everything.
   */
  apply(frame: StateFrame): Applied {
    const held = this.#badge;
    if (held?.epoch !== frame.badge.epoch) {
      // Changes say nothing of the conversations that did not change.
      if (frame.t === "changes") return "foreign";
    } else if (frame.badge.version <= held.version) {
      return "stale";
    }

    const conversations = frame.t === "snapshot" ? this.#replace(frame) : this.#merge(frame);
    this.#badge = frame.badge;
    return {
      badge: held !== undefined && sameNumbers(held, frame.badge) ? undefined : frame.badge,
      conversations,
    };
  }

  #merge(frame: StateFrame): Conversation[] {
    const changed = frame.conversations.filter(
      ({ conversationId, version }) =>
        version > (this.#conversations.get(conversationId)?.version ?? -1),
    );
    for (const conversation of changed) {
      this.#conversations.set(conversation.conversationId, conversation);
    }
    return changed;
  }

  #replace(frame: StateFrame): Conversation[] {
    const before = this.#conversations;
    const sameEpoch = this.#badge?.epoch === frame.badge.epoch;
    this.#conversations = new Map(frame.conversations.map((c) => [c.conversationId, c]));
    this.#more = frame.more;

    const changed = frame.conversations.filter((c) => {
      const held = before.get(c.conversationId);
      return !sameEpoch || held?.version !== c.version;
    });
    // A snapshot leaves out what has nothing to show.
    for (const held of before.values()) {
      if (!this.#conversations.has(held.conversationId)) changed.push(emptied(held));
    }
    return changed;
  }
}

function emptied(conversation: Conversation): Conversation {
  return { ...conversation, unread: 0, mentions: 0, firstUnreadSeq: 0, markedUnread: false };
}

function sameNumbers(a: Badge, b: Badge): boolean {
  const names = Object.keys(a.categories);
  return (
    a.total === b.total &&
    a.mentions === b.mentions &&
    names.length === Object.keys(b.categories).length &&
    names.every((name) => a.categories[name] === b.categories[name])
  );
}
