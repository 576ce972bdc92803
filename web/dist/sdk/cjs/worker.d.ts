/**
 * The service worker for pushes: it sets the number on the app's icon, and shows
 * notifications, while no page is open. `badged-worker.js` is this as a script.
 *
 * @packageDocumentation
 */
import { type Seq } from "./seq.js";
/** Which state a number belongs to. */
export interface Shown {
    readonly epoch: string;
    readonly version: number;
}
/** The content of a push. */
export interface Pushed {
    readonly badged: Shown & {
        readonly number: number;
        /** Of an alert, as `seq`, which is text if a number would be rounded, and `data`. */
        readonly conversation_id?: string;
        readonly seq?: Seq | string;
        readonly data?: Readonly<Record<string, string>>;
        /** Alerts to close: their messages were read or recalled. */
        readonly retract?: readonly {
            readonly conversation_id: string;
            readonly seq: Seq | string;
        }[];
    };
    readonly title?: string;
    readonly body?: string;
}
/** The part of the event of a push that this uses. */
export interface PushEventLike {
    readonly data: {
        text(): string;
    } | null;
    waitUntil(done: Promise<unknown>): void;
}
/** The part of the global scope of a service worker that this uses. */
export interface WorkerLike {
    addEventListener(type: "push", listener: (event: PushEventLike) => void): void;
    readonly registration: {
        showNotification(title: string, options: NotificationOptions): Promise<void>;
        getNotifications?(filter: {
            tag: string;
        }): Promise<readonly {
            close(): void;
        }[]>;
    };
    /** Without `setAppBadge`, as in Firefox, the icon has no number. */
    readonly navigator: Partial<Pick<Navigator, "setAppBadge" | "clearAppBadge">>;
    readonly caches?: Pick<CacheStorage, "open"> | undefined;
}
/**
 * Shows the pushes of badged. Call it as the service worker starts, which may do more:
 * other pushes are left to other listeners.
 */
export declare function showPushes(worker?: WorkerLike): void;
/** Whether the number of a push replaces the one that is shown. Pushes may come late or twice. */
export declare function isNewer(push: Shown, shown: Shown | undefined): boolean;
