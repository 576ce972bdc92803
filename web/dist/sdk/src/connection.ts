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

const PONG_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 15_000;
// The ping interval until the server gives one.
const PING_MS = 25_000;
// A timer with a larger delay overflows and fires at once.
const MAX_PING_MS = 3_600_000;
const MAX_TIMER_MS = 2 ** 31 - 1;
// Never equal to the id of a command, which is a UUID.
const AUTH_ID = "auth";
// Least time between two tokens of a connection: the app may give one that is nearly over.
const MIN_REFRESH_MS = 10_000;

/** How a connection ended. @internal */
export interface Ended {
  readonly code: number;
  readonly reason: string;
  /** The pause that the server asks for; 0 if none. */
  readonly reconnectMs: number;
  /** The socket was opened, but neither a state nor a close code of the server arrived. */
  readonly unheard: boolean;
}

/** @internal */
export interface ConnectionOptions {
  /** Creates the socket. May throw. */
  readonly open: (token: string) => WebSocketLike;
  /** Whether this client pings; otherwise it relies on the pings of the server. */
  readonly pings: boolean;
  readonly clock: Clock;
  readonly random: () => number;
  /** Fetches a token; `fresh` excludes a cached one. */
  readonly token: (fresh: boolean) => Promise<string>;
  /** Returns the badge that `hello` resumes from. */
  readonly held: () => Badge | undefined;
  /** The device for `hello`. */
  readonly device?: string | undefined;
  /** Called with each state frame. Returns false if the frame does not apply to the held state. */
  readonly onState: (frame: StateFrame) => boolean;
  readonly onAnswer: (answer: Answer) => void;
  /** Called once, as the last callback, unless {@link Connection.close} came first. */
  readonly onEnd: (ended: Ended) => void;
}

/**
 * One connection, from fetching the token to the close. It sends `hello`,
 * pings, renews the token and detects a dead connection.
 *
 * @internal
 */
export class Connection {
  readonly #options: ConnectionOptions;
  #socket: WebSocketLike | undefined;
  #ended = false;
  #pingMs = PING_MS;
  #onlineSince: number | undefined;
  #cancelDeadline: () => void;
  #cancelPing = () => {};
  #cancelRefresh = () => {};

  constructor(options: ConnectionOptions) {
    this.#options = options;
    this.#cancelDeadline = options.clock.after(CONNECT_TIMEOUT_MS, () =>
      this.#end(0, "timeout: no state from the server"),
    );
    void this.#open();
  }

  /** Milliseconds since the first state arrived; 0 before. */
  get onlineMs(): number {
    return this.#onlineSince === undefined ? 0 : this.#options.clock.now() - this.#onlineSince;
  }

  /** Sends a frame. Call it only after the first state arrived. */
  send(frame: string): void {
    this.#socket?.send(frame);
  }

  /** Pings at once, to find out whether the connection survived a sleep. */
  probe(): void {
    if (this.#onlineSince === undefined || !this.#options.pings) return;
    this.#cancelPing();
    this.#cancelDeadline();
    this.#ping();
  }

  /** Closes the connection without calling `onEnd`. */
  close(): void {
    this.#release("client stopped");
  }

  async #open(): Promise<void> {
    const { open, token, held, device } = this.#options;
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
      if (!this.#ended) socket.send(encodeHello(held(), device));
    };
    socket.onmessage = ({ data }: { data: unknown }) => this.#receive(data);
    socket.onclose = ({ code, reason }: { code: number; reason: string }) =>
      this.#end(code, reason || reasonOf(code));
    // The close event that follows says more. Without a handler some
    // implementations throw.
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
    // Until the first state, CONNECT_TIMEOUT_MS applies.
    if (this.#onlineSince !== undefined) {
      this.#cancelDeadline();
      if (!this.#options.pings) this.#expectFrame(2.5 * this.#pingMs);
    }

    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        if (frame.id !== AUTH_ID) this.#options.onAnswer(frame);
        else if (frame.t === "ok") this.#refreshWithin(frame.expiresInMs, MIN_REFRESH_MS);
        break;
      case "ping":
        this.send(PONG);
        break;
      case "bye":
        // Do not wait for the close frame: it may be lost.
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
      else this.#expectFrame(2.5 * this.#pingMs);
      this.#refreshWithin(frame.expiresInMs, 0);
    }
    if (!this.#options.onState(frame)) this.#end(0, "protocol error: changes of another epoch");
  }

  #schedulePing(): void {
    this.#cancelPing = this.#options.clock.after(this.#pingMs, () => this.#ping());
  }

  #ping(): void {
    this.send(PING);
    this.#expectFrame(Math.min(PONG_TIMEOUT_MS, this.#pingMs));
    this.#schedulePing();
  }

  #expectFrame(timeoutMs: number): void {
    this.#cancelDeadline = this.#options.clock.after(timeoutMs, () =>
      this.#end(0, "timeout: no frame from the server"),
    );
  }

  /**
   * Schedules a fresh token for 75 to 85 % of the time left, at random, so that
   * clients do not renew together, but not before `leastMs`. If that fails, the
   * server closes the connection, and the next one starts with a fresh token.
   */
  #refreshWithin(leftMs: number, leastMs: number): void {
    const { clock, random, token, pings } = this.#options;
    if (leftMs === 0 || !pings) return;
    const delayMs = Math.max(leastMs, leftMs * (0.75 + random() / 10));
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
    // The WebSocket API throws for a reason above 123 bytes.
    this.#socket?.close(1000, reason.replace(/[^ -~]/g, "?").slice(0, 123));
    return true;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
