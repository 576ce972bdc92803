import { type Badge, type Conversation, formatCount, levelOf, shareOf } from "@badged/sdk";
import { h, plural, setText, spoken } from "../../page/dom.js";
import { icon } from "./icons.js";
import type { Message } from "./server.js";

/** A conversation from the view of one user. */
export interface Topic {
  readonly id: string;
  readonly title: string;
  readonly kind: "group" | "direct" | "feed" | "room";
  readonly category: string;
  /** Shown with its first message. */
  readonly late: boolean;
  /** The color of the other user of a direct conversation. */
  readonly color: string | undefined;
}

/** The content of a row. */
export interface RowState {
  readonly conversation: Conversation | undefined;
  /** The levels of categories. */
  readonly levels: Badge["levels"];
  readonly last: Message | undefined;
  /** The last message in one line. */
  readonly preview: string;
}

/** The list of a user's conversations. Rows keep their places, so that changes are easy to follow. */
export class ConversationList {
  readonly element: HTMLElement;
  readonly #rows = new Map<string, Row>();
  readonly #topics: readonly Topic[];
  readonly #tabs: Tabs | undefined;
  #category: string | undefined;

  constructor(topics: readonly Topic[], owner: string, onOpen: (topic: Topic) => void) {
    this.#topics = topics;
    const list = h("ul", { class: "rows", "aria-label": `Conversations of ${owner}` });
    for (const topic of topics) {
      const row = new Row(topic, () => onOpen(topic));
      this.#rows.set(topic.id, row);
      list.append(row.element);
    }
    this.element = h("div", { class: "list" }, list);

    const categories = [...new Set(topics.map(({ category }) => category))];
    if (categories.length > 1) {
      this.#tabs = new Tabs(categories, (category) => {
        this.#category = category;
        this.#filter();
      });
      this.element.append(this.#tabs.element);
    }
  }

  update(count: (category: string | undefined) => number, state: (topic: Topic) => RowState): void {
    for (const topic of this.#topics) this.#rows.get(topic.id)?.update(state(topic));
    this.#filter();
    this.#tabs?.update(count);
  }

  /** Focuses a row, for example after its conversation was closed. */
  focus(topic: Topic): void {
    this.#rows.get(topic.id)?.button.focus();
  }

  #filter(): void {
    for (const { id, category, late } of this.#topics) {
      const row = this.#rows.get(id);
      if (row === undefined) continue;
      const chosen = this.#category === undefined || category === this.#category;
      row.element.hidden = !chosen || (late && !row.hasMessages);
    }
  }
}

class Row {
  readonly element: HTMLLIElement;
  readonly button: HTMLButtonElement;
  hasMessages = false;
  readonly #preview = h("span", { class: "row-preview" });
  readonly #time = h("span", { class: "row-time" });
  readonly #marks = h("span", { class: "row-marks" });
  readonly #level = h("span", { class: "row-level" });
  #drawn = "";

  constructor(topic: Topic, onOpen: () => void) {
    const title = h(
      "span",
      { class: "row-title" },
      h("span", { class: "row-name" }, topic.title),
      this.#level,
    );
    this.button = h(
      "button",
      { class: "row", type: "button" },
      avatar(topic),
      h(
        "span",
        { class: "row-lines" },
        h("span", { class: "row-line" }, title, this.#time),
        h("span", { class: "row-line" }, this.#preview, this.#marks),
      ),
    );
    this.button.addEventListener("click", onOpen);
    this.element = h("li", {}, this.button);
  }

  update({ conversation, levels, last, preview }: RowState): void {
    this.hasMessages = conversation !== undefined;
    setText(this.#preview, preview);
    setText(this.#time, last ? ago(new Date(last.time)) : "");

    const { unread = 0, mentions = 0, markedUnread = false } = conversation ?? {};
    const level = (conversation && levelOf(conversation, levels)) ?? "all";
    const marks = [unread, mentions, level, markedUnread].join();
    if (marks === this.#drawn) return;
    this.#drawn = marks;

    this.button.classList.toggle("is-unread", unread > 0 || markedUnread);
    this.#level.replaceChildren(...levelMark(level));
    this.#marks.replaceChildren();
    if (mentions > 0) {
      this.#marks.append(
        h(
          "span",
          { class: level === "none" ? "pill is-quiet" : "pill", "aria-hidden": "true" },
          "@",
        ),
        spoken(`, ${plural(mentions, "mention")}`),
      );
    }
    if (unread > 0 || markedUnread) {
      // Only counted numbers are red, so that the red numbers add up to the badge.
      const share = conversation && shareOf(conversation, levels);
      const counts = (share?.total ?? 0) >= Math.max(unread, 1);
      this.#marks.append(
        h(
          "span",
          { class: counts ? "pill" : "pill is-quiet", "aria-hidden": "true" },
          formatCount(unread) || "\u00a0",
        ),
        spoken(unread > 0 ? `, ${unread} unread` : ", marked unread"),
      );
    }
  }
}

function levelMark(level: string): Node[] {
  if (level === "none") return [icon("muted"), spoken(", muted")];
  if (level === "mentions")
    return [h("span", { "aria-hidden": "true" }, "@ only"), spoken(", only mentions count")];
  return [];
}

/** The picture of a conversation. */
export function avatar({ kind, title, color }: Topic): HTMLElement {
  const picture = h("span", { class: `avatar is-${kind}`, "aria-hidden": "true" });
  if (kind === "direct") picture.append(title.slice(0, 1));
  else picture.append(icon(kind));
  if (color !== undefined) picture.style.setProperty("--user", color);
  return picture;
}

/** The badges by category, which also filter the list. */
class Tabs {
  readonly element: HTMLElement;
  readonly #counts = new Map<string | undefined, HTMLElement>();

  constructor(categories: readonly string[], onChoose: (category: string | undefined) => void) {
    const buttons: HTMLButtonElement[] = [];
    this.element = h("div", { class: "tabs", role: "group", "aria-label": "Categories" });
    for (const category of [undefined, ...categories]) {
      const name = category ?? "all";
      const count = h("span", { class: "tab-count" });
      const button = h(
        "button",
        { class: "tab", type: "button", "aria-pressed": String(category === undefined) },
        name.slice(0, 1).toUpperCase() + name.slice(1),
        count,
      );
      button.addEventListener("click", () => {
        for (const other of buttons) other.setAttribute("aria-pressed", String(other === button));
        onChoose(category);
      });
      buttons.push(button);
      this.#counts.set(category, count);
    }
    this.element.append(...buttons);
  }

  update(count: (category: string | undefined) => number): void {
    for (const [category, element] of this.#counts) {
      setText(element, formatCount(count(category)));
    }
  }
}

/** The age of a message, short enough for a list. */
function ago(then: Date): string {
  const seconds = Math.max(0, (Date.now() - then.getTime()) / 1000);
  if (seconds < 60) return "now";
  if (seconds < 3600) return `${Math.floor(seconds / 60)}m`;
  if (seconds < 86_400) return `${Math.floor(seconds / 3600)}h`;
  return `${Math.floor(seconds / 86_400)}d`;
}
