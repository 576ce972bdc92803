/**
 * The part of the standard `WebSocket` that this client uses. Browsers, Deno,
 * Bun and Node from 22 have one; the npm package `ws` fits too.
 */
export interface WebSocketLike {
  onopen: ((event: never) => unknown) | null;
  onmessage: ((event: never) => unknown) | null;
  onclose: ((event: never) => unknown) | null;
  onerror: ((event: never) => unknown) | null;
  send(data: string): void;
  close(code?: number, reason?: string): void;
}

/** Makes sockets: the standard `WebSocket` constructor, or one like it. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;

/** Where time comes from, for tests. Times are in milliseconds. */
export interface Clock {
  /** A time that never goes back, from any origin. */
  now(): number;
  /** The time since 1970, as far as this machine knows it. */
  date(): number;
  /** Calls once, after a delay, until the returned function is called. */
  after(delayMs: number, call: () => void): () => void;
}

/** The part of `localStorage` that this client uses. It may throw. */
export type StorageLike = Pick<Storage, "getItem" | "setItem" | "removeItem">;

/** Tells when the user or the network comes back, and when the user leaves. */
export interface Page {
  /** Each calls until the returned function is called. */
  onReturn(call: () => void): () => void;
  onLeave(call: () => void): () => void;
}

/** The part of the standard `BroadcastChannel` that this client uses. */
export interface ChannelLike {
  onmessage: ((event: never) => unknown) | null;
  postMessage(message: unknown): void;
  close(): void;
}

/** The part of `navigator.locks` that this client uses. */
export interface LocksLike {
  request(
    name: string,
    options: { signal: AbortSignal },
    granted: () => Promise<void>,
  ): Promise<unknown>;
}

/**
 * What a client finds around it. Each default is what the browser has; what is
 * missing, or null, the client does without.
 */
export interface Environment {
  /** Default: the global `WebSocket`. */
  readonly WebSocket: WebSocketConstructor;
  /** For the fallback to server-sent events. */
  readonly fetch: typeof fetch | null;
  readonly clock: Clock;
  /** At least 0, less than 1; default `Math.random`. */
  readonly random: () => number;
  /** Where the last state and what waits to be sent are kept; default `localStorage`. */
  readonly storage: StorageLike | null;
  /** Default: the events `online`, `pageshow`, `pagehide` and `visibilitychange`. */
  readonly page: Page | null;
  /** Both are needed to share a connection among tabs. */
  readonly locks: LocksLike | null;
  readonly BroadcastChannel: (new (name: string) => ChannelLike) | null;
}

/** @internal */
export const systemClock: Clock = {
  now: () => performance.now(),
  date: () => Date.now(),
  after(delayMs, call) {
    const timer = setTimeout(call, delayMs);
    return () => clearTimeout(timer);
  },
};

/** What is around this script. @internal */
export function surroundings(): Environment {
  const scope = globalThis;
  return {
    WebSocket: scope.WebSocket,
    // Unbound, browsers refuse to call it.
    fetch: scope.fetch?.bind(scope) ?? null,
    clock: systemClock,
    random: Math.random,
    storage: localStorageIfAllowed(),
    page: scope.document ? browserPage : null,
    locks: scope.navigator?.locks ?? null,
    BroadcastChannel: scope.BroadcastChannel ?? null,
  };
}

/** Browsers that block cookies throw at the mere name. */
function localStorageIfAllowed(): StorageLike | null {
  try {
    return (globalThis.document && globalThis.localStorage) ?? null;
  } catch {
    return null;
  }
}

const browserPage: Page = {
  onReturn: (call) =>
    listen([
      [window, "online", call],
      [window, "pageshow", call],
      [document, "visibilitychange", () => document.visibilityState === "visible" && call()],
    ]),
  onLeave: (call) =>
    listen([
      [window, "pagehide", call],
      [document, "visibilitychange", () => document.visibilityState === "hidden" && call()],
    ]),
};

function listen(all: [EventTarget, string, () => void][]): () => void {
  for (const [target, name, call] of all) target.addEventListener(name, call);
  return () => {
    for (const [target, name, call] of all) target.removeEventListener(name, call);
  };
}
