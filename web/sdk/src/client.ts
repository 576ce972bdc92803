import { Backoff } from "./backoff.js";
import { CloseCode, type Ending, isRefusal } from "./closing.js";
import { Connection, type Ended } from "./connection.js";
import { Emitter } from "./emitter.js";
import { type Clock, systemClock, type WebSocketConstructor } from "./environment.js";
import type { Badge, Conversation, StateFrame } from "./frames.js";
import { offline, Requests } from "./requests.js";
import { type Seq, toSeq } from "./seq.js";
import { State } from "./state.js";

// A connection that was online for as long was a success.
const LASTING_MS = 10_000;

/** What a client needs to know. */
export interface BadgedOptions {
  /**
   * Where the server is: `https://badges.example.com`, with a path if it lives
   * below one.
   */
  readonly url: string;
  /**
   * Gives a token of the user. It is called before every connection; where it
   * rejects, the client tries again later, as after any failure.
   */
  readonly token: (request: TokenRequest) => Promise<string>;
  /** The pause after the first failure is random, below this; default 500. */
  readonly minBackoffMs?: number;
  /** No pause is longer than this, unless the server asks for it; default 30,000. */
  readonly maxBackoffMs?: number;
  /** Default: the global `WebSocket`. */
  readonly WebSocket?: WebSocketConstructor;
  /** Default: the system's. */
  readonly clock?: Clock;
  /** At least 0, less than 1; default `Math.random`. */
  readonly random?: () => number;
}

/** Why a token is asked for. */
export interface TokenRequest {
  /** The server refused the last token for its age; so a kept one will not do. */
  readonly expired: boolean;
}

/** How a client stands with the server. */
export type Status =
  /** Not started, or stopped. */
  | { readonly state: "stopped" }
  /** On the way to the first state. */
  | { readonly state: "connecting" }
  /** The state is the server's, and changes arrive as they happen. */
  | { readonly state: "online" }
  /** The connection was lost or could not be had; the next attempt is in `retryMs`. */
  | ({ readonly state: "waiting"; readonly retryMs: number } & Ending)
  /** The server will not have this client; only `start` tries again. */
  | ({ readonly state: "refused" } & Ending);

/** What a client tells its listeners. */
export interface BadgedEvents {
  /** The total, the mentions or a category changed; also the first state. */
  total: Badge;
  /** A conversation changed. One that has nothing to show any more is all zeros. */
  conversation: Conversation;
  status: Status;
}

/**
 * The badge of one user, kept in step with the server: a client is for one
 * user, that of its tokens. It holds what it last heard while there is no
 * connection, and across `stop` and `start`, and asks only for what changed
 * since.
 *
 * Events come after the whole state has changed: a listener that looks at
 * another number than the one it was told sees them agree.
 */
export class Badged {
  readonly #url: string;
  readonly #options: BadgedOptions;
  readonly #WebSocket: WebSocketConstructor;
  readonly #clock: Clock;
  readonly #backoff: Backoff;
  readonly #state = new State();
  readonly #requests = new Requests();
  readonly #emitter = new Emitter<BadgedEvents>();
  #status: Status = { state: "stopped" };
  #connection: Connection | undefined;
  #tokenExpired = false;
  #cancelRetry = () => {};

  /** @throws TypeError if the URL is not one, or where there is no WebSocket. */
  constructor(options: BadgedOptions) {
    this.#options = options;
    this.#url = socketURL(options.url);
    this.#WebSocket = options.WebSocket ?? globalThis.WebSocket;
    if (this.#WebSocket === undefined) {
      throw new TypeError("there is no global WebSocket here: give one in the options");
    }
    this.#clock = options.clock ?? systemClock;
    this.#backoff = new Backoff(
      options.minBackoffMs ?? 500,
      options.maxBackoffMs ?? 30_000,
      options.random ?? Math.random,
    );
  }

  /** The badge as last heard; undefined before the first state. */
  get badge(): Badge | undefined {
    return this.#state.badge;
  }

  /** The conversations that have or had something to show, by id. */
  get conversations(): ReadonlyMap<string, Conversation> {
    return this.#state.conversations;
  }

  /**
   * The user has more conversations with something to show than the server
   * sends at once; page through the HTTP API for them. The total counts them.
   */
  get more(): boolean {
    return this.#state.more;
  }

  get status(): Status {
    return this.#status;
  }

  /** Calls the listener at every such event, until the returned function is called. */
  on<Name extends keyof BadgedEvents>(
    event: Name,
    listener: (value: BadgedEvents[Name]) => void,
  ): () => void {
    return this.#emitter.on(event, listener);
  }

  /** Connects, and stays connected until `stop` or a refusal. */
  start(): void {
    const { state } = this.#status;
    if (state === "stopped" || state === "refused") this.#connect();
  }

  /** Disconnects. The state stays. */
  stop(): void {
    if (this.#status.state === "stopped") return;
    this.#cancelRetry();
    this.#connection?.close();
    this.#connection = undefined;
    this.#backoff.reset();
    this.#requests.rejectAll();
    this.#setStatus({ state: "stopped" });
  }

  /**
   * Says that the user has read a conversation up to a message, and resolves
   * once the server has that for good; the numbers follow as events.
   *
   * It rejects with a {@link BadgedError} if the server refuses, and if there
   * is no connection or it is lost before the answer. The read may then have
   * arrived all the same: sending it again is harmless. It rejects with a
   * RangeError for what is not a seq.
   */
  async read(conversationId: string, upToSeq: Seq | string): Promise<void> {
    const seq = toSeq(upToSeq);
    const connection = this.#connection;
    if (connection === undefined || this.#status.state !== "online") throw offline();
    await this.#requests.read((frame) => connection.send(frame), conversationId, seq);
  }

  #connect(): void {
    const connection = new Connection({
      url: this.#url,
      WebSocket: this.#WebSocket,
      clock: this.#clock,
      // async, so that a function that throws is one that rejects.
      token: async () => this.#options.token({ expired: this.#tokenExpired }),
      held: () => this.#state.badge,
      onState: (frame) => this.#receive(frame),
      onAnswer: (frame) => this.#requests.answer(frame),
      onEnd: (ended) => this.#reconnect(connection, ended),
    });
    this.#connection = connection;
    this.#setStatus({ state: "connecting" });
  }

  #receive(frame: StateFrame): boolean {
    const applied = this.#state.apply(frame);
    if (applied === "foreign") return false;

    this.#tokenExpired = false;
    if (this.#status.state !== "online") this.#setStatus({ state: "online" });
    if (applied === "stale") return true;

    for (const conversation of applied.conversations) {
      this.#emitter.emit("conversation", conversation);
    }
    if (applied.badge !== undefined) this.#emitter.emit("total", applied.badge);
    return true;
  }

  #reconnect(connection: Connection, { code, reason, reconnectMs }: Ended): void {
    this.#connection = undefined;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    // A server that lets everybody in and drops them at once must not be
    // hammered, so only a connection that lasted counts as a success.
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();

    if (isRefusal(code)) {
      this.#backoff.reset();
      this.#requests.rejectAll();
      this.#setStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#cancelRetry = this.#clock.after(retryMs, () => this.#connect());
    this.#requests.rejectAll();
    this.#setStatus({ state: "waiting", retryMs, code, reason });
  }

  #setStatus(status: Status): void {
    this.#status = status;
    this.#emitter.emit("status", status);
  }
}

function socketURL(base: string): string {
  const url = new URL(base);
  const secure = url.protocol === "https:" || url.protocol === "wss:";
  if (!secure && url.protocol !== "http:" && url.protocol !== "ws:") {
    throw new TypeError(`URL ${base} is neither http(s) nor ws(s)`);
  }
  url.protocol = secure ? "wss:" : "ws:";
  url.pathname = `${url.pathname.replace(/\/$/, "")}/v1/ws`;
  url.search = "";
  url.hash = "";
  return url.href;
}
