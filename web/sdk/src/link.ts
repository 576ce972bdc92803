import { Backoff } from "./backoff.js";
import { CloseCode, type Ending, isRefusal } from "./closing.js";
import { Connection, type ConnectionOptions, type Ended } from "./connection.js";
import type { Environment } from "./environment.js";
import { EventStream } from "./eventstream.js";
import { PROTOCOL } from "./frames.js";

// A connection that was online for as long was a success.
const LASTING_MS = 10_000;
// So many times in a row a way must fail before the other one is tried.
const DEAF_TRIES = 2;

/** Why a token is asked for. */
export interface TokenRequest {
  /** The last token has ended or is about to; so a kept one will not do. */
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

/** What a link needs, and whom it tells. @internal */
export interface LinkOptions extends Pick<ConnectionOptions, "held" | "onState" | "onAnswer"> {
  readonly environment: Environment;
  /** Where the server is, as an http(s) URL with a slash at its end. */
  readonly base: string;
  readonly token: (request: TokenRequest) => Promise<string>;
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** Whether server-sent events may take the place of a WebSocket. */
  readonly fallback: boolean;
  /** Every status but `online`, which {@link LinkOptions.onState} implies. */
  readonly onStatus: (status: Status) => void;
}

/**
 * The way to the server: one connection after the other, with pauses in
 * between, until it is stopped or refused.
 *
 * @internal
 */
export class Link {
  readonly #options: LinkOptions;
  readonly #backoff: Backoff;
  #connection: Connection | undefined;
  #tokenExpired = false;
  #streams = false;
  #deaf = 0;
  #mayHurry = false;
  #cancelRetry = () => {};

  constructor(options: LinkOptions) {
    this.#options = options;
    const { minBackoffMs, maxBackoffMs, environment } = options;
    this.#backoff = new Backoff(minBackoffMs, maxBackoffMs, environment.random);
  }

  /** Connects. To be called only once before each stop or refusal. */
  start(): void {
    const { environment, base, token, held, onState, onAnswer, onStatus } = this.#options;
    const { WebSocket, fetch, clock, random } = environment;
    this.#mayHurry = false;
    const streams = this.#streams && fetch !== null;
    const connection = new Connection({
      open: (credential) =>
        streams
          ? new EventStream(fetch, base, credential)
          : // Browsers can send no Authorization header, and URLs end up in logs.
            new WebSocket(`${base.replace(/^http/, "ws")}v1/ws`, [
              PROTOCOL,
              `bearer.${credential}`,
            ]),
      pings: !streams,
      clock,
      random,
      // async, so that a function that throws is one that rejects.
      token: async (fresh) => token({ expired: fresh || this.#tokenExpired }),
      held,
      onState: (frame) => {
        this.#tokenExpired = false;
        this.#deaf = 0;
        return onState(frame);
      },
      onAnswer,
      onEnd: (ended) => this.#reconnect(connection, ended),
    });
    this.#connection = connection;
    onStatus({ state: "connecting" });
  }

  stop(): void {
    this.#mayHurry = false;
    this.#cancelRetry();
    this.#connection?.close();
    this.#connection = undefined;
    this.#backoff.reset();
  }

  /** Sends a frame. To be called only while online. */
  send(frame: string): void {
    this.#connection?.send(frame);
  }

  /** The user or the network is back: look at once, unless the server asked for a pause. */
  hurry(): void {
    this.#connection?.probe();
    if (!this.#mayHurry) return;
    this.#cancelRetry();
    this.start();
  }

  #reconnect(connection: Connection, { code, reason, reconnectMs, unheard }: Ended): void {
    const { onStatus, fallback, environment } = this.#options;
    this.#connection = undefined;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    if (fallback && unheard && ++this.#deaf % DEAF_TRIES === 0) this.#streams = !this.#streams;
    // A server that lets everybody in and drops them at once must not be
    // hammered, so only a connection that lasted counts as a success.
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();

    if (isRefusal(code)) {
      this.#backoff.reset();
      onStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#mayHurry = reconnectMs === 0;
    this.#cancelRetry = environment.clock.after(retryMs, () => this.start());
    onStatus({ state: "waiting", retryMs, code, reason });
  }
}
