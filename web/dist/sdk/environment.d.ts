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
    /** Calls once, after a delay, until the returned function is called. */
    after(delayMs: number, call: () => void): () => void;
}
