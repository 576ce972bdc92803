import { numbersOf } from "./category.js";
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

/** A list on the screen: the result of {@link Badged.openCategory}. */
export interface OpenCategory {
  /** The list is no longer on the screen. */
  close(): void;
}

/** @internal */
export interface LookingOptions {
  readonly client: Pick<Badged, "badge" | "conversations" | "read" | "seenAll" | "on">;
  /** Without a page the user always looks. */
  readonly page: Page | null;
  readonly clock: Clock;
  readonly onClose?: () => void;
}

/** Sends commands for something on the screen, while the user looks. */
abstract class Looking {
  readonly #options: LookingOptions;
  readonly #ignorePage: (() => void) | undefined;
  /** The last command, and the state that it was sent for. */
  #sent = "";
  #closed = false;
  #cancelPause: (() => void) | undefined;

  constructor(options: LookingOptions) {
    this.#options = options;
    this.#ignorePage = options.page?.onAttend(() => {
      if (this.#cancelPause === undefined) this.#pause();
    });
  }

  close(): void {
    this.#closed = true;
    this.#ignorePage?.();
    this.#cancelPause?.();
    this.#options.onClose?.();
  }

  /** Which command is due, and for which state; undefined if none is. */
  protected abstract due(): string | undefined;
  protected abstract send(): Promise<void>;

  protected check(): void {
    // A running pause checks at its end.
    if (this.#closed || this.#cancelPause || this.#options.page?.attended() === false) return;
    const due = this.due();
    // Already sent for this state: the command is pending, refused, or its effect
    // is on the way.
    if (due === undefined || due === this.#sent) return;
    this.#sent = due;
    this.#pause();
    void this.send();
  }

  #pause(): void {
    this.#cancelPause = this.#options.clock.after(PAUSE_MS, () => {
      this.#cancelPause = undefined;
      this.check();
    });
  }
}

/**
 * Reads an open conversation. It sends a read when the server counts a visible
 * message as unread, not when a message appears: the message may reach the page
 * before the server has delivered it to this user.
 *
 * @internal
 */
export class Reading extends Looking implements OpenConversation {
  readonly conversationId: string;
  readonly #client: LookingOptions["client"];
  readonly #ignoreClient: () => void;
  #upToSeq: Seq | undefined;
  /** The user has looked at it. A mark that appears later is for the next visit. */
  #seen = false;

  constructor(conversationId: string, { upToSeq }: OpenOptions, options: LookingOptions) {
    super(options);
    this.conversationId = conversationId;
    this.#client = options.client;
    this.#upToSeq = shown(upToSeq);
    this.#ignoreClient = options.client.on("conversation", (changed) => {
      if (changed.conversationId === conversationId) this.check();
    });
    this.check();
  }

  show(upToSeq: Seq | string | undefined): void {
    this.#upToSeq = shown(upToSeq);
    this.check();
  }

  override close(): void {
    this.#ignoreClient();
    super.close();
  }

  protected due(): string | undefined {
    const conversation = this.#client.conversations.get(this.conversationId);
    if (conversation === undefined) return undefined;
    const { unread, markedUnread, firstUnreadSeq, version } = conversation;
    const upToSeq = this.#visible;
    const endsMark = markedUnread && !this.#seen;
    this.#seen = true;
    if (unread > 0 ? firstUnreadSeq > upToSeq : !endsMark) return undefined;
    return `${upToSeq} at ${version}`;
  }

  protected send(): Promise<void> {
    return this.#client.read(this.conversationId, this.#visible);
  }

  get #visible(): Seq {
    return this.#upToSeq ?? this.#client.conversations.get(this.conversationId)?.lastSeq ?? 0;
  }
}

/**
 * Sees what is in an open list as it arrives.
 *
 * @internal
 */
export class Seeing extends Looking implements OpenCategory {
  readonly #client: LookingOptions["client"];
  readonly #category: string | undefined;
  readonly #ignoreClient: () => void;

  constructor(category: string | undefined, options: LookingOptions) {
    super(options);
    this.#client = options.client;
    this.#category = category;
    this.#ignoreClient = options.client.on("total", () => this.check());
    this.check();
  }

  override close(): void {
    this.#ignoreClient();
    super.close();
  }

  protected due(): string | undefined {
    const { badge } = this.#client;
    return numbersOf(this.#client, this.#category).unseen > 0
      ? `${badge?.epoch} ${badge?.version}`
      : undefined;
  }

  protected send(): Promise<void> {
    return this.#client.seenAll(this.#category);
  }
}

function shown(upToSeq: Seq | string | undefined): Seq | undefined {
  return upToSeq === undefined ? undefined : seqOf("upToSeq", upToSeq);
}
