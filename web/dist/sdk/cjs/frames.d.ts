import { type Seq } from "./seq.js";
/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions (`mentions`), those that mention the user by name
 * (`direct_mentions`), or nothing (`none`). Later servers may add levels.
 */
export type Level = "all" | "mentions" | "direct_mentions" | "none" | (string & {});
/** The state of one conversation for one user. */
export interface Conversation {
    readonly conversationId: string;
    /** Messages above `readSeq` that were delivered and not recalled. */
    readonly unread: number;
    /** The unread messages that mention the user. */
    readonly mentions: number;
    /** The lowest unread seq; 0 if nothing is unread. */
    readonly firstUnreadSeq: Seq;
    /** The read position. It never moves back. */
    readonly readSeq: Seq;
    /** The highest seq delivered to the user; 0 before the first. */
    readonly lastSeq: Seq;
    readonly level: Level;
    /** When the level ends, in RFC 3339; absent if it does not. */
    readonly levelUntil?: string;
    /** The category that the conversation counts in; `chat` unless the backend sets another. */
    readonly category: string;
    /** The user marked it unread: it counts at least 1 until the next read. */
    readonly markedUnread: boolean;
    /** The user has left the conversation: do not list it. */
    readonly left: boolean;
    /** The version of the badge at the conversation's last change. */
    readonly version: number;
}
/** The numbers of a user at one version. */
export interface Badge {
    /** Versions compare only within one epoch. */
    readonly epoch: string;
    /** Grows with every change visible to the user. */
    readonly version: number;
    readonly total: number;
    readonly mentions: number;
    /** The total by category. Categories that add nothing are absent. */
    readonly categories: Readonly<Record<string, number>>;
    /** True if the total has more categories than these, which are the first 500 by name. */
    readonly moreCategories?: boolean;
    /** How many conversations add something to the total; 0 with a server that does not say. */
    readonly unreadConversations: number;
    /** The same by category. */
    readonly categoryConversations: Readonly<Record<string, number>>;
}
/**
 * Something the user did. The id, a UUID, makes it idempotent: the server
 * applies a command once, however often and over whichever connection it comes.
 */
export type Command = {
    readonly id: string;
} & ({
    readonly t: "read";
    readonly conversationId: string;
    readonly upToSeq: Seq;
} | {
    readonly t: "read_all";
    readonly category?: string;
} | {
    readonly t: "mark_unread";
    readonly conversationId: string;
    readonly seqs?: readonly Seq[];
    readonly fromSeq?: Seq;
});
