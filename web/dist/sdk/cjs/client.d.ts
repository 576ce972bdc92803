import { type Badge, type Command, type Conversation, type Level, type Numbers } from "./frames.js";
import { type Status } from "./link.js";
import { type BadgedEvents, type BadgedOptions, type MarkOptions, type WaitOptions } from "./options.js";
import { type OpenCategory, type OpenConversation, type OpenOptions } from "./reading.js";
import { type Seq } from "./seq.js";
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
     * {@link Badged.readAll} appears as the reads that it stands for, a {@link Badged.seenAll} as `seen`s.
     */
    get waiting(): readonly Command[];
    /** Calls the listener at every such event. The returned function removes it. */
    on<Name extends keyof BadgedEvents>(event: Name, listener: (value: BadgedEvents[Name]) => void): () => void;
    /**
     * Connects, and stays connected until `stop` or a refusal. Emits the stored
     * state of the last visit at once. Do not call it in server-side rendering.
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
     * Marks everything, or everything that a category covers, as read. While
     * disconnected this covers what the client holds: later messages, and
     * conversations that it does not hold (see {@link Badged.more}), stay unread. The
     * promise behaves as in {@link Badged.read}.
     */
    readAll(category?: string, options?: WaitOptions): Promise<void>;
    /**
     * The user has seen that there is something up to a message, which stays unread:
     * `unseen` falls at once. The promise behaves as in {@link Badged.read}.
     */
    seen(conversationId: string, upToSeq: Seq | string, options?: WaitOptions): Promise<void>;
    /** Marks everything, or everything that a category covers, as seen; otherwise as {@link Badged.readAll}. */
    seenAll(category?: string, options?: WaitOptions): Promise<void>;
    /**
     * Sets the level of a category, for the conversations that it covers and that have
     * none of their own, also those to come; `default` unsets it. The numbers change once
     * the server has applied it. The promise behaves as in {@link Badged.read}.
     */
    setLevel(category: string, level: Level, options?: WaitOptions): Promise<void>;
    /**
     * What the conversations of the client that pass a filter add to the badge, as for a
     * folder that the user made. Without `complete`, the user has more of them: see
     * {@link Badged.more}.
     */
    count(filter: (conversation: Conversation) => boolean): Numbers & {
        readonly complete: boolean;
    };
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
     * A list is on the screen, as behind a bell: of a category, or of everything. Until
     * `close`, what arrives in it is seen while the user looks, as {@link Badged.open}
     * reads. It stays unread.
     *
     * @throws TypeError if the category is invalid.
     */
    openCategory(category?: string): OpenCategory;
    /**
     * Makes the conversation count at least 1 until the next read. With `seqs`, these
     * messages, which the user has read, count again instead; in a room, with `fromSeq`,
     * those from there on. The numbers then change once the server has applied it. The
     * promise behaves as in {@link Badged.read}. A frame holds 150 seqs, so more than
     * these take several commands.
     */
    markUnread(conversationId: string, options?: MarkOptions): Promise<void>;
}
