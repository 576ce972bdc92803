import type { Badge, Conversation, Level, Numbers } from "./frames.js";

type Levels = Badge["levels"];

/** Nothing, as of a category that a badge does not have. */
export const NO_NUMBERS: Numbers = {
  total: 0,
  mentions: 0,
  unreadConversations: 0,
  unseen: 0,
  muted: { total: 0, conversations: 0 },
  marked: 0,
};

/**
 * Whether a category is the path itself or lies below it: `acme` covers `acme` and
 * `acme/general`, but not `acme2`.
 */
export function covers(path: string, category: string): boolean {
  return category === path || category.startsWith(`${path}/`);
}

/** The path above another; empty above one part. */
function above(path: string): string {
  return path.slice(0, Math.max(0, path.lastIndexOf("/")));
}

/** A category and the paths above it: all that cover it, the longest first. @internal */
export function pathsOf(category: string): readonly string[] {
  const paths: string[] = [];
  for (let path = category; path !== ""; path = above(path)) paths.push(path);
  return paths;
}

/** The value of a path; undefined if there is none. The object may have a prototype. @internal */
export function at<T>(values: Readonly<Record<string, T>>, path: string): T | undefined {
  return Object.hasOwn(values, path) ? values[path] : undefined;
}

/**
 * The level that applies to a conversation: its own, or that of the longest path
 * that covers its category, or `all`.
 */
export function levelOf(
  { level, category }: Pick<Conversation, "level" | "category">,
  levels: Levels,
): Level {
  if (level !== "default") return level;
  const path = pathsOf(category).find((path) => Object.hasOwn(levels, path));
  return (path && levels[path]) ?? "all";
}

/** The numbers of a category, or of everything; zeros before the first state. */
export function numbersOf(client: { readonly badge: Badge | undefined }, path?: string): Numbers {
  const { badge } = client;
  return (path === undefined ? badge : badge && at(badge.categories, path)) ?? NO_NUMBERS;
}

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
export function treeOf({ categories, levels }: Badge): readonly Category[] {
  const roots: Category[] = [];
  const below = new Map([["", roots]]);
  const add = (path: string): Category[] => {
    const known = below.get(path);
    if (known !== undefined) return known;
    const children: Category[] = [];
    below.set(path, children);
    add(above(path)).push({
      path,
      name: path.slice(path.lastIndexOf("/") + 1),
      numbers: at(categories, path) ?? NO_NUMBERS,
      level: levelOf({ level: "default", category: path }, levels),
      children,
    });
    return children;
  };
  for (const path of Object.keys({ ...categories, ...levels }).sort()) add(path);
  return roots;
}

/**
 * What a conversation adds to the badge and to each path that covers its category;
 * undefined if the level is unknown.
 */
export function shareOf(conversation: Conversation, levels: Levels): Numbers | undefined {
  const { unread, mentions, seen, seenMentions, markedUnread, left } = conversation;
  if (left) return NO_NUMBERS;
  const full = markedUnread ? Math.max(1, unread) : unread;
  const muted = (total: number) => ({ total, conversations: Math.sign(total) });
  switch (levelOf(conversation, levels)) {
    case "all":
      return {
        total: full,
        mentions,
        unreadConversations: Math.sign(full),
        unseen: unread - seen,
        muted: muted(0),
        marked: full - unread,
      };
    case "mentions":
    case "direct_mentions":
      return {
        total: mentions,
        mentions,
        unreadConversations: Math.sign(mentions),
        unseen: mentions - seenMentions,
        muted: muted(full - mentions),
        marked: 0,
      };
    case "none":
      return { ...NO_NUMBERS, muted: muted(full) };
    default:
      return undefined;
  }
}

/** Numbers with others added and taken away. None is below 0: a client may not hold all. @internal */
export function sum(to: Numbers, plus: Numbers, minus = NO_NUMBERS): Numbers {
  const of = (number: (numbers: Numbers) => number) =>
    Math.max(0, number(to) + number(plus) - number(minus));
  return {
    total: of((n) => n.total),
    mentions: of((n) => n.mentions),
    unreadConversations: of((n) => n.unreadConversations),
    unseen: of((n) => n.unseen),
    muted: { total: of((n) => n.muted.total), conversations: of((n) => n.muted.conversations) },
    marked: of((n) => n.marked),
  };
}

/**
 * Categories with changes: a category without anything left is gone.
 *
 * @internal
 */
export function merged(
  held: Badge["categories"],
  changes: Iterable<readonly [string, Numbers]>,
): Badge["categories"] {
  // No prototype: a category may be called `toString`.
  const categories: Record<string, Numbers> = Object.assign(Object.create(null), held);
  for (const [path, numbers] of changes) {
    if (same(numbers, NO_NUMBERS)) delete categories[path];
    else categories[path] = numbers;
  }
  return categories;
}

/** Whether two values have the same fields. @internal */
export function same(a: unknown, b: unknown): boolean {
  if (a === b) return true;
  if (typeof a !== "object" || typeof b !== "object" || a === null || b === null) return false;
  const names = Object.keys(a) as (keyof typeof a)[];
  return names.length === Object.keys(b).length && names.every((name) => same(a[name], b[name]));
}
