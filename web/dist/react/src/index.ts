/**
 * Hooks and components for the live unread badge of one user.
 *
 * @packageDocumentation
 */
import {
  Badged,
  type BadgedOptions,
  type Badge as BadgeState,
  type Category,
  type Conversation,
  conversationsOf,
  countOf,
  type FaviconOptions,
  formatCount,
  type Numbers,
  numbersOf,
  type OpenConversation,
  onConversations,
  onCount,
  type Part,
  type Seq,
  type Status,
  showInTitle,
  showOnFavicon,
  treeOf,
} from "@badged/sdk";
import {
  type ComponentPropsWithoutRef,
  createContext,
  createElement,
  type ReactNode,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useSyncExternalStore,
} from "react";

const Context = createContext<Badged | undefined>(undefined);

// What the server renders, and the browser until it is hydrated.
const NOTHING: BadgeState = {
  epoch: "",
  version: 0,
  ...numbersOf({ badge: undefined }),
  categories: {},
  levels: {},
};
const STOPPED: Status = { state: "stopped" };

/** Either a client, which you start and stop, or the options of one. */
export type BadgeProviderProps =
  | { readonly client: Badged; readonly children?: ReactNode }
  | (BadgedOptions & { readonly client?: undefined; readonly children?: ReactNode });

/**
 * Provides a client to the components in it. It makes one from its options,
 * starts it in the browser, and stops it when it is removed. A new `url`, `user`
 * or `device` makes another client; `token` may be a new function in each render.
 */
export function BadgeProvider(props: BadgeProviderProps): ReactNode {
  const {
    client: given,
    children,
    ...options
  } = props as Partial<BadgedOptions> & {
    client?: Badged;
    children?: ReactNode;
  };
  const { url = "", user, device, token } = options;
  const latest = useRef(token);
  useEffect(() => {
    latest.current = token;
  });
  // biome-ignore lint/correctness/useExhaustiveDependencies: other options are those of the first render
  const own = useMemo(() => {
    if (given !== undefined) return undefined;
    const newest = (request: Parameters<BadgedOptions["token"]>[0]) => {
      if (latest.current === undefined) throw new TypeError("BadgeProvider has no token");
      return latest.current(request);
    };
    return new Badged({ ...options, url, token: newest });
  }, [given, url, user, device]);
  useEffect(() => {
    own?.start();
    return () => own?.stop();
  }, [own]);
  return createElement(Context.Provider, { value: given ?? own }, children);
}

/** The client of the {@link BadgeProvider} around the component. */
export function useBadgeClient(): Badged {
  const client = useContext(Context);
  if (client === undefined) throw new Error("no BadgeProvider around this component");
  return client;
}

/** The numbers of everything, the categories and their levels; all zero before the first state. */
export function useBadge(): BadgeState {
  return useBadgeOf((client) => client.badge ?? NOTHING, NOTHING);
}

function useBadgeOf<Value>(read: (client: Badged) => Value, before: Value): Value {
  const client = useBadgeClient();
  const subscribe = useCallback((call: () => void) => client.on("total", call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => read(client),
    () => before,
  );
}

/** Options of {@link useNumbers}. */
export interface NumbersOptions {
  /** A list of it is on the screen: what arrives is seen while the user looks; default false. */
  readonly open?: boolean | undefined;
}

/** The numbers of a category with those below it, or of everything. */
export function useNumbers(
  category?: string | undefined,
  { open = false }: NumbersOptions = {},
): Numbers {
  const client = useBadgeClient();
  useEffect(() => {
    if (!open) return;
    const opened = client.openCategory(category);
    return () => opened.close();
  }, [client, category, open]);
  return useBadgeOf((client) => numbersOf(client, category), NOTHING);
}

/** The categories with anything to show, or with a level, as a tree by name. */
export function useCategories(): readonly Category[] {
  const badge = useBadge();
  return useMemo(() => treeOf(badge), [badge]);
}

/** The state of the connection. */
export function useStatus(): Status {
  const client = useBadgeClient();
  const subscribe = useCallback((call: () => void) => client.on("status", call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => client.status,
    () => STOPPED,
  );
}

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
export function useConversation(
  id: string | undefined,
  { open = false, upToSeq }: ConversationOptions = {},
): Conversation | undefined {
  const client = useBadgeClient();
  const subscribe = useCallback(
    (call: () => void) => onCount(client, { conversation: id }, call),
    [client, id],
  );
  const shown = useRef<OpenConversation | undefined>(undefined);
  // biome-ignore lint/correctness/useExhaustiveDependencies: the next effect tells a new upToSeq
  useEffect(() => {
    if (!open || id === undefined) return;
    const opened = client.open(id, { upToSeq });
    shown.current = opened;
    return () => {
      opened.close();
      shown.current = undefined;
    };
  }, [client, id, open]);
  useEffect(() => shown.current?.show(upToSeq), [upToSeq]);
  return useSyncExternalStore(
    subscribe,
    () => client.conversations.get(id ?? ""),
    () => undefined,
  );
}

const NONE: readonly Conversation[] = [];

/**
 * The conversations that the client has, of a category with those below it or of all; the
 * last changed first. Without a change it is the same array.
 */
export function useConversations(category?: string | undefined): readonly Conversation[] {
  const client = useBadgeClient();
  const held = useRef(NONE);
  const subscribe = useCallback((call: () => void) => onConversations(client, call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => {
      const now = conversationsOf(client, category);
      const same = now.length === held.current.length && now.every((c, i) => c === held.current[i]);
      if (!same) held.current = now;
      return held.current;
    },
    () => NONE,
  );
}

/** Shows a count, by default the total, in front of the page's title while the component is mounted. */
export function useTitle({ category, conversation, count }: Part = {}): void {
  const client = useBadgeClient();
  useEffect(
    () => showInTitle(client, { category, conversation, count }),
    [client, category, conversation, count],
  );
}

/** Draws a count, by default the total, on the page's icon while the component is mounted. */
export function useFavicon(options: FaviconOptions = {}): void {
  const client = useBadgeClient();
  const given = JSON.stringify(options);
  useEffect(() => showOnFavicon(client, JSON.parse(given)), [client, given]);
}

/** Props of {@link Badge}; the others go to the `span`. */
export interface BadgeProps extends Omit<ComponentPropsWithoutRef<"span">, "children">, Part {
  /** The largest count that is shown as it is; default 99. */
  readonly most?: number | undefined;
  /** What screen readers say; default `7 unread`. */
  readonly label?: ((count: number) => string) | undefined;
}

/** The count of everything, a category with those below it, or a conversation; nothing at 0. */
export function Badge({
  category,
  conversation,
  count: kind,
  most,
  label,
  ...rest
}: BadgeProps): ReactNode {
  const client = useBadgeClient();
  const subscribe = useCallback(
    (call: () => void) => onCount(client, { conversation }, call),
    [client, conversation],
  );
  const count = useSyncExternalStore(
    subscribe,
    () => countOf(client, { category, conversation, count: kind }),
    () => 0,
  );
  if (count <= 0) return null;
  const said = label?.(count) ?? `${count} unread`;
  return createElement(
    "span",
    { role: "img", "aria-label": said, ...rest },
    formatCount(count, most),
  );
}
