import type { Clock } from "./environment.js";
import type { Command } from "./frames.js";
import { reflects } from "./overlay.js";
import type { View } from "./state.js";

// An accepted command that the state does not reflect after this time is dropped.
const SETTLE_MS = 30_000;

interface Entry {
  readonly command: Command;
  /** The version that this client held when the command was accepted. */
  readonly since: number;
  readonly cancel: () => void;
}

/**
 * The commands that the server has accepted but its state does not reflect yet:
 * `ok` may come before the change. It holds the last command of each
 * conversation.
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

  add(command: Command, since: number): void {
    if (command.t === "read_all") return;
    const { conversationId } = command;
    this.#drop(conversationId);
    const cancel = this.#clock.after(SETTLE_MS, () => {
      this.#drop(conversationId);
      this.#onLate();
    });
    this.#entries.set(conversationId, { command, since, cancel });
  }

  /** Drops the commands that a state of the server reflects. */
  settle({ conversations }: View): void {
    for (const [id, { command, since }] of this.#entries) {
      const conversation = conversations.get(id);
      if (conversation !== undefined && reflects(conversation, command, since)) this.#drop(id);
    }
  }

  clear(): void {
    for (const id of [...this.#entries.keys()]) this.#drop(id);
  }

  #drop(id: string): void {
    this.#entries.get(id)?.cancel();
    this.#entries.delete(id);
  }
}
