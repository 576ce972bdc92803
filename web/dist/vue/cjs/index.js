"use strict";
var __defProp = Object.defineProperty;
var __getOwnPropDesc = Object.getOwnPropertyDescriptor;
var __getOwnPropNames = Object.getOwnPropertyNames;
var __hasOwnProp = Object.prototype.hasOwnProperty;
var __export = (target, all) => {
  for (var name in all)
    __defProp(target, name, { get: all[name], enumerable: true });
};
var __copyProps = (to, from, except, desc) => {
  if (from && typeof from === "object" || typeof from === "function") {
    for (let key of __getOwnPropNames(from))
      if (!__hasOwnProp.call(to, key) && key !== except)
        __defProp(to, key, { get: () => from[key], enumerable: !(desc = __getOwnPropDesc(from, key)) || desc.enumerable });
  }
  return to;
};
var __toCommonJS = (mod) => __copyProps(__defProp({}, "__esModule", { value: true }), mod);

// dist/vue/src/index.ts
var index_exports = {};
__export(index_exports, {
  Badge: () => Badge,
  createBadges: () => createBadges,
  useBadge: () => useBadge,
  useBadgeClient: () => useBadgeClient,
  useCategories: () => useCategories,
  useConversation: () => useConversation,
  useConversations: () => useConversations,
  useFavicon: () => useFavicon,
  useNumbers: () => useNumbers,
  useStatus: () => useStatus,
  useTitle: () => useTitle
});
module.exports = __toCommonJS(index_exports);
var import_sdk = require("@badged/sdk");
var import_vue = require("vue");
var KEY = /* @__PURE__ */ Symbol("badged");
var own = /* @__PURE__ */ new WeakSet();
var NOTHING = {
  epoch: "",
  version: 0,
  ...(0, import_sdk.numbersOf)({ badge: void 0 }),
  categories: {},
  levels: {}
};
function createBadges(given) {
  const client = "conversations" in given ? given : new import_sdk.Badged(given);
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
  const client = (0, import_vue.inject)(KEY, void 0);
  if (client === void 0) throw new Error("no plugin: call app.use(createBadges(…))");
  return client;
}
function follow(before, read, subscribe, ...sources) {
  const client = useBadgeClient();
  const value = (0, import_vue.shallowRef)(before);
  let end = () => {
  };
  (0, import_vue.onMounted)(() => {
    (0, import_vue.watch)(
      sources.map((source) => () => (0, import_vue.toValue)(source)),
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
  (0, import_vue.onUnmounted)(() => end());
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
  (0, import_vue.onMounted)(() => {
    (0, import_vue.watch)(
      [() => (0, import_vue.toValue)(category), () => (0, import_vue.toValue)(open)],
      ([category2, open2]) => {
        opened?.close();
        opened = open2 ? client.openCategory(category2) : void 0;
      },
      { immediate: true }
    );
  });
  (0, import_vue.onUnmounted)(() => opened?.close());
  return follow(
    NOTHING,
    (client2) => (0, import_sdk.numbersOf)(client2, (0, import_vue.toValue)(category)),
    (client2, call) => client2.on("total", call),
    category
  );
}
function useCategories() {
  return follow(
    [],
    ({ badge }) => badge === void 0 ? [] : (0, import_sdk.treeOf)(badge),
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
  (0, import_vue.onMounted)(() => {
    (0, import_vue.watch)(
      [() => (0, import_vue.toValue)(id), () => (0, import_vue.toValue)(open)],
      ([id2, open2]) => {
        shown?.close();
        const opens = open2 && id2 !== void 0;
        shown = opens ? client.open(id2, { upToSeq: (0, import_vue.toValue)(upToSeq) }) : void 0;
      },
      { immediate: true }
    );
    (0, import_vue.watch)(
      () => (0, import_vue.toValue)(upToSeq),
      (seq) => shown?.show(seq)
    );
  });
  (0, import_vue.onUnmounted)(() => shown?.close());
  return follow(
    void 0,
    (client2) => client2.conversations.get((0, import_vue.toValue)(id) ?? ""),
    (client2, call) => (0, import_sdk.onCount)(client2, { conversation: (0, import_vue.toValue)(id) }, call),
    id
  );
}
function useConversations(category) {
  return follow(
    [],
    (client) => (0, import_sdk.conversationsOf)(client, (0, import_vue.toValue)(category)),
    import_sdk.onConversations,
    category
  );
}
function useTitle(part = {}) {
  useShown(part, import_sdk.showInTitle);
}
function useFavicon(options = {}) {
  useShown(options, import_sdk.showOnFavicon);
}
function useShown(options, show) {
  const client = useBadgeClient();
  let end = () => {
  };
  (0, import_vue.onMounted)(() => {
    (0, import_vue.watch)(
      () => (0, import_vue.toValue)(options),
      (options2) => {
        end();
        end = show(client, options2);
      },
      { immediate: true, deep: true }
    );
  });
  (0, import_vue.onUnmounted)(() => end());
}
var Badge = (0, import_vue.defineComponent)({
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
      (client) => (0, import_sdk.countOf)(client, props),
      (client, call) => (0, import_sdk.onCount)(client, props, call),
      () => props.category,
      () => props.conversation,
      () => props.count
    );
    return () => count.value > 0 ? (0, import_vue.h)(
      "span",
      { role: "img", "aria-label": props.label?.(count.value) ?? `${count.value} unread` },
      (0, import_sdk.formatCount)(count.value, props.most)
    ) : null;
  }
});
//# sourceMappingURL=index.js.map
