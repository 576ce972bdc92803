import type { Message } from "./server.js";

// Most messages kept of a conversation.
const KEPT = 200;

/** The messages that this page has seen, by conversation, in order. */
export class Chat {
  readonly #messages = new Map<string, readonly Message[]>();

  /** In order of seq. The array is immutable: a new message creates a new one. */
  messages(conversationId: string): readonly Message[] {
    return this.#messages.get(conversationId) ?? [];
  }

  /**
   * Adds a message or applies its recall; false if it was known, as after a
   * reconnect.
   */
  add(message: Message): boolean {
    const messages = this.messages(message.conversation_id);
    const known = messages.find(({ seq }) => seq === message.seq);
    if (known !== undefined && known.recalled === message.recalled) return false;
    const others = messages.filter((other) => other !== known);
    const all = [...others, message].sort((a, b) => a.seq - b.seq);
    this.#messages.set(message.conversation_id, all.slice(-KEPT));
    return true;
  }
}
