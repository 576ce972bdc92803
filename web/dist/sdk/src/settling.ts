import type { Clock } from "./environment.js";
import type { Command, Conversation } from "./frames.js";
import { reflects } from "./overlay.js";
import type { View } from "./state.js";

// An accepted command that the state does not reflect after this time is dropped.
const SETTLE_MS = 30_000;

type OfConversation = Extract<Command, { conversationId: string }>;

interface Entry {
  readonly command: OfConversation;
  /** The version that this client held when the command was accepted. */
  readonly since: number;
  /** The conversation in the last state, if it was there. */
  last: Conversation | undefined;
  readonly cancel: () => void;
}

/**
 * The commands that the server has accepted but its state does not reflect yet:
 * `ok` may come before the change. It holds the last command of each
 * conversation, and the last `seen`.
 *
 * @internal
 */
export class Settling {
  readonly #clock: Clock;
  readonly #onLate: () => void;
  readonly #entries = new Map<string, Entry>();

  /** `onLate` is called when a command is dropped after SETTLE_MS. */
  constructor(clock: Clock, onLate: () => void) {
    this.#clock = clock;
    this.#onLate = onLate;
  }

  get commands(): readonly Command[] {
    return [...this.#entries.values()].map(({ command }) => command);
  }

  add(command: Command, { badge, conversations }: View): void {
    if (!("conversationId" in command)) return;
    const { t, conversationId } = command;
    // No id of a conversation has control characters.
    const key = t === "seen" ? `${conversationId}\n` : conversationId;
    this.#drop(key);
    const cancel = this.#clock.after(SETTLE_MS, () => {
      this.#drop(key);
      this.#onLate();
    });
    const last = conversations.get(conversationId);
    this.#entries.set(key, { command, since: badge?.version ?? 0, last, cancel });
  }

  /**
   * Drops the commands that a state of the server reflects, and those of conversations
   * that the backend has reset since.
   */
  settle({ conversations }: View): void {
    for (const [key, entry] of this.#entries) {
      const conversation = conversations.get(entry.command.conversationId);
      if (conversation === undefined) continue;
      const { command, since, last } = entry;
      if (wentBack(last, conversation) || reflects(conversation, command, since)) this.#drop(key);
      else entry.last = conversation;
    }
  }

  clear(): void {
    for (const key of [...this.#entries.keys()]) this.#drop(key);
  }

  #drop(key: string): void {
    this.#entries.get(key)?.cancel();
    this.#entries.delete(key);
  }
}

/** Whether a position went back, as only a reset makes it. */
function wentBack(before: Conversation | undefined, after: Conversation): boolean {
  return before !== undefined && (after.readSeq < before.readSeq || after.lastSeq < before.lastSeq);
}
