import type { Badged } from "./client.js";
import type { Conversation } from "./frames.js";
/** What a badge counts: everything, a category with those below it, or a conversation. */
export interface Part {
    readonly category?: string | undefined;
    readonly conversation?: string | undefined;
    /**
     * What is counted: `messages` (default), as the total does; of these the
     * `mentions`, the `unseen`, or the `marked`, which no unread message stands for; the
     * `conversations` that add to it; or the messages that a level keeps out (`muted`).
     */
    readonly count?: "messages" | "conversations" | "mentions" | "unseen" | "muted" | "marked" | undefined;
}
/** The count of a part; 0 of what the client does not have. */
export declare function countOf(client: Badged, { category, conversation, count }?: Part): number;
/** Calls when the count of a part may have changed. The returned function ends it. */
export declare function onCount(client: Badged, { conversation }: Part, call: () => void): () => void;
/** The conversations that the client has, of a category with those below it or of all; the last changed first. */
export declare function conversationsOf(client: Badged, category?: string): readonly Conversation[];
/** Calls once after conversations have changed, however many. The returned function ends it. */
export declare function onConversations(client: Badged, call: () => void): () => void;
/**
 * Formats a count for a badge: empty for 0, and `99+` above `most` (default 99).
 */
export declare function formatCount(count: number, most?: number): string;
/**
 * Shows the count of a part, by default the total, in front of the page's title,
 * as in `(3) Inbox`, until the returned function is called. If the page sets a new
 * title, the count returns at the next change.
 */
export declare function showInTitle(client: Badged, part?: Part): () => void;
/**
 * Shows the count of a part, by default the total, on the icon of an installed web app, in the dock or on the
 * home screen, until the returned function is called. Does nothing in browsers
 * without the Badging API. iOS requires the permission for notifications.
 */
export declare function showOnApp(client: Badged, part?: Part): () => void;
/** Options of {@link showOnFavicon}. */
export interface FaviconOptions extends Part {
    /** URL of the icon to draw on; default the page's icon. */
    readonly icon?: string;
    /** CSS color of the badge; default red. */
    readonly color?: string;
    /** CSS color of the count; default white. */
    readonly textColor?: string;
}
/**
 * Draws the count of a part, by default the total, on the page's icon until the returned function is called.
 * The Content-Security-Policy must allow `img-src data:`, and the icon must
 * have the page's origin.
 */
export declare function showOnFavicon(client: Badged, options?: FaviconOptions): () => void;
