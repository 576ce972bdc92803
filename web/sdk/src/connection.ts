import { reasonOf } from "./closing.js";
import type { Clock, WebSocketConstructor, WebSocketLike } from "./environment.js";
import {
  type Badge,
  decodeFrame,
  encodeHello,
  PING,
  PONG,
  PROTOCOL,
  type ServerFrame,
  type StateFrame,
} from "./frames.js";

// How long to wait for a pong, or for the first state after `connect`.
const PONG_TIMEOUT_MS = 10_000;
const CONNECT_TIMEOUT_MS = 15_000;
// The interval of pings until the server names one, and the longest it may
// name: more would overflow a timer, which then fires at once.
const PING_MS = 25_000;
const MAX_PING_MS = 3_600_000;

/** How a connection ended, and how long the server asks to stay away. @internal */
export interface Ended {
  readonly code: number;
  readonly reason: string;
  readonly reconnectMs: number;
}

/** What a connection needs, and whom it tells. @internal */
export interface ConnectionOptions {
  readonly url: string;
  readonly WebSocket: WebSocketConstructor;
  readonly clock: Clock;
  /** Fetches the token to connect with. */
  readonly token: () => Promise<string>;
  /** What the client holds by the time of the hello. */
  readonly held: () => Badge | undefined;
  /** Takes each state frame; false says that it cannot be used. */
  readonly onState: (frame: StateFrame) => boolean;
  readonly onAnswer: (frame: Extract<ServerFrame, { t: "ok" | "error" }>) => void;
  /** Called once, last, unless {@link Connection.close} was called before. */
  readonly onEnd: (ended: Ended) => void;
}

/**
 * One connection, from fetching the token to its end. It greets the server,
 * keeps the connection alive and notices when it is dead.
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

  /** Ends the connection from this side, without a call of `onEnd`. */
  close(): void {
    this.#release("client stopped");
  }

  async #open(): Promise<void> {
    const { WebSocket, url, token, held } = this.#options;
    let credential: string;
    try {
      credential = await token();
    } catch (error) {
      this.#end(0, `no token: ${messageOf(error)}`);
      return;
    }
    if (this.#ended) return;

    let socket: WebSocketLike;
    try {
      // Browsers can send no Authorization header, and URLs end up in logs.
      socket = new WebSocket(url, [PROTOCOL, `bearer.${credential}`]);
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
    if (this.#onlineSince !== undefined) this.#cancelDeadline();

    switch (frame?.t) {
      case "snapshot":
      case "changes":
        this.#receiveState(frame);
        break;
      case "ok":
      case "error":
        this.#options.onAnswer(frame);
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
      this.#schedulePing();
    }
    if (!this.#options.onState(frame)) this.#end(0, "state of another epoch");
  }

  #schedulePing(): void {
    const { clock } = this.#options;
    this.#cancelPing = clock.after(this.#pingMs, () => {
      this.send(PING);
      this.#cancelDeadline = clock.after(Math.min(PONG_TIMEOUT_MS, this.#pingMs), () =>
        this.#end(0, "connection dead: no pong"),
      );
      this.#schedulePing();
    });
  }

  #end(code: number, reason: string, reconnectMs = 0): void {
    if (this.#release(reason)) this.#options.onEnd({ code, reason, reconnectMs });
  }

  #release(reason: string): boolean {
    if (this.#ended) return false;
    this.#ended = true;
    this.#cancelDeadline();
    this.#cancelPing();
    // The standard allows 123 bytes of reason.
    this.#socket?.close(1000, reason.replace(/[^ -~]/g, "?").slice(0, 123));
    return true;
  }
}

function messageOf(error: unknown): string {
  return error instanceof Error ? error.message : String(error);
}
