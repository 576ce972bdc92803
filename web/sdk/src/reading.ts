import type { Badged } from "./client.js";
import type { Clock, Page } from "./environment.js";
import { type Seq, seqOf } from "./seq.js";

// Least time between two reads of a conversation, and between the return of the
// user and the first read. A busy conversation costs at most four commands a second.
const PAUSE_MS = 250;

/** Options of {@link Badged.open}. */
export interface OpenOptions {
  /** See {@link OpenConversation.show}; default undefined. */
  readonly upToSeq?: Seq | string | undefined;
}

/** A conversation on the screen: the result of {@link Badged.open}. */
export interface OpenConversation {
  /**
   * Sets the newest message that the user can see, for apps that show only a part
   * of the conversation. Undefined stands for the last one delivered.
   *
   * @throws TypeError if it is not a seq.
   */
  show(upToSeq: Seq | string | undefined): void;
  /** The conversation is no longer on the screen. */
  close(): void;
}

/** @internal */
export interface ReadingOptions extends OpenOptions {
  readonly client: Pick<Badged, "conversations" | "read" | "on">;
  readonly conversationId: string;
  /** Without a page the user always looks. */
  readonly page: Page | null;
  readonly clock: Clock;
  readonly onClose: () => void;
}

/**
 * Reads an open conversation. It sends a read when the server counts a visible
 * message as unread, not when a message appears: the message may reach the page
 * before the server has delivered it to this user.
 *
 * @internal
 */
export class Reading implements OpenConversation {
  readonly #options: ReadingOptions;
  readonly #ignoreClient: () => void;
  readonly #ignorePage: (() => void) | undefined;
  #upToSeq: Seq | undefined;
  /** The last read, and the version of the conversation that it was sent for. */
  #sent = "";
  /** The user has looked at it. A mark that appears later is for the next visit. */
  #seen = false;
  #closed = false;
  #cancelPause: (() => void) | undefined;

  constructor(options: ReadingOptions) {
    const { client, page, conversationId, upToSeq } = options;
    this.#options = options;
    this.#upToSeq = shown(upToSeq);
    this.#ignoreClient = client.on("conversation", (changed) => {
      if (changed.conversationId === conversationId) this.#check();
    });
    this.#ignorePage = page?.onAttend(() => {
      if (this.#cancelPause === undefined) this.#pause();
    });
    this.#check();
  }

  get conversationId(): string {
    return this.#options.conversationId;
  }

  show(upToSeq: Seq | string | undefined): void {
    this.#upToSeq = shown(upToSeq);
    this.#check();
  }

  close(): void {
    this.#closed = true;
    this.#ignoreClient();
    this.#ignorePage?.();
    this.#cancelPause?.();
    this.#options.onClose();
  }

  #check(): void {
    const { client, page, conversationId } = this.#options;
    // A running pause checks at its end.
    if (this.#closed || this.#cancelPause || page?.attended() === false) return;
    const conversation = client.conversations.get(conversationId);
    if (conversation === undefined) return;

    const { unread, markedUnread, firstUnreadSeq, lastSeq, version } = conversation;
    const upToSeq = this.#upToSeq ?? lastSeq;
    const endsMark = markedUnread && !this.#seen;
    this.#seen = true;
    if (unread > 0 ? firstUnreadSeq > upToSeq : !endsMark) return;
    // Already sent for this state: the command is pending, refused, or its effect
    // is on the way.
    const sent = `${upToSeq} at ${version}`;
    if (sent === this.#sent) return;
    this.#sent = sent;
    this.#pause();
    void client.read(conversationId, upToSeq);
  }

  #pause(): void {
    this.#cancelPause = this.#options.clock.after(PAUSE_MS, () => {
      this.#cancelPause = undefined;
      this.#check();
    });
  }
}

function shown(upToSeq: Seq | string | undefined): Seq | undefined {
  return upToSeq === undefined ? undefined : seqOf("upToSeq", upToSeq);
}
