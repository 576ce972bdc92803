// A page with @badged/react, rendered on a server first.

import {
  Badge,
  BadgeProvider,
  useBadge,
  useBadgeClient,
  useConversation,
  useConversations,
  useStatus,
  useTitle,
} from "@badged/react";
import { createElement as h, StrictMode, useState } from "react";

const ID = "ada-ben";

function Thread() {
  const conversation = useConversation(ID, { open: true });
  // One whose id the page does not know yet.
  const next = useConversation(undefined, { open: true });
  return h("output", { id: "thread" }, `${conversation?.unread} unread${next ? "?" : ""}`);
}

function Inbox() {
  const { total } = useBadge();
  const { state } = useStatus();
  const client = useBadgeClient();
  const conversation = useConversation(ID);
  const listed = useConversations().map(({ conversationId }) => conversationId);
  useTitle({ conversation: ID });
  const [open, setOpen] = useState(false);
  return h(
    "main",
    {},
    h("output", { id: "status" }, state),
    h("output", { id: "total" }, String(total)),
    h("output", { id: "unread" }, String(conversation?.unread ?? 0)),
    h("output", { id: "read" }, String(conversation?.readSeq ?? 0)),
    h("output", { id: "listed" }, listed.join(" ")),
    h("p", { id: "badge" }, h(Badge, { most: 1 }), h(Badge, { conversation: ID })),
    h("button", { type: "button", onClick: () => client.readAll() }, "Read all"),
    h("button", { type: "button", onClick: () => setOpen(!open) }, "Thread"),
    open && h(Thread),
  );
}

export function App({ url, token }) {
  const [shown, setShown] = useState(true);
  return h(
    StrictMode,
    {},
    h("button", { type: "button", onClick: () => setShown(!shown) }, "Whole"),
    // A new function in each render, as applications write it.
    shown && h(BadgeProvider, { url, user: "ada", token: async () => token }, h(Inbox)),
  );
}
