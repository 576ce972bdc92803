import type { Badged } from "./client.js";
/**
 * A count as badges show it: nothing for 0, and `99+` above 99, or above
 * another limit.
 */
export declare function formatCount(count: number, most?: number): string;
/**
 * Keeps the total in front of the page's title, as in `(3) Inbox`, until the
 * returned function is called. The title may change meanwhile; a new one gets
 * its count with the next change of the total.
 */
export declare function showInTitle(client: Badged): () => void;
/**
 * Keeps the total on the app's icon, in the dock or on the home screen, where
 * the browser can, until the returned function is called. It is for installed
 * web apps; iOS wants the permission for notifications first.
 */
export declare function showOnApp(client: Badged): () => void;
/** How {@link showOnFavicon} draws. */
export interface FaviconOptions {
    /** The icon to draw upon; default: the page's. */
    readonly icon?: string;
    /** CSS colours of the badge and its count; default white on red. */
    readonly color?: string;
    readonly textColor?: string;
}
/**
 * Draws the total onto the page's icon, until the returned function is called.
 * A Content-Security-Policy must allow `img-src data:`, and the icon must be of
 * the page's own origin.
 */
export declare function showOnFavicon(client: Badged, options?: FaviconOptions): () => void;
