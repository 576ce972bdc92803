/**
 * The part of the standard `WebSocket` that this client uses. Browsers, Deno,
 * Bun and Node 22 or later have one; the npm package `ws` also fits.
 */
export interface WebSocketLike {
    onopen: ((event: never) => unknown) | null;
    onmessage: ((event: never) => unknown) | null;
    onclose: ((event: never) => unknown) | null;
    onerror: ((event: never) => unknown) | null;
    send(data: string): void;
    close(code?: number, reason?: string): void;
}
/** The standard `WebSocket` constructor, or a compatible one. */
export type WebSocketConstructor = new (url: string, protocols: string[]) => WebSocketLike;
/** The source of time, replaced in tests. Times are in milliseconds. */
export interface Clock {
    /** Monotonic time, from any origin. */
    now(): number;
    /** Wall-clock time since 1970. */
    date(): number;
    /** Calls `call` once after a delay. The returned function cancels it. */
    after(delayMs: number, call: () => void): () => void;
}
/** The part of `localStorage` that this client uses. Methods may throw. */
export type StorageLike = Pick<Storage, "getItem" | "setItem" | "removeItem">;
/**
 * The part of React Native's `AsyncStorage` that this client uses. The client reads
 * it before it connects. Methods may reject.
 */
export interface AsyncStorageLike {
    getItem(key: string): Promise<string | null>;
    setItem(key: string, text: string): Promise<unknown>;
    removeItem(key: string): Promise<unknown>;
}
/**
 * The page, or the app on a phone. Each `on…` method returns the function that
 * removes the callback.
 */
export interface Page {
    /** Calls when the page becomes visible or the network comes back. */
    onReturn(call: () => void): () => void;
    /** Calls when the page is hidden or left. */
    onLeave(call: () => void): () => void;
    /** Whether the user looks at the page: it is visible and has the focus. */
    attended(): boolean;
    /** Calls when {@link Page.attended} may have become true. */
    onAttend(call: () => void): () => void;
}
/** The part of the standard `BroadcastChannel` that this client uses. */
export interface ChannelLike {
    onmessage: ((event: never) => unknown) | null;
    postMessage(message: unknown): void;
    close(): void;
}
/** The part of `navigator.locks` that this client uses. */
export interface LocksLike {
    request(name: string, options: {
        signal?: AbortSignal;
        steal?: boolean;
    }, granted: () => Promise<void>): Promise<unknown>;
}
/**
 * What a client uses of its platform. The defaults are the globals. With null
 * the client goes without the feature.
 */
export interface Environment {
    /** Default: the global `WebSocket`. With null, server-sent events serve alone. */
    readonly WebSocket: WebSocketConstructor | null;
    /** Needed for server-sent events. */
    readonly fetch: typeof fetch | null;
    readonly clock: Clock;
    /** At least 0, less than 1; default `Math.random`. */
    readonly random: () => number;
    /**
     * Stores the last state, the pending commands, and whether server-sent events
     * come first; default `localStorage`.
     */
    readonly storage: StorageLike | AsyncStorageLike | null;
    /** Default: based on `online`, `pageshow`, `pagehide`, `focus` and `visibilitychange`. */
    readonly page: Page | null;
    /** Needed, with `BroadcastChannel`, to share one connection among tabs. */
    readonly locks: LocksLike | null;
    readonly BroadcastChannel: (new (name: string) => ChannelLike) | null;
}
