/**
 * The client of badged: the unread badge of one user, live.
 *
 * @packageDocumentation
 */
export { Badged, type BadgedEvents, type BadgedOptions, type Status, type TokenRequest, } from "./client.js";
export { CloseCode, type Ending } from "./closing.js";
export type { Clock, WebSocketConstructor, WebSocketLike } from "./environment.js";
export type { Badge, Conversation, Level } from "./frames.js";
export { BadgedError } from "./requests.js";
export { type Seq, toSeq } from "./seq.js";
