/**
 * Hooks and components for the live unread badge of one user.
 *
 * @packageDocumentation
 */
import { Badged, type BadgedOptions, type Badge as BadgeState, type Category, type Conversation, type FaviconOptions, type Numbers, type Part, type Seq, type Status } from "@badged/sdk";
import { type ComponentPropsWithoutRef, type ReactNode } from "react";
/** Either a client, which you start and stop, or the options of one. */
export type BadgeProviderProps = {
    readonly client: Badged;
    readonly children?: ReactNode;
} | (BadgedOptions & {
    readonly client?: undefined;
    readonly children?: ReactNode;
});
/**
 * Provides a client to the components in it. It makes one from its options,
 * starts it in the browser, and stops it when it is removed. A new `url`, `user`
 * or `device` makes another client; `token` may be a new function in each render.
 */
export declare function BadgeProvider(props: BadgeProviderProps): ReactNode;
/** The client of the {@link BadgeProvider} around the component. */
export declare function useBadgeClient(): Badged;
/** The numbers of everything, the categories and their levels; all zero before the first state. */
export declare function useBadge(): BadgeState;
/** Options of {@link useNumbers}. */
export interface NumbersOptions {
    /** A list of it is on the screen: what arrives is seen while the user looks; default false. */
    readonly open?: boolean | undefined;
}
/** The numbers of a category with those below it, or of everything. */
export declare function useNumbers(category?: string | undefined, { open }?: NumbersOptions): Numbers;
/** The categories with anything to show, or with a level, as a tree by name. */
export declare function useCategories(): readonly Category[];
/** The state of the connection. */
export declare function useStatus(): Status;
/** Options of {@link useConversation}. */
export interface ConversationOptions {
    /** The conversation is on the screen: read it while the user looks; default false. */
    readonly open?: boolean | undefined;
    /** With `open`: the newest message that the user can see; default the last one delivered. */
    readonly upToSeq?: Seq | string | undefined;
}
/**
 * A conversation; undefined if the client does not have it, or without an id, as before it
 * is known.
 */
export declare function useConversation(id: string | undefined, { open, upToSeq }?: ConversationOptions): Conversation | undefined;
/**
 * The conversations that the client has, of a category with those below it or of all; the
 * last changed first. Without a change it is the same array.
 */
export declare function useConversations(category?: string | undefined): readonly Conversation[];
/** Shows a count, by default the total, in front of the page's title while the component is mounted. */
export declare function useTitle({ category, conversation, count }?: Part): void;
/** Draws a count, by default the total, on the page's icon while the component is mounted. */
export declare function useFavicon(options?: FaviconOptions): void;
/** Props of {@link Badge}; the others go to the `span`. */
export interface BadgeProps extends Omit<ComponentPropsWithoutRef<"span">, "children">, Part {
    /** The largest count that is shown as it is; default 99. */
    readonly most?: number | undefined;
    /** What screen readers say; default `7 unread`. */
    readonly label?: ((count: number) => string) | undefined;
}
/** The count of everything, a category with those below it, or a conversation; nothing at 0. */
export declare function Badge({ category, conversation, count: kind, most, label, ...rest }: BadgeProps): ReactNode;
