// A page with @badged/vue, rendered on a server first.

import {
  Badge,
  createBadges,
  useBadge,
  useBadgeClient,
  useConversation,
  useConversations,
  useStatus,
  useTitle,
} from "@badged/vue";
import { createSSRApp, defineComponent, h, ref } from "vue";

const ID = "ada-ben";

const Thread = defineComponent(() => {
  const conversation = useConversation(ID, { open: true });
  // One whose id the page does not know yet.
  const next = useConversation(ref(undefined), { open: true });
  return () =>
    h("output", { id: "thread" }, `${conversation.value?.unread} unread${next.value ? "?" : ""}`);
});

const Inbox = defineComponent(() => {
  const badge = useBadge();
  const status = useStatus();
  const client = useBadgeClient();
  const conversation = useConversation(() => ID);
  const listed = useConversations();
  useTitle(() => ({ conversation: ID }));
  const open = ref(false);
  const toggle = () => {
    open.value = !open.value;
  };
  return () =>
    h("main", [
      h("output", { id: "status" }, status.value.state),
      h("output", { id: "total" }, String(badge.value.total)),
      h("output", { id: "unread" }, String(conversation.value?.unread ?? 0)),
      h("output", { id: "read" }, String(conversation.value?.readSeq ?? 0)),
      h("output", { id: "listed" }, listed.value.map((c) => c.conversationId).join(" ")),
      h("p", { id: "badge" }, [h(Badge, { most: 1 }), h(Badge, { conversation: ID })]),
      h("button", { type: "button", onClick: () => client.readAll() }, "Read all"),
      h("button", { type: "button", onClick: toggle }, "Thread"),
      open.value ? h(Thread) : null,
    ]);
});

export function createApp({ url, token }) {
  const shown = ref(true);
  const toggle = () => {
    shown.value = !shown.value;
  };
  const app = createSSRApp({
    render: () => [
      h("button", { type: "button", onClick: toggle }, "Whole"),
      shown.value ? h(Inbox) : null,
    ],
  });
  return app.use(createBadges({ url, user: "ada", token: async () => token }));
}
