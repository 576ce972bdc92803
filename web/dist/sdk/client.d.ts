import { type Environment } from "./environment.js";
import { type Badge, type Command, type Conversation } from "./frames.js";
import { type Status, type TokenRequest } from "./link.js";
import { type OpenConversation, type OpenOptions } from "./reading.js";
import { type Seq } from "./seq.js";
/** Options of a client, and replacements for parts of its {@link Environment}. */
export interface BadgedOptions extends Partial<Environment> {
    /** The URL of the server: `https://badges.example.com`, with its path if it has one. */
    readonly url: string;
    /**
     * Returns a token of the user. Called before every connection, and before the
     * current token expires. If it rejects, the client tries again later.
     */
    readonly token: (request: TokenRequest) => Promise<string>;
    /**
     * Any name for the user of the tokens. With it the client stores the last
     * state in the browser, and the tabs of the user share one connection. Default:
     * neither, because several users may share a browser.
     */
    readonly user?: string;
    /**
     * The device under which the app is registered for pushes. While it is connected
     * nothing is pushed to the device: close the client when the app is not visible.
     */
    readonly device?: string;
    /** Upper bound of the random pause after the first failure; default 500. */
    readonly minBackoffMs?: number;
    /** Longest pause, unless the server asks for a longer one; default 30,000. */
    readonly maxBackoffMs?: number;
    /** Whether to fall back to server-sent events if WebSockets fail; default true. */
    readonly fallback?: boolean;
}
/** The events of a client, with the value that listeners receive. */
export interface BadgedEvents {
    /** The total, the mentions, the unread conversations or a category changed, or the first state arrived. */
    total: Badge;
    /** A conversation changed. An emptied one has zero counts. */
    conversation: Conversation;
    status: Status;
    /** {@link Badged.waiting} changed. */
    waiting: readonly Command[];
}
/** Options of a command. */
export interface WaitOptions {
    /** Rejects the promise with the signal's reason. The command itself stays. */
    readonly signal?: AbortSignal;
}
/** Options of {@link Badged.markUnread}. */
export interface MarkOptions extends WaitOptions {
    /** Messages that count again, 1 to 1,000. Not in rooms. */
    readonly seqs?: readonly (Seq | string)[];
    /** In a room, the first of the messages that count again. */
    readonly fromSeq?: Seq | string;
}
/**
 * The live badge of the one user that the tokens name. It keeps its state while
 * disconnected and across `stop` and `start`, and then asks only for what
 * changed.
 *
 * Commands change the numbers at once, in all tabs. The change is undone if the
 * server refuses the command.
 *
 * Events fire after the whole state has changed, so listeners always see
 * numbers that agree.
 */
export declare class Badged {
    #private;
    /** @throws TypeError if an option is invalid. */
    constructor(options: BadgedOptions);
    /** The badge with pending commands applied; undefined before the first state. */
    get badge(): Badge | undefined;
    /** By id, the conversations that the server has listed, without those that the user left. */
    get conversations(): ReadonlyMap<string, Conversation>;
    /**
     * The user has more non-empty conversations than the server sends at once. Page
     * through the HTTP API for them. The total counts them.
     */
    get more(): boolean;
    get status(): Status;
    /**
     * The commands of all tabs that are not yet durable on the server, in order. A
     * {@link Badged.readAll} appears as the reads that it stands for.
     */
    get waiting(): readonly Command[];
    /** Calls the listener at every such event. The returned function removes it. */
    on<Name extends keyof BadgedEvents>(event: Name, listener: (value: BadgedEvents[Name]) => void): () => void;
    /**
     * Connects, and stays connected until `stop` or a refusal. Emits the stored
     * state of the last visit at once. Without a WebSocket, as in server-side
     * rendering, it does nothing.
     */
    start(): void;
    /** Disconnects. The state and the pending commands stay for the next `start`. */
    stop(): void;
    /**
     * Stops all tabs of the user, drops the pending commands, and removes all that
     * is stored in the browser. Call it when the user signs out. Listeners receive
     * a total of 0.
     */
    forget(): void;
    /**
     * Marks a conversation as read up to a message. The numbers change at once. The
     * promise resolves once the read is durable on the server. While disconnected
     * it stays pending without limit, unless `options` has a signal.
     *
     * It rejects with a {@link BadgedError} if the server refuses the read or
     * `forget` drops it, which need not be handled, and with a TypeError, which is
     * reported if it is not, if an argument is invalid.
     */
    read(conversationId: string, upToSeq: Seq | string, options?: WaitOptions): Promise<void>;
    /**
     * Marks everything, or everything of a category, as read. While disconnected
     * this covers what the client holds: later messages, and conversations that it
     * does not hold (see {@link Badged.more}), stay unread. The promise behaves as
     * in {@link Badged.read}.
     */
    readAll(category?: string, options?: WaitOptions): Promise<void>;
    /**
     * The conversation is on the screen. Until `close`, the client reads it while
     * the page is visible and has the focus, up to the last message delivered or
     * shown; what arrives meanwhile is read when the user is back.
     *
     * {@link Badged.markUnread} in this client ends it too: the user wants to come
     * back to the conversation. A mark set elsewhere ends at the next `open`.
     *
     * @throws TypeError if an argument is invalid.
     */
    open(conversationId: string, options?: OpenOptions): OpenConversation;
    /**
     * Makes the conversation count at least 1 until the next read. With `seqs`, these
     * messages, which the user has read, count again instead; in a room, with `fromSeq`,
     * those from there on. The numbers then change once the server has applied it. The
     * promise behaves as in {@link Badged.read}. A frame holds 150 seqs, so more than
     * these take several commands.
     */
    markUnread(conversationId: string, options?: MarkOptions): Promise<void>;
}
