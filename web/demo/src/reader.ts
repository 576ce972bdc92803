import type { Badged, Seq } from "@badged/sdk";

/** What a user has before its eyes: a conversation, and the newest message of it. */
export interface Shown {
  readonly conversationId: string;
  readonly seq: Seq;
}

/**
 * Tells the server what the user has read, from what is on the screen.
 *
 * A read is sent where the server still counts a message that is shown, not
 * simply where a message appears: the message may reach the page before the
 * server has delivered it to this user, and a read that came too early would
 * leave it unread.
 */
export class Reader {
  readonly #client: Pick<Badged, "conversations" | "read">;
  #shown: Shown | undefined;
  /** By conversation: what was last said, and of which state. */
  readonly #said = new Map<string, string>();

  constructor(client: Pick<Badged, "conversations" | "read">) {
    this.#client = client;
  }

  /** Says what is on the screen now; undefined where no conversation is open. */
  show(shown: Shown | undefined): void {
    this.#shown = shown;
    this.check();
  }

  /** Looks again; to be called whenever the client's state may have changed. */
  check(): void {
    if (this.#shown === undefined) return;
    const { conversationId, seq } = this.#shown;
    const conversation = this.#client.conversations.get(conversationId);
    if (conversation === undefined) return;

    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    if (unread > 0 ? firstUnreadSeq > seq : !markedUnread) return;
    // Said of this very state: its effect is on the way, or waits in the client.
    const saying = `${seq} at ${version}`;
    if (this.#said.get(conversationId) === saying) return;
    this.#said.set(conversationId, saying);
    // Refused for what it is: there is no point in it until the state changes.
    this.#client.read(conversationId, seq).catch(() => {});
  }
}
