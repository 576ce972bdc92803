// Longest pause accepted from the server. A longer one could overflow a timer.
const MAX_HINT_MS = 3_600_000;

/**
 * Computes the pause before the next attempt. Full jitter spreads the clients
 * that lost a server at the same moment (Brooker, "Exponential Backoff And
 * Jitter", AWS Architecture Blog 2015).
 *
 * @internal
 */
export class Backoff {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #failures = 0;

  /** The first pause is below `minMs`. The bound doubles each time, up to `maxMs`. */
  constructor(minMs: number, maxMs: number, random: () => number) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }

  /** The next pause in milliseconds, at least the `hintMs` of the server. */
  next(hintMs: number): number {
    const bound = Math.min(this.#maxMs, this.#minMs * 2 ** this.#failures++);
    return Math.min(hintMs, MAX_HINT_MS) + Math.floor(this.#random() * bound);
  }

  /** Starts over. Call it after a connection that lasted. */
  reset(): void {
    this.#failures = 0;
  }
}
