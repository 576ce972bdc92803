import { type Badged, BadgedError, type Seq } from "@badged/sdk";

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
  readonly #after: (delayMs: number, call: () => void) => unknown;
  #shown: Shown | undefined;
  #sending = false;
  /** The last read that the server answered, and the state it was sent for. */
  #settled: (Shown & { readonly version: number }) | undefined;

  constructor(
    client: Pick<Badged, "conversations" | "read">,
    after: (delayMs: number, call: () => void) => unknown = (ms, call) => setTimeout(call, ms),
  ) {
    this.#client = client;
    this.#after = after;
  }

  /** Says what is on the screen now; undefined where no conversation is open. */
  show(shown: Shown | undefined): void {
    this.#shown = shown;
    this.check();
  }

  /** Looks again; to be called whenever the client's state may have changed. */
  check(): void {
    if (this.#shown === undefined || this.#sending) return;
    const { conversationId, seq } = this.#shown;
    const conversation = this.#client.conversations.get(conversationId);
    if (conversation === undefined) return;

    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    if (unread > 0 ? firstUnreadSeq > seq : !markedUnread) return;
    // Sent for this very state: its effect is on the way.
    const last = this.#settled;
    if (last?.conversationId === conversationId && last.seq === seq && last.version === version) {
      return;
    }

    void this.#send(conversationId, seq, version);
  }

  async #send(conversationId: string, seq: Seq, version: number): Promise<void> {
    this.#sending = true;
    try {
      await this.#client.read(conversationId, seq);
    } catch (error) {
      this.#sending = false;
      if (!(error instanceof BadgedError)) throw error;
      // Without a connection, the next check comes with the next connection.
      if (error.code === "offline") return;
      if (error.retryMs > 0) {
        this.#after(error.retryMs, () => this.check());
        return;
      }
      // Refused for what it is: there is no point in it until the state changes.
    }
    this.#sending = false;
    this.#settled = { conversationId, seq, version };
    this.check();
  }
}
