/**
 * The client for badged: the live unread badge of one user.
 *
 * @packageDocumentation
 */
export { type Category, covers, levelOf, numbersOf, shareOf, treeOf } from "./category.js";
export { Badged } from "./client.js";
export { CloseCode, type Ending } from "./closing.js";
export { conversationsOf, countOf, type FaviconOptions, formatCount, onConversations, onCount, type Part, showInTitle, showOnApp, showOnFavicon, } from "./display.js";
export type { AsyncStorageLike, ChannelLike, Clock, Environment, LocksLike, Page, StorageLike, WebSocketConstructor, WebSocketLike, } from "./environment.js";
export type { Badge, Command, Conversation, Level, Numbers } from "./frames.js";
export type { Status, TokenRequest } from "./link.js";
export { type AppStateLike, appStatePage } from "./native.js";
export type { BadgedEvents, BadgedOptions, MarkOptions, WaitOptions } from "./options.js";
export { BadgedError } from "./outbox.js";
export type { OpenCategory, OpenConversation, OpenOptions } from "./reading.js";
export { type Seq, toSeq } from "./seq.js";
