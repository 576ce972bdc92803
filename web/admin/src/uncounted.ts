import { h } from "../../page/dom.js";
import { foldedTime } from "./eventtime.js";
import { foldedRows, kinds } from "./fold.js";
import { count, counted, when } from "./format.js";
import { idText } from "./ids.js";
import { table } from "./overview.js";
import type { Explanation, UncountedEvent } from "./server.js";

/** The events that named a user and changed no number, with similar ones folded. */
export function uncountedPanel(x: Explanation): HTMLElement {
  const kindOf = ({ type = "", why }: { type?: string; why: string }) => `${type} ${why}`;
  const known = new Map(x.uncounted_kinds.map((kind) => [kindOf(kind), kind.events]));
  const all = x.uncounted.length + x.more_uncounted;
  const rows = foldedRows(kinds(x.uncounted, kindOf), row, ({ items }) => {
    const newest = items[0];
    if (newest === undefined) return undefined;
    const events = known.get(kindOf(newest)) ?? items.length;
    return {
      text: counted(events, "event"),
      cells: [
        h("td", { class: "mono" }, newest.type ?? ""),
        h("td", {}),
        h("td", { class: "wide" }, REASONS[newest.why] ?? newest.why),
        h(
          "td",
          { class: "soft" },
          `newest ${when(newest.folded_at)}${events > items.length ? `; ${count(items.length)} listed` : ""}`,
        ),
      ],
    };
  });
  const panel = table(
    "Events that changed no number",
    ["Folded", "Type", "About", "Why", "Event"],
    h("tbody", {}, ...rows),
  );
  panel.querySelector("h2")?.append(h("span", { class: "soft" }, ` ${count(all)}`));
  return panel;
}

const REASONS: Readonly<Record<string, string>> = {
  duplicate: "the user had an event of the same source and id before",
  dead_letter: "not decoded",
  own_message: "the user sent the message",
  already_read: "read up to there before",
  recalled: "the message was recalled before",
  already_delivered: "an earlier event delivered the message",
  not_delivered: "the message was not delivered",
  same_state: "the conversation was so before",
  already_marked: "marked unread before",
  left: "the user had left the conversation",
  same_level: "the level was the same before",
  nothing_unread: "nothing was unread",
  already_member: "was a member already",
  no_member: "was no member",
};

function row(e: UncountedEvent): HTMLTableRowElement {
  const about =
    e.conversation_id === undefined
      ? []
      : [idText(e.conversation_id), e.seq === undefined ? "" : ` · ${count(e.seq)}`];
  return h(
    "tr",
    {},
    h("td", { class: "nowrap" }, ...foldedTime(e)),
    h("td", { class: "mono" }, e.type ?? ""),
    h("td", {}, ...about),
    h("td", { class: "wide" }, e.detail),
    h("td", { class: "mono wide" }, idText(e.event_id)),
  );
}
