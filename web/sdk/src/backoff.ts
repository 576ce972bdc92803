// A server may ask for a long pause, but not for one that overflows a timer.
const MAX_HINT_MS = 3_600_000;

/**
 * How long to wait before the next attempt: full jitter, so that clients that
 * lost their server at the same moment do not come back at the same moment
 * (Brooker, "Exponential Backoff And Jitter", AWS Architecture Blog 2015).
 *
 * @internal
 */
export class Backoff {
  readonly #minMs: number;
  readonly #maxMs: number;
  readonly #random: () => number;
  #failures = 0;

  /** The first pause is below `minMs`, and each next bound twice the last, up to `maxMs`. */
  constructor(minMs: number, maxMs: number, random: () => number) {
    this.#minMs = minMs;
    this.#maxMs = maxMs;
    this.#random = random;
  }

  /** The next pause in milliseconds, never shorter than what the server asked for. */
  next(hintMs: number): number {
    const bound = Math.min(this.#maxMs, this.#minMs * 2 ** this.#failures++);
    return Math.min(hintMs, MAX_HINT_MS) + Math.floor(this.#random() * bound);
  }

  /** Starts over, after a connection that lasted. */
  reset(): void {
    this.#failures = 0;
  }
}
