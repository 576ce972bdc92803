// dist/react/src/index.ts
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
  createContext,
  createElement,
  useCallback,
  useContext,
  useEffect,
  useMemo,
  useRef,
  useSyncExternalStore
} from "react";
var Context = createContext(void 0);
var NOTHING = {
  epoch: "",
  version: 0,
  ...numbersOf({ badge: void 0 }),
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
  const latest = useRef(token);
  useEffect(() => {
    latest.current = token;
  });
  const own = useMemo(() => {
    if (given !== void 0) return void 0;
    const newest = (request) => {
      if (latest.current === void 0) throw new TypeError("BadgeProvider has no token");
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
function useBadgeClient() {
  const client = useContext(Context);
  if (client === void 0) throw new Error("no BadgeProvider around this component");
  return client;
}
function useBadge() {
  return useBadgeOf((client) => client.badge ?? NOTHING, NOTHING);
}
function useBadgeOf(read, before) {
  const client = useBadgeClient();
  const subscribe = useCallback((call) => client.on("total", call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => read(client),
    () => before
  );
}
function useNumbers(category, { open = false } = {}) {
  const client = useBadgeClient();
  useEffect(() => {
    if (!open) return;
    const opened = client.openCategory(category);
    return () => opened.close();
  }, [client, category, open]);
  return useBadgeOf((client2) => numbersOf(client2, category), NOTHING);
}
function useCategories() {
  const badge = useBadge();
  return useMemo(() => treeOf(badge), [badge]);
}
function useStatus() {
  const client = useBadgeClient();
  const subscribe = useCallback((call) => client.on("status", call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => client.status,
    () => STOPPED
  );
}
function useConversation(id, { open = false, upToSeq } = {}) {
  const client = useBadgeClient();
  const subscribe = useCallback(
    (call) => onCount(client, { conversation: id }, call),
    [client, id]
  );
  const shown = useRef(void 0);
  useEffect(() => {
    if (!open || id === void 0) return;
    const opened = client.open(id, { upToSeq });
    shown.current = opened;
    return () => {
      opened.close();
      shown.current = void 0;
    };
  }, [client, id, open]);
  useEffect(() => shown.current?.show(upToSeq), [upToSeq]);
  return useSyncExternalStore(
    subscribe,
    () => client.conversations.get(id ?? ""),
    () => void 0
  );
}
var NONE = [];
function useConversations(category) {
  const client = useBadgeClient();
  const held = useRef(NONE);
  const subscribe = useCallback((call) => onConversations(client, call), [client]);
  return useSyncExternalStore(
    subscribe,
    () => {
      const now = conversationsOf(client, category);
      const same = now.length === held.current.length && now.every((c, i) => c === held.current[i]);
      if (!same) held.current = now;
      return held.current;
    },
    () => NONE
  );
}
function useTitle({ category, conversation, count } = {}) {
  const client = useBadgeClient();
  useEffect(
    () => showInTitle(client, { category, conversation, count }),
    [client, category, conversation, count]
  );
}
function useFavicon(options = {}) {
  const client = useBadgeClient();
  const given = JSON.stringify(options);
  useEffect(() => showOnFavicon(client, JSON.parse(given)), [client, given]);
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
  const subscribe = useCallback(
    (call) => onCount(client, { conversation }, call),
    [client, conversation]
  );
  const count = useSyncExternalStore(
    subscribe,
    () => countOf(client, { category, conversation, count: kind }),
    () => 0
  );
  if (count <= 0) return null;
  const said = label?.(count) ?? `${count} unread`;
  return createElement(
    "span",
    { role: "img", "aria-label": said, ...rest },
    formatCount(count, most)
  );
}
export {
  Badge,
  BadgeProvider,
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
