import type { Badged, Seq } from "@badged/sdk";

/** What a user sees: a conversation and its newest visible message. */
export interface Shown {
  readonly conversationId: string;
  readonly seq: Seq;
}

/**
 * Sends reads for what is on the screen. It sends one when the server counts a
 * visible message as unread, not when a message appears: the message may reach
 * the page before the server has delivered it to this user.
 */
export class Reader {
  readonly #client: Pick<Badged, "conversations" | "read">;
  #shown: Shown | undefined;
  /** By conversation, the last read and the state that it was sent for. */
  readonly #said = new Map<string, string>();

  constructor(client: Pick<Badged, "conversations" | "read">) {
    this.#client = client;
  }

  /** Sets what is on the screen; undefined if no conversation is open. */
  show(shown: Shown | undefined): void {
    this.#shown = shown;
    this.check();
  }

  /** Checks again. Call it when the client's state may have changed. */
  check(): void {
    if (this.#shown === undefined) return;
    const { conversationId, seq } = this.#shown;
    const conversation = this.#client.conversations.get(conversationId);
    if (conversation === undefined) return;

    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    if (unread > 0 ? firstUnreadSeq > seq : !markedUnread) return;
    // Already sent for this state: the command is pending or its effect is on the way.
    const saying = `${seq} at ${version}`;
    if (this.#said.get(conversationId) === saying) return;
    this.#said.set(conversationId, saying);
    // Refused finally: do not repeat it until the state changes.
    this.#client.read(conversationId, seq).catch(() => {});
  }
}
