import { h, spoken } from "../../page/dom.js";
import { foldedTime } from "./eventtime.js";
import { foldedRows, runs } from "./fold.js";
import { count, counted } from "./format.js";
import { idText } from "./ids.js";
import { table } from "./overview.js";
import { userPlace } from "./place.js";
import type { Delivered, DeliveredMessage, Explanation } from "./server.js";

const FATES: Record<DeliveredMessage["fate"], string> = {
  unread: "Unread",
  read: "Read",
  recalled: "Recalled",
  read_before: "Arrived after it was read",
  recalled_before: "Arrived after it was recalled",
  own_message: "Sent by the user",
};

/** The messages delivered to a user, read or not, and the outcome of each. */
export function deliveredPanel(
  x: Explanation,
  older: (before: string) => Promise<Delivered | undefined>,
): HTMLElement {
  const body = h("tbody");
  const more = h("button", { class: "button", type: "button" });
  let shown: readonly DeliveredMessage[] = [];
  const show = (page: Delivered) => {
    shown = [...shown, ...page.messages];
    body.replaceChildren(...rowsOf(x.user_id, shown));
    more.hidden = page.more === 0;
    more.textContent = `Show older, ${count(page.more)} more`;
  };
  show(x.delivered ?? { messages: [], more: 0 });
  if (shown.length === 0) {
    body.append(
      h("tr", {}, h("td", { class: "empty", colspan: "5" }, "No messages were delivered.")),
    );
  }
  more.addEventListener("click", async () => {
    const last = shown.at(-1);
    if (last === undefined) return;
    more.disabled = true;
    const page = await older(last.position);
    more.disabled = false;
    if (page !== undefined) show(page);
  });
  const panel = table(
    "Delivered messages",
    ["Message", "Conversation", "Status", "Folded", "Event"],
    body,
  );
  panel.append(h("p", { class: "panel-foot" }, more));
  return panel;
}

function rowsOf(user: string, messages: readonly DeliveredMessage[]): HTMLTableRowElement[] {
  const groups = runs(messages, (m) =>
    JSON.stringify([m.conversation_id, m.fate, m.by?.position ?? ""]),
  );
  return foldedRows(
    groups,
    (m) => row(user, m),
    ({ items }) => {
      const [newest, oldest] = [items[0], items.at(-1)];
      if (newest === undefined || oldest === undefined) return undefined;
      return {
        text: counted(items.length, "message"),
        cells: [
          h("td", {}, conversationLink(user, newest.conversation_id)),
          h("td", { class: "wide" }, fateOf(newest)),
          h("td", { class: "nowrap" }, ...foldedTime(newest)),
          h("td", { class: "soft" }, `${count(oldest.seq)} to ${count(newest.seq)}`),
        ],
      };
    },
  );
}

function row(user: string, m: DeliveredMessage): HTMLTableRowElement {
  return h(
    "tr",
    { class: m.fate === "unread" ? undefined : "is-quiet" },
    h(
      "td",
      { class: "number" },
      `${count(m.seq)} `,
      m.mentioned ? h("span", { class: "pill" }, "@", spoken(" mentions the user")) : "",
    ),
    h("td", {}, conversationLink(user, m.conversation_id)),
    h("td", { class: "wide" }, fateOf(m)),
    h("td", { class: "nowrap" }, ...foldedTime(m)),
    h("td", { class: "mono wide" }, idText(m.event_id)),
  );
}

function fateOf(m: DeliveredMessage): HTMLElement {
  const fate = h("span", { class: "fate", "data-fate": m.fate }, FATES[m.fate]);
  if (m.by === undefined) return fate;
  return h(
    "span",
    {},
    fate,
    h(
      "span",
      { class: "soft" },
      " by ",
      idText(m.by.event_id),
      ` from ${m.by.source ?? "–"}, `,
      ...foldedTime(m.by),
    ),
  );
}

export function conversationLink(user: string, conversation: string): HTMLElement {
  return h("a", { href: userPlace(user, { conversation }) }, idText(conversation));
}
