import { toFunction } from "./arguments.js";
import type { Environment } from "./environment.js";
import type { Badge, Command, Conversation } from "./frames.js";
import type { Status, TokenRequest } from "./link.js";
import { quiet } from "./outbox.js";
import { refuse } from "./refuse.js";
import type { Seq } from "./seq.js";

/** Options of a client, and replacements for parts of its {@link Environment}. */
export interface BadgedOptions extends Partial<Environment> {
  /** The URL of the server: `https://badges.example.com`, with its path if it has one. */
  readonly url: string;
  /**
   * Returns a token of the user. Called before every connection, and before the
   * current token expires. If it rejects, the client tries again later.
   */
  readonly token: (request: TokenRequest) => Promise<string>;
  /**
   * Any name for the user of the tokens. With it the client stores the last
   * state in the browser, and the tabs of the user share one connection. Default:
   * neither, because several users may share a browser.
   */
  readonly user?: string;
  /**
   * The device under which the app is registered for pushes. While it is connected
   * nothing is pushed to the device: close the client when the app is not visible.
   */
  readonly device?: string;
  /** Upper bound of the random pause after the first failure; default 500. */
  readonly minBackoffMs?: number;
  /** Longest pause, unless the server asks for a longer one; default 30,000. */
  readonly maxBackoffMs?: number;
  /** Whether to fall back to server-sent events if WebSockets fail; default true. */
  readonly fallback?: boolean;
}

/** The events of a client, with the value that listeners receive. */
export interface BadgedEvents {
  /** A number or level of the badge or of a category changed, or the first state arrived. */
  total: Badge;
  /** A conversation changed. An emptied one has zero counts. */
  conversation: Conversation;
  status: Status;
  /** `waiting` changed. */
  waiting: readonly Command[];
}

/** Options of a command. */
export interface WaitOptions {
  /** Rejects the promise with the signal's reason. The command itself stays. */
  readonly signal?: AbortSignal;
}

/** Options of `markUnread`. */
export interface MarkOptions extends WaitOptions {
  /** Messages that count again, 1 to 1,000. Not in rooms. */
  readonly seqs?: readonly (Seq | string)[];
  /** In a room, the first of the messages that count again. */
  readonly fromSeq?: Seq | string;
}

/**
 * Settles like the promise of `act`, or rejects with the signal's reason if that comes
 * first. An invalid argument rejects it before anything is done.
 *
 * @internal
 */
export function heed(options: WaitOptions | undefined, act: () => Promise<void>): Promise<void> {
  let promise: Promise<void>;
  const signal = options?.signal;
  try {
    if (signal !== undefined) toFunction("signal.addEventListener", signal?.addEventListener);
    promise = act();
  } catch (error) {
    return Promise.reject(error);
  }
  if (signal === undefined) return promise;
  return quiet(
    new Promise<void>((resolve, reject) => {
      const stop = () => reject(signal.reason);
      if (signal.aborted) stop();
      signal.addEventListener("abort", stop, { once: true });
      promise.then(resolve, reject).finally(() => signal.removeEventListener("abort", stop));
    }),
  );
}

/**
 * The http(s) URL of the server, with a slash at its end. It uses no setters of
 * `URL`: those of React Native throw.
 *
 * @throws TypeError if the URL is missing or wrong.
 * @internal
 */
export function baseURL(text: string | undefined): string {
  if (!text) throw new TypeError("url is required, such as https://badged.example.com");
  const parts = /^\s*(?:http|ws)(s?:\/\/[^/?#\s]+)([^?#\s]*)/i.exec(text);
  if (parts === null) return refuse("url", "http(s) or ws(s)", text);
  const [, origin = "", path = ""] = parts;
  if (/\/v1\/ws\/?$/.test(path)) refuse("url", "the server's, without /v1/ws", text);
  return `http${origin.toLowerCase()}${path.replace(/\/?$/, "/")}`;
}
