/**
 * Hooks and components for the live unread badge of one user.
 *
 * @packageDocumentation
 */
import {
  Badged,
  type BadgedOptions,
  type Badge as BadgeState,
  type Conversation,
  countOf,
  formatCount,
  type OpenConversation,
  onCount,
  type Part,
  type Seq,
  type Status,
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
  total: 0,
  mentions: 0,
  categories: {},
  unreadConversations: 0,
  categoryConversations: {},
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

/** The total, the mentions, the unread conversations and the categories; all zero before the first state. */
export function useBadge(): BadgeState {
  const client = useBadgeClient();
  const subscribe = useCallback((call: () => void) => client.on("total", call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => client.badge ?? NOTHING,
    () => NOTHING,
  );
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

/** Props of {@link Badge}; the others go to the `span`. */
export interface BadgeProps extends Omit<ComponentPropsWithoutRef<"span">, "children">, Part {
  /** The largest count that is shown as it is; default 99. */
  readonly most?: number | undefined;
  /** What screen readers say; default `7 unread`. */
  readonly label?: ((count: number) => string) | undefined;
}

/** The count of everything, a category or a conversation; nothing at 0. */
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
