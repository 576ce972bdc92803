import { type Ending } from "./closing.js";
import { type Clock, type WebSocketConstructor } from "./environment.js";
import type { Badge, Conversation } from "./frames.js";
import { type Seq } from "./seq.js";
/** What a client needs to know. */
export interface BadgedOptions {
    /**
     * Where the server is: `https://badges.example.com`, with a path if it lives
     * below one.
     */
    readonly url: string;
    /**
     * Gives a token of the user. It is called before every connection; where it
     * rejects, the client tries again later, as after any failure.
     */
    readonly token: (request: TokenRequest) => Promise<string>;
    /** The pause after the first failure is random, below this; default 500. */
    readonly minBackoffMs?: number;
    /** No pause is longer than this, unless the server asks for it; default 30,000. */
    readonly maxBackoffMs?: number;
    /** Default: the global `WebSocket`. */
    readonly WebSocket?: WebSocketConstructor;
    /** Default: the system's. */
    readonly clock?: Clock;
    /** At least 0, less than 1; default `Math.random`. */
    readonly random?: () => number;
}
/** Why a token is asked for. */
export interface TokenRequest {
    /** The server refused the last token for its age; so a kept one will not do. */
    readonly expired: boolean;
}
/** How a client stands with the server. */
export type Status = 
/** Not started, or stopped. */
{
    readonly state: "stopped";
}
/** On the way to the first state. */
 | {
    readonly state: "connecting";
}
/** The state is the server's, and changes arrive as they happen. */
 | {
    readonly state: "online";
}
/** The connection was lost or could not be had; the next attempt is in `retryMs`. */
 | ({
    readonly state: "waiting";
    readonly retryMs: number;
} & Ending)
/** The server will not have this client; only `start` tries again. */
 | ({
    readonly state: "refused";
} & Ending);
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
    /** Calls the listener at every such event, until the returned function is called. */
    on<Name extends keyof BadgedEvents>(event: Name, listener: (value: BadgedEvents[Name]) => void): () => void;
    /** Connects, and stays connected until `stop` or a refusal. */
    start(): void;
    /** Disconnects. The state stays. */
    stop(): void;
    /**
     * Says that the user has read a conversation up to a message, and resolves
     * once the server has that for good; the numbers follow as events.
     *
     * It rejects with a {@link BadgedError} if the server refuses, and if there
     * is no connection or it is lost before the answer. The read may then have
     * arrived all the same: sending it again is harmless. It rejects with a
     * RangeError for what is not a seq.
     */
    read(conversationId: string, upToSeq: Seq | string): Promise<void>;
}
