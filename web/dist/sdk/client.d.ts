import { type Environment } from "./environment.js";
import { type Badge, type Conversation } from "./frames.js";
import { type Status, type TokenRequest } from "./link.js";
import { type Seq } from "./seq.js";
/** What a client needs to know. */
export interface BadgedOptions extends Partial<Environment> {
    /**
     * Where the server is: `https://badges.example.com`, with a path if it lives
     * below one.
     */
    readonly url: string;
    /**
     * Gives a token of the user. It is called before every connection, and when
     * the last one is about to end; where it rejects, the client tries again
     * later, as after any failure.
     */
    readonly token: (request: TokenRequest) => Promise<string>;
    /**
     * Whose badge it is: the user of the tokens, by any name. With it the client
     * keeps the last state in the browser, and all tabs of the user share one
     * connection. A browser may have many users, so without it there is neither.
     */
    readonly user?: string;
    /** The pause after the first failure is random, below this; default 500. */
    readonly minBackoffMs?: number;
    /** No pause is longer than this, unless the server asks for it; default 30,000. */
    readonly maxBackoffMs?: number;
    /**
     * Whether to use server-sent events where WebSockets do not get through;
     * default true.
     */
    readonly fallback?: boolean;
}
/** What a client tells its listeners. */
export interface BadgedEvents {
    /** The total, the mentions or a category changed; also the first state. */
    total: Badge;
    /** A conversation changed. One that has nothing to show any more is all zeros. */
    conversation: Conversation;
    status: Status;
}
/**
 * The badge of one user, kept in step with the server: a client is for one
 * user, that of its tokens. It holds what it last heard while there is no
 * connection, and across `stop` and `start`, and asks only for what changed
 * since.
 *
 * Events come after the whole state has changed: a listener that looks at
 * another number than the one it was told sees them agree.
 */
export declare class Badged {
    #private;
    /** @throws TypeError if the URL is not one, or where there is no WebSocket. */
    constructor(options: BadgedOptions);
    /** The badge as last heard; undefined before the first state. */
    get badge(): Badge | undefined;
    /** The conversations that have or had something to show, by id. */
    get conversations(): ReadonlyMap<string, Conversation>;
    /**
     * The user has more conversations with something to show than the server
     * sends at once; page through the HTTP API for them. The total counts them.
     */
    get more(): boolean;
    get status(): Status;
    /** How many things that the user did the server does not yet have for good. */
    get waiting(): number;
    /** Calls the listener at every such event, until the returned function is called. */
    on<Name extends keyof BadgedEvents>(event: Name, listener: (value: BadgedEvents[Name]) => void): () => void;
    /**
     * Connects, and stays connected until `stop` or a refusal. A state that was
     * kept from the last visit is told at once.
     */
    start(): void;
    /** Disconnects. The state stays, and what the user did waits for the next `start`. */
    stop(): void;
    /**
     * Stops, here and in the user's other tabs, and leaves nothing in the
     * browser: for when the user signs out.
     */
    forget(): void;
    /**
     * Says that the user has read a conversation up to a message, and resolves
     * once the server has that for good; the numbers follow as events. Without a
     * connection it waits for the next one.
     *
     * It rejects with a {@link BadgedError} if the server refuses it, and with a
     * RangeError for what is not a seq.
     */
    read(conversationId: string, upToSeq: Seq | string): Promise<void>;
    /**
     * Says that the user has read everything, or everything of a category, that
     * there is by now. Without a connection that is what this client holds: later
     * messages, and conversations beyond {@link Badged.more}, stay unread.
     */
    readAll(category?: string): Promise<void>;
    /** Says that the conversation is to count at least 1 until it is read. */
    markUnread(conversationId: string): Promise<void>;
}
