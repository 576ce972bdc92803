/**
 * A plugin, composables and a component for the live unread badge of one user.
 *
 * @packageDocumentation
 */
import { Badged, type BadgedOptions, type Badge as BadgeState, type Category, type Conversation, type FaviconOptions, type Numbers, type Part, type Seq, type Status } from "@badged/sdk";
import { type App, type MaybeRefOrGetter, type PropType, type Ref } from "vue";
/**
 * Makes the plugin: `app.use(createBadges({ url, user, token }))`. Its client
 * starts when the first component that shows something of it is mounted, and
 * stops with the app. A client that you pass is yours to start and stop.
 */
export declare function createBadges(given: Badged | BadgedOptions): {
    readonly client: Badged;
    install(app: App): void;
};
/** The client of the plugin. */
export declare function useBadgeClient(): Badged;
/** The numbers of everything, the categories and their levels; all zero before the first state. */
export declare function useBadge(): Readonly<Ref<BadgeState>>;
/** Options of {@link useNumbers}. */
export interface NumbersOptions {
    /** A list of it is on the screen: what arrives is seen while the user looks; default false. */
    readonly open?: MaybeRefOrGetter<boolean | undefined>;
}
/** The numbers of a category with those below it, or of everything. */
export declare function useNumbers(category?: MaybeRefOrGetter<string | undefined>, { open }?: NumbersOptions): Readonly<Ref<Numbers>>;
/** The categories with anything to show, or with a level, as a tree by name. */
export declare function useCategories(): Readonly<Ref<readonly Category[]>>;
/** The state of the connection. */
export declare function useStatus(): Readonly<Ref<Status>>;
/** Options of {@link useConversation}. */
export interface ConversationOptions {
    /** The conversation is on the screen: read it while the user looks; default false. */
    readonly open?: MaybeRefOrGetter<boolean | undefined>;
    /** With `open`: the newest message that the user can see; default the last one delivered. */
    readonly upToSeq?: MaybeRefOrGetter<Seq | string | undefined>;
}
/**
 * A conversation; undefined if the client does not have it, or without an id, as before it
 * is known.
 */
export declare function useConversation(id: MaybeRefOrGetter<string | undefined>, { open, upToSeq }?: ConversationOptions): Readonly<Ref<Conversation | undefined>>;
/**
 * The conversations that the client has, of a category with those below it or of all; the
 * last changed first.
 */
export declare function useConversations(category?: MaybeRefOrGetter<string | undefined>): Readonly<Ref<readonly Conversation[]>>;
/** Shows a count, by default the total, in front of the page's title while the component is mounted. */
export declare function useTitle(part?: MaybeRefOrGetter<Part>): void;
/** Draws a count, by default the total, on the page's icon while the component is mounted. */
export declare function useFavicon(options?: MaybeRefOrGetter<FaviconOptions>): void;
/** The count of everything, a category with those below it, or a conversation; nothing at 0. */
export declare const Badge: import("vue").DefineComponent<import("vue").ExtractPropTypes<{
    category: StringConstructor;
    conversation: StringConstructor;
    /** What is counted; default `messages`. */
    count: PropType<NonNullable<Part["count"]>>;
    /** The largest count that is shown as it is. */
    most: {
        type: NumberConstructor;
        default: number;
    };
    /** What screen readers say. */
    label: {
        type: () => (count: number) => string;
    };
}>, () => import("vue").VNode<import("vue").RendererNode, import("vue").RendererElement, {
    [key: string]: any;
}> | null, {}, {}, {}, import("vue").ComponentOptionsMixin, import("vue").ComponentOptionsMixin, {}, string, import("vue").PublicProps, Readonly<import("vue").ExtractPropTypes<{
    category: StringConstructor;
    conversation: StringConstructor;
    /** What is counted; default `messages`. */
    count: PropType<NonNullable<Part["count"]>>;
    /** The largest count that is shown as it is. */
    most: {
        type: NumberConstructor;
        default: number;
    };
    /** What screen readers say. */
    label: {
        type: () => (count: number) => string;
    };
}>> & Readonly<{}>, {
    most: number;
}, {}, {}, {}, string, import("vue").ComponentProvideOptions, true, {}, any>;
