import { CloseCode, reasonOf } from "./closing.js";
import type { Clock, WebSocketLike } from "./environment.js";
import {
  type Answer,
  type Badge,
  decodeFrame,
  encodeAuth,
  encodeHello,
  PING,
  PONG,
  type ServerFrame,
  type StateFrame,
} from "./frames.js";

// How long to wait for a pong, or for the first state after `connect`.
const PONG_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 15_000;
// The interval of pings until the server names one.
const PING_MS = 25_000;
// More would overflow a timer, which then fires at once.
const MAX_PING_MS = 3_600_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
// The ids of commands are UUIDs.
const AUTH_ID = "auth";
// Where the clock of this machine says that a fresh token has long ended.
const WRONG_CLOCK_REFRESH_MS = 60_000;

/** How a connection ended, and how long the server asks to stay away. @internal */
export interface Ended {
  readonly code: number;
  readonly reason: string;
  readonly reconnectMs: number;
  /** The server was tried, and neither a state nor its reason came through. */
  readonly unheard: boolean;
}

/** What a connection needs, and whom it tells. @internal */
export interface ConnectionOptions {
  /** Makes the socket, which may throw. */
  readonly open: (token: string) => WebSocketLike;
  /** Whether the server answers pings; otherwise it is its own that are waited for. */
  readonly pings: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  /** Fetches a token: to connect with, or a fresh one. */
  readonly token: (fresh: boolean) => Promise<string>;
  /** What the client holds by the time of the hello. */
  readonly held: () => Badge | undefined;
  /** Takes each state frame; false says that it cannot be used. */
  readonly onState: (frame: StateFrame) => boolean;
  readonly onAnswer: (answer: Answer) => void;
  /** Called once, last, unless {@link Connection.close} was called before. */
  readonly onEnd: (ended: Ended) => void;
}

/**
 * One connection, from fetching the token to its end. It greets the server,
 * keeps the connection alive, brings fresh tokens and notices when it is dead.
 *
 * @internal
 */
export class Connection {
  readonly #options: ConnectionOptions;
  #socket: WebSocketLike | undefined;
  #ended = false;
  #pingMs = PING_MS;
  #onlineSince: number | undefined;
  // Each takes its timer back.
  #cancelDeadline: () => void;
  #cancelPing = () => {};
  #cancelRefresh = () => {};

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#cancelDeadline = options.clock.after(CONNECT_TIMEOUT_MS, () =>
      this.#end(0, "no answer from the server"),
    );
    void this.#open();
  }

  /** Since the first state arrived; 0 before. */
  get onlineMs(): number {
    return this.#onlineSince === undefined ? 0 : this.#options.clock.now() - this.#onlineSince;
  }

  /** Sends a frame. To be called only after the first state arrived. */
  send(frame: string): void {
    this.#socket?.send(frame);
  }

  /** Makes sure soon that the connection is not dead, as after a sleep. */
  probe(): void {
    if (this.#onlineSince === undefined || !this.#options.pings) return;
    this.#cancelPing();
    this.#cancelDeadline();
    this.#ping();
  }

  /** Ends the connection from this side, without a call of `onEnd`. */
  close(): void {
    this.#release("client stopped");
  }

  async #open(): Promise<void> {
    const { open, token, held } = this.#options;
    let credential: string;
    try {
      credential = await token(false);
    } catch (error) {
      this.#end(0, `no token: ${messageOf(error)}`);
      return;
    }
    if (this.#ended) return;

    let socket: WebSocketLike;
    try {
      socket = open(credential);
    } catch (error) {
      this.#end(0, `cannot connect: ${messageOf(error)}`);
      return;
    }
    this.#socket = socket;
    socket.onopen = () => {
      if (!this.#ended) socket.send(encodeHello(held()));
    };
    socket.onmessage = ({ data }: { data: unknown }) => this.#receive(data);
    socket.onclose = ({ code, reason }: { code: number; reason: string }) =>
      this.#end(code, reason || reasonOf(code));
    // An error says nothing, and a close event follows it; but without a
    // handler some implementations throw.
    socket.onerror = () => {};
  }

  #receive(data: unknown): void {
    if (this.#ended) return;
    let frame: ServerFrame | undefined;
    try {
      if (typeof data !== "string") throw new TypeError("frame is not text");
      frame = decodeFrame(data);
    } catch (error) {
      this.#end(0, `protocol error: ${messageOf(error)}`);
      return;
    }
    // Until the first state, the deadline is the one of connecting.
    if (this.#onlineSince !== undefined) {
      this.#cancelDeadline();
      if (!this.#options.pings) this.#awaitWord(2.5 * this.#pingMs);
    }

    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        if (frame.id !== AUTH_ID) this.#options.onAnswer(frame);
        else if (frame.t === "ok") this.#refreshBefore(frame.expiresAt);
        break;
      case "ping":
        this.send(PONG);
        break;
      case "bye":
        // The close frame that follows may be lost; this one was not.
        this.#end(frame.code, reasonOf(frame.code), frame.reconnectMs);
        break;
    }
  }

  #receiveState(frame: StateFrame): void {
    if (frame.pingMs > 0) this.#pingMs = Math.min(frame.pingMs, MAX_PING_MS);
    if (this.#onlineSince === undefined) {
      this.#onlineSince = this.#options.clock.now();
      this.#cancelDeadline();
      if (this.#options.pings) this.#schedulePing();
      else this.#awaitWord(2.5 * this.#pingMs);
      this.#refreshBefore(frame.expiresAt);
    }
    if (!this.#options.onState(frame)) this.#end(0, "state of another epoch");
  }

  #schedulePing(): void {
    this.#cancelPing = this.#options.clock.after(this.#pingMs, () => this.#ping());
  }

  #ping(): void {
    this.send(PING);
    this.#awaitWord(Math.min(PONG_TIMEOUT_MS, this.#pingMs));
    this.#schedulePing();
  }

  #awaitWord(timeoutMs: number): void {
    this.#cancelDeadline = this.#options.clock.after(timeoutMs, () =>
      this.#end(0, "connection dead: no pong"),
    );
  }

  /**
   * Plans to bring a fresh token when some four fifths of this one's time have
   * passed, not all clients at once. Where that fails, the server ends the
   * connection, and the next one brings a fresh token.
   */
  #refreshBefore(expiresAt: number): void {
    const { clock, random, token, pings } = this.#options;
    if (expiresAt === 0 || !pings) return;
    const leftMs = expiresAt - clock.date();
    const delayMs = leftMs > 0 ? leftMs * (0.75 + random() / 10) : WRONG_CLOCK_REFRESH_MS;
    this.#cancelRefresh = clock.after(Math.min(delayMs, MAX_TIMER_MS), async () => {
      const fresh = await token(true).catch(() => undefined);
      if (fresh !== undefined && !this.#ended) this.send(encodeAuth(AUTH_ID, fresh));
    });
  }

  #end(code: number, reason: string, reconnectMs = 0): void {
    const unheard =
      this.#socket !== undefined && this.#onlineSince === undefined && code < CloseCode.BadToken;
    if (this.#release(reason)) this.#options.onEnd({ code, reason, reconnectMs, unheard });
  }

  #release(reason: string): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#cancelDeadline();
    this.#cancelPing();
    this.#cancelRefresh();
    // The standard allows 123 bytes of reason.
    this.#socket?.close(1000, reason.replace(/[^ -~]/g, "?").slice(0, 123));
    return true;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
