import { encodeRead, type ServerFrame } from "./frames.js";
import type { Seq } from "./seq.js";

/** Why something the user did was not accepted. */
export class BadgedError extends Error {
  override name = "BadgedError";

  /**
   * `offline` where there was no connection, or it was lost before the answer;
   * otherwise the code of the server's error.
   */
  readonly code: string;
  /** When to try again, in milliseconds; 0 where the server does not say. */
  readonly retryMs: number;

  constructor(code: string, message: string, retryMs = 0) {
    super(message);
    this.code = code;
    this.retryMs = retryMs;
  }
}

interface Waiting {
  resolve(): void;
  reject(error: BadgedError): void;
}

/**
 * What the user did and the server has not yet answered. Numbers of requests
 * are never used again, so that an answer finds its own request or none.
 *
 * @internal
 */
export class Requests {
  #lastId = 0;
  readonly #waiting = new Map<number, Waiting>();

  /** Sends a read, and waits for its answer. */
  read(send: (frame: string) => void, conversationId: string, upToSeq: Seq): Promise<void> {
    const id = ++this.#lastId;
    return new Promise((resolve, reject) => {
      this.#waiting.set(id, { resolve, reject });
      send(encodeRead(id, conversationId, upToSeq));
    });
  }

  answer(frame: Extract<ServerFrame, { t: "ok" | "error" }>): void {
    const waiting = this.#waiting.get(frame.id);
    if (waiting === undefined) return;
    this.#waiting.delete(frame.id);
    if (frame.t === "ok") waiting.resolve();
    else waiting.reject(new BadgedError(frame.code, frame.message, frame.retryMs));
  }

  /** The connection is gone: no answer will come. */
  rejectAll(): void {
    const waiting = [...this.#waiting.values()];
    this.#waiting.clear();
    for (const { reject } of waiting) reject(offline());
  }
}

/** @internal */
export function offline(): BadgedError {
  return new BadgedError("offline", "no connection to the server");
}
