/**
 * The client for badged: the live unread badge of one user.
 *
 * @packageDocumentation
 */
export {
  Badged,
  type BadgedEvents,
  type BadgedOptions,
  type MarkOptions,
  type WaitOptions,
} from "./client.js";
export { CloseCode, type Ending } from "./closing.js";
export {
  countOf,
  type FaviconOptions,
  formatCount,
  onCount,
  type Part,
  showInTitle,
  showOnApp,
  showOnFavicon,
} from "./display.js";
export type {
  AsyncStorageLike,
  ChannelLike,
  Clock,
  Environment,
  LocksLike,
  Page,
  StorageLike,
  WebSocketConstructor,
  WebSocketLike,
} from "./environment.js";
export type { Badge, Command, Conversation, Level } from "./frames.js";
export type { Status, TokenRequest } from "./link.js";
export { type AppStateLike, appStatePage } from "./native.js";
export { BadgedError } from "./outbox.js";
export type { OpenConversation, OpenOptions } from "./reading.js";
export { type Seq, toSeq } from "./seq.js";
