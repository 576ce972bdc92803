import type { Seq } from "@badged/sdk";

/** Most arrivals remembered of a conversation. */
const KEPT = 100;

interface Arrival {
  readonly seq: Seq;
  readonly at: number;
}

/** When messages reached a phone. The times are those of one clock, in milliseconds. */
export class Arrivals {
  readonly #known = new Map<string, Arrival[]>();
  readonly #waiting = new Set<() => void>();

  /** Notes that a phone has a conversation up to a message. */
  note(conversationId: string, seq: Seq, at: number): void {
    const known = this.#known.get(conversationId) ?? [];
    if (seq <= (known.at(-1)?.seq ?? 0)) return;
    this.#known.set(conversationId, [...known, { seq, at }].slice(-KEPT));
    for (const look of this.#waiting) look();
  }

  /** When a message or a later one arrived; undefined if none does in time. */
  async of(conversationId: string, seq: Seq, patienceMs: number): Promise<number | undefined> {
    const find = () => this.#known.get(conversationId)?.find((arrival) => arrival.seq >= seq)?.at;
    return find() ?? (await this.#wait(find, patienceMs));
  }

  #wait(find: () => number | undefined, patienceMs: number): Promise<number | undefined> {
    return new Promise((resolve) => {
      const look = () => {
        const at = find();
        if (at !== undefined) end(at);
      };
      const end = (at: number | undefined) => {
        clearTimeout(timer);
        this.#waiting.delete(look);
        resolve(at);
      };
      const timer = setTimeout(() => end(undefined), patienceMs);
      this.#waiting.add(look);
    });
  }
}
