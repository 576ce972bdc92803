import { h, spoken } from "../../page/dom.js";
import { foldedTime } from "./eventtime.js";
import { count, counted, levelOf } from "./format.js";
import { idText } from "./ids.js";
import { userPlace } from "./place.js";
import type { ExplainedConversation, Explanation, LoggedEvent } from "./server.js";

/** Most conversations shown unfolded. */
const OPEN = 3;
/** Most conversations listed; the others are folded. */
const LISTED = 10;

/** What each conversation adds to the total, and why. */
export function conversationsPanel(x: Explanation): HTMLElement[] {
  const all = x.conversations;
  if (all.length === 0) return [h("p", { class: "empty panel" }, "Nothing is unread.")];
  const card = (c: ExplainedConversation) => conversation(x, c, all.length <= OPEN);
  const parts: HTMLElement[] = [
    h("ul", { class: "cards", "aria-label": "Conversations" }, ...all.slice(0, LISTED).map(card)),
  ];
  const others = all.slice(LISTED);
  if (others.length > 0) {
    const adds = others.reduce((sum, { adds }) => sum + adds, 0);
    parts.push(
      h(
        "details",
        { class: "others" },
        h(
          "summary",
          {},
          `${counted(others.length, "other conversation")}, which add ${count(adds)}`,
        ),
        h("ul", { class: "cards", "aria-label": "Other conversations" }, ...others.map(card)),
      ),
    );
  }
  if (x.more_conversations > 0) {
    parts.push(
      h(
        "p",
        { class: "soft" },
        `and ${counted(x.more_conversations, "conversation")} more, which add ${count(x.more_adds)}`,
      ),
    );
  }
  return parts;
}

function conversation(x: Explanation, c: ExplainedConversation, open: boolean): HTMLElement {
  const rows = c.messages.map((m) =>
    h(
      "tr",
      {},
      h(
        "td",
        { class: "number" },
        `${count(m.seq)} `,
        m.mentioned ? h("span", { class: "pill" }, "@", spoken(" mentions the user")) : "",
      ),
      h("td", { class: "nowrap" }, ...foldedTime(m)),
      h("td", { class: "mono wide" }, idText(m.event_id)),
      h("td", { class: "wide" }, idText(m.source ?? "")),
    ),
  );
  const brief = [
    counted(c.unread, "unread message"),
    c.mentions > 0 ? counted(c.mentions, "mention") : "",
    c.level === "default" ? levelOfCategory(c) : `level ${levelOf(c)}`,
    c.marked_unread ? "marked unread" : "",
    c.members ? `room of ${counted(c.members, "member")}` : "",
  ].filter((text) => text);
  const why = [
    c.last_read
      ? h("span", {}, `Read up to ${count(c.last_read.up_to_seq)}`, ...by(c.last_read))
      : h("span", {}, "Never read"),
    ...(c.marked_by ? [h("span", {}, "Marked unread", ...by(c.marked_by))] : []),
    ...(c.level_by ? [h("span", {}, `Level ${levelOf(c)}`, ...by(c.level_by))] : []),
    ...(x.conversations.length > 1
      ? [
          h(
            "a",
            { href: userPlace(x.user_id, { conversation: c.conversation_id }) },
            "Only this conversation",
          ),
        ]
      : []),
  ];
  return h(
    "li",
    { class: "card panel" },
    h(
      "details",
      { open },
      h(
        "summary",
        { class: "card-head" },
        h(
          "span",
          { class: c.adds > 0 ? "pill is-count" : "pill is-count is-quiet" },
          spoken("adds "),
          count(c.adds),
        ),
        h("h3", {}, idText(c.conversation_id)),
        h("span", { class: "soft" }, c.category),
        h("span", { class: "soft card-brief" }, brief.join(" · ")),
      ),
      h("p", { class: "soft why" }, ...why),
      rows.length === 0
        ? ""
        : h(
            "div",
            {
              class: "scroll",
              tabindex: "0",
              role: "region",
              "aria-label": `Unread messages of ${c.conversation_id}`,
            },
            h(
              "table",
              { class: "table" },
              h(
                "thead",
                {},
                h(
                  "tr",
                  {},
                  ...["Seq", "Folded", "Event", "From"].map((t) => h("th", { scope: "col" }, t)),
                ),
              ),
              h("tbody", {}, ...rows),
            ),
          ),
      c.more_messages > 0
        ? h("p", { class: "soft" }, `and ${counted(c.more_messages, "message")} more`)
        : "",
    ),
  );
}

/** The level of a category, if that applies. */
function levelOfCategory({ applies, level_of }: ExplainedConversation): string {
  return level_of === undefined ? "" : `level ${applies} of ${level_of}`;
}

function by(event: LoggedEvent): (Node | string)[] {
  return [" by ", idText(event.event_id), ", ", ...foldedTime(event)];
}
