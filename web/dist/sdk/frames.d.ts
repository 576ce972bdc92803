import { type Seq } from "./seq.js";
/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions (`mentions`), those that mention the user by name
 * (`direct_mentions`), or nothing (`none`). With `default` the levels of the
 * categories decide. Later servers may add levels.
 */
export type Level = "default" | "all" | "mentions" | "direct_mentions" | "none" | (string & {});
/** The state of one conversation for one user. */
export interface Conversation {
    readonly conversationId: string;
    /** Messages above `readSeq` that were delivered and not recalled. */
    readonly unread: number;
    /** The unread messages that mention the user. */
    readonly mentions: number;
    /** The lowest unread seq; 0 if nothing is unread. */
    readonly firstUnreadSeq: Seq;
    /** The read position. Only a reset of the conversation can move it back. */
    readonly readSeq: Seq;
    /** The highest seq delivered to the user; 0 before the first. */
    readonly lastSeq: Seq;
    /** The seen position if it is above `readSeq`; otherwise 0. */
    readonly seenSeq: Seq;
    /** How many of `unread` the user has seen. */
    readonly seen: number;
    /** How many of `mentions` the user has seen. */
    readonly seenMentions: number;
    /** The level of the conversation itself; see {@link levelOf} for the one that applies. */
    readonly level: Level;
    /** When the level ends, in RFC 3339; absent if it does not. */
    readonly levelUntil?: string;
    /** The path that the conversation counts at; `chat` unless the backend sets another. */
    readonly category: string;
    /** The user marked it unread: it counts at least 1 until the next read. */
    readonly markedUnread: boolean;
    /** The user has left the conversation: do not list it. */
    readonly left: boolean;
    /** The version of the badge at the conversation's last change. */
    readonly version: number;
}
/** What is unread, of everything or of the conversations that a category covers. */
export interface Numbers {
    readonly total: number;
    /** Unread messages that mention the user, in conversations whose level is not `none`. */
    readonly mentions: number;
    /** How many conversations add something to the total. */
    readonly unreadConversations: number;
    /** How much of the total the user has not seen. */
    readonly unseen: number;
    /** What is unread but kept out of the total by a level: a grey number. */
    readonly muted: {
        readonly total: number;
        readonly conversations: number;
    };
    /** How much of the total comes from conversations that are marked and have no unread message. */
    readonly marked: number;
}
/** The numbers of a user at one version. */
export interface Badge extends Numbers {
    /** Versions compare only within one epoch. */
    readonly epoch: string;
    /** Grows with every change visible to the user. */
    readonly version: number;
    /** By path, the categories with anything to show, and those above them. */
    readonly categories: Readonly<Record<string, Numbers>>;
    /** True if there are more categories than these, which were the first 500 by name. */
    readonly moreCategories?: boolean;
    /** By path, the levels of categories. */
    readonly levels: Readonly<Record<string, Level>>;
}
/**
 * Something the user did. The id, a UUID, makes it idempotent: the server
 * applies a command once, however often and over whichever connection it comes.
 */
export type Command = {
    readonly id: string;
} & ({
    readonly t: "read" | "seen";
    readonly conversationId: string;
    readonly upToSeq: Seq;
} | {
    readonly t: "read_all" | "seen_all";
    readonly category?: string;
} | {
    readonly t: "level";
    readonly category: string;
    readonly level: Level;
} | {
    readonly t: "mark_unread";
    readonly conversationId: string;
    readonly seqs?: readonly Seq[];
    readonly fromSeq?: Seq;
});
