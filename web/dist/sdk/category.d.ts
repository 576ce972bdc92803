import type { Badge, Conversation, Level, Numbers } from "./frames.js";
type Levels = Badge["levels"];
/** Nothing, as of a category that a badge does not have. */
export declare const NO_NUMBERS: Numbers;
/**
 * Whether a category is the path itself or lies below it: `acme` covers `acme` and
 * `acme/general`, but not `acme2`.
 */
export declare function covers(path: string, category: string): boolean;
/**
 * The level that applies to a conversation: its own, or that of the longest path
 * that covers its category, or `all`.
 */
export declare function levelOf({ level, category }: Pick<Conversation, "level" | "category">, levels: Levels): Level;
/** The numbers of a category, or of everything; zeros before the first state. */
export declare function numbersOf(client: {
    readonly badge: Badge | undefined;
}, path?: string): Numbers;
/** A category with those directly below it. */
export interface Category {
    readonly path: string;
    /** The last part of the path. */
    readonly name: string;
    readonly numbers: Numbers;
    /** The level of its conversations that have none of their own. */
    readonly level: Level;
    readonly children: readonly Category[];
}
/** The categories of a badge with anything to show, or with a level, as a tree by name. */
export declare function treeOf({ categories, levels }: Badge): readonly Category[];
/**
 * What a conversation adds to the badge and to each path that covers its category;
 * undefined if the level is unknown.
 */
export declare function shareOf(conversation: Conversation, levels: Levels): Numbers | undefined;
export {};
