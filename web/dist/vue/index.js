// dist/vue/src/index.ts
import {
  Badged,
  conversationsOf,
  countOf,
  formatCount,
  numbersOf,
  onConversations,
  onCount,
  showInTitle,
  showOnFavicon,
  treeOf
} from "@badged/sdk";
import {
  defineComponent,
  h,
  inject,
  onMounted,
  onUnmounted,
  shallowRef,
  toValue,
  watch
} from "vue";
var KEY = /* @__PURE__ */ Symbol("badged");
var own = /* @__PURE__ */ new WeakSet();
var NOTHING = {
  epoch: "",
  version: 0,
  ...numbersOf({ badge: void 0 }),
  categories: {},
  levels: {}
};
function createBadges(given) {
  const client = "conversations" in given ? given : new Badged(given);
  return {
    client,
    install(app) {
      app.provide(KEY, client);
      if (client === given) return;
      own.add(client);
      app.onUnmount(() => client.stop());
    }
  };
}
function useBadgeClient() {
  const client = inject(KEY, void 0);
  if (client === void 0) throw new Error("no plugin: call app.use(createBadges(…))");
  return client;
}
function follow(before, read, subscribe, ...sources) {
  const client = useBadgeClient();
  const value = shallowRef(before);
  let end = () => {
  };
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
      { immediate: true }
    );
    if (own.has(client) && client.status.state === "stopped") client.start();
  });
  onUnmounted(() => end());
  return value;
}
function useBadge() {
  return follow(
    NOTHING,
    (client) => client.badge ?? NOTHING,
    (client, call) => client.on("total", call)
  );
}
function useNumbers(category, { open } = {}) {
  const client = useBadgeClient();
  let opened;
  onMounted(() => {
    watch(
      [() => toValue(category), () => toValue(open)],
      ([category2, open2]) => {
        opened?.close();
        opened = open2 ? client.openCategory(category2) : void 0;
      },
      { immediate: true }
    );
  });
  onUnmounted(() => opened?.close());
  return follow(
    NOTHING,
    (client2) => numbersOf(client2, toValue(category)),
    (client2, call) => client2.on("total", call),
    category
  );
}
function useCategories() {
  return follow(
    [],
    ({ badge }) => badge === void 0 ? [] : treeOf(badge),
    (client, call) => client.on("total", call)
  );
}
function useStatus() {
  return follow(
    { state: "stopped" },
    (client) => client.status,
    (client, call) => client.on("status", call)
  );
}
function useConversation(id, { open, upToSeq } = {}) {
  const client = useBadgeClient();
  let shown;
  onMounted(() => {
    watch(
      [() => toValue(id), () => toValue(open)],
      ([id2, open2]) => {
        shown?.close();
        const opens = open2 && id2 !== void 0;
        shown = opens ? client.open(id2, { upToSeq: toValue(upToSeq) }) : void 0;
      },
      { immediate: true }
    );
    watch(
      () => toValue(upToSeq),
      (seq) => shown?.show(seq)
    );
  });
  onUnmounted(() => shown?.close());
  return follow(
    void 0,
    (client2) => client2.conversations.get(toValue(id) ?? ""),
    (client2, call) => onCount(client2, { conversation: toValue(id) }, call),
    id
  );
}
function useConversations(category) {
  return follow(
    [],
    (client) => conversationsOf(client, toValue(category)),
    onConversations,
    category
  );
}
function useTitle(part = {}) {
  useShown(part, showInTitle);
}
function useFavicon(options = {}) {
  useShown(options, showOnFavicon);
}
function useShown(options, show) {
  const client = useBadgeClient();
  let end = () => {
  };
  onMounted(() => {
    watch(
      () => toValue(options),
      (options2) => {
        end();
        end = show(client, options2);
      },
      { immediate: true, deep: true }
    );
  });
  onUnmounted(() => end());
}
var Badge = defineComponent({
  name: "UnreadBadge",
  props: {
    category: String,
    conversation: String,
    /** What is counted; default `messages`. */
    count: String,
    /** The largest count that is shown as it is. */
    most: { type: Number, default: 99 },
    /** What screen readers say. */
    label: { type: Function }
  },
  setup(props) {
    const count = follow(
      0,
      (client) => countOf(client, props),
      (client, call) => onCount(client, props, call),
      () => props.category,
      () => props.conversation,
      () => props.count
    );
    return () => count.value > 0 ? h(
      "span",
      { role: "img", "aria-label": props.label?.(count.value) ?? `${count.value} unread` },
      formatCount(count.value, props.most)
    ) : null;
  }
});
export {
  Badge,
  createBadges,
  useBadge,
  useBadgeClient,
  useCategories,
  useConversation,
  useConversations,
  useFavicon,
  useNumbers,
  useStatus,
  useTitle
};
//# sourceMappingURL=index.js.map
