import { type Seq } from "./seq.js";
/**
 * What a conversation adds to the total: its unread messages (`all`), its
 * unread mentions, or nothing. Later servers may know others.
 */
export type Level = "all" | "mentions" | "none" | (string & {});
/** The state of one conversation for the user of the token. */
export interface Conversation {
    readonly conversationId: string;
    /** Delivered, not recalled messages above `readSeq`. */
    readonly unread: number;
    /** How many of the unread messages mention the user. */
    readonly mentions: number;
    /** Where an app jumps to: the least unread seq, or 0 where nothing is unread. */
    readonly firstUnreadSeq: Seq;
    /** The read position; it never moves back. */
    readonly readSeq: Seq;
    /** The greatest seq delivered to the user, 0 before the first. */
    readonly lastSeq: Seq;
    readonly level: Level;
    /** The label that badges per tab go by: `chat` unless the backend says otherwise. */
    readonly category: string;
    /** The user wants the conversation to count at least 1. */
    readonly markedUnread: boolean;
    /** The version of the user's badge as of the conversation's last change. */
    readonly version: number;
}
/** The number a user sees and what it is made of, as of one version. */
export interface Badge {
    /** Names the sequence that `version` counts in. */
    readonly epoch: string;
    /** Grows with every change that this user can see. */
    readonly version: number;
    readonly total: number;
    readonly mentions: number;
    /** The total by category; categories that add nothing are absent. */
    readonly categories: Readonly<Record<string, number>>;
}
