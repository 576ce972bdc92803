/**
 * A plugin, composables and a component for the live unread badge of one user.
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
  type OpenCategory,
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
  type App,
  defineComponent,
  h,
  type InjectionKey,
  inject,
  type MaybeRefOrGetter,
  onMounted,
  onUnmounted,
  type PropType,
  type Ref,
  shallowRef,
  toValue,
  watch,
} from "vue";

const KEY: InjectionKey<Badged> = Symbol("badged");

/** The clients that the plugin made, and starts. */
const own = new WeakSet<Badged>();

const NOTHING: BadgeState = {
  epoch: "",
  version: 0,
  ...numbersOf({ badge: undefined }),
  categories: {},
  levels: {},
};

/**
 * Makes the plugin: `app.use(createBadges({ url, user, token }))`. Its client
 * starts when the first component that shows something of it is mounted, and
 * stops with the app. A client that you pass is yours to start and stop.
 */
export function createBadges(given: Badged | BadgedOptions): {
  readonly client: Badged;
  install(app: App): void;
} {
  // Not instanceof: the app may have loaded the other build of the SDK.
  const client = "conversations" in given ? given : new Badged(given);
  return {
    client,
    install(app) {
      app.provide(KEY, client);
      if (client === given) return;
      own.add(client);
      app.onUnmount(() => client.stop());
    },
  };
}

/** The client of the plugin. */
export function useBadgeClient(): Badged {
  const client = inject(KEY, undefined);
  if (client === undefined) throw new Error("no plugin: call app.use(createBadges(…))");
  return client;
}

/**
 * The value of `read` in the browser, from when the component is mounted: the
 * page must first look as the server has rendered it.
 */
function follow<Value>(
  before: Value,
  read: (client: Badged) => Value,
  subscribe: (client: Badged, call: () => void) => () => void,
  ...sources: MaybeRefOrGetter<unknown>[]
): Readonly<Ref<Value>> {
  const client = useBadgeClient();
  const value = shallowRef(before);
  let end = () => {};
  onMounted(() => {
    watch(
      sources.map((source) => () => toValue(source)),
      () => {
        end();
        const update = () => {
          value.value = read(client);
        };
        end = subscribe(client, update);
        update();
      },
      { immediate: true },
    );
    if (own.has(client) && client.status.state === "stopped") client.start();
  });
  onUnmounted(() => end());
  return value;
}

/** The numbers of everything, the categories and their levels; all zero before the first state. */
export function useBadge(): Readonly<Ref<BadgeState>> {
  return follow(
    NOTHING,
    (client) => client.badge ?? NOTHING,
    (client, call) => client.on("total", call),
  );
}

/** Options of {@link useNumbers}. */
export interface NumbersOptions {
  /** A list of it is on the screen: what arrives is seen while the user looks; default false. */
  readonly open?: MaybeRefOrGetter<boolean | undefined>;
}

/** The numbers of a category with those below it, or of everything. */
export function useNumbers(
  category?: MaybeRefOrGetter<string | undefined>,
  { open }: NumbersOptions = {},
): Readonly<Ref<Numbers>> {
  const client = useBadgeClient();
  let opened: OpenCategory | undefined;
  onMounted(() => {
    watch(
      [() => toValue(category), () => toValue(open)] as const,
      ([category, open]) => {
        opened?.close();
        opened = open ? client.openCategory(category) : undefined;
      },
      { immediate: true },
    );
  });
  onUnmounted(() => opened?.close());
  return follow<Numbers>(
    NOTHING,
    (client) => numbersOf(client, toValue(category)),
    (client, call) => client.on("total", call),
    category,
  );
}

/** The categories with anything to show, or with a level, as a tree by name. */
export function useCategories(): Readonly<Ref<readonly Category[]>> {
  return follow<readonly Category[]>(
    [],
    ({ badge }) => (badge === undefined ? [] : treeOf(badge)),
    (client, call) => client.on("total", call),
  );
}

/** The state of the connection. */
export function useStatus(): Readonly<Ref<Status>> {
  return follow<Status>(
    { state: "stopped" },
    (client) => client.status,
    (client, call) => client.on("status", call),
  );
}

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
export function useConversation(
  id: MaybeRefOrGetter<string | undefined>,
  { open, upToSeq }: ConversationOptions = {},
): Readonly<Ref<Conversation | undefined>> {
  const client = useBadgeClient();
  let shown: OpenConversation | undefined;
  onMounted(() => {
    watch(
      [() => toValue(id), () => toValue(open)] as const,
      ([id, open]) => {
        shown?.close();
        const opens = open && id !== undefined;
        shown = opens ? client.open(id, { upToSeq: toValue(upToSeq) }) : undefined;
      },
      { immediate: true },
    );
    watch(
      () => toValue(upToSeq),
      (seq) => shown?.show(seq),
    );
  });
  onUnmounted(() => shown?.close());
  return follow<Conversation | undefined>(
    undefined,
    (client) => client.conversations.get(toValue(id) ?? ""),
    (client, call) => onCount(client, { conversation: toValue(id) }, call),
    id,
  );
}

/**
 * The conversations that the client has, of a category with those below it or of all; the
 * last changed first.
 */
export function useConversations(
  category?: MaybeRefOrGetter<string | undefined>,
): Readonly<Ref<readonly Conversation[]>> {
  return follow<readonly Conversation[]>(
    [],
    (client) => conversationsOf(client, toValue(category)),
    onConversations,
    category,
  );
}

/** Shows a count, by default the total, in front of the page's title while the component is mounted. */
export function useTitle(part: MaybeRefOrGetter<Part> = {}): void {
  useShown(part, showInTitle);
}

/** Draws a count, by default the total, on the page's icon while the component is mounted. */
export function useFavicon(options: MaybeRefOrGetter<FaviconOptions> = {}): void {
  useShown(options, showOnFavicon);
}

function useShown<Options>(
  options: MaybeRefOrGetter<Options>,
  show: (client: Badged, options: Options) => () => void,
): void {
  const client = useBadgeClient();
  let end = () => {};
  onMounted(() => {
    watch(
      () => toValue(options),
      (options) => {
        end();
        end = show(client, options);
      },
      { immediate: true, deep: true },
    );
  });
  onUnmounted(() => end());
}

/** The count of everything, a category with those below it, or a conversation; nothing at 0. */
export const Badge = defineComponent({
  name: "UnreadBadge",
  props: {
    category: String,
    conversation: String,
    /** What is counted; default `messages`. */
    count: String as PropType<NonNullable<Part["count"]>>,
    /** The largest count that is shown as it is. */
    most: { type: Number, default: 99 },
    /** What screen readers say. */
    label: { type: Function as unknown as () => (count: number) => string },
  },
  setup(props) {
    const count = follow(
      0,
      (client) => countOf(client, props),
      (client, call) => onCount(client, props, call),
      () => props.category,
      () => props.conversation,
      () => props.count,
    );
    return () =>
      count.value > 0
        ? h(
            "span",
            { role: "img", "aria-label": props.label?.(count.value) ?? `${count.value} unread` },
            formatCount(count.value, props.most),
          )
        : null;
  },
});
