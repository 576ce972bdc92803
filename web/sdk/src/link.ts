import { Backoff } from "./backoff.js";
import { CloseCode, type Ending, isRefusal } from "./closing.js";
import { Connection, type ConnectionOptions, type Ended } from "./connection.js";
import type { Environment } from "./environment.js";
import { EventStream } from "./eventstream.js";
import { PROTOCOL } from "./frames.js";
import { shown } from "./refuse.js";
import { StorageEntry } from "./storage.js";

// A connection online for at least this long counts as a success.
const LASTING_MS = 10_000;
// After this many unheard connections in a row, the other transport is tried at once.
const MAX_UNHEARD = 2;
// Browsers do not tell scripts why a connection failed.
const NEVER_CONNECTED =
  "cannot connect: check the url, the server, and that the server allows this page's origin (--allowed-origins)";
// How long the first transport may take before the second starts beside it:
// before a WebSocket has ever worked, and after.
const RIVAL_MS = 3_000;
const RIVAL_PROVEN_MS = 10_000;
// How long event streams are tried first after one has won against a WebSocket.
const REMEMBER_MS = 3_600_000;

/** What a client needs a token for. */
export interface TokenRequest {
  /** The last token has expired or soon will: do not return a cached one. */
  readonly expired: boolean;
}

/** The state of the connection. */
export type Status =
  /** Not started, or stopped. */
  | { readonly state: "stopped" }
  /** No state has arrived yet. */
  | { readonly state: "connecting" }
  /** Connected and up to date. */
  | { readonly state: "online" }
  /** Disconnected. The next attempt starts in `retryMs`. */
  | ({ readonly state: "waiting"; readonly retryMs: number } & Ending)
  /** The server refused this client. It does not reconnect until `start`. */
  | ({ readonly state: "refused" } & Ending);

/** @internal */
export interface LinkOptions
  extends Pick<ConnectionOptions, "held" | "device" | "onState" | "onAnswer"> {
  readonly environment: Environment;
  /** The http(s) URL of the server, with a slash at its end. */
  readonly base: string;
  readonly token: (request: TokenRequest) => Promise<string>;
  readonly minBackoffMs: number;
  readonly maxBackoffMs: number;
  /** Whether server-sent events may replace WebSockets. */
  readonly fallback: boolean;
  /** Called with every status except `online`, which {@link LinkOptions.onState} implies. */
  readonly onStatus: (status: Status) => void;
}

/**
 * Keeps a connection to the server: attempts, with pauses between them, until
 * it is stopped or refused. An attempt starts with a WebSocket, or with an event
 * stream if that won recently. If no state arrives, the other transport starts
 * beside it, and the first to deliver a state wins.
 *
 * @internal
 */
export class Link {
  readonly #options: LinkOptions;
  readonly #backoff: Backoff;
  readonly #entry: StorageEntry;
  /** Until when event streams are tried first, in milliseconds since 1970. */
  #streamsUntil: number;
  /** The connections of this attempt that have delivered no state yet. */
  readonly #rivals = new Set<Connection>();
  #connection: Connection | undefined;
  #tokenExpired = false;
  /** A WebSocket has delivered a state. */
  #proven = false;
  /** Unheard connections since the last state. */
  #unheard = 0;
  #mayHurry = false;
  #cancelRetry = () => {};
  #cancelRival = () => {};
  /** Starts the other transport; undefined if there is none or it has started. */
  #tryOther: (() => void) | undefined;

  constructor(options: LinkOptions) {
    this.#options = options;
    const { minBackoffMs, maxBackoffMs, environment, base } = options;
    this.#backoff = new Backoff(minBackoffMs, maxBackoffMs, environment.random);
    this.#entry = new StorageEntry(environment.storage, `badged ${base} streams until`);
    void this.#entry.load();
    this.#streamsUntil = this.#entry.read(Number) || 0;
  }

  /** Connects. After a call, stop or a refusal must come before the next. */
  start(): void {
    const { environment, fallback, onStatus } = this.#options;
    const { clock, fetch, WebSocket } = environment;
    this.#mayHurry = false;
    const fallsBack = fallback && fetch !== null;
    const streams = fallsBack && (!WebSocket || this.#prefersStreams);
    this.#open(streams);
    if (fallsBack && WebSocket) {
      this.#tryOther = () => {
        this.#cancelRival();
        this.#tryOther = undefined;
        this.#open(!streams);
      };
      const delayMs = this.#proven ? RIVAL_PROVEN_MS : RIVAL_MS;
      this.#cancelRival = clock.after(delayMs, this.#tryOther);
    }
    onStatus({ state: "connecting" });
  }

  stop(): void {
    this.#mayHurry = false;
    this.#cancelRetry();
    this.#abandon();
    this.#backoff.reset();
  }

  /** Removes what it stored in the browser. */
  forget(): void {
    this.#remember(false);
  }

  /** Sends a frame. Call it only while online. */
  send(frame: string): void {
    this.#connection?.send(frame);
  }

  /**
   * The user or the network is back: checks the connection, or skips the rest
   * of the pause unless the server asked for it.
   */
  hurry(): void {
    this.#connection?.probe();
    if (!this.#mayHurry) return;
    this.#cancelRetry();
    this.start();
  }

  #open(streams: boolean): void {
    const { environment, base, token, held, device, onState, onAnswer } = this.#options;
    const { WebSocket, fetch, clock, random } = environment;
    const connection = new Connection({
      open: (credential) => {
        if (streams && fetch !== null) return new EventStream(fetch, base, credential, clock);
        if (WebSocket === null) throw new TypeError("no WebSocket: set the option WebSocket");
        // Browsers cannot send an Authorization header, and URLs end up in logs.
        return new WebSocket(`${base.replace(/^http/, "ws")}v1/ws`, [
          PROTOCOL,
          `bearer.${credential}`,
        ]);
      },
      pings: !streams,
      clock,
      random,
      // async turns a throw into a rejection.
      token: async (fresh) => {
        const found = await token({ expired: fresh || this.#tokenExpired });
        // As of an app whose session is over or whose backend fails, with a page that says so:
        // the server would refuse it finally.
        if (/^[\w.-]+$/.test(found || "")) return found;
        throw new TypeError(`token() returned ${shown(found)}`);
      },
      held,
      device,
      onState: (frame) => {
        if (this.#connection === undefined) this.#choose(connection, streams);
        return onState(frame);
      },
      onAnswer,
      onEnd: (ended) => this.#end(connection, ended),
    });
    this.#rivals.add(connection);
  }

  /** Keeps the connection that delivered the first state, and ends the other. */
  #choose(connection: Connection, streams: boolean): void {
    this.#rivals.delete(connection);
    this.#abandon();
    this.#connection = connection;
    this.#tokenExpired = false;
    this.#unheard = 0;
    if (!streams) this.#proven = true;
    this.#remember(streams);
  }

  /** Ends all connections of this attempt. */
  #abandon(): void {
    this.#cancelRival();
    this.#tryOther = undefined;
    for (const rival of this.#rivals) rival.close();
    this.#rivals.clear();
    this.#connection?.close();
    this.#connection = undefined;
  }

  get #prefersStreams(): boolean {
    const leftMs = this.#streamsUntil - this.#options.environment.clock.date();
    // If the clock was set back, the stored time is too far ahead: ignore it.
    return leftMs > 0 && leftMs <= REMEMBER_MS;
  }

  #remember(streams: boolean): void {
    if (streams ? this.#prefersStreams : this.#streamsUntil === 0) return;
    this.#streamsUntil = streams ? this.#options.environment.clock.date() + REMEMBER_MS : 0;
    this.#entry.write(streams ? String(this.#streamsUntil) : undefined);
  }

  #end(connection: Connection, ended: Ended): void {
    this.#rivals.delete(connection);
    if (ended.unheard) {
      // The other transport may still work.
      if (this.#rivals.size > 0) return;
      if (++this.#unheard >= MAX_UNHEARD && this.#tryOther !== undefined) {
        this.#tryOther();
        return;
      }
    }
    this.#abandon();
    this.#reconnect(connection, ended);
  }

  #reconnect(connection: Connection, { code, reason, reconnectMs }: Ended): void {
    const { onStatus, environment, held } = this.#options;
    if (code === CloseCode.TokenExpired) this.#tokenExpired = true;
    // Only a connection that lasted resets the backoff: a server that accepts
    // clients and drops them at once must not be flooded.
    if (connection.onlineMs >= LASTING_MS) this.#backoff.reset();

    if (isRefusal(code)) {
      this.#backoff.reset();
      onStatus({ state: "refused", code, reason });
      return;
    }
    const retryMs = this.#backoff.next(reconnectMs);
    this.#mayHurry = reconnectMs === 0;
    this.#cancelRetry = environment.clock.after(retryMs, () => this.start());
    const never = code === 1006 && this.#unheard >= MAX_UNHEARD && !held();
    onStatus({ state: "waiting", retryMs, code, reason: never ? NEVER_CONNECTED : reason });
  }
}
