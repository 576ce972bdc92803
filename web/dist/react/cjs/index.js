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

// dist/react/src/index.ts
var index_exports = {};
__export(index_exports, {
  Badge: () => Badge,
  BadgeProvider: () => BadgeProvider,
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
var import_react = require("react");
var Context = (0, import_react.createContext)(void 0);
var NOTHING = {
  epoch: "",
  version: 0,
  ...(0, import_sdk.numbersOf)({ badge: void 0 }),
  categories: {},
  levels: {}
};
var STOPPED = { state: "stopped" };
function BadgeProvider(props) {
  const {
    client: given,
    children,
    ...options
  } = props;
  const { url = "", user, device, token } = options;
  const latest = (0, import_react.useRef)(token);
  (0, import_react.useEffect)(() => {
    latest.current = token;
  });
  const own = (0, import_react.useMemo)(() => {
    if (given !== void 0) return void 0;
    const newest = (request) => {
      if (latest.current === void 0) throw new TypeError("BadgeProvider has no token");
      return latest.current(request);
    };
    return new import_sdk.Badged({ ...options, url, token: newest });
  }, [given, url, user, device]);
  (0, import_react.useEffect)(() => {
    own?.start();
    return () => own?.stop();
  }, [own]);
  return (0, import_react.createElement)(Context.Provider, { value: given ?? own }, children);
}
function useBadgeClient() {
  const client = (0, import_react.useContext)(Context);
  if (client === void 0) throw new Error("no BadgeProvider around this component");
  return client;
}
function useBadge() {
  return useBadgeOf((client) => client.badge ?? NOTHING, NOTHING);
}
function useBadgeOf(read, before) {
  const client = useBadgeClient();
  const subscribe = (0, import_react.useCallback)((call) => client.on("total", call), [client]);
  return (0, import_react.useSyncExternalStore)(
    subscribe,
    () => read(client),
    () => before
  );
}
function useNumbers(category, { open = false } = {}) {
  const client = useBadgeClient();
  (0, import_react.useEffect)(() => {
    if (!open) return;
    const opened = client.openCategory(category);
    return () => opened.close();
  }, [client, category, open]);
  return useBadgeOf((client2) => (0, import_sdk.numbersOf)(client2, category), NOTHING);
}
function useCategories() {
  const badge = useBadge();
  return (0, import_react.useMemo)(() => (0, import_sdk.treeOf)(badge), [badge]);
}
function useStatus() {
  const client = useBadgeClient();
  const subscribe = (0, import_react.useCallback)((call) => client.on("status", call), [client]);
  return (0, import_react.useSyncExternalStore)(
    subscribe,
    () => client.status,
    () => STOPPED
  );
}
function useConversation(id, { open = false, upToSeq } = {}) {
  const client = useBadgeClient();
  const subscribe = (0, import_react.useCallback)(
    (call) => (0, import_sdk.onCount)(client, { conversation: id }, call),
    [client, id]
  );
  const shown = (0, import_react.useRef)(void 0);
  (0, import_react.useEffect)(() => {
    if (!open || id === void 0) return;
    const opened = client.open(id, { upToSeq });
    shown.current = opened;
    return () => {
      opened.close();
      shown.current = void 0;
    };
  }, [client, id, open]);
  (0, import_react.useEffect)(() => shown.current?.show(upToSeq), [upToSeq]);
  return (0, import_react.useSyncExternalStore)(
    subscribe,
    () => client.conversations.get(id ?? ""),
    () => void 0
  );
}
var NONE = [];
function useConversations(category) {
  const client = useBadgeClient();
  const held = (0, import_react.useRef)(NONE);
  const subscribe = (0, import_react.useCallback)((call) => (0, import_sdk.onConversations)(client, call), [client]);
  return (0, import_react.useSyncExternalStore)(
    subscribe,
    () => {
      const now = (0, import_sdk.conversationsOf)(client, category);
      const same = now.length === held.current.length && now.every((c, i) => c === held.current[i]);
      if (!same) held.current = now;
      return held.current;
    },
    () => NONE
  );
}
function useTitle({ category, conversation, count } = {}) {
  const client = useBadgeClient();
  (0, import_react.useEffect)(
    () => (0, import_sdk.showInTitle)(client, { category, conversation, count }),
    [client, category, conversation, count]
  );
}
function useFavicon(options = {}) {
  const client = useBadgeClient();
  const given = JSON.stringify(options);
  (0, import_react.useEffect)(() => (0, import_sdk.showOnFavicon)(client, JSON.parse(given)), [client, given]);
}
function Badge({
  category,
  conversation,
  count: kind,
  most,
  label,
  ...rest
}) {
  const client = useBadgeClient();
  const subscribe = (0, import_react.useCallback)(
    (call) => (0, import_sdk.onCount)(client, { conversation }, call),
    [client, conversation]
  );
  const count = (0, import_react.useSyncExternalStore)(
    subscribe,
    () => (0, import_sdk.countOf)(client, { category, conversation, count: kind }),
    () => 0
  );
  if (count <= 0) return null;
  const said = label?.(count) ?? `${count} unread`;
  return (0, import_react.createElement)(
    "span",
    { role: "img", "aria-label": said, ...rest },
    (0, import_sdk.formatCount)(count, most)
  );
}
//# sourceMappingURL=index.js.map
